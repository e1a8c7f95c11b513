"""Clients that vanish, a gateway that is killed, and many requests: `dragoman serve` as a process of its own.

    python -m tests.strangers.gateway vanish --clients 1000
    python -m tests.strangers.gateway kill --rounds 100
    python -m tests.strangers.gateway many --requests 10000
    python -m tests.strangers.gateway hostile

`vanish`: clients of all fronts break their connections off at random moments, in the request, before the answer and
inside of it. The upstream of each must be closed within a second, and at the end the gateway must have no more
connections open than before. `kill`: conversations go on while the gateway is killed and started again. Whatever it
acknowledged must be in the record: the requests that its upstream has seen, and the answers whose finish a client has
read. The next request must find its session. `many`: streams, 200 at once; memory must be flat. `hostile`: bodies of
1 GB, compressed ones that become that large, and a thousand connections that say nothing, each beside a client that
must be served.

Each prints what it measured, and ends with status 1 if something did not hold.
"""

import argparse
import asyncio
import gzip
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import aiohttp

from dragoman.history import ClientAnswerEntry, ClientRequestEntry
from dragoman.history.exchanges import body_of as recorded_body
from dragoman.store import SQLiteStore, open_session
from tests.gateway_stage import (
    FRONTS,
    Exchange,
    Line,
    Served,
    Upstream,
    answers,
    api_of,
    body_of,
    head,
    line,
    path_of,
    served,
    until,
    upstream_server,
    written,
)

MB = 1 << 20
CLOSED_SECONDS = 1.0  # from a client's end to that of its upstream
PATIENCE = 60.0  # seconds in which a gateway comes to rest
AT_ONCE = 200  # streams
LEAVING, STAY = 100, 2.0  # clients at once that vanish, and the longest time until they do, in seconds
FLAT = 24 * MB  # what a gateway may grow by from a fifth of its requests on
HOSTILE = 160 * MB  # what hostile requests may cost at their worst: two bodies of the largest size, and what reads them

Found = dict[str, Any]


class Failed(Exception):
    """Something did not hold."""


def require(is_so: bool, problem: str) -> None:
    """Raise Failed."""
    if not is_so:
        raise Failed(problem)


# ---------------------------------------------------------------- clients that vanish


class Ends:
    """When each client's upstream began and ended, and when the client left."""

    def __init__(self, chance: random.Random) -> None:
        self.begun: set[str] = set()
        self.ended: dict[str, float] = {}
        self.left: dict[str, float] = {}
        self._chance = chance

    async def script(self, exchange: Exchange) -> None:
        """Answer slowly: before each part it may take a while, and it never comes to an end."""
        name = _name_in(exchange.body)
        self.begun.add(name)
        try:
            await asyncio.sleep(self._chance.random() * 0.3)
            await exchange.send(exchange.answer.opening)
            while True:
                await exchange.send(exchange.answer.piece)
                await asyncio.sleep(self._chance.random() * 0.1)
        finally:
            self.ended[name] = time.monotonic()

    @property
    def delays(self) -> list[float]:
        """How long the upstreams stayed open whose clients had left."""
        return sorted(self.ended[name] - self.left[name] for name in self.begun if name in self.ended)


async def vanish(clients: int, seed: int, folder: Path) -> Found:
    """Let clients vanish; return how long upstreams stayed open, and what is left open."""
    chance = random.Random(seed)
    ends = Ends(chance)
    async with _served(folder, ends.script) as (upstream, server):
        await _leave(server, ends, "first", 0.5, chance)  # it opens what stays open
        await _settled(server, upstream)
        before = server.open_sockets()
        gate = asyncio.Semaphore(LEAVING)

        async def come_and_go(number: int) -> None:
            async with gate:
                await _leave(server, ends, f"client-{number}", STAY * chance.random(), chance)

        await asyncio.gather(*(come_and_go(number) for number in range(clients)))
        await _settled(server, upstream)
        async with asyncio.timeout(PATIENCE):
            await until(lambda: server.open_sockets() <= before, 0.05)
        delays = ends.delays
        found = {
            "clients": clients,
            "upstreams": len(ends.begun),
            "slowest close, s": round(delays[-1], 3),
            "connections left open": server.open_sockets() - before,
            "tracebacks": server.log.read_text("utf-8").count("Traceback"),
        }
        require(set(ends.ended) == ends.begun, f"an upstream is open still: {found}")
        require(delays[-1] <= CLOSED_SECONDS, f"an upstream was closed too late: {found}")
        require(not found["tracebacks"], server.log.read_text("utf-8")[-3_000:])
        return found


async def _leave(server: Served, ends: Ends, name: str, moment: float, chance: random.Random) -> None:
    """Ask, and break the connection off: inside the request, before its answer, or inside of that."""
    api = chance.choice(FRONTS)
    stream = chance.random() < 0.7
    request = written(api, body_of(api, stream=stream, said=name), stream=stream)
    async with line(server.port) as connection:
        if moment < 0.2:
            await connection.send(request[: chance.randrange(len(request))])
        else:
            await connection.send(request)
            with suppress(TimeoutError):
                await asyncio.wait_for(_read_for_ever(connection), moment)
        ends.left[name] = time.monotonic()


async def _read_for_ever(connection: Line) -> None:
    while await connection.reader.read(65_536):
        pass


async def _settled(server: Served, upstream: Upstream) -> None:
    """Wait until nothing is under way."""
    async with asyncio.timeout(PATIENCE):
        await upstream.until(lambda upstream: upstream.open == 0)
        while await _gauge(server, "dragoman_answers_under_way") or await _gauge(server, "dragoman_held_body_bytes"):
            pass


async def _gauge(server: Served, name: str) -> int:
    async with line(server.port) as connection:
        await connection.send(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        page = (await connection.answer()).body.decode()
    return next(int(found.split()[1]) for found in page.splitlines() if found.startswith(f"{name} "))


# ---------------------------------------------------------------- many requests


async def many(requests: int, folder: Path) -> Found:
    """Ask for many streams, 200 at once, in conversations of five turns; return what memory they took."""
    seen: list[int] = []
    done = 0
    async with _served(folder, _answer) as (upstream, server), _client() as client:

        async def converse(first: int) -> None:
            nonlocal done
            talk = Talk(FRONTS[first % len(FRONTS)], f"talk-{first}", is_named=first % 8 < 4)
            for _ in range(5):
                await talk.ask(client, server.url)
                done += 1
                if done % max(requests // 20, 1) == 0:
                    seen.append(server.memory())

        gate = asyncio.Semaphore(AT_ONCE)

        async def take_turn(first: int) -> None:
            async with gate:
                await converse(first)

        await _ask_at_once(upstream, server, client)
        started = time.monotonic()
        await asyncio.gather(*(take_turn(first) for first in range(requests // 5)))
        seconds = time.monotonic() - started
        await _settled(server, upstream)
    early, late = max(seen[: len(seen) // 5 or 1]), max(seen[-(len(seen) // 5 or 1) :])
    found = {
        "requests": done,
        "a second": round(done / seconds),
        "MB at a fifth": early // MB,
        "MB at the end": late // MB,
        "most upstreams at once": upstream.most,
        "MB on the way": [size // MB for size in seen],
    }
    require(late - early <= FLAT, f"memory grows: {found}")
    return found


async def _ask_at_once(upstream: Upstream, server: Served, client: aiohttp.ClientSession) -> None:
    """Open all streams, and let none of them go on before all are open."""

    async def wait(exchange: Exchange) -> None:
        await upstream.until(lambda upstream: upstream.most >= AT_ONCE)
        await _answer(exchange)

    upstream.script = wait
    talks = [Talk(FRONTS[number % len(FRONTS)], f"at-once-{number}") for number in range(AT_ONCE)]
    await asyncio.gather(*(talk.ask(client, server.url) for talk in talks))
    upstream.script = _answer


# ---------------------------------------------------------------- conversations


class Talk:
    """A conversation of a client that keeps its messages, as clients do. The same question gets the same answer."""

    def __init__(self, api: str, name: str, *, is_named: bool = True) -> None:
        self.api = api
        self.name = name
        self._headers = {"x-session-id": name} if is_named else {}
        self.said: list[tuple[str, str]] = []
        self.session = ""
        self.read_answers: list[bytes] = []

    async def ask(self, client: aiohttp.ClientSession, url: str) -> None:
        """Ask the next question, or the last one again that has no answer; raise ClientError where it is cut."""
        if not self.said or self.said[-1][0] == "assistant":
            self.said.append(("user", f"{self.name} asks {len(self.said)}"))
        body = _body(self.api, self.said)
        async with client.post(url + path_of(self.api), data=body, headers=self._headers) as response:
            got = await response.read()
            require(response.status == 200, f"{self.name} got {response.status}: {got[:300]!r}")
            text = f"To {self.said[-1][1]!r}."
            whole = b"".join(answers(text)[self.api])
            if got != whole:
                raise aiohttp.ClientPayloadError("the answer ended early")
            # A repeat of what was answered before names no session: its answer may be another one.
            session = response.headers.get("x-dragoman-session", self.session)
            require(self.session in ("", session), f"{self.name} was in {self.session} and went on in {session}")
            self.session = session
            self.read_answers.append(got)
            self.said.append(("assistant", text))


def _body(api: str, said: list[tuple[str, str]]) -> bytes:
    if api == "gemini":
        names = {"user": "user", "assistant": "model"}
        contents = [{"role": names[role], "parts": [{"text": text}]} for role, text in said]
        return json.dumps({"contents": contents}).encode()
    messages = [{"role": role, "content": text} for role, text in said]
    common: dict[str, Any] = {"model": "m", "stream": True}
    if api == "openai-responses":
        return json.dumps({**common, "input": messages, "store": False}).encode()
    return json.dumps({**common, "messages": messages, "max_tokens": 100}).encode()


def _last_question(body: bytes) -> str:
    asked = json.loads(body)
    last = (asked.get("messages") or asked.get("input") or asked.get("contents"))[-1]
    text = last["parts"][0]["text"] if "parts" in last else last["content"]
    assert isinstance(text, str)
    return text


def _name_in(body: bytes) -> str:
    asked = json.loads(body)
    said = asked.get("input") or asked.get("messages") or asked["contents"]
    if isinstance(said, str):
        return said
    last = said[-1]
    name = last["parts"][0]["text"] if "parts" in last else last["content"]
    assert isinstance(name, str)
    return name


async def _answer(exchange: Exchange) -> None:
    answer = answers(f"To {_last_question(exchange.body)!r}.")[api_of(exchange.request.path)]
    for part in answer:
        await exchange.send(part)
        await asyncio.sleep(0)


# ---------------------------------------------------------------- a gateway that is killed


class Killed(NamedTuple):
    """What a record must hold after all."""

    talks: list[Talk]
    asked: list[bytes]  # the bodies that the upstream saw


async def kill(rounds: int, seed: int, folder: Path) -> Found:
    """Kill the gateway while conversations go on; return what is in its record."""
    chance = random.Random(seed)
    asked: list[bytes] = []

    async def slowly(exchange: Exchange) -> None:
        asked.append(exchange.body)
        answer = answers(f"To {_last_question(exchange.body)!r}.")[api_of(exchange.request.path)]
        for part in answer:
            await asyncio.sleep(chance.random() * 0.02)
            await exchange.send(part)

    talks = [Talk(api, f"{api}-{number}", is_named=number < 2) for api in FRONTS for number in range(4)]
    upstream = Upstream()
    upstream.script = slowly
    port = cut = 0
    async with upstream_server(upstream):
        for _ in range(rounds):
            with served(upstream.url, folder, port=port) as server:
                port = server.port
                async with _client() as client:
                    tasks = [asyncio.ensure_future(_go_on(talk, client, server.url)) for talk in talks]
                    await asyncio.sleep(0.05 + chance.random() * 0.4)
                    server.process.kill()
                    await asyncio.to_thread(server.process.wait)
                    ended = await asyncio.gather(*tasks, return_exceptions=True)
                broken = [error for error in ended if isinstance(error, Failed)]
                require(not broken, str(broken[:1]))
                cut += len(ended)
        with served(upstream.url, folder, port=port) as server:
            async with _client() as client:
                await asyncio.gather(*(talk.ask(client, server.url) for talk in talks))  # each finds its session
    found = await _compare(folder / "record.db", Killed(talks, asked))
    return {"kills": rounds, "requests cut": cut, **found}


async def _go_on(talk: Talk, client: aiohttp.ClientSession, url: str) -> None:
    """Ask until the gateway is gone."""
    while True:
        try:
            await talk.ask(client, url)
        except (aiohttp.ClientError, ConnectionError):
            return


async def _compare(path: Path, expected: Killed) -> Found:
    """Require that the record has what was acknowledged."""
    requests: set[bytes] = set()
    given: dict[str, set[bytes]] = {}
    sessions = unsound = 0
    async with SQLiteStore(path) as store:
        page = await store.list(limit=10_000)
        for info in page.sessions:
            sessions += 1
            report = await store.verify(info.session_id)
            unsound += report.bad_serial is not None
            entries = (await open_session(store, info.session_id)).entries
            for entry in entries:
                if isinstance(entry, ClientRequestEntry):
                    requests.add(recorded_body(entries.__getitem__, entry).encode())
                elif isinstance(entry, ClientAnswerEntry) and entry.is_whole:
                    given.setdefault(info.session_id, set()).add(entry.body)
    lost_requests = [body for body in expected.asked if body not in requests]
    lost_answers = [
        answer for talk in expected.talks for answer in talk.read_answers if answer not in given.get(talk.session, ())
    ]
    found = {
        "sessions": sessions,
        "conversations": len(expected.talks),
        "requests seen upstream": len(expected.asked),
        "answers read": sum(len(talk.read_answers) for talk in expected.talks),
        "requests lost": len(lost_requests),
        "answers lost": len(lost_answers),
        "unsound sessions": unsound,
    }
    require(not lost_requests and not lost_answers and not unsound, str(found))
    require(sessions == len(expected.talks), f"a conversation has more sessions than one: {found}")
    return found


# ---------------------------------------------------------------- hostile clients


async def hostile(megabytes: int, connections: int, folder: Path) -> Found:
    """Send what no client should; return what it cost, and how long another client waited meanwhile."""
    async with _served(folder, _answer) as (upstream, server), _client() as client:
        talk = Talk("openai-chat", "another")
        await talk.ask(client, server.url)
        before, waits = server.peak_memory(), [0.0]
        stopped = asyncio.Event()

        async def ask_on() -> None:
            while not stopped.is_set():
                started = time.monotonic()
                await talk.ask(client, server.url)
                waits.append(time.monotonic() - started)

        other = asyncio.ensure_future(ask_on())
        statuses, bomb = [], await asyncio.to_thread(_bomb, megabytes)
        for api in FRONTS:
            packed = (f"Content-Length: {len(bomb)}", "Content-Encoding: gzip")
            statuses += [
                await _send(server, head(api, "Transfer-Encoding: chunked"), _chunks(megabytes)),
                await _send(server, head(api, f"Content-Length: {megabytes * MB}"), _spaces(megabytes)),
                await _send(server, head(api, *packed), _pieces(bomb)),
            ]
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(connections)]
        count = len(waits)
        while len(waits) < count + 20:
            await asyncio.wait([other], timeout=0.05)
        stopped.set()
        await other
        for _, writer in silent:
            writer.transport.abort()
        await _settled(server, upstream)
        found: Found = {
            "statuses": sorted(set(statuses)),
            "MB more at the worst": (server.peak_memory() - before) // MB,
            "silent connections": connections,
            "answers to another client": len(waits),
            "its longest wait, s": round(max(waits), 2),
        }
    require(found["statuses"] == [413], f"not refused: {found}")
    require(found["MB more at the worst"] <= HOSTILE // MB, f"too much memory: {found}")
    return found


async def _send(server: Served, start: bytes, pieces: AsyncIterator[bytes]) -> int:
    async with line(server.port) as connection:
        await connection.send(start)
        answer = asyncio.ensure_future(connection.answer())
        async for piece in pieces:
            if answer.done():
                break
            await connection.send(piece)
        return (await answer).status


async def _chunks(megabytes: int) -> AsyncIterator[bytes]:
    piece = b"%x\r\n%b\r\n" % (MB, b" " * MB)
    for _ in range(megabytes):
        yield piece
    yield b"0\r\n\r\n"


async def _spaces(megabytes: int) -> AsyncIterator[bytes]:
    piece = b" " * MB
    for _ in range(megabytes):
        yield piece


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), MB):
        yield data[start : start + MB]


def _bomb(megabytes: int) -> bytes:
    """Return a gzip that becomes this large."""
    packed = BytesIO()
    with gzip.open(packed, "wb", compresslevel=9) as file:
        for _ in range(megabytes):
            file.write(b" " * MB)
    return packed.getvalue()


# ---------------------------------------------------------------- the program


@asynccontextmanager
async def _served(
    folder: Path, script: Callable[[Exchange], Awaitable[None]]
) -> AsyncIterator[tuple[Upstream, Served]]:
    upstream = Upstream()
    upstream.script = script
    async with upstream_server(upstream):
        with served(upstream.url, folder, "--max-answers", str(2 * AT_ONCE)) as server:
            yield upstream, server


@asynccontextmanager
async def _client() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(PATIENCE)) as client:
        yield client


def main(arguments: list[str]) -> int:
    """Run one of the programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=["vanish", "kill", "many", "hostile"])
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--megabytes", type=int, default=1_024)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    chosen = parser.parse_args(arguments)
    with TemporaryDirectory() as name:
        folder = Path(name)
        programs: dict[str, Callable[[], Any]] = {
            "vanish": lambda: vanish(chosen.clients, chosen.seed, folder),
            "kill": lambda: kill(chosen.rounds, chosen.seed, folder),
            "many": lambda: many(chosen.requests, folder),
            "hostile": lambda: hostile(chosen.megabytes, chosen.connections, folder),
        }
        try:
            found = asyncio.run(programs[chosen.program]())
        except Failed as problem:
            print(f"{chosen.program} with --seed {chosen.seed}: {problem}")
            return 1
    print(f"{chosen.program} with --seed {chosen.seed}: {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
