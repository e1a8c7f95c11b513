"""Rollouts of Codex 0.166 that begin in another rollout: forks, and sessions whose person took turns back."""

import json
from pathlib import Path
from typing import Any

import pytest

from dragoman import UnreadableData
from dragoman.interop import Imported, import_codex
from dragoman.interop.codex import superseded_rollouts

SESSION = "01a1ee0c-a8e0-7b32-b826-6923532815d2"
HISTORY = "01a1ee0c-a9d3-78e0-b2db-ba28ae6e28b3"
FORK = "01a1ee0c-aada-7f02-ba40-728d248e5c39"
BEGUN = f"2026/11/18/rollout-2026-11-18T09-46-09-{SESSION}.jsonl"
TAKEN_BACK = f"2026/11/18/rollout-2026-11-18T09-47-09-{SESSION}_{HISTORY}.jsonl"
FORKED = f"2026/11/19/rollout-2026-11-19T00-00-01-{FORK}.jsonl"


def item(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def turn(text: str) -> list[dict[str, Any]]:
    return [item("user", text), item("assistant", f"{text.upper()}!")]


def write_rollout(path: Path, session_id: str, items: list[dict[str, Any]], base: Any = None) -> list[int]:
    """Write a rollout and return how many bytes it has after each line."""
    meta = {"id": session_id, "model_provider": "openai", "history_mode": "paginated", "history_base": base}
    lines = [{"type": "session_meta", "payload": meta}, *({"type": "response_item", "payload": each} for each in items)]
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes: list[int] = []
    with path.open("wb") as file:
        for ordinal, line in enumerate(lines):
            stamped = {"timestamp": "2026-11-18T09:46:09.000Z", "ordinal": ordinal, **line}
            file.write(json.dumps(stamped).encode() + b"\n")
            sizes.append(file.tell())
    return sizes


def write_family(sessions: Path) -> None:
    """Write a session of two turns, of which the second was taken back for another, and a fork of that history."""
    sizes = write_rollout(sessions / BEGUN, SESSION, [*turn("one"), *turn("two")])
    base = {"thread_id": SESSION, "end_ordinal_exclusive": 3, "end_byte_offset": sizes[2]}
    sizes = write_rollout(sessions / TAKEN_BACK, SESSION, [*turn("instead"), *turn("late")], base)
    base = {"thread_id": HISTORY, "end_ordinal_exclusive": 5, "end_byte_offset": sizes[2]}
    write_rollout(sessions / FORKED, FORK, turn("forked"), base)


def texts(imported: Imported) -> list[str]:
    return [message.text for message in imported.messages]


def test_a_fork_has_what_was_said_before_it_in_other_rollouts(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    write_family(sessions)
    imported = import_codex(sessions / FORKED)
    assert texts(imported) == ["one", "ONE!", "instead", "INSTEAD!", "forked", "FORKED!"]
    assert (imported.session_id, imported.warnings) == (FORK, ())
    assert texts(import_codex(sessions / TAKEN_BACK)) == ["one", "ONE!", "instead", "INSTEAD!", "late", "LATE!"]
    assert texts(import_codex(sessions / BEGUN)) == ["one", "ONE!", "two", "TWO!"]


def test_a_rollout_begins_in_one_that_was_archived(tmp_path: Path) -> None:
    write_family(tmp_path / "sessions")
    (tmp_path / "archived_sessions").mkdir()
    begun = tmp_path / "sessions" / BEGUN
    begun.rename(tmp_path / "archived_sessions" / begun.name)
    assert texts(import_codex(tmp_path / "sessions" / TAKEN_BACK))[:2] == ["one", "ONE!"]


def test_a_beginning_that_is_not_there_is_told(tmp_path: Path) -> None:
    write_family(tmp_path)
    told = f"line 1: what was said before is in the rollout {HISTORY}, which is not there"
    path = tmp_path / FORKED  # another day's folder, and no folder of Codex's above it
    for source, name in ((path, f"{path.name} "), (path.read_text(encoding="utf-8"), "")):
        imported = import_codex(source)
        assert texts(imported) == ["forked", "FORKED!"]
        assert imported.warnings == (f"{name}{told}",)


def test_rollouts_that_begin_in_each_other_are_refused(tmp_path: Path) -> None:
    for begun, other in ((SESSION, FORK), (FORK, SESSION)):
        base = {"thread_id": other, "end_byte_offset": 10_000}
        write_rollout(tmp_path / f"rollout-2026-11-18T09-46-09-{begun}.jsonl", begun, turn("one"), base)
    with pytest.raises(UnreadableData, match="line 1: the rollouts that this one begins in are a circle"):
        import_codex(next(tmp_path.iterdir()))


@pytest.mark.parametrize("named", ["../../secret", "*", "", 5, None, f"{SESSION}/x"])
def test_a_beginning_without_a_uuid_is_refused(named: Any, tmp_path: Path) -> None:
    path = tmp_path / "rollout.jsonl"
    write_rollout(path, SESSION, turn("one"), {"thread_id": named, "end_byte_offset": 10})
    with pytest.raises(UnreadableData, match=r"rollout\.jsonl line 1\.payload\.history_base\.thread_id must be "):
        import_codex(path)


def test_a_damaged_beginning_is_refused_with_its_name(tmp_path: Path) -> None:
    write_family(tmp_path / "sessions")
    begun = tmp_path / "sessions" / BEGUN
    begun.write_bytes(b"\0" + begun.read_bytes()[1:])
    with pytest.raises(UnreadableData, match=f"{begun.name} line 1: not readable as JSON"):
        import_codex(tmp_path / "sessions" / FORKED)


def test_a_link_to_itself_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    with pytest.raises(UnreadableData, match=r"^loop\.jsonl cannot be read: Too many levels"):
        import_codex(tmp_path / "loop.jsonl")


def test_the_newest_history_of_a_session_supersedes_the_others() -> None:
    begun, newest, fork, other = (Path(name) for name in (BEGUN, TAKEN_BACK, FORKED, "notes.jsonl"))
    copy = Path("backup") / TAKEN_BACK
    assert superseded_rollouts([fork, newest, begun, other, copy]) == {begun: newest}


def test_the_answer_that_gave_a_summary_is_left_out_with_it() -> None:
    summary = {"message": "Here is the summary:\nThey greeted.", "replacement_history": []}
    usage = {"type": "token_count", "info": {"last_token_usage": {"input_tokens": 1}}}
    lines = [
        *({"type": "response_item", "payload": each} for each in [*turn("hello"), item("assistant", "They greeted.")]),
        {"type": "event_msg", "payload": usage},
        {"type": "compacted", "payload": summary},
        *({"type": "response_item", "payload": each} for each in turn("again")),
        {"type": "event_msg", "payload": usage},
    ]
    lines.insert(2, {"type": "event_msg", "payload": usage})  # where the first answer ends
    imported = import_codex(lines)
    assert texts(imported) == ["hello", "HELLO!", "again", "AGAIN!"]
    assert imported.messages[3].meta is not None
    assert imported.messages[3].meta.usage is not None
    assert imported.warnings == ("line 6: a summary of what is there anyhow is left out",)


@pytest.mark.parametrize("text", ["<user_shell_command>\nls", "<user_action>\nreview", "<subagent_notification>\n{}"])
def test_what_the_program_says_in_the_persons_name_is_injected(text: str) -> None:
    imported = import_codex([{"type": "response_item", "payload": item("user", text)}])
    assert imported.messages[0].meta is not None
    assert imported.messages[0].meta.extra == {"injected": True}
