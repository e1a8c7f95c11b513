"""Which delta sequences are legal and what they come to, said a second time; and streams to try that on.

Written from the prose of the contract, as statements about a whole sequence and not as a machine fed step by step, so
that it shares no mistake with `dragoman.stream`, from which it must never import.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, TypeAlias

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import (
    ErrorCode,
    FinishReason,
    Image,
    Message,
    MessageDelta,
    Text,
    TextDelta,
    Thinking,
    TokenUsage,
    ToolCall,
)
from dragoman.delta import (
    DoneDelta,
    ErrorDelta,
    ImageDelta,
    ProviderItemDelta,
    StartDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
    UsageDelta,
)
from dragoman.message import Part, ProviderItem
from dragoman.stream import assemble

TERMINALS = ("done", "error")
CALL_KINDS = ("tool_call_start", "tool_call_args", "tool_call_end")
PLAIN_KINDS = ("start", "text", "thinking", "image", "provider_item", "usage", *TERMINALS)
KINDS = (*PLAIN_KINDS, *CALL_KINDS)

Data: TypeAlias = dict[str, Any]
Piece: TypeAlias = TextDelta | ThinkingDelta

RUN = "run-1"
STAMP = datetime(2025, 1, 1, tzinfo=UTC)

# No test here measures time, so a slow machine is no failure.
unhurried = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def allows(deltas: Sequence[MessageDelta]) -> bool:
    """Return whether the deltas are a legal stream, or the beginning of one."""
    kinds = [delta.kind for delta in deltas]
    return (
        all(kind in KINDS for kind in kinds)
        and all(earlier.seq < later.seq for earlier, later in pairwise(deltas))
        and _begins_rightly(kinds)
        and "start" not in kinds[1:]
        and not any(kind in TERMINALS for kind in kinds[:-1])
        and _calls_are_paired(deltas)
    )


def allows_as_whole(deltas: Sequence[MessageDelta]) -> bool:
    """Return whether the deltas are a legal stream that is over: its one terminal is its last delta."""
    return bool(deltas) and deltas[-1].kind in TERMINALS and allows(deltas)


def _begins_rightly(kinds: list[str]) -> bool:
    """A stream opens with start; only an error can come before any start."""
    return not kinds or kinds[0] == "start" or kinds == ["error"]


def _calls_are_paired(deltas: Sequence[MessageDelta]) -> bool:
    """Of each call: one start, then arguments, then one end, which may be missing only where no done came."""
    histories: dict[str, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallStartDelta | ToolCallArgsDelta | ToolCallEndDelta):
            histories.setdefault(delta.tool_call_id, []).append(delta.kind)
    finished = bool(deltas) and deltas[-1].kind == "done"
    return all(_is_one_call(history, must_be_closed=finished) for history in histories.values())


def _is_one_call(history: list[str], *, must_be_closed: bool) -> bool:
    closed = history[-1] == "tool_call_end"
    between = history[1:-1] if closed else history[1:]
    return (
        history[0] == "tool_call_start"
        and all(kind == "tool_call_args" for kind in between)
        and (closed or not must_be_closed)
    )


# Deltas, short to write. `stream` numbers them; the others number themselves.


def text(piece: str, index: int | None = None, data: Data | None = None) -> TextDelta:
    return TextDelta(RUN, 0, STAMP, piece, index, data)


def thinking(piece: str, index: int | None = None, data: Data | None = None) -> ThinkingDelta:
    return ThinkingDelta(RUN, 0, STAMP, piece, index, data)


def opened(call: str = "c1", data: Data | None = None) -> ToolCallStartDelta:
    return ToolCallStartDelta(RUN, 0, STAMP, call, "look_up", data)


def args(piece: str, call: str = "c1") -> ToolCallArgsDelta:
    return ToolCallArgsDelta(RUN, 0, STAMP, call, piece)


def ended(call: str = "c1", data: Data | None = None, parse_error: str | None = None) -> ToolCallEndDelta:
    return ToolCallEndDelta(RUN, 0, STAMP, call, data, parse_error)


def usage(**tokens: int) -> UsageDelta:
    return UsageDelta(RUN, 0, STAMP, TokenUsage(**tokens))


def done(reason: FinishReason = FinishReason.STOP) -> DoneDelta:
    return DoneDelta(RUN, 0, STAMP, reason)


def delta_of(kind: str, seq: int, call: str = "c1") -> MessageDelta:
    """Return some delta of that kind; the call kinds concern `call`."""
    delta: MessageDelta
    match kind:
        case "start":
            delta = StartDelta(RUN, 0, STAMP, "model-1", "request-1")
        case "text":
            delta = text("a")
        case "thinking":
            delta = thinking("b")
        case "tool_call_start":
            delta = opened(call)
        case "tool_call_args":
            delta = args("{}", call)
        case "tool_call_end":
            delta = ended(call)
        case "usage":
            delta = usage(output_tokens=1)
        case "done":
            delta = done()
        case "error":
            delta = ErrorDelta(RUN, 0, STAMP, ErrorCode.OVERLOADED, "too busy")
        case "image":
            delta = ImageDelta(RUN, 0, STAMP, "image/png", b"PNG")
        case "provider_item":
            delta = ProviderItemDelta(RUN, 0, STAMP, "web_search", {"id": 1})
        case _:
            raise AssertionError(f"no such kind: {kind}")
    return replace(delta, seq=seq)


def deltas_at(seq: int) -> list[MessageDelta]:
    """Return a delta of every kind at that seq, the call kinds once for each of two calls."""
    return [delta_of(kind, seq) for kind in PLAIN_KINDS] + [
        delta_of(kind, seq, call) for kind in CALL_KINDS for call in ("c1", "c2")
    ]


def renumbered(deltas: Sequence[MessageDelta]) -> list[MessageDelta]:
    """Return the deltas with their seq counted from 0."""
    return [replace(delta, seq=seq) for seq, delta in enumerate(deltas)]


def stream(*deltas: MessageDelta) -> list[MessageDelta]:
    return renumbered([delta_of("start", 0), *deltas])


# What a stream must come to, worked out from all of it at once.


def well_formed(written: str) -> str:
    joined = re.sub(
        "[\ud800-\udbff][\udc00-\udfff]",
        lambda pair: chr(0x10000 + ((ord(pair[0][0]) - 0xD800) << 10) + (ord(pair[0][1]) - 0xDC00)),
        written,
    )
    return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", joined)


def expected_parts(deltas: Sequence[MessageDelta]) -> list[tuple[Any, ...]]:
    """The parts as plain tuples. A piece joins the delta before it if that is an open piece of its kind and part."""
    finish = next((delta.finish_reason for delta in deltas if isinstance(delta, DoneDelta)), None)
    telling = [
        delta
        for delta in deltas
        if delta.kind not in ("start", "usage", "done", "error")
        and not (isinstance(delta, Piece) and not delta.text_delta and delta.provider_data is None)
    ]
    blocks: list[list[MessageDelta]] = []
    for before, delta in zip([None, *telling], telling, strict=False):
        joins = (
            isinstance(delta, Piece)
            and isinstance(before, Piece)
            and (before.kind, before.part_index, before.provider_data) == (delta.kind, delta.part_index, None)
        )
        if joins:
            blocks[-1].append(delta)
        elif not isinstance(delta, ToolCallArgsDelta | ToolCallEndDelta):
            blocks.append([delta])
    return [expected_part(block, deltas, finish) for block in blocks]


def expected_part(block: list[Any], deltas: Sequence[MessageDelta], finish: FinishReason | None) -> tuple[Any, ...]:
    first, last = block[0], block[-1]
    match first.kind:
        case "text" | "thinking":
            return first.kind, well_formed("".join(piece.text_delta for piece in block)), last.provider_data
        case "image":
            return "image", first.mime_type, first.data, first.url, first.provider_data
        case "provider_item":
            return "provider_item", first.item_type, first.item, first.text, first.provider_data
    own = [delta for delta in deltas if getattr(delta, "tool_call_id", None) == first.tool_call_id]
    raw = well_formed("".join(delta.args_text_delta for delta in own if isinstance(delta, ToolCallArgsDelta)))
    end = own[-1] if isinstance(own[-1], ToolCallEndDelta) else None
    arguments = None
    good = (FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.PAUSE)
    if end and end.parse_error is None and (raw or finish in good):
        arguments = expected_arguments(raw or "{}")
    data = {**(first.provider_data or {}), **((end and end.provider_data) or {})} or None
    return "tool_call", first.tool_call_id, first.tool_name, raw, arguments, data


def expected_arguments(raw: str) -> Data | None:
    """For the harmless argument texts that are drawn here."""
    try:
        value = json.loads(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def plain(part: Part) -> tuple[Any, ...]:
    match part:
        case Text() | Thinking():
            return part.kind, part.text, part.provider_data
        case Image():
            return "image", part.mime_type, part.data, part.url, part.provider_data
        case ProviderItem():
            return "provider_item", part.item_type, part.item, part.text, part.provider_data
        case ToolCall():
            assert (part.arguments is None) == (part.parse_error is not None)
            return (
                "tool_call",
                part.tool_call_id,
                part.tool_name,
                part.raw_args_text,
                part.arguments,
                part.provider_data,
            )
        case _:
            raise AssertionError(f"no part of an answer: {part!r}")


def plain_parts(message: Message | None) -> list[tuple[Any, ...]]:
    return [] if message is None else [plain(part) for part in message.parts]


# How a stream under way can go on; with four calls there is always something to open or to close.
_WAYS_ON = [
    *((kind, "") for kind in PLAIN_KINDS if kind not in ("start", *TERMINALS)),
    *((kind, call) for call in ("c1", "c2", "c3", "c4") for kind in CALL_KINDS),
]
_choices = st.tuples(st.integers(0, len(_WAYS_ON) - 1), st.integers(1, 3))


@st.composite
def open_streams(draw: st.DrawFn) -> list[MessageDelta]:
    """Legal streams that are under way: no terminal yet, perhaps with calls open, often long."""
    deltas = [delta_of("start", draw(st.integers(0, 3)))]
    length = draw(st.integers(0, 30))  # drawn first, because lists of a free size are mostly short
    for choice, step in draw(st.lists(_choices, min_size=length, max_size=length)):
        seq = deltas[-1].seq + step
        rotated = (*_WAYS_ON[choice:], *_WAYS_ON[:choice])
        deltas.append(next(delta for way in rotated if allows([*deltas, delta := delta_of(way[0], seq, way[1])])))
    return deltas


@st.composite
def whole_streams(draw: st.DrawFn) -> list[MessageDelta]:
    """Legal streams that are over, by done or by error."""
    deltas: list[MessageDelta] = draw(open_streams())
    if draw(st.booleans()):
        return [*deltas, delta_of("error", deltas[-1].seq + 1)]
    closed = {delta.tool_call_id for delta in deltas if isinstance(delta, ToolCallEndDelta)}
    opened = [delta.tool_call_id for delta in deltas if isinstance(delta, ToolCallStartDelta)]
    for call in opened:
        if call not in closed:
            deltas.append(delta_of("tool_call_end", deltas[-1].seq + 1, call))
    return [*deltas, delta_of("done", deltas[-1].seq + 1)]


@st.composite
def nearly_legal_streams(draw: st.DrawFn) -> list[MessageDelta]:
    """Legal streams with up to three deltas dropped, repeated or put in; renumbered or not."""
    deltas: list[MessageDelta] = draw(whole_streams() | open_streams())
    for fault in draw(st.lists(st.sampled_from(("drop", "repeat", "insert")), max_size=3)):
        position = draw(st.integers(0, max(len(deltas) - 1, 0)))
        if fault == "insert" or not deltas:
            deltas.insert(position, draw(loose_deltas))
        elif fault == "drop":
            del deltas[position]
        else:
            deltas.insert(position, deltas[position])
    return renumbered(deltas) if draw(st.booleans()) else deltas


loose_deltas = st.builds(delta_of, st.sampled_from(KINDS), st.integers(0, 12), st.sampled_from(("c1", "c2")))
disordered_streams = st.lists(loose_deltas, max_size=12)
any_streams = nearly_legal_streams() | disordered_streams


# Streams by blocks, and ways to cut them.

# Texts as the wire has them: any of Unicode, both halves of a surrogate pair, and halves that stand alone.
texts = st.text(st.characters() | st.sampled_from("a\N{GRINNING FACE}\ud83d\ude00"), max_size=12)
signatures = st.none() | st.builds(lambda number: {"signature": number}, st.integers(0, 9))
indexes = st.sampled_from((None, None, 0, 1))
argument_texts = st.sampled_from(
    ["", "{}", '{"a": 1}', '{"smile": "\N{GRINNING FACE}"}', '{"a": ', "[1]", '{"a": [true, null, {"b": "\\n"}]}']
)
piece_blocks = st.builds(text, texts, indexes, signatures) | st.builds(thinking, texts, indexes, signatures)
other_blocks = (
    st.builds(args, argument_texts, st.just("to be named"))
    | st.just(delta_of("image", 0))
    | st.just(delta_of("provider_item", 0))
)
# Mostly pieces, so that two blocks of a kind are often neighbours.
blocks = piece_blocks | piece_blocks | other_blocks
block_lists = st.integers(0, 6).flatmap(lambda size: st.lists(blocks, min_size=size, max_size=size))


def halves(written: str) -> str:
    """The text with every surrogate pair taken apart."""
    units = written.encode("utf-16-le", "surrogatepass")
    return "".join(chr(units[at] | units[at + 1] << 8) for at in range(0, len(units), 2))


def pieces_of(draw: st.DrawFn, written: str) -> list[str]:
    """The text cut at any places, through pairs and with empty pieces too."""
    units = halves(written)
    cuts = sorted(draw(st.lists(st.integers(0, len(units)), max_size=4)))
    return [units[start:end] for start, end in zip([0, *cuts], [*cuts, len(units)], strict=True)]


def cut_up(draw: st.DrawFn, said: Sequence[MessageDelta]) -> list[MessageDelta]:
    """A whole stream that says what the blocks say, in pieces, with reports of usage in between."""
    deltas: list[MessageDelta] = []
    for number, block in enumerate(said):
        if isinstance(block, Piece):
            *pieces, last = pieces_of(draw, block.text_delta)
            deltas += [replace(block, text_delta=piece, provider_data=None) for piece in pieces]
            deltas.append(replace(block, text_delta=last))
        elif isinstance(block, ToolCallArgsDelta):
            call = f"c{number}"
            pieces = pieces_of(draw, block.args_text_delta)
            deltas += [opened(call, {"id": number}), *(args(piece, call) for piece in pieces), ended(call)]
        else:
            deltas.append(block)
    for _ in range(draw(st.integers(0, 2))):
        deltas.insert(draw(st.integers(0, len(deltas))), usage(output_tokens=7))
    return stream(*deltas, usage(output_tokens=7), done())


@st.composite
def cut_streams(draw: st.DrawFn) -> list[MessageDelta]:
    return cut_up(draw, draw(block_lists))


@st.composite
def same_stream_twice(draw: st.DrawFn) -> tuple[list[MessageDelta], list[MessageDelta]]:
    said = draw(block_lists)
    return cut_up(draw, said), cut_up(draw, said)


def assembled(*deltas: MessageDelta, reason: FinishReason = FinishReason.STOP) -> Message:
    """The message of a stream that holds `deltas` and finishes."""
    assembly = assemble(stream(*deltas, done(reason)))
    assert assembly.error is None
    assert assembly.partial is None
    assert assembly.message is not None
    return assembly.message


def parts_of(*deltas: MessageDelta) -> tuple[Part, ...]:
    return assembled(*deltas).parts
