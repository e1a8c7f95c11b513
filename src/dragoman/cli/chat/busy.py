"""What a person can do while another process runs the session: wait for it, follow it, or go on in a fork."""

import asyncio
from typing import TYPE_CHECKING

from ...store import Lease, Session
from ..entrytext import local_time, write_entry
from .input import Interrupted

if TYPE_CHECKING:
    from .loop import Chat

__all__ = ["busy_words", "settle_busy"]

LOOK_SECONDS = 0.5  # between two looks whether the other run has ended


def busy_words(lease: Lease) -> str:
    """Return who runs a session, and since when."""
    return f"{lease.owner} runs this session since {local_time(lease.acquired_at)}"


async def settle_busy(chat: "Chat", lease: Lease) -> bool:
    """Ask what to do, do it, and return whether the session can be used now."""
    chat.tell(busy_words(lease), "yellow")
    while True:
        try:
            answer = await chat.editor.ask("[w]ait for it, [f]ollow it, for[k] it, [l]eave it:")
        except Interrupted:
            return False
        match (answer or "").strip().lower():
            case "w" | "wait":
                return await _until_free(chat, follows=False)
            case "f" | "follow":
                return await _until_free(chat, follows=True)
            case "k" | "fork":
                before = await chat.talk.fork()
                assert chat.talk.session is not None
                chat.tell(f"this is {chat.talk.session.session_id} now, a fork of {before}")
                return True
            case "l" | "leave" | "":
                return False
            case _:
                chat.tell("w, f, k or l")


async def _until_free(chat: "Chat", *, follows: bool) -> bool:
    """Wait until no run has the session, and show what it records meanwhile; Ctrl-C ends the waiting."""
    session = chat.talk.session
    assert session is not None
    waiting = asyncio.ensure_future(_wait(chat, session, follows))
    with chat.editor.watching(waiting.cancel):
        try:
            await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled():
                raise
            return False
    await session.refresh()
    chat.changed()
    return True


async def _wait(chat: "Chat", session: Session, follows: bool) -> None:
    """Wait until the lease is gone; what the owner recorded before that is shown, its last entry too."""
    next_serial = session.state.next_serial
    while True:
        is_free = await session.store.find_lease(session.session_id) is None
        if follows:
            for entry in await session.store.load(session.session_id, next_serial):
                write_entry(chat.output, entry)
                next_serial = entry.serial + 1
            chat.output.flush()
        if is_free:
            return
        await asyncio.sleep(LOOK_SECONDS)
