"""Inside `forbid_network()` no socket of the process leaves this machine, whoever opens it."""

import asyncio
import socket
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from dragoman import Agent, InvalidValue, tool
from dragoman.testing import Call, ScriptedModel, Turn, forbid_network

# An address of documentation, and a name that does not exist: a test that fails reaches nobody.
FAR, NAME = "192.0.2.1", "nowhere.invalid"


def connect(host: str) -> None:
    with socket.socket() as opened:
        opened.settimeout(1)
        opened.connect((host, 9))


def send(host: str) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as opened:
        opened.sendto(b"x", (host, 9))


async def open_stream(host: str) -> None:
    await asyncio.open_connection(host, 9)


WAYS: list[Callable[[str], object]] = [
    lambda host: socket.getaddrinfo(host, 9),
    lambda host: socket.gethostbyname(host),
    lambda host: socket.gethostbyaddr(host),
    lambda host: urllib.request.urlopen(f"http://{host}:9/", timeout=1),
    lambda host: asyncio.run(open_stream(host)),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("host", [FAR, NAME])
def test_no_way_leads_to_another_machine(way: Callable[[str], object], host: str) -> None:
    with forbid_network(), pytest.raises(InvalidValue, match=r"forbid_network\(\)"):
        way(host)


@pytest.mark.parametrize("way", [connect, send])
def test_a_socket_by_itself_reaches_no_other_machine(way: Callable[[str], object]) -> None:
    with forbid_network(), pytest.raises(InvalidValue, match=FAR):
        way(FAR)


def test_this_machine_is_reached(tmp_path: Path) -> None:
    with forbid_network(), socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):
            with socket.create_connection((host, port)) as client:
                assert client.getpeername()[1] == port
        with socket.socket(socket.AF_UNIX) as unix, pytest.raises(FileNotFoundError):
            unix.connect(str(tmp_path / "none"))


def test_after_the_block_and_after_an_inner_one_all_is_as_before() -> None:
    with forbid_network():
        with forbid_network():
            pass
        with pytest.raises(InvalidValue):
            socket.getaddrinfo(FAR, 9, flags=socket.AI_NUMERICHOST)
    assert socket.getaddrinfo(FAR, 9, flags=socket.AI_NUMERICHOST)  # asks nobody


def test_a_block_that_ends_leaves_one_that_began_later_alone() -> None:
    first, second = forbid_network(), forbid_network()  # as in two threads, or in two tasks
    with ExitStack() as later:
        with first:
            later.enter_context(second)
        with pytest.raises(InvalidValue):
            socket.getaddrinfo(FAR, 9, flags=socket.AI_NUMERICHOST)
    assert socket.getaddrinfo(FAR, 9, flags=socket.AI_NUMERICHOST)  # asks nobody


def test_a_tool_that_tries_has_failed_and_the_model_is_told() -> None:
    @tool
    def fetch() -> str:
        """Fetch a page."""
        with urllib.request.urlopen(f"http://{FAR}/", timeout=1) as page:
            return str(page.read())

    model = ScriptedModel(Turn(calls=(Call("fetch"),)), "I could not.")
    with forbid_network():
        result = Agent(model, tools=[fetch]).run_sync("Fetch it.")
    assert result.unwrap() == "I could not."
    assert FAR in str(model.requests[-1].messages[-1].tool_results[0].content)
