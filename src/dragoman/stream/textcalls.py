"""Tool calls that a model writes as text, found in its answer: deltas in, deltas out. Pure. Knows no wire API.

Two forms are read: a JSON object with `name` and `arguments` inside `<tool_call>`, and `<function=name>` with one
`<parameter=key>` per argument or with a JSON object, alone or inside `<tool_call>`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from .._jsontext import decode_json, encode_json, join_surrogates
from ..delta import (
    DoneDelta,
    ErrorDelta,
    MessageDelta,
    StartDelta,
    TextDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
    UsageDelta,
)
from ..errors import UnreadableData
from ..message import FinishReason
from ..toolspec import ToolSpec

__all__ = ["TextCallReader"]

_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
# Models write the tags of their reasoning in any case, and with white space before the end.
_THINK = re.compile(r"<think(?:ing)?\s{0,8}>", re.IGNORECASE)
_THINK_END = re.compile(r"</think(?:ing)?\s{0,8}>", re.IGNORECASE)
_THINK_WORDS = ("<think", "<thinking", "</think", "</thinking")

_OPENING = re.compile(f"{_CALL}|{_FUNCTION}|(?i:(?P<think>{_THINK.pattern})|(?P<think_end>{_THINK_END.pattern}))")
_SPACE = re.compile(r"\s*")
# The marks that show where a tag may end, by the form of its content.
_MARKS = {
    "plain": (_CALL_END,),
    "json": ('"', _CALL_END, _FUNCTION_END),
    "xml": (_PARAMETER_END, _FUNCTION_END, _CALL_END),
}
_FIND_MARKS = {form: re.compile("|".join(marks)) for form, marks in _MARKS.items()}
_FIND_MARKS["json"] = re.compile(rf"\\.|{_FIND_MARKS['json'].pattern}", re.DOTALL)  # an escaped quote ends no string
_LONGEST_MARK = len("</thinking>") + 8
_MOST_AT_ONCE = 4_096

_HEADER = re.compile(r"<function=\s*[\"']?([^\s<>\"']{1,200})[\"']?\s*>")
_GIVEN = re.compile(r"\s*<parameter=([^<>\n]*)>(.*?)</parameter>(?=\s*(?:<parameter=|\Z))", re.DOTALL)
_NAME_FIRST = re.compile(r'\{\s*"name"\s*:\s*"([^"\\\s]{1,200})"')


class _Written(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"")
    parameters: msgspec.Raw = msgspec.Raw(b"")


_IN_REASONING = "the call is inside the model's reasoning, which ended after it"

_decode_written = msgspec.json.Decoder(_Written).decode


class TextCallReader:
    """Replaces each tag by a tool call, and leaves every other word as it is.

    1. A call is written when its tag has closed, never before. A tag that never closes stays text.
       It ends with the answer: until then a `</think>` may tell that the call stood in the model's reasoning.
    2. A tag is one run of text: whatever else the model says in between leaves it text.
    3. White space between two calls, and around them where nothing else is said, is no text of its own.
    4. What a closed tag holds may be broken or in doubt: then the call has the text as arguments, which do not parse.
    5. Nothing between `<think>` and `</think>` is a call. A call before a `</think>` without a beginning is not used:
       templates of some models put `<think>` at the end of the prompt.
    6. `stop` becomes `tool_calls` where a call was found.
    """

    __slots__ = ("_calls", "_gap", "_held", "_last", "_open", "_out", "_schemas", "_seq", "_tag", "_thinking")

    def __init__(self, tools: Iterable[ToolSpec] = ()) -> None:
        self._schemas = {tool.name: tool.parameter_schema for tool in tools}
        self._out: list[MessageDelta] = []
        self._seq = 0
        self._calls = 0
        self._open: dict[str, dict[str, Any]] = {}  # calls that have not ended, with their provider data
        self._held = ""  # what may be the beginning of a tag
        self._gap: list[str] | None = []  # white space since the beginning or the last call; None after a word
        self._tag: _Tag | None = None
        self._thinking = False
        self._last: TextDelta | None = None  # the piece that is being read: a call takes its time and its number

    def take(self, deltas: Sequence[MessageDelta]) -> list[MessageDelta]:
        """Return the deltas with the calls that these complete."""
        for delta in deltas:
            if type(delta) is TextDelta:
                self._take_text(delta)
                continue
            if type(delta) not in (StartDelta, UsageDelta):
                self._release()
            if type(delta) in (DoneDelta, ErrorDelta):
                self._end_calls(None)
            if type(delta) is DoneDelta and self._calls and delta.finish_reason is FinishReason.STOP:
                self._put(msgspec.structs.replace(delta, finish_reason=FinishReason.TOOL_CALLS))
            else:
                self._put(delta)
        taken, self._out = self._out, []
        return taken

    def close(self) -> list[MessageDelta]:
        """Return the text that was held back: the stream has ended without the provider's finish."""
        self._release()
        self._end_calls(None)
        taken, self._out = self._out, []
        return taken

    def _take_text(self, delta: TextDelta) -> None:
        if self._last is not None and self._last.part_index != delta.part_index:
            self._release()
        self._last = delta
        text = delta.text_delta
        is_open = self._tag is not None or self._thinking or self._held or self._gap is not None
        if not is_open and "<" not in text:
            self._put(delta)
            return
        self._read(text)
        if delta.provider_data is not None:
            self._release()
            self._put(msgspec.structs.replace(delta, text_delta=""))

    def _read(self, text: str) -> None:
        # What is behind a tag is copied: in pieces, many tags in one long text do not cost the square of its length.
        for start in range(0, len(text), _MOST_AT_ONCE):
            self._read_piece(text[start : start + _MOST_AT_ONCE])

    def _read_piece(self, text: str) -> None:
        while text:
            if self._tag is None:
                text = self._read_outside(text)
                continue
            end = self._tag.feed(text)
            if end is None:
                return
            written, text = self._tag.text(text[:end]), text[end:]
            self._tag = None
            self._write_call(written)

    def _read_outside(self, text: str) -> str:
        """Write text up to a tag, or up to what may be the beginning of one; return what is behind the opening."""
        window, self._held = self._held + text, ""
        if self._thinking:
            found = _THINK_END.search(window)
            end = found.end() if found else _whole_part(window, 0, ())
            self._say(window[:end])
            self._thinking = found is None
            if not self._thinking:
                return window[end:]
            self._held = window[end:]
            return ""
        opening = _OPENING.search(window)
        if opening is None:
            end = _whole_part(window, 0, (_CALL, _FUNCTION))
            self._say(window[:end])
            self._held = window[end:]
            return ""
        self._say(window[: opening.start()])
        if opening["think"] or opening["think_end"]:
            if opening["think_end"]:
                self._end_calls(_IN_REASONING)
            self._say(opening[0])
            self._thinking = bool(opening["think"])
        else:
            self._tag = _Tag(opening[0])
        return window[opening.end() :]

    def _end_calls(self, parse_error: str | None) -> None:
        ended, self._open, last = self._open, {}, self._last
        if last is not None:
            for call_id, data in ended.items():
                header, raw = (last.run_id, self._seq, last.timestamp), last.provider_raw
                self._put(ToolCallEndDelta(*header, call_id, data, parse_error, provider_raw=raw))

    def _release(self) -> None:
        """Write what is held back: no call comes of it any more, or one with broken arguments."""
        tag, held = self._tag, self._held
        self._tag, self._held, self._thinking = None, "", False
        if tag is not None:
            written, after = tag.give_up()
            if after is None:
                self._say(written)
            else:
                self._write_call(written)
                self._say(after)
        self._say(held)
        if self._gap and not self._calls:
            self._put_text("".join(self._gap))
        self._gap = [] if self._calls and self._gap is not None else None

    def _say(self, text: str) -> None:
        if self._gap is not None and text:
            self._gap.append(text)
            if text.isspace():
                return
            text, self._gap = "".join(self._gap), None
        if text:
            self._put_text(text)

    def _put_text(self, text: str) -> None:
        last = self._last
        if last is not None:
            header, raw = (last.run_id, self._seq, last.timestamp), last.provider_raw
            self._put(TextDelta(*header, text, last.part_index, provider_raw=raw))

    def _write_call(self, written: str) -> None:
        call, last = _read_call(join_surrogates(written), self._schemas), self._last
        if call is None or last is None:
            self._say(written)
            return
        name, arguments = call
        call_id = f"text_call_{self._calls}"
        self._calls += 1
        data = {"text": join_surrogates("".join(self._gap or ()) + written)}
        self._gap = []
        header, raw = (last.run_id, self._seq, last.timestamp), last.provider_raw
        self._put(ToolCallStartDelta(*header, call_id, name, provider_raw=raw))
        self._put(ToolCallArgsDelta(*header, call_id, arguments, provider_raw=raw))
        self._open[call_id] = data

    def _put(self, delta: MessageDelta) -> None:
        self._out.append(delta if delta.seq == self._seq else msgspec.structs.replace(delta, seq=self._seq))
        self._seq += 1


class _Tag:
    """A tag that has opened. It reads each piece once, however many there are, and looks for the end of the tag.

    An end inside a JSON string, or inside the value of a parameter, is content.
    """

    __slots__ = ("_blank", "_carry", "_close", "_form", "_in_string", "_last", "_pieces", "_refused", "_size")

    def __init__(self, opening: str) -> None:
        self._pieces = [opening]
        self._size = len(opening)
        self._close = _CALL_END if opening == _CALL else _FUNCTION_END
        self._form = "wrapped" if opening == _CALL else "header"
        self._carry = ""  # what may be the beginning of a mark
        self._in_string = False
        self._last = ""  # the mark before, in XML, and whether nothing but white space has come since
        self._blank = True
        self._refused: int | None = None  # where the first end was that is content

    def feed(self, text: str) -> int | None:
        """Take the next piece; return where in it the tag has ended, if it has."""
        window, known = self._carry + text, len(self._carry)
        self._carry = ""
        at = self._open(window)
        if self._form in _MARKS:
            end = self._find_end(window, at, self._size - known)
            if end is not None:
                return end - known
        self._pieces.append(text)
        self._size += len(text)
        return None

    def text(self, last_piece: str) -> str:
        """Return the tag, which this piece ends."""
        return "".join((*self._pieces, last_piece))

    def give_up(self) -> tuple[str, str | None]:
        """Return the text: up to the first end that it has and what follows that, or all of it and None."""
        whole = "".join(self._pieces)
        return (whole, None) if self._refused is None else (whole[: self._refused], whole[self._refused :])

    def _open(self, window: str) -> int:
        """Find out what form the content has; return where it begins in the window."""
        at = 0
        if self._form == "wrapped":
            at = _SPACE.match(window).end()  # type: ignore[union-attr]  # it matches everything
            rest = window[at : at + len(_FUNCTION)]
            if rest == _FUNCTION:
                self._form = "header"
            elif _FUNCTION.startswith(rest):
                self._carry = rest
            else:
                self._form = "json" if rest[0] in "{[" else "plain"
        if self._form == "header":
            end = window.find(">", at)
            if end >= 0:
                self._form, self._last, at = "body", "header", end + 1
        if self._form == "body":
            at = _SPACE.match(window, at).end()  # type: ignore[union-attr]
            if at < len(window):
                self._form = "json" if window[at] == "{" else "xml"
        return at

    def _find_end(self, window: str, at: int, offset: int) -> int | None:
        for mark in _FIND_MARKS[self._form].finditer(window, at):
            self._blank = self._blank and not window[at : mark.start()].strip()
            at = mark.end()
            if self._ends_with(mark[0]):
                return at
            if mark[0] == self._close and self._refused is None:
                self._refused = offset + at
        end = _whole_part(window, at, _MARKS[self._form])
        self._blank = self._blank and not window[at:end].strip()
        self._carry = window[end:]
        return None

    def _ends_with(self, mark: str) -> bool:
        """Whether the tag ends with this mark."""
        if self._form == "json":
            if mark == '"':
                self._in_string = not self._in_string
            return mark == self._close and not self._in_string
        if self._form == "plain":
            return mark == self._close
        before = ("header", _PARAMETER_END) if mark == _FUNCTION_END else (_FUNCTION_END,)
        is_next = mark == _PARAMETER_END or (self._blank and self._last in before)
        self._last, self._blank = (mark if is_next else ""), True
        return is_next and mark == self._close


def _whole_part(window: str, start: int, marks: Sequence[str]) -> int:
    """Return where the end of the window may be the beginning of a mark; its length where it is none."""
    if window.endswith("\\") and '"' in marks:
        escapes = len(window) - len(window.rstrip("\\"))
        if escapes % 2:
            return max(start, len(window) - 1)
    at = window.rfind("<", max(start, len(window) - _LONGEST_MARK + 1))
    if at < 0:
        return len(window)
    tail = window[at:]
    return at if any(mark.startswith(tail) for mark in marks) or _may_be_think(tail) else len(window)


def _may_be_think(tail: str) -> bool:
    """Whether this may be the beginning of a tag of reasoning."""
    word = tail.rstrip().lower()
    if word == tail.lower():
        return any(known.startswith(word) for known in _THINK_WORDS)
    return word in _THINK_WORDS


# ---------------------------------------------------------------- what a tag says


def _read_call(written: str, schemas: dict[str, dict[str, Any]]) -> tuple[str, str] | None:
    """Return the name and the argument text of the call that a closed tag holds; None where it names no tool.

    The text of a call that is broken or in doubt is the tag itself, which is no JSON.
    """
    content = written.removeprefix(_CALL).removesuffix(_CALL_END).strip()
    if content.startswith(_FUNCTION):
        return _read_function(content, schemas)
    call = _read_object(content, schemas)
    return (call[0], written) if call is not None and call[1] is None else call  # type: ignore[return-value]


def _read_object(content: str, schemas: dict[str, dict[str, Any]]) -> tuple[str, str | None] | None:
    """The name and the argument text; None instead of the text where the object is broken or ambiguous."""
    name: Any
    arguments: bytes | None
    try:
        try:
            call = _decode_written(content)
            name, arguments = call.name, bytes(call.arguments) or bytes(call.parameters) or None
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            # Half an escaped character is no JSON to msgspec, and models do write that.
            value = decode_json(content)
            name = value.get("name") if isinstance(value, dict) else None
            given = {key for key in ("arguments", "parameters") if name and key in value}
            arguments = encode_json(value[min(given)]) if given else None
    except UnreadableData:
        found = _NAME_FIRST.match(content)
        return (found[1], None) if found else None
    if not isinstance(name, str) or not name:
        return None
    if _is_ambiguous(content, arguments):
        return name, None
    if arguments is None:  # left out: only a tool that takes none is called without doubt
        return name, None if schemas.get(name, {"properties": True}).get("properties") else "{}"
    if arguments.startswith(b'"'):  # the object again as text, as the Chat API has it
        return name, str(decode_json(arguments))
    return name, arguments.decode() if arguments != b"null" else "{}"


def _is_ambiguous(content: str, arguments: bytes | None) -> bool:
    """Whether the object names the tool twice, or gives arguments twice: which of them counts is not known."""
    import json

    outer = content if arguments is None else content.replace(arguments.decode(), "0", 1)
    keys: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        keys[:] = [key for key, _ in pairs]  # the outermost object comes last

    try:
        json.loads(outer, object_pairs_hook=note)
    except (ValueError, RecursionError):
        return True
    return keys.count("name") != 1 or keys.count("arguments") + keys.count("parameters") > 1


def _read_function(content: str, schemas: dict[str, dict[str, Any]]) -> tuple[str, str] | None:
    header = _HEADER.match(content)
    if header is None:
        return None
    name, inside = header[1], content[header.end() :].removesuffix(_FUNCTION_END)
    if not content.endswith(_FUNCTION_END):
        return name, content
    if inside.lstrip().startswith("{"):
        return name, inside.strip()
    properties = schemas.get(name, {}).get("properties")
    written: list[str] = []
    at = 0
    while parameter := _GIVEN.match(inside, at):
        if _PARAMETER in parameter[2] or _FUNCTION in parameter[2]:
            return name, content  # a call inside a value: which of the ends belongs to the value is not known
        key, at = parameter[1].strip(), parameter.end()
        schema = properties.get(key) if isinstance(properties, dict) else None
        value = _typed(parameter[2].removeprefix("\n").removesuffix("\n"), schema)
        written.append(f"{encode_json(key).decode()}:{encode_json(value).decode()}")
    if inside[at:].strip():
        return name, content  # a parameter that is not closed, or words between them
    return name, "{" + ",".join(written) + "}"  # a key that was given twice is there twice, and told as such


def _typed(text: str, schema: Any) -> Any:
    """The value that the text says: as JSON where the schema wants no text, else the text itself."""
    kinds = schema.get("type") if isinstance(schema, dict) else None
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or "string" in kinds:
        return text
    try:
        return decode_json(text)
    except UnreadableData:
        return text
