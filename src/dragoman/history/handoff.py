"""A conversation made by any models to one that a given target accepts. Pure, deterministic, idempotent.

Between the record and every encoder; the record itself is never touched. What is decided here is the same for all
targets; where they differ, `TargetRules` says how. Knows no wire format.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from operator import attrgetter, is_
from typing import Any, TypeAlias

import msgspec

from ..errors import InvalidValue
from ..message import (
    MEDIA_KINDS,
    FileRef,
    FinishReason,
    Image,
    Message,
    ModelInvocationDescriptor,
    Part,
    ProviderItem,
    ResultPart,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from ..target import NameRule, TargetRules
from ..toolspec import ToolSpec
from .media import DAMAGED, describe_medium, fit_answered_image, fit_medium, not_shown, unreadable

__all__ = ["HandedOff", "Handoff", "hand_off"]

# What a model is told of each call that may have run and has no result: after a crash, a fork, an import.
UNKNOWN_OUTCOME = "it may or may not have taken effect"
INTERRUPTED = f"[interrupted: this call has no result; {UNKNOWN_OUTCOME}]"
BLANK = "."
CUT_OFF = "[cut off: this answer broke off here]"
GO_ON = "Continue."
UNDERSTOOD = "OK."

_name_of = attrgetter("name")

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HASH_SIZE = 8
_ATTEMPTS = 10_000


class HandedOff(msgspec.Struct, frozen=True):
    """A conversation fitted to a target.

    `original_names` gives back the tool names that had to be changed; `positions` says which of `messages` holds
    the end of each message that was given. The first `settled` messages stay as they are while the conversation grows.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    original_names: dict[str, str]
    positions: dict[int, int]
    settled: int = 0


def hand_off(
    messages: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
    *,
    target: ModelInvocationDescriptor,
    rules: TargetRules,
) -> HandedOff:
    """Return the conversation as `target` accepts it.

    The target does not get another model's thinking and opaque data. Ids and names are mapped into the target's
    alphabet, every call is answered right after it, and turns come in the order that the target demands. Raises
    ModelError (`unsupported`) where the newest user turn holds media that the target cannot read; older media become a
    line of text.
    """
    handed = Handoff.to(target, rules, tools).extended(messages, tools)
    assert handed is not None  # an empty handoff can be extended by any conversation
    return handed


# The result messages of a turn's calls, by the calls' ids, each with its index in the conversation.
_Results: TypeAlias = dict[str, tuple[int, Message]]


class Handoff(msgspec.Struct):
    """Fits one growing conversation to one target: each settled message is looked at once.

    A message is settled if it stands before the newest answer and everything that answers it does so too. What comes
    after may be different in the next request. The result is always that of `hand_off`.
    """

    target: ModelInvocationDescriptor
    rules: TargetRules
    names: "_Names"
    ids: "_Names"
    given: list[Message] = []  # the settled messages, as the caller gave them
    open_calls: set[str] = set()  # settled calls that no settled message answers
    fitted: list[Message] = []  # what the target gets of them; a later message may be merged into the last one
    positions: dict[int, int] = {}
    declared: tuple[str, ...] = ()

    @classmethod
    def to(cls, target: ModelInvocationDescriptor, rules: TargetRules, tools: Sequence[ToolSpec] = ()) -> "Handoff":
        """Return the handoff of an empty conversation to this target; the tools' names are the first to be fitted."""
        declared = tuple(map(_name_of, tools))
        handoff = cls(target, rules, _Names(rules.tool_names), _Names(rules.tool_ids), declared=declared)
        for name in declared:
            handoff.names.fit(name)
        return handoff

    def extended(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> HandedOff | None:
        """Take in what is settled of these messages; return all of them as the target accepts them.

        Return None, and take in nothing, if the result would differ from that of `hand_off`: the messages do not begin
        with the settled ones (told by identity), other tools are declared, a message answers a call that was settled
        without an answer, or the conversation was cut so short that a settled user turn is its newest.
        """
        begin, newest = len(self.given), _newest_user_turn(messages)
        if newest < begin or not all(map(is_, self.given, messages)) or tuple(map(_name_of, tools)) != self.declared:
            return None
        results, settled = _find_results(messages, begin, newest, self.open_calls)
        if _BEFORE in results:
            return None
        for index in range(begin, settled):
            self._add(index, messages[index], results.get(index, {}))
            _note_calls(messages[index], self.open_calls)
        self.given += messages[begin:settled]
        whole = self._copy()
        # The newest user turn alone must be read: what the target cannot read of it is refused.
        for index in range(settled, len(messages)):
            whole._add(index, messages[index], results.get(index, {}), must_read=index >= newest)
        return whole._finish(tools, settled=max(len(self.fitted) - 1, 0))

    def _copy(self) -> "Handoff":
        """Return a copy whose `fitted` can grow while this one stays as it is."""
        return msgspec.structs.replace(
            self,
            names=self.names.copy(),
            ids=self.ids.copy(),
            fitted=self.fitted.copy(),
            positions=self.positions.copy(),
        )

    def _add(self, index: int, message: Message, results: _Results, *, must_read: bool = False) -> None:
        """Fit the message at this index, with the results of its calls; a result by itself adds nothing."""
        match message.role:
            case Role.ASSISTANT if message.meta is not None and message.meta.interrupted:
                self._append(index, self._cut_off(message))
            case Role.ASSISTANT:
                self._add_assistant(index, message, results)
            case Role.SYSTEM if not self.rules.system_inside:
                texts = tuple(Text(part.text) for part in message.parts if isinstance(part, Text) and part.text)
                self._append(index, msgspec.structs.replace(message, role=Role.USER, parts=texts))
            case Role.TOOL:
                pass
            case _:
                self._append(index, message, must_read=must_read)

    def _finish(self, tools: Sequence[ToolSpec], *, settled: int) -> HandedOff:
        """Return what has been added, with an end that the target takes."""
        fitted = self.fitted
        if not fitted:
            fitted.append(Message.user(BLANK))  # every API refuses a conversation of nothing
        if fitted[-1].role is Role.ASSISTANT and not self._may_end(fitted[-1]):
            self._put(Message.user(GO_ON))
        fitted_tools = tuple(map(self._fitted_tool, tools))
        if self.rules.tools_for_history and not tools:
            fitted_tools = tuple(ToolSpec(name, "Not available now.") for name in self.names.fitted.values())
        return HandedOff(tuple(fitted), fitted_tools, self.names.changed, self.positions, settled)

    def _fitted_tool(self, tool: ToolSpec) -> ToolSpec:
        name = self.names.fit(tool.name)
        return tool if name == tool.name else msgspec.structs.replace(tool, name=name)

    def _may_end(self, last: Message) -> bool:
        paused = last.meta is not None and last.meta.finish_reason is FinishReason.PAUSE
        return self.rules.prefill or paused

    def _append(self, index: int, message: Message, *, must_read: bool = False) -> None:
        if message.role is Role.USER:
            message = self._with_readable_media(message, must_read)
        if message.parts:
            self._put(message)
            self.positions[index] = len(self.fitted) - 1

    def _put(self, message: Message) -> None:
        """Append under the target's rules on who may speak first and after whom."""
        fitted, last = self.fitted, self.fitted[-1].role if self.fitted else None
        if last is None and message.role is not Role.USER and self.rules.user_first:
            fitted.append(Message.user(BLANK))
        elif last is Role.TOOL and message.role is Role.USER and not self.rules.user_after_tool:
            fitted.append(Message.assistant(UNDERSTOOD))
        elif last is message.role and self.rules.alternate and last is not Role.TOOL:
            merged = self._merged(fitted[-1], message)
            if self.rules.words_beside_calls or not _has_words_and_calls(merged):
                fitted[-1] = merged
                return
            fitted.append(Message.user(GO_ON))
        fitted.append(message)

    def _merged(self, first: Message, second: Message) -> Message:
        """One turn of two. The data that may go back belongs to the one that the target made, so its origin stays."""
        keeper = second if self._is_native(second) else first
        return msgspec.structs.replace(keeper, parts=(*first.parts, *second.parts))

    def _is_native(self, message: Message) -> bool:
        origin = message.meta.invocation if message.meta else None
        return self.rules.takes_opaque_from(origin, self.target.specification, self.target.model)

    # ------------------------------------------------------------ assistant turns and their results

    def _add_assistant(self, index: int, message: Message, results: _Results) -> None:
        native = self._is_native(message)
        parts = self._ended(fitted for part in message.parts for fitted in self._assistant_part(part, native))
        called = tuple(part for part in parts if isinstance(part, ToolCall))
        if called and not self.rules.words_beside_calls:
            words = self._ended(part for part in parts if not isinstance(part, ToolCall))
            if words:
                self._append(index, _with_parts(message, words))
                self._append(index, Message.user(GO_ON, run_id=message.run_id))
            parts = called
        self._append(index, _with_parts(message, parts))
        calls = [part.tool_call_id for part in message.parts if isinstance(part, ToolCall)]
        wire_ids = [part.tool_call_id for part in called]
        moved: list[Part] = []
        for call_id, wire_id in zip(calls, wire_ids, strict=True):
            answer = results.pop(call_id, None)  # an id that occurs twice in one turn has one result
            if answer is None:
                self._append(index, Message.tool(ToolResult(wire_id, INTERRUPTED, True), run_id=message.run_id))
            else:
                index, result = answer
                self._append(index, self._fitted_result(result, wire_id, moved))
        if moved:
            self._append(index, Message(Role.USER, tuple(moved), message.run_id))

    def _cut_off(self, message: Message) -> Message:
        """A partial answer as a model may read it: its text, marked; thoughts, items and calls never became whole."""
        words = tuple(Text(part.text) for part in message.parts if isinstance(part, Text) and self._may_say(part.text))
        assert message.meta is not None
        meta = msgspec.structs.replace(message.meta, interrupted=None)
        return msgspec.structs.replace(message, parts=(*words, Text(CUT_OFF)) if words else (), meta=meta)

    def _may_say(self, text: str) -> bool:
        """Whether the target takes this text: none takes an empty one, and not every one takes white space."""
        return bool(text if self.rules.blank_text else text.strip())

    def _ended(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        """The parts of a turn, without thinking at its end where the target refuses that."""
        kept = tuple(parts)
        while kept and isinstance(kept[-1], Thinking) and not self.rules.final_thinking:
            kept = kept[:-1]
        return kept

    def _assistant_part(self, part: Part, native: bool) -> Iterator[Part]:
        match part:
            case Text():
                if native and part.provider_data:
                    yield part
                elif self._may_say(part.text):
                    yield Text(part.text) if part.provider_data else part
            case Thinking():
                if native and self.rules.thinking:
                    yield part
            case ToolCall():
                call_id, name = self.ids.fit_new(part.tool_call_id), self.names.fit(part.tool_name)
                data = _own_data(part) if native else None
                same = (call_id, name) == (part.tool_call_id, part.tool_name) and data is part.provider_data
                yield (
                    part
                    if same
                    else msgspec.structs.replace(part, tool_call_id=call_id, tool_name=name, provider_data=data)
                )
            case Image():
                yield fit_answered_image(part, self.rules, is_native=native) or not_shown(part)
            case ProviderItem():
                if native:
                    yield part
                elif part.text:
                    yield Text(part.text)
            case _:
                return

    def _fitted_result(self, message: Message, wire_id: str, moved: list[Part]) -> Message:
        (result,) = message.parts
        assert isinstance(result, ToolResult)
        content = result.content
        if isinstance(content, tuple):
            content = tuple(fitted for part in content for fitted in self._result_parts(part, moved))
        if wire_id == result.tool_call_id and content == result.content:
            return message
        return msgspec.structs.replace(
            message, parts=(msgspec.structs.replace(result, tool_call_id=wire_id, content=content),)
        )

    def _result_parts(self, part: ResultPart, moved: list[Part]) -> tuple[ResultPart, ...]:
        """Return a part of a result. Media that only a user turn may hold move there, and a line replaces them."""
        if isinstance(part, UnknownPart):
            return _damaged(part)
        if isinstance(part, Text):
            return (part,)
        fitted = fit_medium(part, self.rules.result_media, self.rules)
        if fitted is None and self.rules.user_after_tool:
            fitted = fit_medium(part, self.rules.user_media, self.rules)
            if fitted is not None:
                moved.append(fitted)
                fitted = Text(f"[{describe_medium(part)}: shown in the next message]")
        return (fitted or not_shown(part),)

    # ------------------------------------------------------------ user turns

    def _with_readable_media(self, message: Message, must_read: bool) -> Message:
        """Return a user turn as the target can read it; without parts, if it holds only what no model is shown."""
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, Text):
                if self._may_say(part.text):
                    parts.append(part)
            elif isinstance(part, UnknownPart):
                parts += _damaged(part)  # no encoder could write it
            elif not isinstance(part, (Image, FileRef)):
                parts.append(part)
            elif fitted := fit_medium(part, self.rules.user_media, self.rules):
                parts.append(fitted)
            elif must_read:
                raise unreadable(part, self.rules, self.target)
            else:
                parts.append(not_shown(part))
        if not parts and not all(isinstance(part, UnknownPart) for part in message.parts):
            parts.append(Text(BLANK))
        return _with_parts(message, tuple(parts))


class _Names(msgspec.Struct):
    """Names or ids mapped injectively into what a target accepts; the same name always gives the same result."""

    rule: NameRule
    fitted: dict[str, str] = {}  # by the name that was given, in the order in which they came
    used: set[str] = set()
    tried: dict[str, int] = {}  # by name, how many of its forms were tried: a name that comes again goes on there

    @property
    def changed(self) -> dict[str, str]:
        """What was changed: fitted name to original."""
        return {fitted: name for name, fitted in self.fitted.items() if fitted != name}

    def copy(self) -> "_Names":
        """Return a copy that can be added to while this one stays as it is."""
        return _Names(self.rule, self.fitted.copy(), self.used.copy(), self.tried.copy())

    def fit(self, name: str) -> str:
        """Return the target's form of `name`, the same each time."""
        if name not in self.fitted:
            self.fitted[name] = self._claim(name)
        return self.fitted[name]

    def fit_new(self, name: str) -> str:
        """Return a form that was not given out before, also for a name seen before."""
        return self._claim(name)

    def _claim(self, name: str) -> str:
        first = self.tried.get(name, 0)
        for attempt in range(first, first + _ATTEMPTS):
            candidate = _made_up(name, attempt - 1, self.rule) if attempt else name
            if candidate not in self.used and self.rule.accepts(candidate):
                self.used.add(candidate)
                self.tried[name] = attempt + 1
                return candidate
        pattern = self.rule.pattern
        raise InvalidValue(f"no name could be made up that {pattern!r} accepts: let it take letters and digits")


def _made_up(name: str, attempt: int, rule: NameRule) -> str:
    """A name of the target's alphabet that depends on the original alone: its readable start and a hash of it."""
    digest = int.from_bytes(sha256(f"{attempt}:{name}".encode("utf-8", "replace")).digest(), "big")
    size = _HASH_SIZE if rule.readable else rule.size
    hashed = ""
    for _ in range(size):
        digest, digit = divmod(digest, 62)
        hashed += _BASE62[digit]
    if not rule.readable:
        return hashed
    start = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
    if not start[:1].isalpha():
        start = "t" + start
    return f"{start[: rule.size - _HASH_SIZE - 1]}_{hashed}"


_BEFORE = -1  # the index of a call that stands before the messages that were looked at


def _find_results(
    messages: Sequence[Message], begin: int, end: int, open_calls: Iterable[str]
) -> tuple[dict[int, _Results], int]:
    """Return the messages that answer calls, by the index of the calling message, and how many messages are settled.

    `end` is where the newest user turn begins: no call and no result is in it. `open_calls` are calls from before
    `begin`; the messages that answer those are under the index `_BEFORE`.
    """
    found: dict[int, _Results] = {}
    settled = begin
    calls: dict[str, int] = dict.fromkeys(open_calls, _BEFORE)
    for index in range(begin, end):
        message = messages[index]
        if message.role is Role.ASSISTANT:
            settled = index
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls[part.tool_call_id] = index
            elif isinstance(part, ToolResult) and part.tool_call_id in calls:
                found.setdefault(calls.pop(part.tool_call_id), {})[part.tool_call_id] = (index, message)
    for called, results in sorted(found.items(), reverse=True):
        if called < settled < max(index for index, _ in results.values()):
            settled = called
    return found, settled


def _note_calls(message: Message, open_calls: set[str]) -> None:
    for part in message.parts:
        if isinstance(part, ToolCall):
            open_calls.add(part.tool_call_id)
        elif isinstance(part, ToolResult):
            open_calls.discard(part.tool_call_id)


def _newest_user_turn(messages: Sequence[Message]) -> int:
    """Return the index where the newest user turn begins: the user and system messages at the end."""
    index = len(messages)
    while index and messages[index - 1].role in (Role.USER, Role.SYSTEM):
        index -= 1
    return index


def _own_data(call: ToolCall) -> dict[str, Any] | None:
    """The call's provider data without the wire's id of a call that the history had to rename.

    Its result goes under the new id, so an encoder that sends provider data as they are must not see the old one.
    """
    data = call.provider_data
    if data is None or not call.tool_call_id.startswith(f"{data.get('id')}~"):
        return data
    return {name: value for name, value in data.items() if name != "id"} or None


def _with_parts(message: Message, parts: tuple[Part, ...]) -> Message:
    """The message with these parts; itself, if it has them."""
    same = len(parts) == len(message.parts) and all(map(is_, parts, message.parts))
    return message if same else msgspec.structs.replace(message, parts=parts)


def _has_words_and_calls(message: Message) -> bool:
    return 0 < len(message.tool_calls) < len(message.parts)


def _damaged(part: UnknownPart) -> tuple[Text, ...]:
    """A line for media that an earlier version recorded and no model can read; nothing for what a later one wrote."""
    return (Text(f"[{part.kind.partition('_')[0]}: not shown, {DAMAGED}]"),) if part.kind in MEDIA_KINDS else ()
