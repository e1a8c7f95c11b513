"""The models of a chat, by the names that a person types: those of providers, and those on this machine.

`local:smollm2` or `local:/path/to.gguf` starts a server as a child process; `@responses` or `@anthropic` after it
speaks another of its three APIs.
"""

import importlib.util
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..catalogue import list_models
from ..errors import DragomanError, ErrorCode, InvalidValue, MissingExtra
from ..message import Message
from ..models import Model, ModelStream
from ..providers import find_dialect
from ..request import ModelInfo
from ..toolspec import ToolSpec
from .modelchoice import LOCAL, open_model
from .settings import Settings

if TYPE_CHECKING:
    from ..local import LocalServer, Weights
    from ..transport import AiohttpTransport

__all__ = ["EMBEDDED", "ChatModels", "choose_model"]

EMBEDDED = "local:smollm2"
# Whose key is looked for where nobody names a model, in this order, and the model that is asked then.
DEFAULTS: dict[str, str] = {
    "anthropic": "claude-sonnet-5-5",
    "openai": "gpt-6.1-terra",
    "google": "gemini-flash-latest",
    "mistral": "mistral-large-latest",
    "deepseek": "deepseek-chat",
    "xai": "grok-4.7",
    "groq": "openai/gpt-oss-120b",
    "openrouter": "anthropic/claude-sonnet-5.5",
}
APIS = {"chat": "llamacpp", "responses": "llamacpp-responses", "anthropic": "llamacpp-anthropic"}
WINDOW = 8_192  # of a file of the user's own
# A small model that has lost its way says the same for ever.
LOCAL_OUTPUT = {True: 256, False: 2_048}  # tokens: of one whose weights are known here, of the user's own file
# Without this SmolLM2 answers a question about France in something like French.
MANNER = "Answer in one short sentence."


def choose_model(settings: Settings, environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Return the model that is asked where nobody names one, and why it is that one if that is no matter of course."""
    if settings.model is not None:
        return settings.model, ""
    for provider, model_id in DEFAULTS.items():
        known = settings.providers.get(provider)
        named = () if known is None or known.key_variable is None else (known.key_variable,)
        for variable in named or find_dialect(provider, model_id).key_variables:
            if environment.get(variable):
                return f"{provider}:{model_id}", f"{variable} is set"
    return EMBEDDED, "no key is set, and it runs on this machine"


class LocalModel(Model):
    """A model on this machine: what is known of it comes from its weights, not from the catalogue.

    `manner` is what it is told where a conversation has no system instruction.
    """

    def __init__(self, base: Model, info: ModelInfo, manner: str | None = None) -> None:
        super().__init__(base.client, base.get_config(), base.cache_config)
        self._local_info = info
        self._manner = manner

    def model_info(self) -> ModelInfo:
        """Return what is known of the model."""
        return self._local_info

    def stream(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        **others: Any,
    ) -> ModelStream:
        """Ask the model."""
        return super().stream(messages, tool_specs, system_prompt or self._manner, **others)


class ChatModels:
    """Opens models, and keeps the server of the one on this machine. Close it at the end.

    `on_progress` is told how far the fetching of weights is, `tell` what else takes time.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        tell: Callable[[str], None] = lambda _words: None,
        on_progress: Callable[[str, int, int], None] = lambda _step, _done, _all: None,
    ) -> None:
        self._settings = settings
        self._tell = tell
        self._on_progress = on_progress
        self._server: LocalServer | None = None
        self._served: Path | None = None
        self._transport: AiohttpTransport | None = None

    async def open(self, name: str) -> Model:
        """Return the model; raise DragomanError, in words for a person, if it cannot be asked."""
        if name.partition(":")[0] == LOCAL:
            return await self._open_local(name)
        if ":" not in name:
            raise _unnamed(name)
        opened = open_model(self._settings, name)
        self._require_key(opened, name)
        return opened

    async def close(self) -> None:
        """Stop the server, if one runs."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()
        server, self._server, self._served = self._server, None, None
        if server is not None:
            server.close()

    def _require_key(self, opened: Model, name: str) -> None:
        """Say at once that there is no key, and not when the first question was asked."""
        dialect = opened.client.dialect
        known = self._settings.providers.get(dialect.provider)
        is_named = known is not None and known.key_variable is not None  # then it has been looked for
        if is_named or dialect.auth in ("aws", "token", "none") or not dialect.key_variables:
            return
        if not any(os.environ.get(variable) for variable in dialect.key_variables):
            variables = " or ".join(dialect.key_variables)
            raise DragomanError(f"no key for {name}: set {variables}", code=ErrorCode.AUTHENTICATION)

    # ------------------------------------------------------------ on this machine

    async def _open_local(self, name: str) -> Model:
        import asyncio

        from ..local import KNOWN_WEIGHTS, find_weights, pull_weights
        from ..transport import AiohttpTransport

        typed, api = _split_api(name.partition(":")[2])
        known = KNOWN_WEIGHTS.get(typed)
        if known is None:
            find_weights(typed)
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtra("a model on this machine", "local")
        if known is not None and not known.path.is_file():
            self._tell(f"fetching {typed} ({known.size / 1e6:.0f} MB, once)")
            await asyncio.to_thread(pull_weights, typed, on_progress=self._on_progress)
        server = await self._serve(find_weights(typed), known)
        if self._transport is None:
            self._transport = AiohttpTransport(trust_env=False)  # no proxy stands between us and ourselves
        is_known = known is not None
        settings: dict[str, Any] = {"temperature": 0} if is_known else {}
        base = server.model(api, transport=self._transport, max_tokens=LOCAL_OUTPUT[is_known], **settings)
        return LocalModel(base, _info(base, known), MANNER if is_known else None)

    async def _serve(self, path: Path, known: "Weights | None") -> "LocalServer":
        import asyncio

        from ..local import LocalServer

        if self._server is not None and self._served == path:
            return self._server
        if self._server is not None:
            self._server.close()
        name = known.name if known is not None else path.stem
        window = known.context_tokens if known is not None else WINDOW
        self._server, self._served = LocalServer(path, name=name, context_tokens=window), path
        try:
            with _sheltered():
                await asyncio.to_thread(self._server.start)
        except BaseException:
            self._server = self._served = None
            raise
        return self._server


def _info(base: Model, known: "Weights | None") -> ModelInfo:
    found = base.model_info()
    # The template of SmolLM2 has no place for tools.
    abilities = found.abilities - {"tools", "parallel_tools"} if known is not None else found.abilities
    window = known.context_tokens if known is not None else WINDOW
    return ModelInfo(provider=found.provider, model_id=found.model_id, context_window=window, abilities=abilities)


def _split_api(typed: str) -> tuple[str, str]:
    """The weights that are meant, and which of the server's APIs."""
    weights, at, api = typed.rpartition("@")
    if not at:
        return typed, APIS["chat"]
    if api in APIS:
        return weights, APIS[api]
    if typed.endswith(".gguf"):
        return typed, APIS["chat"]
    raise InvalidValue(f"{typed!r} is no local model: after @ stands one of {', '.join(APIS)}")


def _unnamed(name: str) -> InvalidValue:
    """The error for a name without a provider, with those that have such a model."""
    having = [f"{info.provider}:{info.model_id}" for info in list_models() if info.model_id == name]
    if having:
        return InvalidValue(f"{name!r} is no model: which one of {', '.join(having[:4])}?")
    return InvalidValue(f"{name!r} is no model: give provider:name; `dragoman models` lists them")


@contextmanager
def _sheltered() -> Iterator[None]:
    """A process that is started in here does not hear Ctrl-C: it stops an answer, not the server that gives it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
