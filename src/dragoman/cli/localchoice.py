"""A model on this machine by the name that a person types: `local:smollm2`, `local:/path/to.gguf`, perhaps with `@api`.

The chat's settings for such a model are here, so that `render` shows the request that the chat sends. Starts no
server and reads no file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InvalidValue
from ..local.weights import Weights, known_weights
from ..message import Message
from ..models import Model, ModelStream
from ..request import ModelInfo, WireRequest
from ..toolspec import ToolSpec

__all__ = ["LocalChoice", "LocalModel", "read_local_name"]

# The words after the `@`, and the provider that speaks that API of the server.
APIS = {"chat": "llamacpp", "responses": "llamacpp-responses", "anthropic": "llamacpp-anthropic"}
WINDOW = 8_192  # tokens of the window of a user's own file
# A small model may repeat itself without end.
KNOWN_OUTPUT, OWN_OUTPUT = 256, 2_048  # tokens: of one whose weights are known here, of the user's own file
# Without this SmolLM2 answers a question about France in something like French.
MANNER = "Answer in one short sentence."


class LocalChoice(NamedTuple):
    """The weights that are meant, by name or path; the provider that speaks the API; what is known of the weights."""

    weights: str
    api: str
    known: Weights | None

    @property
    def model_id(self) -> str:
        """What the model is called when it is asked: its name, or that of its file without the ending."""
        return self.weights if self.known is not None else Path(self.weights).stem

    @property
    def window(self) -> int:
        """How many tokens the server takes."""
        return self.known.context_tokens if self.known is not None else WINDOW

    @property
    def settings(self) -> dict[str, Any]:
        """The settings with which it is asked."""
        return {"max_tokens": OWN_OUTPUT} if self.known is None else {"max_tokens": KNOWN_OUTPUT, "temperature": 0}


class LocalModel(Model):
    """A model on this machine: what is known of it comes from its weights, not from the catalogue.

    One whose weights are known is told how to answer where a conversation has no system instruction.
    """

    def __init__(self, base: Model, choice: LocalChoice) -> None:
        super().__init__(base.client, base.get_config(), base.cache_config)
        found, is_known = base.model_info(), choice.known is not None
        # The template of SmolLM2 takes no tools.
        abilities = found.abilities - {"tools", "parallel_tools"} if is_known else found.abilities
        self._local_info = ModelInfo(
            provider=found.provider, model_id=found.model_id, context_window=choice.window, abilities=abilities
        )
        self._manner = MANNER if is_known else None

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

    def render(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        **others: Any,
    ) -> WireRequest:
        """Return the exact request that `stream` would send, without secrets."""
        return super().render(messages, tool_specs, system_prompt or self._manner, **others)


def read_local_name(name: str) -> LocalChoice:
    """Return what is meant by `local:…`; raise InvalidValue where it is neither known weights nor a file of some."""
    typed = name.partition(":")[2]
    weights, _, word = typed.rpartition("@")
    if word in APIS and weights:
        api = APIS[word]
    elif not weights or typed.endswith(".gguf"):
        weights, api = typed, APIS["chat"]
    else:
        raise InvalidValue(f"{typed!r} is no local model: after @ give one of {', '.join(APIS)}")
    return LocalChoice(weights, api, known_weights(weights))
