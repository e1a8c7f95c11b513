"""The rules of every wire API, as functions that raise AssertionError with the sample's name. Pure.

Write a few `WireSample`s, real bytes of the provider and what they say, and run `require_conformance` over them with
the codec and the dialect. Each check can be called by itself too. Nothing here knows a provider.
"""

import copy
import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ..delta import DoneDelta, ErrorDelta, MessageDelta
from ..errors import ErrorCode
from ..history.handoff import hand_off
from ..message import (
    FinishReason,
    Message,
    MessageMeta,
    ModelInvocationDescriptor,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from ..request import ModelConfig, ModelRequest, WireRequest
from ..stream import Codec, ResponseReader, StreamContract, assemble
from ..target import Dialect
from ..toolspec import ToolSpec
from ..usage import TokenUsage

__all__ = [
    "WireSample",
    "require_conformance",
    "require_error_code",
    "require_legal_stream",
    "require_prefixes_fail",
    "require_reading",
    "require_rendering",
    "require_replay",
    "require_same_in_pieces",
]

RUN_ID = "sample"
ELSEWHERE = ModelInvocationDescriptor("somebody-else", "another-api", "another-model")


class WireSample(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's answer as bytes, and what they say.

    An answer has `finish`, bytes that are in it once the provider has said that it is done; a failure has `error`, the
    code that it maps to. `tool_calls` are (id, name, arguments), with an id of None where the provider gives none;
    `opaque` are texts (signatures, encrypted reasoning, item ids) that the provider alone needs back and may get.
    """

    name: str
    body: bytes
    content_type: str = "text/event-stream"
    status: int = 200
    headers: dict[str, str] = {}
    text: str = ""
    thinking: str = ""
    tool_calls: tuple[tuple[str | None, str, dict[str, Any]], ...] = ()
    finish_reason: FinishReason = FinishReason.STOP
    usage: TokenUsage | None = None
    finish: bytes = b""
    error: ErrorCode | None = None
    opaque: tuple[str, ...] = ()


def require_conformance(
    codec: Codec, dialect: Dialect, samples: Iterable[WireSample], *, model: str, seed: int = 0
) -> int:
    """Run every check over every sample and return how many checks were made. There must be an answer among them."""
    checked = 1
    require_rendering(codec, dialect, model=model)
    answers = 0
    for sample in samples:
        require_legal_stream(codec, dialect, sample)
        require_same_in_pieces(codec, dialect, sample, seed=seed)
        checked += 3
        if sample.error is not None:
            require_error_code(codec, dialect, sample)
            continue
        answers += 1
        require_reading(codec, dialect, sample)
        require_prefixes_fail(codec, dialect, sample)
        require_replay(codec, dialect, sample, model=model)
        checked += 2
    assert answers, "the samples hold no answer"
    return checked


def require_legal_stream(codec: Codec, dialect: Dialect, sample: WireSample) -> None:
    """The deltas keep the contract to their one terminal, and the decoder raised nothing but a ModelError."""
    reader = _open(codec, dialect, sample)
    deltas = [*reader.feed(sample.body), *reader.end()]
    _require(reader.bug is None, sample, f"the decoder raised {reader.bug!r}")
    contract = StreamContract(sample.name)
    for delta in deltas:
        contract.check(delta)
    _require(contract.finished, sample, "no terminal delta")


def require_reading(codec: Codec, dialect: Dialect, sample: WireSample) -> None:
    """The answer assembles to what the sample says."""
    assembly = assemble(_read(codec, dialect, sample))
    message = assembly.message
    if message is None:
        raise AssertionError(f"{sample.name}: no message but {assembly.error!r}")
    ids = [call.tool_call_id for call in message.tool_calls]
    _require(len(set(ids)) == len(ids), sample, f"two calls have one id: {ids}")
    read: dict[str, Any] = {
        "text": message.text,
        "thinking": "".join(part.text for part in message.parts if isinstance(part, Thinking)),
        "tool_calls": [(call.tool_name, call.arguments) for call in message.tool_calls],
        "ids": ids,
        "finish_reason": assembly.finish_reason,
    }
    said: dict[str, Any] = {
        "text": sample.text,
        "thinking": sample.thinking,
        "tool_calls": [(name, arguments) for _, name, arguments in sample.tool_calls],
        "ids": [given or made for (given, _, _), made in zip(sample.tool_calls, ids, strict=False)],
        "finish_reason": sample.finish_reason,
    }
    if sample.usage is not None:
        read["usage"], said["usage"] = assembly.usage, sample.usage
    for field, value in said.items():
        _require(read[field] == value, sample, f"{field} is {read[field]!r}, the sample says {value!r}")


def require_same_in_pieces(
    codec: Codec, dialect: Dialect, sample: WireSample, *, seed: int = 0, splits: int = 5
) -> None:
    """The bytes give equal deltas whole, one by one, and cut at random offsets."""
    whole = _read(codec, dialect, sample)
    size = len(sample.body)
    choose = random.Random(seed)  # noqa: S311  # which cuts are tried is no secret
    cuttings = [list(range(1, size))]
    cuttings += [
        sorted(choose.sample(range(1, size), min(max(size - 1, 0), 1 + choose.randrange(30)))) for _ in range(splits)
    ]
    for cuts in cuttings:
        ends = zip([0, *cuts], [*cuts, size], strict=True)
        pieces = [sample.body[start:end] for start, end in ends]
        _require(_read(codec, dialect, sample, pieces) == whole, sample, f"cut into {len(pieces)} it reads otherwise")


def require_prefixes_fail(codec: Codec, dialect: Dialect, sample: WireSample) -> None:
    """Cut anywhere before its finish, an answer ends in exactly one error, after deltas that the whole begins with."""
    _require(sample.finish in sample.body and bool(sample.finish), sample, "`finish` must be bytes of the body")
    whole = _read(codec, dialect, sample)
    limit = sample.body.index(sample.finish) + len(sample.finish)
    reader = _open(codec, dialect, sample)
    arrived: list[MessageDelta] = []
    for cut in range(limit):
        where = f"cut after {cut} of {len(sample.body)} bytes"
        *begun, last = [*arrived, *copy.deepcopy(reader).end()]
        _require(isinstance(last, ErrorDelta), sample, f"{where} it ends in {last.kind}")
        _require(not any(isinstance(delta, (DoneDelta, ErrorDelta)) for delta in begun), sample, f"{where}: two ends")
        _require(begun == whole[: len(begun)], sample, f"{where} its deltas are not the start of the whole")
        arrived += reader.feed(sample.body[cut : cut + 1])


def require_error_code(codec: Codec, dialect: Dialect, sample: WireSample) -> None:
    """A failure is one error delta with the code that the sample names."""
    *_, last = _read(codec, dialect, sample)
    code = last.error_code.value if isinstance(last, ErrorDelta) else last.kind
    _require(code == sample.error, sample, f"it ends in {code!r}, the sample says {sample.error!r}")


def require_rendering(codec: Codec, dialect: Dialect, *, model: str) -> None:
    """The same conversation is written as the same bytes, a JSON object; the conversation stays as it was, and so
    does an encoder whose copies go on.
    """
    conversation = (
        Message.user("What is the weather?"),
        Message.assistant(
            "One moment.", ToolCall("call-1", "look_up", {"city": "Oslo"}), ToolCall("call-2", "wait", {})
        ),
        Message.tool(ToolResult("call-1", {"sky": "blue"})),
        Message.tool(ToolResult("call-2", "", is_error=True)),
        Message.user("And?"),
    )
    before = copy.deepcopy(conversation)
    first, second = (render(codec, dialect, conversation, model=model) for _ in range(2))
    assert first == second, f"{dialect.provider}: two renderings differ"
    assert isinstance(json.loads(first.body), dict), f"{dialect.provider}: the body is no JSON object"
    assert conversation == before, f"{dialect.provider}: rendering has changed the conversation"
    _require_copies(codec, dialect, conversation, model)


def _require_copies(codec: Codec, dialect: Dialect, conversation: Sequence[Message], model: str) -> None:
    """Whatever its copies are given, an encoder writes the messages that it was given itself."""
    target = ModelInvocationDescriptor(dialect.provider, dialect.specification, model)
    messages = hand_off(conversation, target=target, rules=dialect.rules).messages
    request = ModelRequest(config=ModelConfig(model), messages=messages)
    encoder = codec.open_encoder(dialect, model)
    for count, message in enumerate(messages):
        other = encoder.copy()
        for later in messages[count:]:
            other.add(later)
        other.write(request)
        encoder.add(message)
    whole = codec.encode_request(request, dialect)
    assert encoder.write(request) == whole, f"{dialect.provider}: an encoder writes what a copy was given"


def require_replay(codec: Codec, dialect: Dialect, sample: WireSample, *, model: str) -> None:
    """What the provider needs back is sent to it with its own answer, and never to another provider."""
    message = assemble(_read(codec, dialect, sample)).message
    if message is None:
        raise AssertionError(f"{sample.name}: there is no message to send back")
    here = ModelInvocationDescriptor(dialect.provider, dialect.specification, model)
    own, foreign = (_replay(codec, dialect, message, made_by, model) for made_by in (here, ELSEWHERE))
    for text in sample.opaque:
        _require(_quoted(text) in own, sample, f"{text[:60]!r} does not go back")
        _require(_quoted(text) not in foreign, sample, f"{text[:60]!r} goes where it was not made")
    for call in message.tool_calls:
        _require(_quoted(call.tool_name) in own, sample, f"the call of {call.tool_name!r} does not go back")


def render(codec: Codec, dialect: Dialect, messages: Sequence[Message], *, model: str) -> WireRequest:
    """Return the request for a conversation, handed over and encoded."""
    target = ModelInvocationDescriptor(dialect.provider, dialect.specification, model)
    names = dict.fromkeys(call.tool_name for message in messages for call in message.tool_calls)
    tools = [ToolSpec(name, "A tool.") for name in names]
    handed = hand_off(messages, tools, target=target, rules=dialect.rules)
    request = ModelRequest(config=ModelConfig(model), messages=handed.messages, tools=handed.tools, system="Be brief.")
    return codec.encode_request(request, dialect)


def _replay(codec: Codec, dialect: Dialect, message: Message, made_by: ModelInvocationDescriptor, model: str) -> str:
    meta = msgspec.structs.replace(message.meta or MessageMeta(), invocation=made_by)
    results = [Message.tool(ToolResult(call.tool_call_id, "done")) for call in message.tool_calls]
    going_on = Message(Role.USER, (Text("Go on."),))
    turn = msgspec.structs.replace(message, meta=meta)
    return render(codec, dialect, [Message.user("Begin."), turn, *results, going_on], model=model).body.decode()


def _quoted(text: str) -> str:
    """The text as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _open(codec: Codec, dialect: Dialect, sample: WireSample) -> ResponseReader:
    headers = {**sample.headers, "content-type": sample.content_type}
    return ResponseReader(codec, dialect, run_id=RUN_ID, status=sample.status, headers=headers)


def _read(
    codec: Codec, dialect: Dialect, sample: WireSample, pieces: Iterable[bytes] | None = None
) -> list[MessageDelta]:
    reader = _open(codec, dialect, sample)
    deltas = [delta for piece in (pieces or [sample.body]) for delta in reader.feed(piece)]
    return deltas + reader.end()


def _require(holds: bool, sample: WireSample, otherwise: str) -> None:
    if not holds:
        raise AssertionError(f"{sample.name}: {otherwise}")
