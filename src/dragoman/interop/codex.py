"""Rollouts of Codex (`~/.codex/sessions/…/rollout-*.jsonl`) to messages here.

A line wraps one item of the Responses API, or something that the program notes about itself.
"""

from bisect import bisect_left
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from .._jsontext import encode_json
from ..context import INJECTED_KEY
from ..message import MessageMeta, ModelInvocationDescriptor, Role, Text
from ..usage import TokenUsage
from ..wire import PROVIDERS
from ..wire.drafts import Draft, Imported
from ..wire.openai_responses.requests import ItemReader
from ..wire.reading import Node, reading
from .transcripts import TranscriptSource, no_conversation, read_lines, skip_line

__all__ = ["import_codex"]

_SPECIFICATION = "openai-responses"
_PASSTHROUGH = "internal_chat_message_metadata_passthrough"  # turn ids, which the API would refuse
_RAW_ITEMS = frozenset({"message", "function_call", "function_call_output", "reasoning", "local_shell_call"})
_CONTEXT = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<skill>")


def import_codex(source: TranscriptSource) -> Imported:
    """Return the conversation of a rollout: a Path, its text, or its lines; raise UnreadableData where it is none.

    What was said before a compaction is in the file, so the summary of it is left out. Turns that the person took back
    are left out too.
    """
    rollout = _Rollout()
    lines = read_lines(source, rollout.draft.notes)
    for line in lines:
        with reading(line.where):
            rollout.read(line)
    rollout.reader.end_turn()
    if not rollout.draft.messages:
        raise no_conversation(lines, "rollout of Codex")
    return rollout.draft.result(*lines)


class _Rollout:
    """Reads lines one by one."""

    def __init__(self) -> None:
        self.draft = Draft("codex")
        self.reader = ItemReader(self.draft, None)
        self._provider = ""
        # The indices of the answers and of what the person said, among the first `_looked` messages.
        self._looked = 0
        self._answers: list[int] = []
        self._spoken: list[int] = []

    def read(self, line: Node) -> None:
        kind, payload = line.text_if("type") or "", line.child("payload")
        line.skip("timestamp", "ordinal", "metadata")
        match kind:
            case "session_meta":
                self._read_meta(payload)
            case "turn_context":
                self.reader.end_turn()
                self.reader.model_id = payload.text_if("model")
                self.reader.invocation = self._maker(self.reader.model_id)
                payload.whole()
            case "response_item":
                self._read_item(payload, line.time_in("timestamp"))
            case "compacted":
                self._read_summary(line, payload)
            case "token_usage_record":
                self._add_usage(payload.child("usage"))
                payload.whole()
            case "event_msg":
                self._read_event(payload)
            case _ if kind in _RAW_ITEMS:  # the first versions wrote the items themselves
                self._read_item(line, line.time_in("timestamp"))
            case _ if not kind and line.has("id") and line.has("timestamp"):
                self._read_meta(line)
            case _:
                skip_line(
                    line,
                    self.draft,
                    f"{(kind or line.text_if('record_type') or 'a line')[:40]!r} of the program itself",
                )

    def _read_meta(self, node: Node) -> None:
        if self.draft.session_id is None:  # a fork repeats the lines of its parent, the first line is its own
            self.draft.session_id = node.text_if("id")
            self._provider = node.text_if("model_provider") or "openai"
            base = node.child("base_instructions")
            text = base.text_if("text") if isinstance(base.value, dict) else node.text_if("instructions")
            if text and not self.draft.messages:
                self.draft.add_system(text)
        node.whole()

    def _maker(self, model: str | None) -> ModelInvocationDescriptor | None:
        if not model or PROVIDERS.get(self._provider) != _SPECIFICATION:
            return None
        return ModelInvocationDescriptor(self._provider, _SPECIFICATION, model)

    # ------------------------------------------------------------ items

    def _read_item(self, node: Node, timestamp: datetime | None) -> None:
        kind = node.text_if("type") or ""
        if kind == "ghost_snapshot":
            skip_line(node, self.draft, "'ghost_snapshot' of the program itself")
            return
        for name in (_PASSTHROUGH, "timestamp"):
            node.value.pop(name, None)
        if kind == "local_shell_call":
            action = encode_json(node.fields.get("action") or {}).decode()
            call = {"type": "function_call", "name": "local_shell", "arguments": action}
            node = node.inside({**call, "call_id": node.get("call_id")})
        since = len(self.draft.messages)
        self.reader.read(node, timestamp)
        for index, message in enumerate(self.draft.messages[since:], since):
            if message.role is Role.USER and message.text.lstrip().startswith(_CONTEXT):  # the program said it
                self.draft.stamp(index, timestamp, {INJECTED_KEY: True})

    def _read_summary(self, line: Node, payload: Node) -> None:
        self.reader.end_turn()
        if self.draft.messages:
            skip_line(line, self.draft, "a summary of what is there anyhow")
            return
        self.draft.add(Role.USER, [Text(payload.text_in("message"))], extra={INJECTED_KEY: True})
        payload.whole()

    # ------------------------------------------------------------ events

    def _read_event(self, payload: Node) -> None:
        match payload.text_if("type"):
            case "token_count" if isinstance(payload.get("info"), dict):
                self._add_usage(payload.child("info").child("last_token_usage"))
                payload.whole()
            case "thread_rolled_back":
                self._take_back(payload.count_in("num_turns") or 0)
                payload.whole()
            case kind:  # what the program showed of the items
                skip_line(payload, self.draft, f"{(kind or 'event')[:40]!r} of the program itself")

    def _look(self) -> None:
        """End the turn, and note the messages that have come since the last look."""
        self.reader.end_turn()
        for index, message in enumerate(self.draft.messages[self._looked :], self._looked):
            if message.role is Role.ASSISTANT:
                self._answers.append(index)
            elif message.role is Role.USER and not ((message.meta and message.meta.extra) or {}).get(INJECTED_KEY):
                self._spoken.append(index)
        self._looked = len(self.draft.messages)

    def _take_back(self, turns: int) -> None:
        self._look()
        if not turns or not self._spoken:
            return
        start = self._spoken[max(0, len(self._spoken) - turns)]
        self.draft.notes.add(f"message {start}", "a turn that the person took back is left out")
        del self.draft.messages[start:]
        for indices in (self._answers, self._spoken):
            del indices[bisect_left(indices, start) :]
        self._looked = start

    def _add_usage(self, node: Node) -> None:
        """Give the newest answer its usage, unless it has one: the program reports some twice."""
        self._look()
        if not self._answers or not isinstance(node.value, dict):
            return
        newest = self._answers[-1]
        message = self.draft.messages[newest]
        meta = message.meta or MessageMeta()
        if meta.usage is None:
            self.draft.messages[newest] = replace(message, meta=replace(meta, usage=_usage(node.fields)))


def _usage(fields: dict[str, Any]) -> TokenUsage:
    return TokenUsage.reported(
        input_tokens=fields.get("input_tokens"),
        output_tokens=fields.get("output_tokens"),
        total_tokens=fields.get("total_tokens"),
        cache_read_tokens=fields.get("cached_input_tokens"),
        cache_write_tokens=fields.get("cache_write_input_tokens") or None,
        reasoning_tokens=fields.get("reasoning_output_tokens"),
    )
