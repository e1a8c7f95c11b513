"""Bedrock Converse: its events or whole answer to deltas. Pure; `requests` writes requests.

`providerData` here, in the wire's own words: text `citations` (and `content` where they came in pieces); thinking
`signature`, or `redactedContent`; the `type` of a `toolUse` that is not usual; on the message its `usage` as reported
and every further field (`trace`, `metrics` …). Content blocks of the provider's own tools are kept whole, as items.
"""

import base64
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from ..._jsontext import encode_json
from ...message import FinishReason
from ...stream import DeltaWriter, TypedJson, WireEvent
from ...target import Dialect
from ...usage import TokenUsage, count_of
from ..callids import CallIds
from ..failures import error_from_event, not_an_answer
from ..lenient import LenientJson, broken, objects_of, read_object, require_types, required_object, text_of
from ..wholeness import Damage, call_problem, finish_of, input_of, lost, require_unfinished, worst_word
from .dialects import IMAGE_FORMATS

__all__ = ["Decoder"]

FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "content_filtered": FinishReason.CONTENT_FILTER,
    "guardrail_intervened": FinishReason.CONTENT_FILTER,
    "malformed_model_output": FinishReason.OTHER,
    "malformed_tool_use": FinishReason.OTHER,
}

_FAILURES = ("exception", "error", "failure")
_SERVER_TOOL = "server_tool_use"
_STARTED = frozenset({"toolUse", "toolResult", "image"})  # blocks that have a start event
# What the API asks of the fields of blocks that go back as they came.
_ITEM_TYPES: dict[str, tuple[type, ...]] = {
    "toolUseId": (str,), "name": (str,), "input": (dict,), "content": (list,), "status": (str,), "type": (str,),
}  # fmt: skip
_CONTENTS = frozenset({"content", "source", "error"})  # of results and pictures
# `p` is padding, against guessing from the size of a frame.
_NOT_KEPT = frozenset({"p", "output", "stopReason", "usage"})


class _Reasoning(msgspec.Struct, gc=False):
    text: str = ""
    signature: str = ""
    redacted: str = msgspec.field(name="redactedContent", default="")


class _Input(msgspec.Struct, gc=False):
    input: str = ""


class _Delta(msgspec.Struct, gc=False):
    text: str | None = None
    tool_use: _Input | None = msgspec.field(name="toolUse", default=None)
    reasoning: _Reasoning | None = msgspec.field(name="reasoningContent", default=None)


class _BlockDelta(msgspec.Struct, gc=False):
    delta: _Delta
    index: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(name="contentBlockIndex", default=0)


_BLOCK_DELTA = LenientJson(_BlockDelta, needed=frozenset({"delta", "text", "toolUse", "input", "reasoningContent"}))
_BODY = TypedJson(dict[str, Any])


class _Block:
    """An open content block. Text and reasoning have no start event: their first delta opens them."""

    __slots__ = ("call_id", "citations", "kind", "number", "opened", "pieces", "redacted", "signatures")

    def __init__(self, number: int, kind: str = "", opened: dict[str, Any] | None = None) -> None:
        self.number = number
        self.kind = kind
        self.opened = opened or {}
        self.pieces: list[Any] = []
        self.citations: list[Any] = []
        self.redacted: list[str] = []
        self.signatures: list[str] = []  # pieces of one
        self.call_id = ""  # of a call; empty while it may be one that came before

    @property
    def is_call(self) -> bool:
        """Whether it is a call of one of our tools."""
        return self.kind == "toolUse" and self.opened.get("type") != _SERVER_TOOL


class Decoder:
    """Events of one answer → deltas. `messageStop` is the finish; usage or an exception may follow it."""

    __slots__ = (
        "_blocks", "_call_ids", "_cut_input", "_damage", "_done", "_message_data", "_opened", "_reason", "_speaking",
        "_writer", "unknown_events",
    )  # fmt: skip

    def __init__(self, writer: DeltaWriter, _: Dialect) -> None:
        self._writer = writer
        self._blocks: dict[int, _Block] = {}
        self._speaking = -1  # the open block that is no call; there is one at most
        self._opened: set[int] = set()  # indexes of all blocks so far
        self._damage = Damage()
        self._call_ids = CallIds()
        self._cut_input = False  # whether the input of a server tool does not parse
        self._reason: str | None = None
        self._done = False
        self._message_data: dict[str, Any] = {}
        self.unknown_events = 0

    def decode(self, events: Sequence[WireEvent]) -> None:
        read, write_text = _BLOCK_DELTA.read, self._writer.text
        writing, is_words = -1, False  # the block that the last event added to, and whether text may be added to it
        for name, data in events:
            if name == "contentBlockDelta":
                event = read(data)
                delta = event.delta
                if event.index != writing:
                    writing = event.index
                    if writing not in self._blocks:
                        self._open_words(writing)
                    is_words = not self._blocks[writing].kind
                if delta.text is not None and is_words and delta.tool_use is None:
                    write_text(delta.text, writing)
                else:
                    self._add_to_block(self._blocks[writing], writing, delta, data)
            else:
                writing = -1
                if name.lower().endswith(_FAILURES):
                    self._writer.error(error_from_event(name, data))
                    return
                self._decode_rare(name, _BODY.read(data or b"{}"))

    def decode_body(self, body: bytes) -> None:
        answer = read_object(body)
        output = answer.get("output")
        message = output.get("message") if isinstance(output, dict) else None
        if not isinstance(message, dict) or not isinstance(message.get("content"), list):
            raise not_an_answer("the answer is not a message of this API", answer)
        self._writer.start()
        for index, block in enumerate(message["content"]):
            if not isinstance(block, dict) or not block:
                raise broken("a content block is not an object")
            self._decode_block(index, block)
        self._stop(answer)
        self._note(answer)
        self._finish()

    def end(self) -> None:
        if self._reason is not None and not self._done:
            self._finish()

    # ------------------------------------------------------------ events

    def _decode_rare(self, name: str, value: dict[str, Any]) -> None:
        match name:
            case "messageStart":
                self._writer.start()
            case "contentBlockStart":
                index = count_of(value.get("contentBlockIndex")) or 0
                kind, opened = next(iter(required_object(value, "start").items()), ("", None))
                if kind in _STARTED:
                    self._open_block(index, kind, opened)
                else:  # gateways start text with nothing; of a kind that is not known there is nothing to send back
                    self.unknown_events += bool(kind)
                    self._open_words(index)
            case "contentBlockStop":
                self._end_block(count_of(value.get("contentBlockIndex")) or 0)
            case "messageStop":
                self._stop(value)
                if not self._reason:
                    raise lost("the message ended without a stop reason")
                self._note(value)
            case "metadata":
                self._note(value)
                self.end()
            case _ if value.keys().isdisjoint(("contentBlockIndex", "start", "delta")):
                self.unknown_events += 1
            case _:
                self._skip(count_of(value.get("contentBlockIndex")))

    def _skip(self, index: int | None) -> None:
        """Skip something unknown for a content block. A call that it belongs to is not used."""
        self.unknown_events += 1
        self._damage.add(index)

    def _open_words(self, index: int) -> None:
        """Open a block of text or reasoning, which has no start event of its own."""
        self._begin_block(index, "", None)

    def _begin_block(self, index: int, kind: str, opened: dict[str, Any] | None) -> _Block:
        """Open a block. An open text closes before it, so that parts keep the order of the blocks."""
        self._writer.start()
        for before in (index, self._speaking):
            if before in self._blocks:
                self._close_block(before, ended=False)
        self._opened.add(index)
        block = self._blocks[index] = _Block(self._damage.open(), kind, opened)
        self._speaking = -1 if block.is_call else index
        return block

    def _add_to_block(self, block: _Block, index: int, delta: _Delta, data: bytes) -> None:
        if block.kind and (delta.text is not None or delta.reasoning is not None):
            self._skip(index)
        elif delta.text is not None:
            raise broken("arguments came for a content block that is no tool call")
        elif delta.reasoning is not None:
            if delta.reasoning.text:
                self._writer.thinking(delta.reasoning.text, index)
            if delta.reasoning.signature:
                block.signatures.append(delta.reasoning.signature)
            if delta.reasoning.redacted:
                block.redacted.append(delta.reasoning.redacted)
        elif delta.tool_use is not None:
            if block.kind != "toolUse":
                raise broken("arguments came for a content block that is no tool call")
            block.pieces.append(delta.tool_use.input)
            if delta.tool_use.input and block.call_id:
                self._writer.call_args(block.call_id, delta.tool_use.input)
        else:
            self._add_rare(block, index, required_object(_BODY.read(data), "delta"))

    def _add_rare(self, block: _Block, index: int, delta: dict[str, Any]) -> None:
        match delta:
            case {"citation": citation}:
                block.citations += objects_of([citation])
            case {"toolResult": _} | {"image": _} if any(map(delta.get, _STARTED - {block.kind})):
                raise lost("a content block went on that had not begun")
            case {"toolResult": [*pieces]}:
                block.pieces.extend(pieces)
                block.opened["content"] = block.pieces
            case {"image": {"source": {"bytes": str() as piece}}}:
                block.pieces.append(piece)
            case {"image": dict() as image}:
                block.opened.update(image)
            case _:
                self._skip(index)

    def _open_block(self, index: int, kind: str, opened: Any) -> None:
        if not isinstance(opened, dict):
            raise broken("a content block is not an object")
        block = self._begin_block(index, kind, opened)
        if block.is_call:
            self._open_call(block)

    def _open_call(self, block: _Block) -> None:
        wire_id, tool_name = text_of(block.opened.get("toolUseId")), text_of(block.opened.get("name"))
        if not wire_id or not tool_name:
            raise broken("a toolUse block has no id or no name")
        require_unfinished(self._reason)
        if not self._call_ids.has(wire_id):  # else it may be a call that came before, which is known when it ends
            self._start_call(block, wire_id, tool_name)

    def _start_call(self, block: _Block, wire_id: str, tool_name: str) -> None:
        opened = block.opened
        block.call_id = self._call_ids.claim(wire_id)
        kind = text_of(opened.get("type"))  # no other field is taken back with a call, and not the default of this one
        self._writer.call_start(block.call_id, tool_name, {"type": kind} if kind not in ("", "tool_use") else None)

    def _close_call(self, index: int, block: _Block, ended: bool) -> None:
        """Close a call. One with the id of an earlier call is another call (imported models repeat ids) or the same."""
        wire_id, tool_name = text_of(block.opened.get("toolUseId")), text_of(block.opened.get("name"))
        written = "".join(block.pieces)
        if not block.call_id:
            if self._call_ids.is_repeat(wire_id, tool_name, written):
                return
            self._start_call(block, wire_id, tool_name)
            self._writer.call_args(block.call_id, written)
        self._call_ids.note(wire_id, tool_name, written)
        is_damaged = self._damage.is_on(index, block.number)
        self._writer.call_end(block.call_id, None, call_problem(is_closed=ended, is_damaged=is_damaged))

    def _end_block(self, index: int) -> None:
        """Take the end of an open block."""
        if index not in self._opened:
            raise lost("a content block ended that had not begun")
        if index in self._blocks:
            self._close_block(index)

    def _close_block(self, index: int, *, ended: bool = True) -> None:
        """Write the rest of a block. A call without its own end event gets a parse error, so that no tool runs."""
        block = self._blocks.pop(index)
        opened = block.opened
        match block.kind:
            case "":
                self._close_words(index, block)
            case "toolUse" if opened.get("type") == _SERVER_TOOL:
                arguments, whole = input_of("".join(block.pieces) or "{}")
                self._cut_input = self._cut_input or not whole
                self._write_item(_SERVER_TOOL, {"toolUse": {**opened, "input": arguments}})
            case "toolUse":
                self._close_call(index, block, ended)
            case "toolResult" | "image" if not block.pieces and opened.keys().isdisjoint(_CONTENTS):
                raise lost("a content block has no content")
            case "toolResult":
                self._write_item("toolResult", {"toolResult": opened})
            case "image":
                source = {"bytes": _joined(block.pieces)} if block.pieces else opened.get("source")
                self._write_image({**opened, "source": source})

    def _close_words(self, index: int, block: _Block) -> None:
        if block.redacted:
            self._writer.thinking("", index, {"redactedContent": _joined(block.redacted)})
        elif block.signatures:
            self._writer.thinking("", index, {"signature": "".join(block.signatures)})
        if block.citations:
            self._writer.text("", index, {"citations": block.citations})

    # ------------------------------------------------------------ whole blocks

    def _decode_block(self, index: int, block: dict[str, Any]) -> None:
        match block:
            case {"text": str() as text}:
                self._writer.text(text, index)
            case {"reasoningContent": {"reasoningText": {"text": str() as text, **further}}}:
                if text:
                    self._writer.thinking(text, index)
                if signature := text_of(further.get("signature")):
                    self._writer.thinking("", index, {"signature": signature})
            case {"reasoningContent": {"redactedContent": str() as redacted}}:
                self._writer.thinking("", index, {"redactedContent": redacted})
            case {"citationsContent": dict() as cited}:
                pieces = objects_of(cited.get("content"))
                self._writer.text("".join(text_of(piece.get("text")) for piece in pieces), index)
                kept = {"content": pieces} if len(pieces) > 1 else {}
                self._writer.text("", index, {"citations": objects_of(cited.get("citations")), **kept})
            case {"toolUse": dict() as call} if call.get("type") != _SERVER_TOOL:
                self._open_block(index, "toolUse", call)
                if call.get("input"):
                    opened = self._blocks[index]
                    opened.pieces.append(encode_json(call["input"]).decode())
                    if opened.call_id:
                        self._writer.call_args(opened.call_id, opened.pieces[0])
                self._close_block(index)
            case {"toolUse": dict()}:
                self._write_item(_SERVER_TOOL, block)
            case {"image": dict() as image}:
                self._write_image(image)
            case _:
                self._write_item(next(iter(block)), block)

    def _write_item(self, kind: str, block: dict[str, Any]) -> None:
        """Write a block that goes back as it came: its fields must be of the types that the API takes."""
        for value in block.values():
            if not isinstance(value, dict):
                raise broken("a content block is not an object")
            require_types(value, _ITEM_TYPES, "a content block")
            if len(objects_of(value.get("content"))) != len(value.get("content") or ()):
                raise broken("the content of a content block is not a list of objects")
        self._writer.item(kind, block)

    def _write_image(self, image: dict[str, Any]) -> None:
        mime_type = f"image/{image.get('format') or 'png'}"
        if mime_type not in IMAGE_FORMATS:
            raise broken("a picture has a format that the API does not take")
        match image.get("source"):
            case {"bytes": str() as encoded}:
                is_written = self._writer.image(mime_type=mime_type, data=_decoded(encoded))
            case {"s3Location": {"uri": str() as uri}}:
                is_written = self._writer.image(mime_type=mime_type, url=uri)
            case _:  # it says why there is none
                is_written = False
        if not is_written:
            self._write_item("image", {"image": image})

    # ------------------------------------------------------------ the message

    def _stop(self, value: dict[str, Any]) -> None:
        self._reason = worst_word(self._reason, text_of(value.get("stopReason")), _reason_of)
        self._writer.has_finish = self._reason is not None

    def _note(self, value: dict[str, Any]) -> None:
        self._message_data.update(
            {name: field for name, field in value.items() if name not in _NOT_KEPT and field is not None}
        )
        usage = value.get("usage")
        if isinstance(usage, dict):
            self._message_data["usage"] = usage
            self._writer.start()
            self._writer.usage(_token_usage(usage))

    def _finish(self) -> None:
        self._done = True
        for index in tuple(self._blocks):
            self._close_block(index, ended=False)
        reason = finish_of(_reason_of(self._reason or ""), self._call_ids, is_input_cut=self._cut_input)
        self._writer.done(reason, self._reason or None, self._message_data or None)


def _reason_of(word: str) -> FinishReason:
    return FINISH_REASONS.get(word, FinishReason.OTHER)


def _token_usage(usage: dict[str, Any]) -> TokenUsage:
    """Token counts of an answer. `inputTokens` counts no cached tokens."""
    fresh, output, total = (count_of(usage.get(f"{what}Tokens")) for what in ("input", "output", "total"))
    read, written = (count_of(usage.get(f"cache{what}InputTokens")) for what in ("Read", "Write"))
    return TokenUsage.reported(
        input_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
        output_tokens=output,
        total_tokens=total,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _joined(pieces: list[str]) -> str:
    """Pieces of base64, each whole in itself, as one."""
    return pieces[0] if len(pieces) == 1 else base64.b64encode(b"".join(map(_decoded, pieces))).decode()


def _decoded(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        raise broken("bytes are not in base64") from None
