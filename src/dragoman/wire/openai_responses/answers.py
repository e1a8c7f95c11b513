"""OpenAI Responses: its events or whole answer to deltas. Pure; no network, no clock. `requests` writes requests.

Output items may run interleaved, close late or never. What can be read at once is written at once: text and thinking
of one item at a time, calls where no text is under way; everything else waits its turn, and the last event settles it.

`providerData` here is the item in the wire's own words, without what the part itself says: a message's further fields
on each of its texts, with `content` for those of the text; a whole reasoning item, `length` in place of its texts; a
call's further fields. On the message: `usage`, the response's own further fields, `order` of item ids where the parts
could not follow it, and `output` with what the last event said otherwise than the item's own.
"""

import base64
import heapq
from collections.abc import Sequence
from typing import Any

import msgspec

from ..._jsontext import encode_json, join_surrogates
from ...errors import ErrorCode, ModelError
from ...message import FinishReason
from ...stream import DeltaWriter, WireEvent
from ..callids import CallIds
from ..failures import error_from_event, error_from_words, error_words, not_an_answer
from ..lenient import UNREADABLE, LenientJson, decode_unlabelled, read_object
from ..wholeness import WHOLE_FINISHES, contradicted, lost, worst_word
from .dialects import ResponsesDialect
from .items import (
    NOT_KEPT,
    PIECES,
    REPEATED,
    TERMINALS,
    WHOLES,
    OutputItem,
    PieceEvent,
    changes_in,
    content_data,
    distinct,
    item_of,
    items_in,
    matching,
    object_of,
    reasoning_data,
    reasoning_texts,
    require_same,
    require_same_call,
    rest_of,
    rest_of_arguments,
    text_in,
    usage_in,
    without,
)

__all__ = ["Decoder"]

# `status`, with `:reason` where it is incomplete. A completed answer with calls or a refusal finishes with those.
FINISH_REASONS: dict[str, FinishReason] = {
    "completed": FinishReason.STOP,
    "complete": FinishReason.STOP,
    "incomplete:max_output_tokens": FinishReason.LENGTH,
    "incomplete:content_filter": FinishReason.CONTENT_FILTER,
}

_UNEXPLAINED = frozenset({"completed", "complete", "incomplete", "", None})  # `incomplete_details` say more than these


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = 0
    summary_index: int | None = 0
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    code: Any = None
    item: Any = None
    part: Any = None
    response: Any = None


class _Piece(msgspec.Struct, gc=False):
    """The shape of most events. The wide shape `_Event` reads the others."""

    type: PieceEvent
    delta: str
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = 0
    summary_index: int | None = 0


_WRITTEN_IN_PIECES = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})
_ALWAYS_LISTED = frozenset({"message", "function_call", "custom_tool_call"})
_decode_piece = msgspec.json.Decoder(_Piece).decode
_EVENT = LenientJson(_Event)


class Decoder:
    """Events of one answer → deltas. The response's own last event is the finish; an answer without it was cut."""

    __slots__ = (
        "_by_id", "_by_index", "_by_kind", "_call_ids", "_items", "_live", "_orders", "_parts", "_refused",
        "_response_id", "_same_ids", "_waiting", "_writer", "unknown_events",
    )  # fmt: skip

    def __init__(self, writer: DeltaWriter, dialect: ResponsesDialect) -> None:
        self._writer = writer
        # vLLM makes up another call id each time that it sends a call, and gateways another response id at the end:
        # only hosts that store items keep their ids.
        self._same_ids = dialect.store
        self._items: list[OutputItem] = []
        self._waiting: list[tuple[int, OutputItem]] = []  # a heap: items that wait for another's text, by their number
        self._by_id: dict[str | None, OutputItem] = {}
        self._by_index: dict[int | None, OutputItem] = {}
        self._by_kind: dict[str, list[OutputItem]] = {}  # the last one that is not closed is the open one
        self._live: OutputItem | None = None  # the message or reasoning item whose text is being written
        self._call_ids = CallIds()
        self._parts = 0
        self._orders = 0
        self._refused = False
        self._response_id = ""
        self.unknown_events = 0

    def decode(self, events: Sequence[WireEvent]) -> None:
        write_text, write_arguments = self._writer.text, self._writer.call_args
        for name, data in events:
            if name == "error":  # whatever `type` its data has
                self._writer.error(error_from_event(name, data))
                return
            try:
                piece = _decode_piece(data)
            except UNREADABLE:
                self._decode_any(name, data)
                continue
            kind, live = piece.type, self._live
            if (
                kind == "response.output_text.delta"
                and live is not None
                and live.item_id == piece.item_id
                and live.current == piece.content_index
            ):
                live.writing.append(piece.delta)
                write_text(piece.delta, live.part_index, None)
            elif (
                kind == "response.function_call_arguments.delta"
                and live is None
                and (item := self._by_id.get(piece.item_id)) is not None
                and item.call_id is not None
                and not item.closed
            ):
                item.writing.append(piece.delta)
                write_arguments(item.call_id, piece.delta)
            else:
                self._add_piece(piece, *PIECES[kind])

    def _decode_any(self, name: str, data: bytes) -> None:
        if data == b"[DONE]":
            return
        event = _EVENT.read(data)
        kind = event.type or name
        if kind in PIECES:
            self._add_piece(event, *PIECES[kind])
        elif kind in WHOLES:
            self._note_whole(event, *WHOLES[kind])
        elif kind not in REPEATED:
            self._decode_rare(kind, event, data)

    def decode_body(self, body: bytes) -> None:
        if decode_unlabelled(self, body):
            return
        response = read_object(body)
        if not isinstance(response.get("output"), list):
            if response.get("error"):
                raise error_from_words(*error_words(response))
            raise not_an_answer("the answer is not a response of this API", response)
        self._start(response)
        self._end_response(response, None)

    def end(self) -> None:
        pass

    def _decode_rare(self, kind: str, event: _Event, data: bytes) -> None:
        match kind:
            case "response.created" | "response.queued" | "response.in_progress":
                self._start(object_of(event.response))
            case "response.output_item.added":
                opened = item_of(event.item)
                item = self._by_id.get(text_in(opened, "id"))
                if item is None or item.closed:
                    self._open(opened, event.output_index)
                else:
                    require_same_call(item.opened, opened, same_id=self._same_ids)
            case "response.output_item.done":
                self._end_item(item_of(event.item), event.output_index)
            case "response.content_part.done":
                item, part = self._find(event.item_id, event.output_index, "message"), object_of(event.part)
                if item is not None:
                    index = event.content_index or 0
                    item.content_done[index] = part
                    item.note_whole("output_text", index, text_in(part, "text"))
                    item.note_whole("refusal", index, text_in(part, "refusal"))
            case _ if kind in TERMINALS:
                self._end_response(object_of(event.response), kind.removeprefix("response."))
            case "error" | "response.error" | "" if (value := read_object(data)).get("error") or kind:
                self._writer.error(error_from_words(*error_words(value)))
            case _:
                self.unknown_events += 1

    # -- items

    def _start(self, response: dict[str, Any]) -> None:
        response_id = text_in(response, "id")
        if self._same_ids and self._response_id and response_id not in ("", self._response_id):
            raise contradicted("an event belongs to another response than the first one")
        self._response_id = self._response_id or response_id
        self._writer.start(text_in(response, "model"), response_id)

    def _find(self, item_id: str | None, index: int | None, kind: str) -> OutputItem | None:
        """Items are known by their id; gateways that change ids between events keep the index.

        Without either, an event means the item of its kind that is open.
        """
        item = self._by_id.get(item_id)
        if item is None and index is None and not item_id:
            known = self._by_kind.get(kind, [])
            while known and known[-1].closed:
                known.pop()
            return known[-1] if known else None
        if item is None:
            item = self._by_index.get(index)
            if item is not None and (item.closed or item.kind != kind):
                return None
        return item

    def _open(self, opened: dict[str, Any], index: int | None) -> OutputItem:
        self._writer.start()
        item = self._new_item(opened)
        if item.item_id is not None:
            self._by_id[item.item_id] = item
        if index is not None:
            self._by_index[index] = item
        if item.kind == "function_call":
            if self._may_write(item):
                self._open_call(item)
            else:
                self._wait(item)
        return item

    def _new_item(self, opened: dict[str, Any]) -> OutputItem:
        item = OutputItem(opened, len(self._items))
        self._items.append(item)
        self._by_kind.setdefault(item.kind, []).append(item)
        return item

    def _add_piece(self, event: _Event | _Piece, kind: str, channel: str) -> None:
        item = self._find(event.item_id, event.output_index, kind)
        if item is None:  # a resumed stream may begin after the item's opening
            item = self._open({"type": kind, "id": event.item_id}, event.output_index)
        if type(event.delta) is not str or item.closed or item.kind != kind:
            item.damaged = item.damaged or not item.closed
            self.unknown_events += 1
            return
        index = (event.summary_index if channel == "summary_text" else event.content_index) or 0
        if item.kind == "custom_tool_call":
            item.writing.append(event.delta)
        elif self._may_write(item):
            self._write_piece(item, channel, index, event.delta)
        else:
            if not item.held:
                self._wait(item)
            item.held.append((channel, index, event.delta))

    def _note_whole(self, event: _Event, kind: str, channel: str, field: str) -> None:
        """Keep what an event repeats of an item. The item is compared with it when it closes."""
        item, whole = self._find(event.item_id, event.output_index, kind), getattr(event, field)
        if item is not None and item.kind == kind and isinstance(whole, str):
            index = (event.summary_index if channel == "summary_text" else event.content_index) or 0
            item.note_whole(channel, index, join_surrogates(whole))

    def _may_write(self, item: OutputItem) -> bool:
        """Whether the item may write now. One item's text is live at a time; thinking gives way to text."""
        live = self._live
        if live is item:
            return True
        if item.early is not None:
            return False
        if live is not None:
            if live.kind != "reasoning":
                return False
            self._close_early(live)
            self._write_held()
            return self._may_write(item)
        if item.kind in ("message", "reasoning"):
            self._live = item
        return True

    def _write_piece(self, item: OutputItem, channel: str, index: int, piece: str) -> None:
        if item.kind == "function_call":
            item.writing.append(piece)
            if item.call_id is not None:  # else its name is still unknown
                self._writer.call_args(item.call_id, piece)
            return
        if item.order is None:
            item.order = self._next_order()
        if item.kind == "reasoning":
            item.channel = item.channel or channel
            if item.channel == channel:  # the other kind of text follows when the item closes
                item.pieces.setdefault(index, []).append(piece)
                self._writer.thinking(piece, item.part_index)
        else:
            if item.current != index:
                self._open_content(item, index, channel)
            item.writing.append(piece)
            self._writer.text(piece, item.part_index)

    def _wait(self, item: OutputItem) -> None:
        heapq.heappush(self._waiting, (item.number, item))

    def _write_held(self) -> None:
        """Write the items that waited for another item's text, in the order in which they opened."""
        while self._waiting and self._live is None:
            _, item = heapq.heappop(self._waiting)
            if item.closed:
                continue
            if item.final is not None:
                self._close(item)
            elif item.early is None and (item.held or item.kind == "function_call"):
                self._may_write(item)
                if item.kind == "function_call":
                    self._open_call(item)
                self._flush_held(item)

    def _end_item(self, final: dict[str, Any], index: int | None) -> None:
        item = self._find(text_in(final, "id"), index, text_in(final, "type")) or self._open(final, index)
        if item.closed:
            require_same(item.latest, final, same_id=self._same_ids)
            return
        require_same_call(item.opened, final, same_id=self._same_ids)
        item.final = final
        if self._live is None or self._live is item:
            self._close(item)
            self._write_held()
        else:
            self._wait(item)

    def _next_part(self) -> int:
        self._parts += 1
        return self._parts - 1

    def _next_order(self) -> int:
        self._orders += 1
        return self._orders - 1

    # -- closing

    def _close(self, item: OutputItem) -> None:
        """Write the rest of an item, and the fields that its provider needs back."""
        item.closed = True
        item.require_wholes()
        if self._live is item:
            self._live = None
        if item.order is None:
            item.order = self._next_order()
        match item.kind:
            case "message":
                self._close_message(item)
            case "reasoning":
                self._close_reasoning(item)
            case "function_call":
                self._close_call(item)
            case "custom_tool_call":
                self._write_custom_call(item)
            case "image_generation_call":
                self._write_picture(item.latest)
            case _:
                self._writer.item(str(item.latest.get("type") or "unknown"), item.latest)

    def _close_message(self, item: OutputItem) -> None:
        contents = item.latest.get("content")
        contents = contents if isinstance(contents, list) else []
        self._flush_held(item)
        for index, content in enumerate(contents):
            if not isinstance(content, dict):
                continue
            if index in item.texts:
                if index not in item.content_done and "content" in content_data(item, content):
                    raise lost("a text of a message was closed without its further fields")
                rest_of(item.texts[index], text_in(content, "text") or text_in(content, "refusal"))
                continue
            if index != item.current:
                self._open_content(item, index, "output_text")
            item.content_done[index] = content
        self._close_content(item)

    def _flush_held(self, item: OutputItem) -> None:
        held, item.held = item.held, []
        for channel, index, piece in held:
            self._write_piece(item, channel, index, piece)

    def _open_content(self, item: OutputItem, index: int, channel: str) -> None:
        self._close_content(item)
        item.current, item.part_index, item.channel, item.writing = index, self._next_part(), channel, []

    def _close_content(self, item: OutputItem) -> None:
        """Close the text that is being written with what is known of it, if there is one."""
        if item.current is None:
            return
        content = item.content_done.get(item.current) or {"type": item.channel}
        written = join_surrogates("".join(item.writing))
        repeated = item.wholes.get(("output_text", item.current)) or item.wholes.get(("refusal", item.current)) or ""
        rest = rest_of(written, text_in(content, "text") or text_in(content, "refusal") or repeated)
        item.texts[item.current] = written + rest
        self._refused = self._refused or content.get("type") == "refusal"
        self._writer.text(rest, item.part_index, content_data(item, content))
        item.current = None

    def _close_early(self, item: OutputItem) -> None:
        self._live = None
        item.written = item.text()
        item.early = reasoning_data(item, item.written)
        self._writer.thinking("", item.part_index, item.early)

    def _close_reasoning(self, item: OutputItem) -> None:
        if item.early is None:
            self._flush_held(item)
            item.written = item.text()
        whole, other = reasoning_texts(item.latest)
        repeated = "" if whole else "".join(item.wholes.values())
        rest = rest_of(item.written, whole or repeated, other)
        data = reasoning_data(item, item.written + rest)
        if rest or data != item.early:
            self._writer.thinking(rest, self._next_part() if item.early else item.part_index, data)

    def _open_call(self, item: OutputItem) -> bool:
        if item.call_id is not None:
            return True
        wire_id, name = _call_id_of(item.latest), text_in(item.latest, "name")
        if not wire_id or not name or self._call_ids.has(wire_id):
            return False
        item.call_id = self._call_ids.claim(wire_id)
        if item.order is None:
            item.order = self._next_order()
        self._writer.call_start(item.call_id, name)
        return True

    def _close_call(self, item: OutputItem) -> None:
        if item.call_id is None:
            item.held = [("arguments", 0, "".join(item.writing)), *item.held]
            item.writing = []
            if not self._open_call(item):
                self._require_repeated_call(item, "".join(piece for _, _, piece in item.held))
                return
        self._flush_held(item)
        written = join_surrogates("".join(item.writing))
        arguments = item.latest.get("arguments") or item.wholes.get(("arguments", 0))
        if rest := rest_of_arguments(written, arguments):
            self._writer.call_args(item.call_id or "", rest)
        self._call_ids.note(item.call_id or "", text_in(item.latest, "name"), written + rest)
        data = without(item.latest, "type", "call_id", "name", "arguments")
        self._writer.call_end(item.call_id or "", data, item.problem())

    def _write_custom_call(self, item: OutputItem) -> None:
        """A tool of free text: the text is its one argument."""
        written = join_surrogates("".join(item.writing))
        rest = rest_of(written, text_in(item.latest, "input") or item.wholes.get(("input", 0), ""))
        whole = encode_json({"input": written + rest}).decode()
        if not self._open_call(item):
            self._require_repeated_call(item, whole)
            return
        call_id = item.call_id or ""
        self._writer.call_args(call_id, whole)
        self._call_ids.note(item.call_id or "", text_in(item.latest, "name"), whole)
        data = without(item.latest, "call_id", "name", "input")
        self._writer.call_end(call_id, data, item.problem())

    def _require_repeated_call(self, item: OutputItem, written: str) -> None:
        """Write nothing for a call that came before; raise ModelError for one that is another, or has no name or id."""
        wire_id, name = _call_id_of(item.latest), text_in(item.latest, "name")
        if not wire_id or not name:
            raise ModelError("a tool call came without its name or id", code=ErrorCode.PROTOCOL_VIOLATION)
        if item.kind == "function_call":
            written += rest_of_arguments(written, item.latest.get("arguments") or item.wholes.get(("arguments", 0)))
        self._call_ids.require_repeat(wire_id, name, written)

    def _write_picture(self, item: dict[str, Any]) -> None:
        """The picture as an image, its item without the bytes."""
        try:
            picture = base64.b64decode(text_in(item, "result"), validate=True)
        except ValueError:
            picture = b""
        mime_type = f"image/{text_in(item, 'output_format') or 'png'}"
        if self._writer.image(mime_type=mime_type, data=picture, provider_data={"id": item.get("id")}):
            item = {name: value for name, value in item.items() if name != "result"}
        self._writer.item("image_generation_call", item)

    # -- the end

    def _end_response(self, response: dict[str, Any], word: str | None) -> None:
        if not response:
            raise lost("the last event holds no response")
        status = _status_of(response, word)
        if status == "failed":
            self._note_usage(response)
            self._writer.error(error_from_words(*error_words({"error": None, **response})))
            return
        self._start(response)
        data = self._settle(distinct(items_in(response, "output")))
        self._note_usage(response)
        reason = _reason_of(status or "")
        if status is None and response.get("object") == "response.compaction":
            reason = FinishReason.STOP
        if reason is FinishReason.STOP and (self._call_ids or self._refused):
            reason = FinishReason.TOOL_CALLS if self._call_ids else FinishReason.REFUSAL
        if reason in WHOLE_FINISHES and self._is_incomplete():
            reason = FinishReason.OTHER
        data.update({name: value for name, value in response.items() if name not in NOT_KEPT and value is not None})
        if response.get("usage"):
            data["usage"] = response["usage"]
        self._writer.done(reason, status, data or None)

    def _settle(self, output: list[dict[str, Any]]) -> dict[str, Any]:
        """Write the content that only the last event shows; return what deltas cannot hold."""
        matches = matching(output, self._items, self._by_id, self._by_index)
        settled = [item or self._new_item(final) for item, final in zip(matches, output, strict=True)]
        listed = set(settled)
        if output and any(item.final and item.kind in _ALWAYS_LISTED and item not in listed for item in self._items):
            raise contradicted("the last event does not list an item that had ended")
        revised: list[dict[str, Any]] = []
        for item, final in zip(settled, output, strict=True):
            if item.final is None:
                require_same_call(item.opened, final, same_id=self._same_ids)
                item.final = final
                continue
            require_same(item.final, final, same_id=self._same_ids)
            if changes := changes_in(item.final, final):
                revised.append({"id": item.final.get("id"), **changes})
        if self._live is not None:
            self._close(self._live)
        for item in [*settled, *self._items]:
            if not item.closed:
                self._close(item)
        data = {"order": _order_of(settled), "output": revised}
        return {name: value for name, value in data.items() if value}

    def _is_incomplete(self) -> bool:
        """Whether a message was cut, or an item that only the provider understands has no end."""
        return any(
            item.is_unfinished if item.kind == "message" else item.final is None and item.kind not in _WRITTEN_IN_PIECES
            for item in self._items
        )

    def _note_usage(self, response: dict[str, Any]) -> None:
        usage = usage_in(response)
        if usage is not None:
            self._writer.start()
            self._writer.usage(usage)


def _call_id_of(item: dict[str, Any]) -> str:
    return text_in(item, "call_id") or text_in(item, "id")


def _order_of(items: Sequence[OutputItem]) -> list[Any] | None:
    """Return the ids of the items, if they were written in another order than this one."""
    orders = [item.order for item in items]
    ids = [item.latest.get("id") for item in items]
    is_other = orders != sorted(orders, key=lambda order: order or 0)
    return ids if is_other and all(isinstance(name, str) for name in ids) else None


def _reason_of(status: str) -> FinishReason:
    return FINISH_REASONS.get(status, FinishReason.OTHER)


def _status_of(response: dict[str, Any], word: str | None) -> str | None:
    """The worst that a response and its last event's own word say: its status, why it is incomplete, its error."""
    if response.get("error"):
        return "failed"
    status = worst_word(word, text_in(response, "status") or None, _reason_of)
    details = text_in(object_of(response.get("incomplete_details")), "reason")
    return f"incomplete:{details}" if details and status in _UNEXPLAINED else status
