"""A client in a project of its own, what it asks, and the upstream behind."""

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import pytest

from dragoman.testing.validators import validate_request

from .gateway import MODELS, Served, serving
from .installing import NotInstalled, installed
from .programs import CLIENTS, Client, Ran, place, run
from .script import FILE, FILE_TEXT, PICTURE, PLANTED, SEEN
from .upstream import Fault, Got, Upstream, running

# Those that every run of the slow tests has. The others run where DRAGOMAN_ALL_CLIENTS is set.
ALWAYS = ("claude-code", "codex")
SEAL = b"dragoman.seal."
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364f80f00010501012718e366"
    "0000000049454e44ae426082"
)


class Seat:
    """A client that asks one address; its home and its project stay from run to run."""

    def __init__(self, name: str, folder: Path, url: str) -> None:
        self.client = CLIENTS[name]
        self.program = program_of(self.client)
        self.where = place(folder, url)

    def ask(self, prompt: str, *, resume: bool = False) -> Ran:
        """Run the client once: in a new conversation, or with the next turn of the last one."""
        return run(self.client, self.program, self.where, prompt, resume=resume)


class Stage:
    """An upstream, with a gateway before it where `behind` names the API that answers, and clients that ask."""

    def __init__(self, folder: Path, *faults: Fault, behind: str = "", thinks: bool = True) -> None:
        self.folder = folder
        self.behind = behind
        self.upstream = Upstream(str(folder), thinks=thinks)
        self.upstream.faults.extend(faults)
        self.served: Served | None = None
        self._stack = ExitStack()

    def __enter__(self) -> "Stage":
        (self.folder / FILE).write_text(FILE_TEXT, encoding="utf-8")
        (self.folder / PICTURE).write_bytes(PIXEL)
        self._stack.enter_context(running(self.upstream))
        if self.behind:
            self.served = self._stack.enter_context(serving(self.upstream, self.behind, self.folder))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def replay(self) -> None:
        """Start a gateway that answers from the record. Clients that sit down then know of nothing."""
        self.served = self._stack.enter_context(serving(self.upstream, self.behind, self.folder, is_replay=True))
        for name in CLIENTS:
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def crash(self) -> None:
        """Kill the gateway and start it again, with the same address and the same record."""
        assert self.served is not None
        port = self.served.port
        self.served.kill()
        self.served = self._stack.enter_context(serving(self.upstream, self.behind, self.folder, port=port))

    @property
    def url(self) -> str:
        """What clients ask."""
        return self.upstream.url if self.served is None else self.served.url

    def seat(self, name: str, *, path: str = "") -> Seat:
        """Return the client of this name; skip the test where it cannot be had."""
        return Seat(name, self.folder / name, self.url + path)

    def problems(self, client: Client) -> list[str]:
        """Why a vendor would have refused requests, and what it must not see.

        Requests that passed as the client wrote them are not held to the vendor's types: clients know of newer ones.
        """
        found = list(self.upstream.strange)
        for got in self.upstream.answered:
            found += [f"refused with {got.status}"] if got.status >= 400 else []
            found += ["a seal of ours"] if SEAL in got.body else []
            found += refusals(got) if got.api != client.api else []
        return found


def refusals(got: Got) -> list[str]:
    """Why the vendor would refuse this request."""
    return validate_request(MODELS[got.api][0], got.body, path=got.path)


def program_of(client: Client) -> Path:
    """Return the client's program; skip the test where it cannot be had."""
    if client.name not in ALWAYS and not os.environ.get("DRAGOMAN_ALL_CLIENTS"):
        pytest.skip("only with DRAGOMAN_ALL_CLIENTS")
    try:
        return installed(client)
    except NotInstalled as error:
        pytest.skip(str(error))


def has_answered(ran: Ran) -> bool:
    """Whether the client shows an answer of the upstream."""
    return ran.code == 0 and PLANTED in ran.output


def has_used_a_tool(ran: Ran) -> bool:
    """Whether the client shows the answer that follows the result of a tool."""
    return has_answered(ran) and any(f"The tool said {word}" in ran.output for word in SEEN)
