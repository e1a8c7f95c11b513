"""What a caller asks for: the model's settings, what a model can do, and the agent's six groups of settings.

All are frozen and refuse bad values where they are made. Knows no provider: `extensions` pass through untouched.
"""

import math
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import force_setattr

from ._jsontext import require_json_object
from ._nearest import nearest
from .errors import InvalidValue
from .message import Message, require_bool, require_name, require_text
from .toolspec import ToolChoice, ToolSpec, require_tool_choice
from .usage import Prices

__all__ = [
    "AgentConfig",
    "CacheConfig",
    "ContextConfig",
    "HostedTool",
    "LoopConfig",
    "ModelConfig",
    "ModelInfo",
    "ModelRequest",
    "ObservabilityConfig",
    "ReadRequest",
    "Reasoning",
    "RuntimeConfig",
    "ToolsConfig",
    "WireRequest",
]

LOG_LEVELS = ("debug", "info", "warning", "error", "off")


class _SettingsMeta(msgspec.StructMeta):
    """Refuses a keyword that is no setting, with the one that was probably meant."""

    if not TYPE_CHECKING:  # checkers read the fields

        def __call__(self, *given: object, **named: object) -> object:
            known = self.__struct_fields__
            if unknown := named.keys() - set(known):
                typed = min(unknown)
                begun = [name for name in known if name.startswith(f"{typed}_")]  # `stop` is stop_sequences
                hint = nearest(typed, known, f"there are {', '.join(known)}")
                hint = f"did you mean {begun[0]!r}?" if begun else hint
                raise InvalidValue(f"{self.__name__} has no setting {typed!r}: {hint}")
            return super().__call__(*given, **named)


class _Settings(msgspec.Struct, metaclass=_SettingsMeta, frozen=True):
    """A group of settings that a user gives."""


class CacheConfig(_Settings, frozen=True, rename="camel"):
    """How the provider's prompt cache is used; `auto` marks whatever the provider needs."""

    strategy: Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        _require_choice("cacheConfig.strategy", self.strategy, ("auto",))


class Reasoning(_Settings, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """How much a model thinks before it answers: a level, or a budget of tokens where the provider takes one.

    `effort="off"` turns thinking off. `summary` asks for readable thoughts where they are hidden by default.
    """

    effort: Literal["off", "minimal", "low", "medium", "high", "max"] | None = None
    budget_tokens: int | None = None
    summary: bool = False

    def __post_init__(self) -> None:
        if self.effort is not None:
            _require_choice("reasoning.effort", self.effort, ("off", "minimal", "low", "medium", "high", "max"))
        _require_count("reasoning.budget_tokens", self.budget_tokens, optional=True)
        if self.effort is not None and self.budget_tokens is not None:
            raise InvalidValue("reasoning must have an effort or budget_tokens, got both")
        require_bool("reasoning.summary", self.summary)


class HostedTool(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A tool that the provider runs itself, by our word (`web_search`, `code_execution` …) or by the provider's type.

    `options` are sent as they are.
    """

    kind: str
    options: dict[str, Any] = {}

    def __post_init__(self) -> None:
        require_name("hostedTool.kind", self.kind)
        require_json_object(self.options, "hostedTool.options")


class ModelConfig(_Settings, frozen=True, rename="camel", omit_defaults=True):
    """Settings of one model. None leaves a setting to the provider; `extensions` are sent as they are.

    With `encrypted_reasoning` a provider that hides a model's reasoning is asked for it in encrypted form, so that the
    next request can hold it. It is off for models that do not reason: OpenAI refuses the request then.
    """

    model_id: str
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    stop_sequences: tuple[str, ...] = ()
    tool_choice: ToolChoice | None = None
    cache_config: CacheConfig | None = None
    reasoning: Reasoning | None = None
    output_schema: dict[str, Any] | None = None
    hosted_tools: tuple[HostedTool, ...] = ()
    parallel_tool_calls: bool | None = None
    encrypted_reasoning: bool = True
    extensions: dict[str, Any] = {}

    def __post_init__(self) -> None:
        require_name("model_id", self.model_id)
        if {".", ".."} & set(self.model_id.split("/")) or not self.model_id.isprintable():
            raise InvalidValue.of("model_id", self.model_id, "a name: printable, without the path segments . and ..")
        _require_number("temperature", self.temperature, 0, 2, optional=True)
        _require_count("max_tokens", self.max_tokens, optional=True)
        _require_number("top_p", self.top_p, 0, 1, optional=True)
        force_setattr(self, "stop_sequences", _names("stop_sequences", self.stop_sequences))
        for sequence in self.stop_sequences:
            require_name("stop_sequences", sequence)
        if self.tool_choice is not None:
            require_tool_choice(self.tool_choice)
        if self.cache_config is not None and not isinstance(self.cache_config, CacheConfig):
            raise InvalidValue.of("cache_config", self.cache_config, "a CacheConfig")
        if self.reasoning is not None and not isinstance(self.reasoning, Reasoning):
            raise InvalidValue.of("reasoning", self.reasoning, 'a Reasoning, such as Reasoning(effort="high")')
        if self.output_schema is not None:
            require_json_object(self.output_schema, "output_schema")
        is_sequence = isinstance(self.hosted_tools, (tuple, list))
        if not is_sequence or not all(isinstance(tool, HostedTool) for tool in self.hosted_tools):
            raise InvalidValue.of("hosted_tools", self.hosted_tools, "a sequence of HostedTool values")
        force_setattr(self, "hosted_tools", tuple(self.hosted_tools))
        if self.parallel_tool_calls is not None:
            require_bool("parallel_tool_calls", self.parallel_tool_calls)
        require_bool("encrypted_reasoning", self.encrypted_reasoning)
        require_json_object(self.extensions, "extensions")


class ModelInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What is known of a model. None means unknown, not unlimited."""

    provider: str
    model_id: str
    context_window: int | None = None
    output_limit: int | None = None
    input_modalities: tuple[str, ...] = ("text",)
    output_modalities: tuple[str, ...] = ("text",)
    abilities: frozenset[str] = frozenset()
    prices: Prices | None = None

    def __post_init__(self) -> None:
        require_name("provider", self.provider)
        require_name("model_id", self.model_id)
        _require_count("context_window", self.context_window, optional=True)
        _require_count("output_limit", self.output_limit, optional=True)
        for name in ("input_modalities", "output_modalities"):
            force_setattr(self, name, _names(name, getattr(self, name)))
        force_setattr(self, "abilities", frozenset(_names("abilities", self.abilities)))
        if self.prices is not None and not isinstance(self.prices, Prices):
            raise InvalidValue.of("prices", self.prices, "Prices")


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one call asks of a codec: a conversation that handoff has fitted to the target, and the merged settings.

    `cache_anchors` are indices into `messages`: everything up to and including such a message is worth caching.
    """

    config: ModelConfig
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    system: str | None = None
    tool_choice: ToolChoice | None = None
    cache_anchors: tuple[int, ...] = ()
    metadata: dict[str, str] = {}
    stream: bool = True


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as bytes, without secrets: credentials and host are the transport's."""

    path: str
    body: bytes
    method: str = "POST"
    headers: dict[str, str] = {}


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request, read: what it asks, and what no request here can say.

    `hosted_tools` are tools that the API's own vendor runs, in our words where there are any; they are not in the
    settings, because another vendor may lack them. `other_fields` are the fields of the body that are not read, as they
    came, with `tools` for those of unknown types. `warnings` name what is left out. `call_fields` and `echo` are for
    the answer: see `AnswerForm`.
    """

    request: ModelRequest
    hosted_tools: tuple[HostedTool, ...] = ()
    other_fields: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    call_fields: dict[str, dict[str, Any]] = {}
    include_usage: bool = True
    echo: dict[str, Any] = {}


class RuntimeConfig(_Settings, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The environment of a run: its folder, and options for tools.

    `root` is the folder in which `FileRef(path=…)` is read; nothing outside of it is. A file of more than
    `file_limit_bytes` is refused. Tools find both `root` and `options` in their `ToolContext`.
    """

    root: str | None = None
    options: dict[str, Any] = {}
    file_limit_bytes: int = 16_000_000

    def __post_init__(self) -> None:
        if self.root is not None:
            require_name("runtime.root", self.root)
        require_json_object(self.options, "runtime.options")
        _require_count("runtime.file_limit_bytes", self.file_limit_bytes)


class ToolsConfig(_Settings, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Which tools are on, who approves them, and their limits.

    `enabled` chooses among the agent's own tools, None means all. `disabled` may also name built-in ones: `recall`, and
    those of the widgets, such as `memory_notebook_append`. With `notebook` the model may write the memory notebook.

    A tool may ask for another try, by raising `RetryTool`, `retry_limit` times in a row.
    A person has `question_timeout_ms` to answer what a tool asks; then the tool is told that there is no answer.
    A model is shown at most `result_limit_bytes` of a result's text; the record keeps all of it, and `recall` has it.
    """

    enabled: tuple[str, ...] | None = None
    disabled: tuple[str, ...] = ()
    notebook: bool = False
    approval: Literal["as_declared", "always", "never"] = "as_declared"
    parallel_limit: int = 8
    timeout_ms: int = 60_000
    retry_limit: int = 2
    question_timeout_ms: int = 600_000
    result_limit_bytes: int = 256_000

    def __post_init__(self) -> None:
        if self.enabled is not None:
            force_setattr(self, "enabled", _names("tools.enabled", self.enabled))
        force_setattr(self, "disabled", _names("tools.disabled", self.disabled))
        if both := sorted(set(self.enabled or ()) & set(self.disabled)):
            raise InvalidValue(f"tools.enabled and tools.disabled must not share a name, both have {both}")
        require_bool("tools.notebook", self.notebook)
        _require_choice("tools.approval", self.approval, ("as_declared", "always", "never"))
        for name in ("parallel_limit", "timeout_ms", "question_timeout_ms", "result_limit_bytes"):
            _require_count(f"tools.{name}", getattr(self, name))
        _require_count("tools.retry_limit", self.retry_limit, least=0)


class ContextConfig(_Settings, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """How the history is fitted to a budget. `budget_tokens` None takes the model's window less `output_reserve`.

    With `recall` the model gets a tool that brings a folded entry back, once there are such entries.
    """

    policy: Literal["epochs", "simple"] = "epochs"
    budget_tokens: int | None = None
    output_reserve: int = 8_192
    recall: bool = True

    def __post_init__(self) -> None:
        _require_choice("context.policy", self.policy, ("epochs", "simple"))
        _require_count("context.budget_tokens", self.budget_tokens, least=2_000, optional=True)
        _require_count("context.output_reserve", self.output_reserve, least=0)
        require_bool("context.recall", self.recall)


class LoopConfig(_Settings, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Limits of a run, and how a failed call is tried again. None means no limit.

    `continue_cut` is how often a run asks the model to go on with an answer that reached its length limit. With 0 such
    a run fails with `output_cut`.
    Tools such as those of MCP servers may ask the model at most `max_sampling_calls` times in a run, each time for
    `max_sampling_tokens` at most. These calls count for the other limits too.
    `lease_seconds` is how long others wait before they may carry on a session whose run no longer renews its lease.
    """

    max_iterations: int = 50
    max_tool_rounds: int | None = None
    max_seconds: float | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_sampling_calls: int = 20
    max_sampling_tokens: int = 4_096
    attempts: int = 4
    backoff_seconds: float = 0.5
    backoff_limit_seconds: float = 30.0
    continue_cut: int = 0
    lease_seconds: float = 6.0

    def __post_init__(self) -> None:
        _require_count("loop.max_sampling_calls", self.max_sampling_calls, least=0)
        for name in ("max_iterations", "max_sampling_tokens", "attempts"):
            _require_count(f"loop.{name}", getattr(self, name))
        for name in ("max_tool_rounds", "max_tokens"):
            _require_count(f"loop.{name}", getattr(self, name), optional=True)
        for name in ("max_seconds", "max_cost"):
            _require_number(f"loop.{name}", getattr(self, name), 0, math.inf, optional=True)
        _require_count("loop.continue_cut", self.continue_cut, least=0)
        _require_number("loop.backoff_seconds", self.backoff_seconds, 0, math.inf)
        _require_number("loop.backoff_limit_seconds", self.backoff_limit_seconds, self.backoff_seconds, math.inf)
        _require_number("loop.lease_seconds", self.lease_seconds, 0.05, 86_400)


class ObservabilityConfig(_Settings, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """What is told to the outside. Content (prompts, answers, arguments) stays out unless it is asked for."""

    log_level: Literal["debug", "info", "warning", "error", "off"] = "warning"
    traces: bool = False
    metrics: bool = False
    record_content: bool = False

    def __post_init__(self) -> None:
        _require_choice("observability.log_level", self.log_level, LOG_LEVELS)
        for name in ("traces", "metrics", "record_content"):
            require_bool(f"observability.{name}", getattr(self, name))


class AgentConfig(_Settings, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """An agent's settings, in six groups. Those of `model` go over the own settings of the model that it names."""

    model: ModelConfig | None = None
    runtime: RuntimeConfig = msgspec.field(default_factory=RuntimeConfig)
    tools: ToolsConfig = msgspec.field(default_factory=ToolsConfig)
    context: ContextConfig = msgspec.field(default_factory=ContextConfig)
    loop: LoopConfig = msgspec.field(default_factory=LoopConfig)
    observability: ObservabilityConfig = msgspec.field(default_factory=ObservabilityConfig)

    def __post_init__(self) -> None:
        if self.model is not None and not isinstance(self.model, ModelConfig):
            raise InvalidValue.of("model", self.model, "a ModelConfig")
        for field in msgspec.structs.fields(self)[1:]:
            if not isinstance(getattr(self, field.name), field.type):
                raise InvalidValue.of(field.name, getattr(self, field.name), f"a {field.type.__name__}")


def _require_choice(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidValue.of(field, value, f"one of {', '.join(allowed)}")


def _require_count(field: str, value: object, *, least: int = 1, optional: bool = False) -> None:
    if value is None and optional:
        return
    if type(value) is not int or value < least:
        raise InvalidValue.of(field, value, f"a whole number from {least} up")


def _require_number(field: str, value: object, least: float, most: float, *, optional: bool = False) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        bounds = f"a number from {least} up" if most == math.inf else f"a number from {least} to {most}"
        raise InvalidValue.of(field, value, bounds)


def _names(field: str, values: object) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, (tuple, list, set, frozenset)):
        raise InvalidValue.of(field, values, "a sequence of texts")
    for value in values:
        require_text(field, value)
    return tuple(sorted(values) if isinstance(values, (set, frozenset)) else values)
