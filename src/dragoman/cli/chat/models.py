"""The models of a chat, by the names that a person types: those of providers, and those on this machine.

`local:smollm2` or `local:/path/to.gguf` starts a server as a child process; `@responses` or `@anthropic` after it
speaks another of its three APIs.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...catalogue import list_models
from ...errors import DragomanError, ErrorCode, InvalidValue, MissingExtra
from ...models import Model, model
from ...wire import find_dialect
from ..modelchoice import LOCAL, open_model
from ..settings import Settings

if TYPE_CHECKING:
    from ...local import LocalServer

__all__ = ["EMBEDDED", "ChatModels", "choose_model"]

EMBEDDED = "local:smollm2"
SIGN_SECONDS = 2.0  # how often the chat says that a server is still starting
# Whose key is looked for if the user names no model, in this order, and the model that is asked then.
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

NOTHING_TO_ASK = (
    "no model was chosen, and no key is set: set ANTHROPIC_API_KEY or OPENAI_API_KEY, name a model with --model, "
    "or run a small one on this machine: pip install 'dragoman[local]'"
)


def choose_model(settings: Settings, environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Return the model that is asked if the user names none, and why, if that is not obvious."""
    if settings.model is not None:
        return settings.model, ""
    for provider, model_id in DEFAULTS.items():
        known = settings.providers.get(provider)
        named = () if known is None or known.key_variable is None else (known.key_variable,)
        for variable in named or find_dialect(provider, model_id).key_variables:
            if environment.get(variable):
                return f"{provider}:{model_id}", f"{variable} is set"
    if importlib.util.find_spec("xllamacpp") is None:
        raise DragomanError(NOTHING_TO_ASK, code=ErrorCode.AUTHENTICATION)
    return EMBEDDED, "no key is set, and it runs on this machine"


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

    async def open(self, name: str) -> Model:
        """Return the model; raise DragomanError, in words for a person, if it cannot be asked."""
        if name.partition(":")[0] == LOCAL:
            return await self._open_local(name)
        if ":" not in name:
            raise _unnamed(name)
        opened = open_model(self._settings, name)
        variables = self.key_variables(opened)
        if variables and opened.client.dialect.auth not in ("aws", "none") and not any(map(os.environ.get, variables)):
            # At once, and not when the first question was asked.
            raise DragomanError(f"no key for {name}: set {' or '.join(variables)}", code=ErrorCode.AUTHENTICATION)
        return opened

    def key_variables(self, opened: Model) -> tuple[str, ...]:
        """Return the environment variables that a model's key is taken from."""
        dialect = opened.client.dialect
        known = self._settings.providers.get(dialect.provider)
        if known is not None and known.key_variable is not None:
            return (known.key_variable,)
        return () if dialect.auth == "token" else dialect.key_variables

    async def close(self) -> None:
        """Stop the server, if one runs."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    async def _open_local(self, name: str) -> Model:
        """Return the model when its server runs, so that the first question need not wait for it."""
        import asyncio

        from ...local import find_weights, pull_weights
        from ...models.local import read_local_name

        choice = read_local_name(name)
        known = choice.known
        if known is None:
            find_weights(choice.weights)
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtra("a model on this machine", "local")
        if known is not None and not known.is_here:
            self._tell(f"fetching {known.name} ({known.size / 1e6:.0f} MB, once)")
            await asyncio.to_thread(pull_weights, known.name, on_progress=self._on_progress)
        starting = asyncio.ensure_future(asyncio.to_thread(choice.serve))
        while not (await asyncio.wait((starting,), timeout=SIGN_SECONDS))[0]:
            self._on_progress(f"starting {choice.model_id}", 0, 0)
        server = starting.result()
        if self._server not in (None, server):  # only now: if the new one does not start, the chat keeps the old one
            await self.close()
        self._server = server
        return model(name)


def _unnamed(name: str) -> InvalidValue:
    """The error for a name without a provider, with those that have such a model."""
    having = [f"{info.provider}:{info.model_id}" for info in list_models() if info.model_id == name]
    if having:
        return InvalidValue(f"{name!r} is no model: which one of {', '.join(having[:4])}?")
    return InvalidValue(f"{name!r} is no model: give provider:name; `dragoman models` lists them")
