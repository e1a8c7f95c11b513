"""Anthropic Messages: its events or whole answer to deltas. Pure; `requests` writes requests.

Also spoken by Bedrock (invoke, whose event stream wraps the same events) and Vertex.

`providerData` here, in the wire's own words: text `citations`; thinking `signature`, or `data` of a redacted block; the
`caller` of a `tool_use`; on the message its `usage` as reported and every further field (`container` …).
"""

from collections.abc import Sequence
from types import NoneType
from typing import Annotated, Any, Literal

import msgspec

from ..._jsontext import encode_json
from ...errors import ErrorCode, ModelError
from ...message import FinishReason
from ...stream import DeltaWriter, TypedJson, WireEvent
from ...target import Dialect
from ...usage import TokenUsage, count_of
from ..callids import CallIds
from ..failures import error_from_event, error_from_words, error_words, not_an_answer
from ..lenient import (
    UNREADABLE,
    LenientJson,
    broken,
    decode_unlabelled,
    objects_of,
    read_object,
    require_types,
    required_object,
    text_of,
)
from ..wholeness import (
    Damage,
    call_problem,
    contradicted,
    finish_of,
    input_of,
    lost,
    require_unfinished,
    says_the_same,
    worst_word,
)

__all__ = ["Decoder"]

FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "pause_turn": FinishReason.PAUSE,
    "compaction": FinishReason.PAUSE,  # a pause asked for, after the summary
    "refusal": FinishReason.REFUSAL,
    # Hosts of other models keep the words of OpenAI.
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
    "sensitive": FinishReason.CONTENT_FILTER,  # Z.ai
}


class _Delta(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: Annotated[int, msgspec.Meta(ge=0)] = 0
    delta: _Delta | None = None


class _TextPiece(msgspec.Struct, gc=False, tag="text_delta"):
    text: str


class _ThinkingPiece(msgspec.Struct, gc=False, tag="thinking_delta"):
    thinking: str


class _InputPiece(msgspec.Struct, gc=False, tag="input_json_delta"):
    partial_json: str


class _Piece(msgspec.Struct, gc=False):
    """The shape of most events. The wide shape `_Event` reads the others."""

    type: Literal["content_block_delta"]
    delta: _TextPiece | _ThinkingPiece | _InputPiece
    index: Annotated[int, msgspec.Meta(ge=0)] = 0


class _Chunk(msgspec.Struct, gc=False):
    """A frame of Bedrock's event stream: one event in base64, and padding."""

    event: bytes = msgspec.field(name="bytes", default=b"")


_decode_piece = msgspec.json.Decoder(_Piece).decode
_EVENT = LenientJson(_Event, needed=frozenset({"delta", "text", "thinking", "partial_json"}))
_CHUNK = TypedJson(_Chunk)
_BODY = LenientJson(dict[str, Any])
_OWN_FIELDS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "usage"})
# What the API asks of the fields of its own blocks, which go back as they came.
_ITEM_TYPES: dict[str, tuple[type, ...]] = {
    "id": (str,), "name": (str,), "tool_use_id": (str,), "input": (dict,), "content": (list, dict, str),
}  # fmt: skip
_CACHE_AGES = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
_MODEL_ITSELF = {"type": "direct"}  # the default, which not every host takes back
# Delta -> the block that it belongs to, where a host did not open one.
_FRAMES = frozenset({"chunk", "error"})  # events that are not read by their `type`
_FAILURES = ("Exception", "Error")
_CONTENT = frozenset({"index", "delta", "content_block"})  # an event with one of these is about a content block
_KINDS = {"thinking_delta": "thinking", "signature_delta": "thinking", "compaction_delta": "compaction"}


class _Block:
    """An open content block: its first event, and what its deltas added."""

    __slots__ = ("call_id", "citations", "json_pieces", "kind", "number", "opened", "signature", "summarised")

    def __init__(self, number: int, opened: dict[str, Any]) -> None:
        self.number = number
        self.opened = opened
        self.kind: str = opened["type"]
        self.json_pieces: list[str] = []
        self.citations = objects_of(opened.get("citations"))
        self.signature = text_of(opened.get("signature"))
        self.call_id = ""  # of a call; empty while it may be one that came before
        self.summarised = False  # whether a compaction's delta has come


class Decoder:
    """Events of one answer → deltas. `message_stop` is the finish; an answer without it was cut."""

    __slots__ = (
        "_blocks", "_call_ids", "_cut_input", "_damage", "_message_data", "_opened", "_reason",
        "_speaking", "_spoke", "_usage", "_writer", "unknown_events",
    )  # fmt: skip

    def __init__(self, writer: DeltaWriter, _: Dialect) -> None:
        self._writer = writer
        self._blocks: dict[int, _Block] = {}
        self._speaking = -1  # the open block that is no call; there is one at most
        self._opened: set[int] = set()  # indexes of all blocks so far
        self._damage = Damage()
        self._call_ids = CallIds()
        self._cut_input = False  # whether the input of a server tool does not parse
        self._spoke = False
        self._usage: dict[str, Any] = {}
        self._reason: str | None = None
        self._message_data: dict[str, Any] = {}
        self.unknown_events = 0

    def decode(self, events: Sequence[WireEvent]) -> None:
        writer, blocks = self._writer, self._blocks
        write_text, write_arguments = writer.text, writer.call_args
        writing = -1  # the block that the last event added text to
        for name, framed in events:
            data = framed
            if name in _FRAMES:
                if name == "error":  # whatever `type` its data has
                    self._writer.error(error_from_event(name, data))
                    return
                data = _CHUNK.read(framed).event
            try:
                event = _decode_piece(data)
            except UNREADABLE:
                self._decode_any(name, data)
                writing = -1
                continue
            piece = event.delta
            if type(piece) is _TextPiece:
                if event.index != writing:
                    writing = event.index
                    if writing not in blocks:
                        self._open_block(writing, {"type": "text"})
                    elif blocks[writing].kind == "tool_use":
                        self._skip(writing)
                        writing = -1
                        continue
                write_text(piece.text, event.index, None)
            elif (block := blocks.get(event.index)) is None:
                self._decode_any(name, data)
            elif type(piece) is _InputPiece and piece.partial_json and block.call_id:
                block.json_pieces.append(piece.partial_json)
                write_arguments(block.call_id, piece.partial_json)
            elif type(piece) is _ThinkingPiece and not block.call_id:
                writer.thinking(piece.thinking, event.index)
            else:
                self._decode_any(name, data)

    def _decode_any(self, name: str, data: bytes) -> None:
        if name.endswith(_FAILURES):  # Bedrock names the frame by its exception
            self._writer.error(error_from_event(name, data))
            return
        event = _EVENT.read(data)
        if event.type == "content_block_delta" and event.delta is not None:
            self._add_to_block(event.index, event.delta, data)
        else:
            self._decode_rare(event.type or name, event.index, _BODY.read(data))

    def decode_body(self, body: bytes) -> None:
        if decode_unlabelled(self, body):
            return
        message = read_object(body)
        if "error" in message and "content" not in message:
            raise error_from_words(*error_words(message))
        content = message.get("content")
        if content is None and message.get("type") == "message":
            content = []
        if not isinstance(content, list):
            raise not_an_answer("the answer is not a message of this API", message)
        self._start(message)
        for index, block in enumerate(content):
            self._open_block(index, block)
            self._close_block(index)
        self._note_message(message, message.get("usage"))
        self._finish()

    def end(self) -> None:
        pass

    def _decode_rare(self, kind: str, index: int, value: dict[str, Any]) -> None:
        match kind:
            case "message_start":
                self._begin(value["message"] if isinstance(value.get("message"), dict) else {})
            case "content_block_start":
                self._open_block(index, required_object(value, "content_block"))
            case "content_block_stop":
                self._end_block(index)
            case "message_delta":
                if not self._writer.started:
                    raise lost("the start of the message")
                further = {name: value[name] for name in value if name not in ("delta", "usage")}
                self._note_message({**further, **(value.get("delta") or {})}, value.get("usage"))
            case "message_stop":
                self._note_message(value, None)  # Bedrock adds its metrics here
                if not self._reason:
                    raise lost("the message ended without a stop reason")
                for open_index in tuple(self._blocks):
                    self._close_block(open_index, ended=False)
                self._finish()
            case "ping":
                pass
            case _ if "error" in value:  # llama.cpp and gateways send an envelope without a type
                words, message = error_words(value)
                self._writer.error(error_from_words([*words, kind], message))
            case _ if _CONTENT.isdisjoint(value):
                self.unknown_events += 1
            case _:
                self._skip(count_of(value.get("index")))

    def _skip(self, index: int | None) -> None:
        """Skip something unknown for a content block. A call that it belongs to is not used."""
        self.unknown_events += 1
        self._damage.add(index)

    def _begin(self, message: dict[str, Any]) -> None:
        """Take the first event. Kimi repeats it at once. One after content is a second try after a broken first."""
        repeated = self._writer.started
        if repeated and self._spoke:
            raise ModelError("another message began before this one had ended", code=ErrorCode.STREAM_TRUNCATED)
        self._start(message)
        content = message.get("content")
        if not repeated and isinstance(content, list):  # what code execution did before it called a tool
            for index, block in enumerate(content):
                self._open_block(index, block)
                self._close_block(index)

    def _start(self, message: dict[str, Any]) -> None:
        self._writer.start(text_of(message.get("model")), text_of(message.get("id")))
        self._note_usage(message.get("usage"))

    def _open_block(self, index: int, opened: Any) -> None:
        kind = opened.get("type") if isinstance(opened, dict) else None
        if not isinstance(kind, str) or not kind:
            raise broken("a content block is not an object with a type")
        # Kimi does not close its blocks, proxies give each the index 0; those of calls may run side by side.
        for known in (index, self._speaking):
            if known in self._blocks:
                self._close_block(known, ended=False)
        if not self._writer.started:
            raise lost("a content block began before its message")
        self._spoke = True
        self._opened.add(index)
        block = self._blocks[index] = _Block(self._damage.open(), opened)
        self._speaking = -1 if block.kind == "tool_use" else index
        if block.kind == "text" and (text := text_of(opened.get("text"))):
            self._writer.text(text, index)
        elif block.kind == "thinking" and (text := text_of(opened.get("thinking"))):
            self._writer.thinking(text, index)
        elif block.kind == "tool_use":
            self._open_call(block)

    def _open_call(self, block: _Block) -> None:
        opened = block.opened
        name = text_of(opened.get("name"))
        if not name:
            raise broken("a tool_use block has no name")
        wire_id = text_of(opened.get("id"))
        require_unfinished(self._reason)
        if self._call_ids.has(wire_id):
            return  # it may be a call that came before: what it says is known when it ends
        block.call_id = self._call_ids.claim(wire_id)
        caller = opened.get("caller")  # no other field is taken back with a call
        is_other = isinstance(caller, dict) and caller != _MODEL_ITSELF
        self._writer.call_start(block.call_id, name, {"caller": caller} if is_other else None)

    def _add_to_block(self, index: int, delta: _Delta, data: bytes) -> None:
        if index not in self._blocks:
            if delta.type == "input_json_delta":
                raise broken("arguments came for a content block that is not open")
            self._open_block(index, {"type": _KINDS.get(delta.type, "text")})
        block = self._blocks[index]
        if block.kind == "tool_use" and (delta.type != "input_json_delta" or delta.partial_json is None):
            self._skip(index)
            return
        match delta.type:
            case "text_delta" if delta.text is not None:
                self._writer.text(delta.text, index)
            case "input_json_delta" if delta.partial_json is not None:
                if block.call_id and delta.partial_json:
                    self._writer.call_args(block.call_id, delta.partial_json)
                elif delta.partial_json and block.kind in ("text", "thinking"):
                    raise broken("arguments came for a content block that is no tool call")
                block.json_pieces.append(delta.partial_json)
            case "thinking_delta" if delta.thinking is not None:
                self._writer.thinking(delta.thinking, index)
            case "signature_delta" if delta.signature is not None:
                block.signature = delta.signature
            case "citations_delta":
                block.citations += objects_of([required_object(_BODY.read(data), "delta").get("citation")])
            case "compaction_delta":
                further = required_object(_BODY.read(data), "delta")
                block.opened.update({name: further[name] for name in further if name != "type"})
                block.summarised = True
            case _:  # of a type that is not known, or without what its type promises
                self.unknown_events += 1

    def _end_block(self, index: int) -> None:
        """Take the end of an open block. A compaction block gets all its content from one delta."""
        if index not in self._opened:
            raise lost("a content block ended that had not begun")
        block = self._blocks.get(index)
        if block is None:
            return  # it has ended before
        if block.kind == "compaction" and not block.summarised and block.opened.get("content") is None:
            raise lost("a compaction has no content")
        self._close_block(index)

    def _close_block(self, index: int, *, ended: bool = True) -> None:
        """Write the rest of a block. A call without its own end event gets a parse error, so that no tool runs."""
        block = self._blocks.pop(index)
        opened, written_input = block.opened, "".join(block.json_pieces)
        match block.kind:
            case "text":
                if block.citations:
                    self._writer.text("", index, {"citations": block.citations})
            case "thinking":
                if block.signature:
                    self._writer.thinking("", index, {"signature": block.signature})
            case "redacted_thinking":
                self._writer.thinking("", index, {"data": text_of(opened.get("data"))})
            case "tool_use":
                self._close_call(index, block, written_input, ended)
            case "compaction":
                require_types(opened, {"content": (str, NoneType)}, "a compaction")
                self._writer.item("compaction", opened, opened.get("content"))
            case kind:
                if written_input:
                    arguments, whole = input_of(written_input)
                    opened, self._cut_input = {**opened, "input": arguments}, self._cut_input or not whole
                require_types(opened, _ITEM_TYPES, f"a block of type {kind[:40]!r}")
                self._writer.item(kind, opened)

    def _close_call(self, index: int, block: _Block, written: str, ended: bool) -> None:
        opened = block.opened
        wire_id, name, whole = text_of(opened.get("id")), text_of(opened.get("name")), opened.get("input")
        if whole and not isinstance(whole, str):  # an object; of some hosts its text
            whole = encode_json(whole).decode()
        if whole and written and not says_the_same(whole, written):
            raise contradicted("a tool call began with other arguments than its pieces say")
        if not block.call_id:
            self._call_ids.require_repeat(wire_id, name, written or whole or "")
            return
        if whole and not written:
            self._writer.call_args(block.call_id, whole)
        self._call_ids.note(wire_id, name, written or whole or "")
        is_damaged = self._damage.is_on(index, block.number)
        self._writer.call_end(block.call_id, None, call_problem(is_closed=ended, is_damaged=is_damaged))

    def _note_message(self, message: dict[str, Any], usage: Any) -> None:
        self._note_usage(usage)
        self._reason = worst_word(self._reason, text_of(message.get("stop_reason")), _reason_of)
        self._writer.has_finish = self._reason is not None
        self._message_data.update(
            {name: value for name, value in message.items() if name not in _OWN_FIELDS and value is not None}
        )

    def _note_usage(self, usage: Any) -> None:
        """A later report replaces the fields that it has. `input_tokens` counts no cached tokens."""
        if not isinstance(usage, dict):
            return
        self._usage.update({name: value for name, value in usage.items() if value is not None})
        fresh, output = (count_of(self._usage.get(f"{what}_tokens")) for what in ("input", "output"))
        read, written = (count_of(self._usage.get(f"cache_{what}_input_tokens")) for what in ("read", "creation"))
        details, by_age = self._usage.get("output_tokens_details"), self._usage.get("cache_creation")
        if written is None and isinstance(by_age, dict):
            counts = [count for count in map(count_of, map(by_age.get, _CACHE_AGES)) if count is not None]
            written = sum(counts) if counts else None
        input_tokens = None if fresh is None else fresh + (read or 0) + (written or 0)
        self._writer.usage(
            TokenUsage.reported(
                input_tokens=input_tokens,
                output_tokens=output,
                total_tokens=None if input_tokens is None or output is None else input_tokens + output,
                cache_read_tokens=read,
                cache_write_tokens=written,
                reasoning_tokens=details.get("thinking_tokens") if isinstance(details, dict) else None,
            )
        )

    def _finish(self) -> None:
        reason = finish_of(_reason_of(self._reason or ""), self._call_ids, is_input_cut=self._cut_input)
        data = {**self._message_data, **({"usage": self._usage} if self._usage else {})}
        self._writer.done(reason, self._reason, data or None)


def _reason_of(word: str) -> FinishReason:
    return FINISH_REASONS.get(word, FinishReason.OTHER)
