"""`Model`: a conversation in, a guarded stream of deltas out. Joins handoff, codec and transport; decides no policy.

Retrying, falling back and running tools are the loop's; what to send is the context's.
"""

import os
import re
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from .catalogue import find_model_info
from .delta import DELTA_CLASSES, ErrorDelta, MessageDelta, ToolCallStartDelta, UsageDelta
from .errors import DragomanError, ErrorCode, InvalidValue, ModelError
from .history import HandedOff, hand_off
from .message import Message, ModelInvocationDescriptor, Role, Text
from .providers import PROVIDERS, find_codec, find_dialect
from .request import CacheConfig, ModelConfig, ModelInfo, ModelRequest, WireRequest
from .stream import Assembler, Assembly, Codec, Guard, ResponseReader
from .target import Dialect
from .toolspec import OneTool, ToolChoice, ToolSpec
from .usage import Prices, TokenUsage

if TYPE_CHECKING:
    from .transport import HttpRequest, HttpResponse, Signer, Timeouts, TokenSource, Transport

__all__ = ["ErrorMapper", "Model", "ModelStream", "ProviderClient", "guard_stream", "model", "render_request"]

# A user's own reading of an error response (status, headers, body); None leaves it to the codec.
ErrorMapper: TypeAlias = Callable[[int, Mapping[str, str], bytes], ModelError | None]

_READ_OUT_SECONDS = 0.1
_CONFIG_FIELDS = frozenset(ModelConfig.__struct_fields__) - {"extensions"}


def model(
    name: str,
    *,
    api_key: "str | TokenSource | Signer | None" = None,
    base_url: str | None = None,
    transport: "Transport | None" = None,
    timeouts: "Timeouts | None" = None,
    headers: Mapping[str, str] | None = None,
    cache: bool = True,
    **config: Any,
) -> "Model":
    """Return the model called `provider:model`, e.g. `anthropic:claude-opus-4-5`. No network is touched.

    `api_key` is a key, a function that returns a fresh token, or a signer; without one, the vendor's usual
    environment variable is read when a request is sent. Hosts with an address of your own take `base_url`, or
    `region` and `project`. Keywords that are no field of ModelConfig go to the provider as they are.
    """
    provider, colon, model_id = name.partition(":")
    if not colon or not provider or not model_id:
        raise InvalidValue.of("the model's name", name, "provider:model")
    client = ProviderClient(
        find_dialect(provider, model_id),
        api_key=api_key,
        base_url=base_url,
        region=config.pop("region", None),
        project=config.pop("project", None),
        transport=transport,
        timeouts=timeouts,
        headers=headers,
    )
    return Model(client, _changed(ModelConfig(model_id), config), CacheConfig() if cache else None)


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
    config.setdefault("base_url", "https://base-url.invalid")
    rendered = model(model_name, **config)
    return rendered.render(messages, tools, system_prompt, tool_choice=tool_choice)


class ProviderClient:
    """One vendor's wire API, with a transport and credentials. Making one touches no network; its repr shows no key."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        codec: Codec | None = None,
        api_key: "str | TokenSource | Signer | None" = None,
        base_url: str | None = None,
        region: str | None = None,
        project: str | None = None,
        transport: "Transport | None" = None,
        timeouts: "Timeouts | None" = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.dialect = dialect
        self.codec = codec or find_codec(dialect.specification)
        self._region = region or _from_environment(dialect.address_variables.get("region", ()))
        self._base_url = _address(dialect, base_url, self._region, project)
        if not (api_key is None or isinstance(api_key, str) or callable(api_key) or hasattr(api_key, "sign")):
            raise InvalidValue(f"api_key must be a key, a function or a signer, got a {type(api_key).__name__}")
        self._api_key = api_key
        self._found_signer: Signer | None = None
        self._transport = transport
        self._timeouts = timeouts
        self._headers = dict(headers or {})

    def __repr__(self) -> str:
        return f"ProviderClient({self.dialect.provider!r}, {self.dialect.specification!r})"

    def encode(self, request: ModelRequest) -> WireRequest:
        """Return the request as this vendor takes it, without credentials."""
        return self.codec.encode_request(request, self.dialect)

    async def call_model(
        self, request: WireRequest, *, run_id: str = "", error_mapper: ErrorMapper | None = None
    ) -> AsyncGenerator[list[MessageDelta], None]:
        """Send the request and yield the deltas of each network read; together they are a legal stream.

        Failures arrive as the closing `error`; only cancellation is raised. The connection is closed in any case.
        """
        response: HttpResponse | None = None
        reader: ResponseReader | None = None
        chunks: AsyncIterator[bytes] | None = None
        cause: Exception | None = None
        try:
            from .transport import Timeouts, default_transport

            transport = self._transport or default_transport()
            response = await transport.send(await self._signed(request), self._timeouts or Timeouts())
            reader = self._reader(response.status, response.headers, run_id, error_mapper)
            chunks = response.chunks()
            async for chunk in chunks:
                deltas = reader.feed(chunk, datetime.now(UTC))
                finished = reader.finished
                if deltas:
                    yield self._without_key(deltas) if finished else deltas
                if finished:
                    await _read_out(chunks)
                    return
        except Exception as error:  # noqa: BLE001  # whatever happens, the stream ends legally
            cause = error
        finally:
            await _closed(getattr(chunks, "aclose", None))
            await _closed(getattr(response, "close", None))
        now = datetime.now(UTC)
        if reader is not None:
            last = reader.end(now, cause)
            cause = reader.bug
        else:
            closing = Guard(run_id=run_id, source=self.dialect.provider).close(cause, now=now)
            last = [closing] if closing else []
        if cause is not None and not isinstance(cause, DragomanError):
            _log_bug(cause)
        yield self._without_key(last)

    def _reader(
        self, status: int, headers: Mapping[str, str], run_id: str, error_mapper: ErrorMapper | None
    ) -> ResponseReader:
        codec = self.codec
        if error_mapper is not None:
            own, mapped = codec.map_error, error_mapper
            codec = msgspec.structs.replace(codec, map_error=lambda *facts: mapped(*facts) or own(*facts))
        return ResponseReader(codec, self.dialect, run_id=run_id, status=status, headers=headers)

    def _without_key(self, deltas: list[MessageDelta]) -> list[MessageDelta]:
        """The last deltas without the key, which a provider may quote back in whatever shape it has."""
        key = self._api_key if isinstance(self._api_key, str) else _from_environment(self.dialect.key_variables)
        error = deltas[-1] if deltas else None
        if not key or not isinstance(error, ErrorDelta) or key not in (error.provider_message or ""):
            return deltas
        said = (error.provider_message or "").replace(key, "[redacted]")
        return [*deltas[:-1], msgspec.structs.replace(error, provider_message=said)]

    async def _signed(self, request: WireRequest) -> "HttpRequest":
        from .transport import HttpRequest

        headers = {"content-type": "application/json", **request.headers, **self._headers}
        unsigned = HttpRequest(request.method, self._base_url + request.path, headers, request.body)
        signer = self._signer()
        return unsigned if signer is None else await signer.sign(unsigned)

    def _signer(self) -> "Signer | None":
        from .transport import AwsSigner, KeySigner, TokenSigner, google_token_source

        key, auth = self._api_key, self.dialect.auth
        if key is not None and not isinstance(key, str):
            return TokenSigner(key) if callable(key) else key
        key = key or _from_environment(self.dialect.key_variables)
        if key is not None:
            return KeySigner(key, auth if auth.endswith("key") else "authorization")
        if auth == "none":
            return None
        if auth in ("aws", "token"):
            # Kept: it holds the credentials that it found, and finding them may take a file, a process or a request.
            self._found_signer = self._found_signer or (
                AwsSigner(self._region or "us-east-1") if auth == "aws" else TokenSigner(google_token_source())
            )
            return self._found_signer
        variables = " or ".join(self.dialect.key_variables)
        where = f"set {variables}, or pass api_key=" if variables else "pass api_key="
        raise ModelError(f"no key for {self.dialect.provider}: {where}", code=ErrorCode.AUTHENTICATION)


class ModelStream:
    """The answer as it comes: iterate it for the deltas; `assembly` is what they have come to so far.

    Use it with `async with`, so that leaving early closes the connection.
    """

    def __init__(
        self,
        batches: AsyncGenerator[list[MessageDelta], None],
        *,
        request: WireRequest,
        invocation: ModelInvocationDescriptor,
        rewrite: Mapping[str, Callable[[Any], MessageDelta]],
        invocation_state: Any = None,
    ) -> None:
        self.request = request
        self.invocation = invocation
        self.invocation_state = invocation_state
        self._assembler = Assembler(invocation=invocation)
        self._unassembled: list[MessageDelta] = []  # handed out and not assembled yet
        self._batches = batches
        self._deltas = self._iterate({DELTA_CLASSES[kind]: change for kind, change in rewrite.items()})

    @property
    def assembly(self) -> Assembly:
        """What has arrived: the message once the stream is done, else the partial, with the error that ended it."""
        self._assemble()
        return self._assembler.result()

    async def collect(self) -> Assembly:
        """Read the stream to its end and return what it came to."""
        async for _ in self._deltas:
            pass
        return self.assembly

    def __aiter__(self) -> AsyncIterator[MessageDelta]:
        return self._deltas

    async def __anext__(self) -> MessageDelta:
        return await anext(self._deltas)

    async def __aenter__(self) -> "ModelStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop reading and close the connection."""
        await self._deltas.aclose()
        await self._batches.aclose()

    async def _iterate(
        self, rewrite: Mapping[type, Callable[[Any], MessageDelta]]
    ) -> AsyncGenerator[MessageDelta, None]:
        waiting = self._unassembled
        try:
            async for batch in self._batches:
                for delta in batch:
                    change = rewrite.get(type(delta))
                    passed = delta if change is None else change(delta)
                    waiting.append(passed)
                    yield passed
                self._assemble()
        finally:
            await self._batches.aclose()

    def _assemble(self) -> None:
        """Bring the assembly up to the last delta that was handed out: a batch at a time, or when somebody looks."""
        self._assembler.feed_all(self._unassembled)
        self._unassembled.clear()


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

    def __repr__(self) -> str:
        return f"Model({self.client.dialect.provider}:{self._config.model_id})"

    def update_config(self, **changes: Any) -> None:
        """Change settings from the next call on; a keyword that is no field of ModelConfig is an extension."""
        self._config = self._changed(changes)

    def get_config(self) -> ModelConfig:
        """Return the settings with the defaults filled in: the cache's, and an output limit where the API wants one."""
        return self._merged({})

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
        """
        metadata = _snake_case(request_metadata or {})
        config = self._merged(params)
        handed, wire = self._render(
            messages,
            tool_specs or (),
            _system_text(messages, system_prompt, system_prompt_content),
            config=config,
            tool_choice=tool_choice,
            metadata=metadata,
            cache_anchors=cache_anchors,
        )
        invocation = self._invocation(config)
        run_id = metadata.get("run_id", "")
        return ModelStream(
            self.client.call_model(wire, run_id=run_id, error_mapper=self.error_mapper),
            request=wire,
            invocation=invocation,
            rewrite=_rewrites(handed.original_names, self._info(config.model_id).prices),
            invocation_state=invocation_state,
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
        return self._render(
            messages,
            tool_specs or (),
            _system_text(messages, system_prompt, system_prompt_content),
            config=self._merged(params),
            tool_choice=tool_choice,
            metadata=_snake_case(request_metadata or {}),
            cache_anchors=cache_anchors,
        )[1]

    def _merged(self, params: dict[str, Any]) -> ModelConfig:
        """The settings of one call: its own over the model's, and the defaults where neither says anything."""
        config = self._changed(params)
        defaults: dict[str, Any] = {}
        if config.cache_config is None and "cache_config" not in params:
            defaults["cache_config"] = self.cache_config
        if config.max_tokens is None and self.client.dialect.output_limit_required:
            defaults["max_tokens"] = self._info(config.model_id).output_limit
        return msgspec.structs.replace(config, **defaults)

    def _changed(self, changes: Mapping[str, Any]) -> ModelConfig:
        """The settings with these changes. Another model must be one that the client's record is made for."""
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

    def _invocation(self, config: ModelConfig) -> ModelInvocationDescriptor:
        dialect = self.client.dialect
        return ModelInvocationDescriptor(dialect.provider, dialect.specification, config.model_id)

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        system: str | None,
        *,
        config: ModelConfig,
        tool_choice: ToolChoice | None,
        metadata: dict[str, str],
        cache_anchors: Sequence[int],
    ) -> tuple[HandedOff, WireRequest]:
        leading = _leading_system(messages)
        config = self._possible(config, bool(tools))
        handed = hand_off(messages[leading:], tools, target=self._invocation(config), rules=self.client.dialect.rules)
        choice = tool_choice or config.tool_choice
        if isinstance(choice, OneTool):
            fitted = {original: name for name, original in handed.original_names.items()}
            choice = OneTool(fitted.get(choice.tool_name, choice.tool_name))
        anchors = (handed.positions.get(anchor - leading) for anchor in cache_anchors)
        request = ModelRequest(
            config=config,
            messages=handed.messages,
            tools=handed.tools,
            system=system,
            tool_choice=choice,
            cache_anchors=tuple(sorted({anchor for anchor in anchors if anchor is not None})),
            metadata=metadata,
        )
        return handed, self.client.encode(request)

    def _possible(self, config: ModelConfig, has_tools: bool) -> ModelConfig:
        """Refuse what the model, or its vendor's API, cannot do; drop, with a warning, what is harmless to drop."""
        who = f"{self.client.dialect.provider}:{config.model_id}"
        for name in sorted(self.client.dialect.ignored):
            if getattr(config, name) not in (None, ()):
                warnings.warn(f"{who} has no place for {name}: it is left out", stacklevel=4)
        info = self._info(config.model_id)
        wanted = {
            "tools": has_tools,
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
        return config


async def _read_out(chunks: AsyncIterator[bytes]) -> None:
    """Read what little is left of a finished answer, so that the connection can serve the next request."""
    import asyncio

    try:
        async with asyncio.timeout(_READ_OUT_SECONDS):
            async for _ in chunks:
                pass
    except (TimeoutError, ModelError):
        pass  # then the connection is closed instead


async def guard_stream(
    source: AsyncIterator[MessageDelta],
    *,
    run_id: str = "",
    name: str = "stream",
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> AsyncGenerator[MessageDelta, None]:
    """Yield a legal stream from any async source of deltas, ended by exactly one `done` or `error`.

    Cancellation and GeneratorExit propagate; every other failure of the source becomes the closing `error`.
    The source is closed in any case.
    """
    guard = Guard(run_id=run_id, source=name)
    cause: Exception | None = None
    try:
        async for delta in source:
            legal = guard.feed(delta)
            if legal is not None:
                yield legal
            if guard.finished:
                return
    except Exception as error:  # noqa: BLE001  # whatever the source does, the stream ends legally
        cause = error
        if not isinstance(error, DragomanError):
            _log_bug(error)
    finally:
        await _closed(getattr(source, "aclose", None))
    closing = guard.close(cause, now=clock())
    if closing is not None:
        yield closing


def _from_environment(names: Sequence[str]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _address(dialect: Dialect, base_url: str | None, region: str | None, project: str | None) -> str:
    """The base URL: the one given, the environment's, or the vendor's with region and project put in."""
    variables = dialect.address_variables
    given = base_url or _from_environment(variables.get("base_url", ()))
    template = given or (dialect.global_base_url if region == "global" else None) or dialect.base_url
    if not isinstance(template, str) or not template.startswith(("https://", "http://")):
        raise InvalidValue.of(f"base_url of {dialect.provider}", template, "an http(s) URL, given as base_url=")
    parts = {"region": region, "project": project or _from_environment(variables.get("project", ()))}
    for name, value in parts.items():
        if f"{{{name}}}" in template:
            if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9:._-]{1,64}", value):
                raise InvalidValue.of(f"{name} of {dialect.provider}", value, f"a name, given as {name}=")
            template = template.replace(f"{{{name}}}", value)
    return template.rstrip("/")


def _changed(config: ModelConfig, changes: Mapping[str, Any]) -> ModelConfig:
    """The config with these settings; what is no field of it is an extension, and None takes a setting back."""
    fields = {name: value for name, value in changes.items() if name in _CONFIG_FIELDS}
    further = {name: value for name, value in changes.items() if name not in _CONFIG_FIELDS and name != "extensions"}
    extensions = {**config.extensions, **(changes.get("extensions") or {}), **further}
    return msgspec.structs.replace(config, **fields, extensions=extensions)


def _snake_case(metadata: Mapping[str, str]) -> dict[str, str]:
    """The seeds write `sessionId`, Python writes `session_id`: both are taken."""
    return {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): value for name, value in metadata.items()}


def _leading_system(messages: Sequence[Message]) -> int:
    return len(list(takewhile(lambda message: message.role is Role.SYSTEM, messages)))


def _system_text(messages: Sequence[Message], prompt: str | None, content: Sequence[Text] | None) -> str | None:
    if content is not None:
        return "\n\n".join(part.text for part in content) or None
    if prompt is not None:
        return prompt or None
    leading = messages[: _leading_system(messages)]
    return "\n\n".join(message.text for message in leading) or None


def _rewrites(names: Mapping[str, str], prices: Prices | None) -> dict[str, Callable[[Any], MessageDelta]]:
    """What still changes in a delta on its way out: tool names back to the caller's own, and the price of usage."""
    rewrites: dict[str, Callable[[Any], MessageDelta]] = {}
    if names:

        def rename(delta: ToolCallStartDelta) -> MessageDelta:
            return msgspec.structs.replace(delta, tool_name=names.get(delta.tool_name, delta.tool_name))

        rewrites["tool_call_start"] = rename
    if prices is not None:
        so_far = TokenUsage()

        def price(delta: UsageDelta) -> MessageDelta:
            nonlocal so_far
            so_far = so_far.updated_by(delta.usage)  # one report may hold what the one before it did not
            if so_far.cost is not None:
                return delta
            usage = msgspec.structs.replace(delta.usage, cost=prices.cost_of(so_far))
            return msgspec.structs.replace(delta, usage=usage)

        rewrites["usage"] = price
    return rewrites


async def _closed(close: Callable[[], Awaitable[object]] | None) -> None:
    """Close what can be closed; that it fails to is a bug of its own, not the stream's end."""
    if close is None:
        return
    try:
        await close()
    except Exception as error:  # noqa: BLE001  # the stream has its terminal already, or gets it
        _log_bug(error)


def _log_bug(error: Exception) -> None:
    """Log where it happened, not what it said: the text of a foreign exception may hold a prompt or a key."""
    import logging
    import traceback

    where = "".join(traceback.format_tb(error.__traceback__))
    logging.getLogger("dragoman").error("a stream's source raised %s\n%s", type(error).__name__, where)
