"""What models, tools and damage put into a store hides no session and writes no line of its own."""

from typing import Any

import pytest

from dragoman import MemoryStore
from dragoman.store import SessionPage
from tests.cli_cases import User, empty_user  # noqa: F401  # the fixture


class ErasingStore(MemoryStore):
    """A store of two sessions, one of which is erased as soon as it was listed."""

    async def list(self, **asked: Any) -> SessionPage:
        if not self._sessions_made:
            self._sessions_made = True
            for name in ("kept", "gone"):
                await self.create(name)
        page = await super().list(**asked)
        if any(info.session_id == "gone" for info in page.sessions):
            await self.erase("gone")
        return page

    _sessions_made = False


@pytest.mark.parametrize("task", ["list", "verify"])
def test_a_session_that_is_erased_meanwhile_is_left_out(user: User, monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    monkeypatch.setattr("dragoman.cli.stores.open_store", lambda _location, **_: ErasingStore())
    user.store.parent.mkdir(parents=True)
    user.store.touch()
    ended = user.run("sessions", task)
    assert (ended.status, ended.err) == (0, "")
    assert "kept" in ended.out
    assert "gone" not in ended.out
