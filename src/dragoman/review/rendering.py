"""Calls of the record → their requests, rendered again as they were sent. Pure: no files are read, nothing is sent.

What a record does not hold is left out: a file that was given by its path is a line of text, and what a hook did to the
messages is not known. `PastRequest.is_exact` compares the checksum of the request that was sent.
"""

import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from ..context import ContextBuildInput, ContextBuildResult, ContextManager
from ..history import CallSetup, HistoryEntry
from ..history.media import describe_unreadable, not_shown, unshown_media
from ..message import FileRef, Message, ModelInvocationDescriptor, Part, ToolResult
from ..models import Model
from ..models.recorded import check_request, open_recorded_model
from ..request import ContextConfig, WireRequest
from ..target import TargetRules
from .calls import PastCall

__all__ = ["ModelOpener", "PastRequest", "PastRequests"]

# Returns the model that a record names, with the settings that its entry keeps: `open_recorded_model`, if not given.
ModelOpener: TypeAlias = Callable[[ModelInvocationDescriptor, CallSetup], Model]

_NO_TIME = datetime(2000, 1, 1, tzinfo=UTC)  # what was built is not built again: the time has no effect
_NOT_IN_RECORD = "the record has its path alone"
_NO_MEDIA: frozenset[str] = frozenset()


class PastRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is rendered again, and the context that it holds.

    `is_exact` says whether it is what was sent, to the byte; None where no checksum of that was kept.
    """

    request: WireRequest
    context: ContextBuildResult
    system: str
    is_exact: bool | None = None


class PastRequests:
    """Renders the requests of one session, all of whose entries are given. In the calls' order each is read once."""

    def __init__(
        self,
        entries: Sequence[HistoryEntry],
        *,
        session_id: str = "",
        open_model: ModelOpener | None = None,
    ) -> None:
        self._entries = entries
        self._session_id = session_id
        self._open_model = open_model or _open_model
        self._models: dict[ModelInvocationDescriptor, tuple[CallSetup, Model]] = {}
        self._managers: dict[tuple[ModelInvocationDescriptor, int, str], ContextManager] = {}
        self._plain: dict[int, Message] = {}  # by their ids, messages without media
        self._fitted: dict[tuple[ModelInvocationDescriptor, int], tuple[Message, Message]] = {}

    def render(self, call: PastCall) -> PastRequest:
        """Return the request of a call. Raises DragomanError for what cannot be written for its model here."""
        setup = call.setup or CallSetup()
        model = self._model(call.invocation, setup)
        rules = model.rules
        if "media" in setup.withheld:
            rules = msgspec.structs.replace(
                rules, user_media=_NO_MEDIA, result_media=_NO_MEDIA, assistant_media=_NO_MEDIA
            )
        context = self._context(call, setup, model)
        system = context.system or "" if setup.system is None else setup.system
        metadata = {"run_id": call.run_id, "session_id": self._session_id, "trace_id": call.trace_id}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            request = model.render(
                [self._fit(message, call.invocation, rules, setup.withheld) for message in context.messages],
                setup.tools,
                system,
                request_metadata={name: value for name, value in metadata.items() if value is not None},
                cache_anchors=context.cache_anchors,
            )
        is_exact = check_request(request) == call.check if call.check else None
        return PastRequest(request=request, context=context, system=system, is_exact=is_exact)

    def _model(self, invocation: ModelInvocationDescriptor, setup: CallSetup) -> Model:
        known = self._models.get(invocation)
        if known is None or (known[0].settings, known[0].text_calls) != (setup.settings, setup.text_calls):
            known = self._models[invocation] = (setup, self._open_model(invocation, setup))
        return known[1]

    def _context(self, call: PastCall, setup: CallSetup, model: Model) -> ContextBuildResult:
        key = (call.invocation, setup.result_limit_bytes, setup.policy)
        manager = self._managers.get(key)
        if manager is None:
            config = ContextConfig(policy="simple") if setup.policy == "simple" else ContextConfig()
            manager = self._managers[key] = ContextManager(config, result_limit_bytes=setup.result_limit_bytes)
        return manager.rebuild_context(
            ContextBuildInput(
                entries=self._entries[: call.serial],
                now=_NO_TIME,
                tools=setup.tools,
                model_info=model.model_info(),
                invocation=call.invocation,
                rules=model.rules,
                screen_in_result=not model.rules.user_after_tool,
            )
        )

    def _fit(
        self, message: Message, target: ModelInvocationDescriptor, rules: TargetRules, withheld: Sequence[str]
    ) -> Message:
        """The message as it was sent: unreadable media as text. The same message gives the same object each time."""
        if not withheld:
            if self._plain.get(id(message)) is message:
                return message
            if not _has_media(message):
                self._plain[id(message)] = message
                return message
        key = (target, id(message))
        known = self._fitted.get(key)
        if known is None or known[0] is not message:
            known = self._fitted[key] = (message, _fitted(message, target, rules, withheld))
        return known[1]


def _open_model(invocation: ModelInvocationDescriptor, setup: CallSetup) -> Model:
    return open_recorded_model(invocation, setup.settings, text_calls=setup.text_calls)


def _has_media(message: Message) -> bool:
    return any(
        isinstance(part, FileRef)
        or part.kind == "image"
        or (isinstance(part, ToolResult) and isinstance(part.content, tuple))
        for part in message.parts
    )


def _fitted(
    message: Message, target: ModelInvocationDescriptor, rules: TargetRules, withheld: Sequence[str]
) -> Message:
    message = msgspec.structs.replace(message, parts=tuple(map(_without_path, message.parts)))
    if "opaque" in withheld and message.meta is not None:
        message = msgspec.structs.replace(message, meta=msgspec.structs.replace(message.meta, invocation=None))
    if "media" not in withheld:
        return describe_unreadable(message, rules)
    origin = message.meta.invocation if message.meta is not None else None
    is_native = rules.takes_opaque_from(origin, target.specification, target.model)
    lines = {id(part): not_shown(part) for part in unshown_media(message, rules, is_native=is_native)}
    return msgspec.structs.replace(message, parts=tuple(_replaced(part, lines) for part in message.parts))


def _replaced(part: Part, lines: dict[int, Any]) -> Part:
    if isinstance(part, ToolResult) and isinstance(part.content, tuple):
        content: Any = tuple(lines.get(id(each), each) for each in part.content)
        return msgspec.structs.replace(part, content=content)
    found: Part = lines.get(id(part), part)
    return found


def _without_path(part: Part) -> Part:
    """The part with a line of text for each file that is given by its path."""
    if isinstance(part, ToolResult) and isinstance(part.content, tuple):
        content: Any = tuple(map(_without_path, part.content))
        return msgspec.structs.replace(part, content=content)
    return not_shown(part, _NOT_IN_RECORD) if isinstance(part, FileRef) and part.path is not None else part
