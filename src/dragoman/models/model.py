"""`Model`: a conversation in, a guarded stream of deltas out. Joins handoff, codec and client; decides no policy.

Retrying, falling back and running tools are the loop's; what to send is the context's.
"""

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from .._nearest import find_nearest
from ..catalogue import find_model_info
from ..delta import DoneDelta, ErrorDelta, MessageDelta, ToolCallStartDelta, UsageDelta
from ..errors import ErrorCode, InvalidValue, ModelError, forget_arguments
from ..history import HandedOff
from ..message import FinishReason, Message, ModelInvocationDescriptor, Role, Text, require_messages
from ..request import CacheConfig, ModelConfig, ModelInfo, ModelRequest, WireRequest
from ..stream.textcalls import TextCallReader
from ..target import TargetRules
from ..toolspec import OneTool, ToolChoice, ToolSpec
from ..usage import Prices, TokenUsage
from ..wire import PROVIDERS, find_dialect
from .clients import ErrorMapper, ProviderClient
from .names import LOCAL, split_name, suggest_name
from .streams import Exchange, ModelStream

if TYPE_CHECKING:
    from ..transport import Signer, Timeouts, TokenSource, Transport

__all__ = ["Model", "model", "render_request"]

_CONFIG_FIELDS = frozenset(ModelConfig.__struct_fields__)


@forget_arguments
def model(
    name: str,
    *,
    api_key: "str | TokenSource | Signer | None" = None,
    base_url: str | None = None,
    region: str | None = None,
    project: str | None = None,
    transport: "Transport | None" = None,
    timeouts: "Timeouts | None" = None,
    headers: Mapping[str, str] | None = None,
    cache: bool = True,
    text_calls: Literal["json", "xml"] | None = None,
    provider_raw: bool = False,
    **config: Any,
) -> "Model":
    """Return the model called `provider:model`, e.g. `anthropic:claude-opus-4-5`. No network is touched.

    `local:smollm2` and `local:/path/to.gguf` are models on this machine: their server starts with the first request
    and ends with this process. `transport` then carries the requests to it.

    `api_key` is a key, a function that returns a fresh token, or a signer; without one, the vendor's usual
    environment variable is read when a request is sent. Hosts with an address of your own take `base_url`, or
    `region` and `project`. All other keywords are fields of `ModelConfig`; what only the provider knows goes into
    `extensions`, and is sent as it is.

    `text_calls` is for a server that leaves the model's tool calls in its text, in the form that the model was taught:
    `json` inside `<tool_call>`, or `xml` (`<function=name>`). It works with every provider of Chat Completions.
    `provider_raw` is for debugging: each delta then carries the wire event that it was made of.
    """
    provider, model_id = split_name(name)
    if provider == LOCAL:
        from .local import open_local_model

        given = {"api_key": api_key, "base_url": base_url, "headers": headers, "timeouts": timeouts, **config}
        return open_local_model(
            name, transport=transport, cache=cache, text_calls=text_calls, provider_raw=provider_raw, **given
        )
    dialect = find_dialect(provider, model_id)
    if text_calls is not None:
        if dialect.specification != "openai-chat":
            raise InvalidValue(f"text_calls needs a provider of Chat Completions, {provider} speaks another API")
        dialect = msgspec.structs.replace(dialect, text_calls=text_calls)
    client = ProviderClient(
        dialect,
        api_key=api_key,
        base_url=base_url,
        region=region,
        project=project,
        transport=transport,
        timeouts=timeouts,
        headers=headers,
        provider_raw=provider_raw,
    )
    return Model(client, _changed(ModelConfig(model_id), config), CacheConfig() if cache else None)


@forget_arguments
def render_request(
    model_name: str,
    messages: Sequence[Message],
    *,
    tools: Sequence[ToolSpec] = (),
    system_prompt: str | None = None,
    tool_choice: ToolChoice | None = None,
    **config: Any,
) -> WireRequest:
    """Return the exact request (method, path, headers, body) that `model_name` would get, without secrets."""
    provider, model_id = split_name(model_name)
    if provider in PROVIDERS and not find_dialect(provider, model_id).base_url:
        config.setdefault("base_url", "https://your-base-url.invalid")
    config = {"region": "region", "project": "project", **config}
    rendered = model(model_name, **config)
    return rendered.render(messages, tools, system_prompt, tool_choice=tool_choice)


class Model:
    """A model of a provider. `stream` is the one way to ask it; everything else describes or configures it."""

    def __init__(
        self,
        client: ProviderClient,
        config: ModelConfig,
        cache_config: CacheConfig | None = None,
        error_mapper: ErrorMapper | None = None,
    ) -> None:
        if not isinstance(client, ProviderClient):
            raise InvalidValue.of("client", client, "a ProviderClient")
        if not isinstance(config, ModelConfig):
            raise InvalidValue.of("config", config, "a ModelConfig")
        self.client = client
        self.cache_config = cache_config
        self.error_mapper = error_mapper
        self._config = config
        self._last_merged = (config, config)
        self._last_rules: tuple[frozenset[str] | None, TargetRules] = (None, client.dialect.rules)
        self._last_possible: tuple[ModelConfig | None, ModelInfo | None, bool] = (None, None, False)

    def __repr__(self) -> str:
        return f"Model({self.client.dialect.provider}:{self._config.model_id})"

    @property
    def invocation(self) -> ModelInvocationDescriptor:
        """Who answers: provider, specification and model."""
        return self._invocation(self._config)

    @property
    def rules(self) -> TargetRules:
        """What the vendor demands of a conversation, and what media the model can read."""
        return self._rules(self.model_info())

    def update_config(self, **changes: Any) -> None:
        """Change settings from the next call on. Keywords are fields of ModelConfig; `extensions` are merged."""
        self._config = self._changed(changes)

    def get_config(self, **params: Any) -> ModelConfig:
        """Return the settings with the defaults filled in: the cache, and an output limit where the API wants one.

        `params` are those of one call, as `stream` takes them.
        """
        return self._merged(params)[0]

    def model_info(self) -> ModelInfo:
        """Return what is known of the model; for one that the catalogue lacks, what its vendor's models can do."""
        return self._info(self._config.model_id)

    def supports(self, ability: str) -> bool:
        """Whether the model is known to have an ability (`tools`, `reasoning`, `structured_output` …)."""
        return ability in self.model_info().abilities

    def stream(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        system_prompt_content: Sequence[Text] | None = None,
        invocation_state: Any = None,
        request_metadata: Mapping[str, str] | None = None,
        cache_anchors: Sequence[int] = (),
        **params: Any,
    ) -> ModelStream:
        """Ask the model. What it cannot do is refused here; what goes wrong later arrives as the closing `error`.

        `system_prompt_content` replaces `system_prompt`, and either replaces the system messages that `messages` begin
        with. `cache_anchors` are indices into `messages`. `params` override settings for this call alone.

        Of `request_metadata`, `run_id` is that of the deltas and the message, `session_id` is the provider's cache key
        where it takes one, and `trace_id` stands in the message's `meta`.
        """
        metadata = _snake_case(request_metadata) if request_metadata else {}
        config, info = self._merged(params)
        handed, wire = self._encode(
            messages,
            tool_specs or (),
            system_prompt if system_prompt_content is None else _joined_text(system_prompt_content),
            config=config,
            info=info,
            tool_choice=tool_choice,
            metadata=metadata,
            cache_anchors=cache_anchors,
        )
        invocation = self._invocation(config)
        run_id = metadata.get("run_id", "")
        exchange = Exchange()
        text_calls = None
        if self.client.dialect.text_calls and handed.tools and (tool_choice or config.tool_choice) != "none":
            text_calls = TextCallReader(handed.tools)
        return ModelStream(
            self.client.send(
                wire, exchange=exchange, run_id=run_id, error_mapper=self.error_mapper, text_calls=text_calls
            ),
            exchange=exchange,
            request=wire,
            invocation=invocation,
            rewrite=self._rewrites(config, info, handed.original_names),
            invocation_state=invocation_state,
            trace_id=metadata.get("trace_id"),
        )

    def rewrites(self) -> dict[type, Callable[[Any], MessageDelta]]:
        """Return what changes the deltas of one answer, by class, for who reads an answer that `client.forward` gave.

        It adds what the vendor does not say: prices, and whether the answer was cut at its limit.
        """
        config, info = self._merged({})
        return self._rewrites(config, info, {})

    def _rewrites(
        self, config: ModelConfig, info: ModelInfo, names: Mapping[str, str]
    ) -> dict[type, Callable[[Any], MessageDelta]]:
        dialect = self.client.dialect
        return _rewrites(
            f"{dialect.provider}:{config.model_id}",
            names,
            info.prices,
            None if dialect.says_cut else config.max_tokens,
            None if dialect.says_cut else info.context_window,
        )

    def render(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        system_prompt_content: Sequence[Text] | None = None,
        request_metadata: Mapping[str, str] | None = None,
        cache_anchors: Sequence[int] = (),
        **params: Any,
    ) -> WireRequest:
        """Return the exact request that `stream` would send, without secrets."""
        config, info = self._merged(params)
        return self._encode(
            messages,
            tool_specs or (),
            system_prompt if system_prompt_content is None else _joined_text(system_prompt_content),
            config=config,
            info=info,
            tool_choice=tool_choice,
            metadata=_snake_case(request_metadata) if request_metadata else {},
            cache_anchors=cache_anchors,
        )[1]

    def _merged(self, params: dict[str, Any]) -> tuple[ModelConfig, ModelInfo]:
        """The settings of one call, its own over the model's over the defaults, and what is known of its model."""
        config = self._changed(params) if params else self._config
        info = self._info(config.model_id)
        cache_config, max_tokens = config.cache_config, config.max_tokens
        if cache_config is None and "cache_config" not in params:
            cache_config = self.cache_config
        if max_tokens is None and self.client.dialect.output_limit_required:
            max_tokens = info.output_limit
        encrypted = config.encrypted_reasoning and "reasoning" in info.abilities
        of, merged = self._last_merged  # mostly the same as for the call before
        is_same = of is config and merged.cache_config is cache_config and merged.max_tokens == max_tokens
        if not is_same or merged.encrypted_reasoning is not encrypted:
            merged = msgspec.structs.replace(
                config, cache_config=cache_config, max_tokens=max_tokens, encrypted_reasoning=encrypted
            )
            self._last_merged = (config, merged)
        return merged, info

    def _changed(self, changes: Mapping[str, Any]) -> ModelConfig:
        """The settings with these changes. Another model must be one that the client's dialect fits."""
        config, provider = _changed(self._config, changes), self.client.dialect.provider
        old, new = self._config.model_id, config.model_id
        if old != new and provider in PROVIDERS and find_dialect(provider, old) != find_dialect(provider, new):
            name = f"{provider}:{new}"
            raise InvalidValue(f"{name} is of another family than {self!r}: make it with model({name!r})")
        return config

    def _info(self, model_id: str) -> ModelInfo:
        dialect = self.client.dialect
        known = find_model_info(dialect.provider, model_id)
        return known or ModelInfo(provider=dialect.provider, model_id=model_id, abilities=dialect.abilities)

    def _rules(self, info: ModelInfo) -> TargetRules:
        known, rules = self._last_rules  # mostly the same as for the call before
        if known != info.abilities:
            rules = self.client.dialect.rules.for_abilities(info.abilities)
            self._last_rules = (info.abilities, rules)
        return rules

    def _invocation(self, config: ModelConfig) -> ModelInvocationDescriptor:
        dialect = self.client.dialect
        return _descriptor(dialect.provider, dialect.specification, config.model_id)

    def _encode(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        system: str | None,
        *,
        config: ModelConfig,
        info: ModelInfo,
        tool_choice: ToolChoice | None,
        metadata: dict[str, str],
        cache_anchors: Sequence[int],
    ) -> tuple[HandedOff, WireRequest]:
        """Return the conversation as the model gets it, and the request that holds it."""
        require_messages(messages)
        leading = 0  # how many messages at the beginning are the system's
        while leading < len(messages) and messages[leading].role is Role.SYSTEM:
            leading += 1
        if system is None and leading:
            system = "\n\n".join(message.text for message in messages[:leading])
        config = self._possible(config, info, bool(tools))
        prefix, handed = self.client.prefixes.take(
            messages[leading:] if leading else messages, tools, self._invocation(config), self._rules(info)
        )
        choice = tool_choice or config.tool_choice
        if isinstance(choice, OneTool):
            fitted = {original: name for name, original in handed.original_names.items()}
            choice = OneTool(fitted.get(choice.tool_name, choice.tool_name))
        request = ModelRequest(
            config=config,
            messages=handed.messages,
            tools=handed.tools,
            system=system or None,
            tool_choice=choice,
            cache_anchors=_moved(cache_anchors, leading, handed.positions) if cache_anchors else (),
            metadata=metadata,
        )
        wire = self.client.address(prefix.encode(handed).write(request))
        self.client.prefixes.keep(prefix, len(wire.body))
        return handed, wire

    def _possible(self, config: ModelConfig, info: ModelInfo, has_tools: bool) -> ModelConfig:
        """Refuse what the model, or its vendor's API, cannot do; drop, with a warning, what is harmless to drop."""
        asked, known, had_tools = self._last_possible
        if asked is config and known is info and had_tools is has_tools:
            return config
        who = f"{self.client.dialect.provider}:{config.model_id}"
        ignored = [name for name in sorted(self.client.dialect.ignored) if getattr(config, name) not in (None, ())]
        for name in ignored:
            warnings.warn(f"{who} cannot take {name}: it is left out", stacklevel=4)
        wanted = {
            "tools": has_tools and self.client.dialect.text_calls is None,
            "structured_output": config.output_schema is not None,
            "reasoning": config.reasoning is not None and config.reasoning.effort != "off",
        }
        for ability, is_wanted in wanted.items():
            if is_wanted and ability not in info.abilities:
                raise ModelError(f"{who} cannot do {ability}", code=ErrorCode.UNSUPPORTED)
        knobs = {"temperature": config.temperature, "top_p": config.top_p}
        given = [name for name, value in knobs.items() if value is not None]
        if given and "fixed_sampling" in info.abilities:
            warnings.warn(f"{who} ignores {', '.join(given)}", stacklevel=4)
            return msgspec.structs.replace(config, temperature=None, top_p=None)
        if not ignored:
            self._last_possible = (config, info, has_tools)
        return config


_NOTHING_USED = TokenUsage()
_descriptor = lru_cache(ModelInvocationDescriptor)  # a value, and the same few of them for every call


def _changed(config: ModelConfig, changes: Mapping[str, Any]) -> ModelConfig:
    """The config with these settings. Extensions are added to those that there are; None takes a setting back."""
    if not changes:
        return config
    if unknown := changes.keys() - _CONFIG_FIELDS:
        raise _unknown_setting(min(unknown))
    given = changes.get("extensions", {})
    extensions = {**config.extensions, **given} if isinstance(given, Mapping) else given
    return msgspec.structs.replace(config, **{**changes, "extensions": extensions})


def _unknown_setting(name: str) -> InvalidValue:
    """The error for a keyword that is no setting; the provider would get a field that it does not know."""
    given_to_model = inspect.signature(model).parameters.keys() - {"name", "config"}
    if name in given_to_model:
        return InvalidValue(f"{name} is no setting of a call: give it to model(), where the model is made")
    plain = {setting.replace("_", ""): setting for setting in (*_CONFIG_FIELDS, *given_to_model)}
    near = find_nearest(name.replace("_", ""), plain, cutoff=0.7)
    meant = f" Did you mean {plain[near]!r}?" if near else ""
    return InvalidValue(
        f"there is no setting {name!r}.{meant} A field that only the provider knows is given as"
        f" extensions={{{name!r}: ...}}"
    )


def _snake_case(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata with names in snake case: both `sessionId` and `session_id` are taken."""
    return {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): value for name, value in metadata.items()}


def _moved(anchors: Sequence[int], leading: int, positions: Mapping[int, int]) -> tuple[int, ...]:
    """Return the anchors' indices in the conversation that was handed off, which lacks the leading messages."""
    moved = (positions.get(anchor - leading) for anchor in anchors)
    return tuple(sorted({index for index in moved if index is not None}))


def _joined_text(texts: Sequence[Text]) -> str:
    return "\n\n".join(part.text for part in texts)


def _rewrites(
    model_name: str, names: Mapping[str, str], prices: Prices | None, limit: int | None, window: int | None
) -> dict[type, Callable[[Any], MessageDelta]]:
    """Return the changes of deltas before the caller gets them, by class.

    Tool names become the caller's own, usage gets its price, and an answer that ends at its limit of tokens, or fills
    the context window exactly, gets that finish reason where the vendor does not say so. The error for a model that
    the provider does not know names the one that was probably meant.
    """

    def suggest(delta: ErrorDelta) -> MessageDelta:
        meant = suggest_name(model_name) if delta.error_code is ErrorCode.NOT_FOUND else None
        if meant is None:
            return delta
        return msgspec.structs.replace(delta, message=f"{delta.message or 'not found'}. Did you mean {meant!r}?")

    rewrites: dict[type, Callable[[Any], MessageDelta]] = {ErrorDelta: suggest}
    so_far = _NOTHING_USED
    if names:

        def rename(delta: ToolCallStartDelta) -> MessageDelta:
            return msgspec.structs.replace(delta, tool_name=names.get(delta.tool_name, delta.tool_name))

        rewrites[ToolCallStartDelta] = rename
    if prices is not None or limit is not None or window is not None:

        def price(delta: UsageDelta) -> MessageDelta:
            nonlocal so_far
            so_far = so_far.updated_by(delta.usage)  # one report may hold what the one before it did not
            if prices is None or so_far.cost is not None:
                return delta
            usage = msgspec.structs.replace(delta.usage, cost=prices.cost_of(so_far))
            return msgspec.structs.replace(delta, usage=usage)

        rewrites[UsageDelta] = price
    if limit is not None or window is not None:

        def mark_cut(delta: DoneDelta) -> MessageDelta:
            written, read = so_far.output_tokens or 0, so_far.input_tokens or 0
            is_cut = (limit is not None and written >= limit) or (written > 0 and read + written == window)
            if delta.finish_reason is FinishReason.STOP and is_cut:
                return msgspec.structs.replace(delta, finish_reason=FinishReason.LENGTH)
            return delta

        rewrites[DoneDelta] = mark_cut
    return rewrites
