"""How a model is asked: the client's bytes pass where its vendor speaks the same API, else they are translated."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ...errors import ErrorCode, ModelError
from ...history.media import describe_unreadable, unshown_media
from ...wire import find_codec
from .folding import fold_context
from .fronts import GEMINI
from .passing import PassedAnswer, passed_request
from .responses import unknown_response
from .seals import is_sealed, unseal
from .translating import TranslatedAnswer

if TYPE_CHECKING:
    from ...models import Model
    from .asked import Asked
    from .fronts import Front
    from .turn import Turn

__all__ = ["Opener", "can_pass"]

# Fields of a Responses request that name what only its vendor keeps.
_KEPT_THERE = ("conversation", "prompt")


class Opener(msgspec.Struct, frozen=True, kw_only=True):
    """Opens the answers of models to one request. `fold` and `translates` are those of the gateway's settings."""

    asked: "Asked"
    front: "Front"
    headers: Mapping[str, str]
    turn: "Turn"
    fold: int | None = None
    translates: bool = True

    async def open(self, model: "Model", name: str) -> PassedAnswer | TranslatedAnswer:
        """Return the model's answer, not asked for yet; raise ModelError where the request cannot be put to it."""
        asked, read = self.asked, self.asked.read
        if can_pass(asked, model, self.front) and self.fold is None and not _has_unread_media(asked, model):
            request = passed_request(
                model, asked.body, self.headers, asked=asked.model, suffix=_suffix(asked), query=asked.query
            )
            if request is not None:
                return PassedAnswer(model, request, asked=asked.model, is_stream=asked.is_stream)
        if read is None:
            assert asked.problem is not None
            raise asked.problem
        if asked.previous and not asked.knows_previous:
            raise unknown_response(asked.previous)
        if kept := [field for field in _KEPT_THERE if read.other_fields.get(field)]:
            message = f"{kept[0]!r} names what another vendor keeps: {name} cannot have it"
            raise ModelError(message, code=ErrorCode.UNSUPPORTED)
        if not self.translates:
            is_same = model.client.dialect.specification == self.front.api
            reason = "would need a changed request" if is_same else "speaks another API"
            message = f"{name} {reason}, and this gateway only forwards"
            raise ModelError(message, code=ErrorCode.UNSUPPORTED)
        anchors = () if self.turn.is_joined else read.request.cache_anchors  # they are indices of the client's own
        said = replace(read.request, messages=unseal(self.turn.messages), cache_anchors=anchors)
        read = replace(read, request=said)
        if self.fold is not None:
            read = await fold_context(self.turn, read, model, self.fold)
        # A client cannot take back what it said, so what the model cannot read of it is no error here.
        readable = tuple(describe_unreadable(message, model.rules) for message in read.request.messages)
        read = replace(read, request=replace(read.request, messages=readable))
        as_array = asked.is_stream and asked.api == GEMINI and "alt=sse" not in asked.query
        return TranslatedAnswer(model, find_codec(self.front.api), read, asked=asked.model, as_array=as_array)


def _suffix(asked: "Asked") -> str:
    """What the path has at its end: Gemini's method, which says whether the answer is a stream."""
    if asked.api != GEMINI:
        return ""
    return ":streamGenerateContent" if asked.is_stream else ":generateContent"


def _has_unread_media(asked: "Asked", model: "Model") -> bool:
    """Whether a model on this machine would get media. Its server fails on them; a vendor says itself what it reads."""
    messages, rules = () if asked.read is None else asked.read.request.messages, model.rules
    if not any(unshown_media(message, rules) for message in messages):
        return False
    from ...models.local import LocalModel

    return isinstance(model, LocalModel)


def can_pass(asked: "Asked", model: "Model", front: "Front") -> bool:
    """Whether the client's bytes may go to the model's vendor as they are."""
    dialect = model.client.dialect
    is_known_there = not asked.previous or (
        dialect.provider == asked.keeper if asked.knows_previous else dialect.provider in front.keepers
    )
    return (
        dialect.specification == front.api
        and dialect.text_calls is None
        and not asked.session_id
        and is_known_there
        and not is_sealed(asked.body)
    )
