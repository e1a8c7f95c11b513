"""Hypothesis strategies for messages, parts, deltas and legal streams: whatever can be written as JSON and read back.

`text` decides which characters occur. By default it is all of Unicode without lone surrogates, because those become
U+FFFD in JSON; give `st.text(st.characters())` to have them too.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from .._jsontext import encode_json
from ..delta import (
    DELTA_CLASSES,
    SEQ_LIMIT,
    DoneDelta,
    ErrorDelta,
    ImageDelta,
    MessageDelta,
    ProviderItemDelta,
    StartDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
    UnknownDelta,
    UsageDelta,
)
from ..errors import ErrorCode, InvalidValue, MissingExtra
from ..message import (
    PART_CLASSES,
    RESULT_PARTS,
    ROLE_PARTS,
    FileRef,
    FinishReason,
    Image,
    Message,
    MessageMeta,
    ModelInvocationDescriptor,
    Part,
    ProviderItem,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from ..usage import NUMBER_LIMIT, TokenUsage

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingExtra("dragoman.testing.strategies", "testing") from error

__all__ = ["deltas", "json_objects", "legal_streams", "messages", "parts", "timestamps", "token_usages"]

JsonObject: TypeAlias = dict[str, Any]
Texts: TypeAlias = st.SearchStrategy[str]

UNKNOWN = "unknown"  # stands for every kind that only a later version knows

_BIG = 2**80  # beyond what 64 bits hold: JSON sets no bound


def timestamps() -> st.SearchStrategy[datetime]:
    """Return times in UTC, to the microsecond."""
    return st.datetimes(timezones=st.just(UTC))


def json_objects(*, text: Texts | None = None) -> st.SearchStrategy[JsonObject]:
    """Return small nested objects of everything that JSON has, integers beyond 64 bits included."""
    text = _or_any(text)
    numbers = st.integers(-_BIG, _BIG) | st.floats(allow_nan=False, allow_infinity=False)
    values: st.SearchStrategy[Any] = st.recursive(
        st.none() | st.booleans() | numbers | text,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=4,
    )
    return st.dictionaries(text, values, max_size=3)


def token_usages() -> st.SearchStrategy[TokenUsage]:
    """Return usage reports; any field may be missing."""
    counts = st.none() | st.integers(0, NUMBER_LIMIT)
    costs = st.none() | st.floats(0, NUMBER_LIMIT)
    return st.builds(TokenUsage, counts, counts, counts, counts, counts, counts, costs)


def parts(role: Role | str | None = None, *, text: Texts | None = None) -> st.SearchStrategy[Part]:
    """Return parts of every kind, or of those kinds that `role` may hold; a kind of a later version is among them."""
    by_kind = _parts_by_kind(_or_any(text))
    kinds = PART_CLASSES if role is None else sorted(ROLE_PARTS[_role(role)])
    return st.one_of(*(by_kind[kind] for kind in kinds), by_kind[UNKNOWN])


def messages(role: Role | str | None = None, *, text: Texts | None = None) -> st.SearchStrategy[Message]:
    """Return messages of every role, or of one."""
    if role is None:
        return st.one_of(*(messages(each, text=text) for each in Role))
    text = _or_any(text)
    least, most = (1, 1) if _role(role) is Role.TOOL else (0, 4)
    held = st.lists(parts(role, text=text), min_size=least, max_size=most).map(tuple)
    return st.builds(Message, st.just(_role(role)), held, text, st.none() | timestamps(), st.none() | _metas(text))


def deltas(kind: str | None = None, *, text: Texts | None = None) -> st.SearchStrategy[MessageDelta]:
    """Return single deltas of every kind, or of one; `"unknown"` stands for the kinds of a later version.

    They do not follow one another: `legal_streams` has streams.
    """
    text = _or_any(text)
    by_kind = _bodies_by_kind(text)
    if kind is not None and kind not in by_kind:
        raise InvalidValue.of("kind", kind, f"one of {', '.join(by_kind)}")
    bodies = st.one_of(*by_kind.values()) if kind is None else by_kind[kind]
    header = st.tuples(text, st.integers(0, SEQ_LIMIT), st.none() | timestamps())
    raws = st.none() | json_objects(text=text)
    return st.builds(lambda body, at, raw: body(*at, raw), bodies, header, raws)


def legal_streams(
    *, ending: str | None = None, max_steps: int = 12, text: Texts | None = None
) -> st.SearchStrategy[list[MessageDelta]]:
    """Return whole streams that the contract accepts, ended by `done` or `error` (`ending` picks one of them).

    Time goes on with `seq`. Calls may be open side by side; their argument text is mostly a JSON object, in pieces.
    An `error` may come while calls are open, or before any start.
    """
    if ending not in (None, "done", "error"):
        raise InvalidValue.of("ending", ending, "'done', 'error' or None")
    text = _or_any(text)
    endings = st.sampled_from(("done", "error") if ending is None else (ending,))
    lengths = st.integers(0, max_steps)
    vocabulary = _Vocabulary(_names(text), _argument_pieces(text), _bodies_by_kind(text))

    @st.composite
    def streams(draw: st.DrawFn) -> list[MessageDelta]:
        writer = _Writer(draw, vocabulary, run_id=draw(text), beginning=draw(_BEGINNINGS))
        writer.write(draw(endings), draw(lengths))
        return writer.said

    return streams()


# ---------------------------------------------------------------- the rest of a value, by its kind

_Body: TypeAlias = Callable[[str, int, datetime | None, Any], MessageDelta]


def _or_any(text: Texts | None) -> Texts:
    return st.text(max_size=12) if text is None else text


def _role(role: Role | str) -> Role:
    if role not in ROLE_PARTS:
        raise InvalidValue.of("role", role, f"one of {', '.join(Role)}")
    return Role(role)


def _names(text: Texts) -> Texts:
    return text.filter(bool)


def _unknown_kinds(text: Texts, known: Mapping[str, object]) -> Texts:
    return _names(text).filter(lambda kind: kind not in known)


_TOKENS = st.text("abcxyz019!#$&^_.+-", min_size=1, max_size=12)
_PICTURE_TYPES = _TOKENS.map("image/{}".format)
_MEDIA_TYPES = st.builds("{}/{}{}".format, _TOKENS, _TOKENS, st.sampled_from(("", ";charset=utf-8", '; a="b c"')))
_ADDRESSES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20)


def _pictures() -> st.SearchStrategy[tuple[str | None, bytes | None, str | None]]:
    whole = st.tuples(_PICTURE_TYPES, st.binary(min_size=1, max_size=12), st.none())
    linked = st.tuples(st.none() | _PICTURE_TYPES, st.none(), _ADDRESSES)
    return whole | linked


def _provider_data(text: Texts) -> st.SearchStrategy[JsonObject | None]:
    return st.none() | json_objects(text=text)


def _argument_texts(text: Texts) -> Texts:
    objects = json_objects(text=text).map(lambda arguments: encode_json(arguments).decode())
    return objects | objects | text


def _argument_pieces(text: Texts) -> st.SearchStrategy[list[str]]:
    def cut(whole: str) -> st.SearchStrategy[list[str]]:
        cuts = st.lists(st.integers(0, len(whole)), max_size=3).map(sorted)
        return cuts.map(lambda at: [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)])

    return _argument_texts(text).flatmap(cut)


def _parts_by_kind(text: Texts) -> dict[str, st.SearchStrategy[Part]]:
    names, objects, data = _names(text), json_objects(text=text), _provider_data(text)
    about_file: dict[str, st.SearchStrategy[Any]] = {
        "mime_type": st.none() | _MEDIA_TYPES,
        "name": st.none() | names,
        "size": st.none() | st.integers(0, NUMBER_LIMIT),
        "provider_data": data,
    }
    file_sources = {"path": names, "url": _ADDRESSES, "file_id": _ADDRESSES, "data": st.binary(max_size=12)}
    by_kind: dict[str, st.SearchStrategy[Part]] = {
        "text": st.builds(Text, text, provider_data=data),
        "thinking": st.builds(Thinking, text, provider_data=data),
        "tool_call": st.builds(ToolCall.parse, names, names, _argument_texts(text), provider_data=data),
        "image": st.builds(lambda at, data: Image(*at, provider_data=data), _pictures(), data),
        "file_ref": st.one_of(*(st.builds(FileRef, **{name: at}, **about_file) for name, at in file_sources.items())),
        "provider_item": st.builds(ProviderItem, names, objects, st.none() | text, provider_data=data),
        UNKNOWN: st.builds(UnknownPart, _unknown_kinds(text, PART_CLASSES), objects),
    }
    inner = st.one_of(*(by_kind[kind] for kind in sorted(RESULT_PARTS)), by_kind[UNKNOWN])
    contents = text | objects | st.lists(inner, max_size=3).map(tuple)
    by_kind["tool_result"] = st.builds(ToolResult, names, contents, st.booleans())
    return by_kind


def _metas(text: Texts) -> st.SearchStrategy[MessageMeta]:
    names = st.none() | _names(text)
    invocations = st.builds(ModelInvocationDescriptor, _names(text), _names(text), _names(text))
    known = MessageMeta.__struct_encode_fields__
    # The caller's own keys: none that means something already, and no null, which is the same as absent.
    own_keys = st.dictionaries(
        text.filter(lambda key: key not in known), json_objects(text=text), min_size=1, max_size=2
    )
    return st.builds(
        MessageMeta,
        usage=st.none() | token_usages(),
        finish_reason=st.none() | st.sampled_from(FinishReason),
        raw_finish_reason=names,
        invocation=st.none() | invocations,
        model_id=names,
        request_id=names,
        trace_id=names,
        parse_failures=st.none() | st.lists(_names(text), max_size=2).map(tuple),
        provider_data=_provider_data(text),
        extra=st.none() | own_keys,
    )


def _body(delta_class: type[MessageDelta], *fields: Any) -> _Body:
    def build(run_id: str, seq: int, timestamp: datetime | None, raw: Any) -> MessageDelta:
        return delta_class(run_id, seq, timestamp, *fields, provider_raw=raw)

    return build


def _bodies_by_kind(text: Texts) -> dict[str, st.SearchStrategy[_Body]]:
    """For each kind, how to make the delta once its run, number and time are known."""
    names, objects, data = _names(text), json_objects(text=text), _provider_data(text)
    words = st.none() | text

    def bodies(delta_class: type[MessageDelta], *fields: st.SearchStrategy[Any]) -> st.SearchStrategy[_Body]:
        return st.tuples(*fields).map(lambda drawn: _body(delta_class, *drawn))

    pieces = (text, st.none() | st.integers(0, 9), data)
    codes, delays = st.sampled_from(ErrorCode), st.none() | st.floats(0, 1e6)
    return {
        "start": bodies(StartDelta, text, text),
        "text": bodies(TextDelta, *pieces),
        "thinking": bodies(ThinkingDelta, *pieces),
        "tool_call_start": bodies(ToolCallStartDelta, names, names, data),
        "tool_call_args": bodies(ToolCallArgsDelta, names, text),
        "tool_call_end": bodies(ToolCallEndDelta, names, data, st.none() | names),
        "image": st.builds(lambda at, data: _body(ImageDelta, *at, data), _pictures(), data),
        "provider_item": bodies(ProviderItemDelta, names, objects, words, data),
        "usage": bodies(UsageDelta, token_usages()),
        "done": bodies(DoneDelta, st.sampled_from(FinishReason), words, data),
        "error": bodies(ErrorDelta, codes, words, st.booleans(), delays, words, words),
        UNKNOWN: bodies(UnknownDelta, _unknown_kinds(text, DELTA_CLASSES), objects),
    }


# ---------------------------------------------------------------- streams

# The contract's open state without the terminals; tool_call_args stands for the next piece or the end of an open call.
_STEPS = st.sampled_from(("text", "thinking", "tool_call_start", "tool_call_args", "image", "provider_item", "usage"))
_SEQ_STEPS = st.integers(1, 3)
_BEGINNINGS = st.datetimes(max_value=datetime(9999, 1, 1), timezones=st.just(UTC))
_MOSTLY = st.integers(0, 9).map(bool)


class _Vocabulary(NamedTuple):
    names: Texts
    argument_pieces: st.SearchStrategy[list[str]]
    bodies: dict[str, st.SearchStrategy[_Body]]


class _Writer:
    """A stream under way: what has been said, and which argument text is still to come for each open call."""

    def __init__(self, draw: st.DrawFn, vocabulary: _Vocabulary, *, run_id: str, beginning: datetime) -> None:
        self._draw, self._run_id, self._beginning = draw, run_id, beginning
        self._names, self._argument_pieces, self._bodies = vocabulary
        self._open_calls: dict[str, list[str]] = {}
        self._used_ids: set[str] = set()
        self.said: list[MessageDelta] = []

    def write(self, ending: str, steps: int) -> None:
        if ending == "done" or self._draw(_MOSTLY):
            self._say_any("start")
            for _ in range(steps):
                self._step(self._draw(_STEPS))
        while ending == "done" and self._open_calls:
            self._continue_call(next(iter(self._open_calls)))
        self._say_any(ending)

    def _step(self, kind: str) -> None:
        if kind == "tool_call_start":
            self._open_call()
        elif kind != "tool_call_args":
            self._say_any(kind)
        elif self._open_calls:
            self._continue_call(self._draw(st.sampled_from(list(self._open_calls))))

    def _open_call(self) -> None:
        call = self._draw(self._names.filter(lambda name: name not in self._used_ids))
        self._used_ids.add(call)
        self._open_calls[call] = self._draw(self._argument_pieces)
        self._say(_body(ToolCallStartDelta, call, self._draw(self._names)))

    def _continue_call(self, call: str) -> None:
        if self._open_calls[call]:
            self._say(_body(ToolCallArgsDelta, call, self._open_calls[call].pop(0)))
        else:
            del self._open_calls[call]
            self._say(_body(ToolCallEndDelta, call))

    def _say_any(self, kind: str) -> None:
        self._say(self._draw(self._bodies[kind]))

    def _say(self, body: _Body) -> None:
        seq = self._draw(_SEQ_STEPS) + (self.said[-1].seq if self.said else -1)
        self.said.append(body(self._run_id, seq, self._beginning + timedelta(milliseconds=seq), None))
