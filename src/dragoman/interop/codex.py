"""Rollouts of Codex (`~/.codex/sessions/…/rollout-*.jsonl`) to messages here.

A line wraps one item of the Responses API, or something that the program notes about itself. The rollout of a fork, or
of a session whose person took turns back, begins in another rollout: its first line names that one and where to stop.
"""

import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from .._jsontext import encode_json
from ..context import INJECTED_KEY
from ..errors import UnreadableData
from ..files import read_file
from ..message import MessageMeta, ModelInvocationDescriptor, Role, Text
from ..usage import TokenUsage
from ..wire import PROVIDERS
from ..wire.drafts import Draft, Imported
from ..wire.openai_responses.requests import ItemReader
from ..wire.reading import Node, Notes, reading
from .transcripts import TranscriptSource, no_conversation, read_lines, skip_line

__all__ = ["import_codex", "import_rollout", "superseded_rollouts"]

_SPECIFICATION = "openai-responses"
_PASSTHROUGH = "internal_chat_message_metadata_passthrough"  # turn ids, which the API would refuse
_RAW_ITEMS = frozenset({"message", "function_call", "function_call_output", "reasoning", "local_shell_call"})
_CONTEXT = (
    *("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<skill>"),
    *("<user_shell_command>", "<user_action>", "<subagent_notification>", "<codex_internal_context"),
)
_FOLDERS = ("sessions", "archived_sessions")
_HISTORY_ID = re.compile(r"[0-9a-f-]{36}")
# The time, the session, and the history of it, if turns were taken back.
_FILE_NAME = re.compile(r"rollout-.{19}-(?P<session>[0-9a-f-]{36})(?:_(?P<history>[0-9a-f-]{36}))?\.jsonl(?:\.gz)?")


def import_codex(source: TranscriptSource) -> Imported:
    """Return the conversation of a rollout: a Path, its text, or its lines; raise UnreadableData where it is none.

    What was said before a compaction is in the file, so the summary of it is left out. Turns that the person took back
    are left out too. A rollout that begins in another one is read with it only from a Path.
    """
    return import_rollout(source, Path(os.path.realpath(source)).parent if isinstance(source, os.PathLike) else None)


def import_rollout(source: TranscriptSource, folder: Path | None) -> Imported:
    """Return the conversation of a rollout, as `import_codex` does; `folder` is where it lies, if that is known."""
    rollout = _Rollout()
    lines = read_lines(source, rollout.draft.notes)
    earlier = _earlier_lines(lines[0], folder, rollout.draft.notes)
    for line in [lines[0], *earlier, *lines] if earlier else lines:
        with reading(line.where):
            rollout.read(line)
    rollout.reader.end_turn()
    if not rollout.draft.messages:
        raise no_conversation(lines, "rollout of Codex")
    return rollout.draft.result(*earlier, *lines)


def superseded_rollouts(files: Iterable[Path]) -> dict[Path, Path]:
    """Return the rollouts that hold an earlier history of a session, each with the rollout that holds the newest.

    A history has an id that begins with the time, so ids sort by it.
    """
    histories = [(path, match) for path in files if (match := _FILE_NAME.fullmatch(path.name)) is not None]
    newest: dict[str, tuple[str, Path]] = {}
    for path, match in histories:
        history, session = match["history"] or "", match["session"]
        if session not in newest or history > newest[session][0]:
            newest[session] = (history, path)
    return {
        path: newest[match["session"]][1]
        for path, match in histories
        if (match["history"] or "") < newest[match["session"]][0]
    }


# ---------------------------------------------------------------- histories that begin in another rollout


def _earlier_lines(first: Node, folder: Path | None, notes: Notes) -> list[Node]:
    """Return the lines of other rollouts before this one, the oldest first; none where it is whole by itself."""
    pieces: list[list[Node]] = []
    seen: set[str] = set()
    while (base := _history_base(first)) is not None:
        history_id, size = base
        if history_id in seen:
            raise UnreadableData(f"{first.where}: the rollouts that this one begins in are a circle")
        seen.add(history_id)
        path = None if folder is None else next(_find_rollouts(folder, history_id), None)
        if path is None:
            notes.add(first.where, f"what was said before is in the rollout {history_id}, which is not there")
            break
        try:
            begun = read_file(path)[:size]
        except OSError as error:
            raise UnreadableData(f"{path.name} cannot be read: {error.strerror}") from error
        pieces.append(read_lines(begun, notes, name=path.name))
        first = pieces[-1][0]
    return [line for piece in reversed(pieces) for line in piece]


def _history_base(first: Node) -> tuple[str, int] | None:
    """Return the id of the rollout that this one begins in, and how many bytes of it."""
    payload = first.value.get("payload")
    if first.value.get("type") != "session_meta" or not isinstance(payload, dict) or not payload.get("history_base"):
        return None
    base = first.child("payload").child("history_base")
    history_id = base.text_in("thread_id")
    if _HISTORY_ID.fullmatch(history_id) is None:
        raise UnreadableData(f"{base.where}.thread_id must be a UUID")
    return history_id, base.count_in("end_byte_offset") or 0


def _find_rollouts(folder: Path, history_id: str) -> Iterator[Path]:
    """Yield the rollouts that have this id, in the folder or elsewhere among the sessions of the same Codex."""
    home = next((parent.parent for parent in (folder, *folder.parents) if parent.name in _FOLDERS), None)
    roots = [folder] if home is None else [folder, *(home / name for name in _FOLDERS)]
    for root in roots:
        for path in root.glob(f"{'' if root == folder else '**/'}rollout-*[-_]{history_id}.jsonl"):
            if path.is_file() and not path.is_symlink():
                yield path


# ---------------------------------------------------------------- lines


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
        self._provider = node.text_if("model_provider") or "openai"
        if self.draft.session_id is None:  # a fork repeats the lines of its parent, the first line is its own
            self.draft.session_id = node.text_if("id")
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
        self._look()
        if self.draft.messages:
            skip_line(line, self.draft, "a summary of what is there anyhow")
            last = self.draft.messages[-1]
            if last.role is Role.ASSISTANT and last.text and (payload.text_if("message") or "").endswith(last.text):
                self._drop(len(self.draft.messages) - 1)  # the answer in which the model gave the summary
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
        self._drop(start)

    def _drop(self, start: int) -> None:
        """Take the messages from an index on out of the draft."""
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
