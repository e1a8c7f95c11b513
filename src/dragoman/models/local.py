"""A model on this machine by its name: `local:smollm2`, `local:/path/to.gguf`, perhaps with `@api` at its end.

Its server process starts with the first request, and everyone in the process who names the same weights shares it.
Making the model starts nothing and touches no network.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..errors import DragomanError, InvalidValue
from ..local.gguf import read_facts
from ..local.server import API_PATHS, LocalServer, shared_server
from ..local.weights import Weights, find_weights, known_weights, name_model
from ..message import Message, Role
from ..request import ModelInfo, WireRequest
from ..toolspec import ToolSpec
from ..transport.protocol import NETWORK, HttpRequest, HttpResponse, Timeouts, Transport
from .model import Model, model
from .names import LOCAL

if TYPE_CHECKING:
    from ..history import HandedOff
    from ..transport import AiohttpTransport

__all__ = ["LOCAL", "LocalChoice", "LocalModel", "LocalTransport", "open_local_model", "read_local_name"]

# The words after the `@`, and the provider that speaks that API of the server.
APIS = {"chat": "llamacpp", "responses": "llamacpp-responses", "anthropic": "llamacpp-anthropic"}
WINDOW = 8_192  # tokens of the window of a user's own file, if its model has that many
OWN_OUTPUT = 2_048  # tokens of an answer of a user's own file: a small model may repeat itself without end
# What the provider's models may have and this one has not: its server is started without a reader of media.
_NO_MEDIA = frozenset({"images", "audio", "video", "documents"})
_NO_TOOLS = _NO_MEDIA | {"tools", "parallel_tools", "strict_tools"}
# Stands for the address of the server, which is known when it runs.
ADDRESS = "http://127.0.0.1"
# A processor reads some 40 tokens of a prompt a second, and requests of others may be before this one.
TIMEOUTS = Timeouts(first_byte=1_800.0, silence=300.0)


class LocalChoice(NamedTuple):
    """Which weights are meant, by name or path; the provider that speaks the API; what is known of the weights."""

    weights: str
    api: str
    known: Weights | None

    @property
    def model_id(self) -> str:
        """The model's name in requests: that of known weights, or that of the file without its ending."""
        return name_model(self.weights)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of its requests, unless the caller gives others."""
        if self.known is None:
            return {"max_tokens": OWN_OUTPUT}
        return {"max_tokens": self.known.output_tokens, "temperature": 0}

    def describe(self) -> tuple[int, bool]:
        """Return how many tokens its server takes, and whether the model uses tools. Reads the beginning of a file."""
        if self.known is not None:
            return self.known.context_tokens, self.known.uses_tools
        facts = read_facts(find_weights(self.weights))
        return min(WINDOW, facts.context_tokens or WINDOW), facts.uses_tools

    def serve(self) -> LocalServer:
        """Return the running server of the weights. Blocks while it starts; raises DragomanError where it cannot."""
        path = find_weights(self.weights)
        template = self.known.template if self.known is not None else None
        return shared_server(path, context_tokens=self.describe()[0], template=template)


class LocalTransport:
    """Sends requests to the server of a model on this machine, over `inner`. The first request starts the server."""

    def __init__(self, choice: LocalChoice, inner: Transport | None = None) -> None:
        self._choice = choice
        self._inner = inner
        self._server: LocalServer | None = None

    def __repr__(self) -> str:
        return f"<LocalTransport {self._choice.weights}>"

    async def send(self, request: HttpRequest, timeouts: Timeouts) -> HttpResponse:
        """Return the answer when its head has arrived. The start of the server counts against no time limit."""
        NETWORK.require_allowed()
        server = self._server
        if server is None or not server.is_running:
            server = self._server = await asyncio.to_thread(self._choice.serve)
        moved = msgspec.structs.replace(request, url=server.url + request.url.removeprefix(ADDRESS))
        return await (self._inner or _loopback()).send(moved, timeouts)

    async def close(self) -> None:
        """Close nothing: other models share the server, and its connections close with their event loop."""


class LocalModel(Model):
    """A model on this machine. Its abilities and its window are those of its weights, not of the catalogue.

    Where its weights name a manner of answering, a conversation without a system instruction gets that one.
    """

    def __init__(self, base: Model, choice: LocalChoice) -> None:
        super().__init__(base.client, base.get_config(), base.cache_config)
        self._choice = choice
        self._local_info: ModelInfo | None = None

    def __repr__(self) -> str:
        return f"Model({LOCAL}:{self._choice.weights})"

    def _info(self, model_id: str) -> ModelInfo:
        if self._local_info is not None and self._local_info.model_id == model_id:
            return self._local_info
        abilities, is_found = self.client.dialect.abilities, True
        try:
            window, uses_tools = self._choice.describe()
        except (OSError, DragomanError):  # the file may come before the first request, which tells
            window, uses_tools, is_found = WINDOW, True, False
        info = ModelInfo(
            provider=self.client.dialect.provider,
            model_id=model_id,
            context_window=window,
            abilities=abilities - (_NO_MEDIA if uses_tools else _NO_TOOLS),
        )
        if is_found:
            self._local_info = info
        return info

    def _encode(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], system: str | None, **others: Any
    ) -> "tuple[HandedOff, WireRequest]":
        has_own = bool(system) or (bool(messages) and messages[0].role is Role.SYSTEM)
        manner = self._choice.known.manner if self._choice.known is not None else None
        return super()._encode(messages, tools, system if has_own else manner, **others)


def open_local_model(
    name: str, *, transport: Transport | None = None, timeouts: Timeouts | None = None, **others: Any
) -> LocalModel:
    """Return the model that `local:…` names. Starts no server."""
    choice = read_local_name(name)
    for field in ("api_key", "base_url", "headers"):
        if others.pop(field, None) is not None:
            raise InvalidValue(f"{name} takes no {field}: its server is a process of this machine, started when needed")
    base = model(
        f"{choice.api}:{choice.model_id}",
        base_url=ADDRESS + API_PATHS[choice.api],
        api_key="none",
        transport=LocalTransport(choice, transport),
        timeouts=timeouts or TIMEOUTS,
        **{**choice.settings, **others},
    )
    return LocalModel(base, choice)


def read_local_name(name: str) -> LocalChoice:
    """Return what is meant by `local:…`; raise InvalidValue where it is neither known weights nor a file of some."""
    typed = name.partition(":")[2]
    weights, _, word = typed.rpartition("@")
    if word in APIS and weights:
        api = APIS[word]
    elif not weights or typed.endswith(".gguf") or typed.startswith(("https:", "http:")):  # a query may have an @
        weights, api = typed, APIS["chat"]
    else:
        raise InvalidValue(f"{typed!r} is no local model: after @ give one of {', '.join(APIS)}")
    known = known_weights(weights)
    return LocalChoice(known.name if known is not None else weights, api, known)


_LOOPBACK: list["AiohttpTransport"] = []


def _loopback() -> "AiohttpTransport":
    """The transport to all local servers: one pool of connections per event loop, and no proxy."""
    if not _LOOPBACK:
        from ..transport import AiohttpTransport

        _LOOPBACK.append(AiohttpTransport(trust_env=False))
    return _LOOPBACK[0]
