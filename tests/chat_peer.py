"""A server that speaks Chat Completions and says what a test wants, in a thread of its own, on a loopback port."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tests.loopback import STREAM_HEAD, Peer, serving, whole

NAME = "parrot"


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: pieces of text, of thinking, calls as (name, arguments). One that `hangs` never ends by itself."""

    text: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    calls: tuple[tuple[str, str], ...] = ()
    hangs: bool = False
    status: str = ""
    cached: int = 0
    finish: str = ""


class Parrot:
    """What the server was asked, and what it says: by the last words of the user, else what it heard."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.requests: list[dict[str, Any]] = []
        self.url = ""
        self.let_go = threading.Event()  # somebody has closed a connection in the middle of an answer

    def settings(self) -> str:
        """Return the lines of a settings file that lead here."""
        return f'model = "llamacpp:{NAME}"\n[providers.llamacpp]\nbase_url = "{self.url}"\n'

    async def answer(self, peer: Peer, request: bytes) -> None:
        asked = json.loads(request.partition(b"\r\n\r\n")[2])
        self.requests.append(asked)
        reply = self._reply(asked["messages"])
        if reply.status:
            body = json.dumps({"error": {"message": "the parrot refuses", "code": 400}}).encode()
            await peer.send(whole(body, status=reply.status, kind="application/json"))
            peer.close()
            return
        await peer.send(STREAM_HEAD, *(_chunk(delta) for delta in _deltas(reply)))
        if reply.hangs:
            await peer.until_closed()
            self.let_go.set()
            return
        finish = reply.finish or ("tool_calls" if reply.calls else "stop")
        await peer.send(_chunk({}, finish), _usage(reply), b"data: [DONE]\n\n")
        peer.close()

    def _reply(self, messages: list[dict[str, Any]]) -> Reply:
        last = messages[-1]
        heard = (
            last["content"]
            if isinstance(last["content"], str)
            else " ".join(p.get("text", "") for p in last["content"])
        )
        if last["role"] == "tool":
            return self.replies.get("after tools", Reply(text=("The tool said: ", heard[:200])))
        return self.replies.get(heard, Reply(text=("You said: ", heard)))


@contextmanager
def parrot() -> Iterator[Parrot]:
    """Run the server in a thread."""
    served = Parrot()
    ready = threading.Event()
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(ended.set))

        async def script(peer: Peer) -> None:
            await served.answer(peer, server.requests[-1])

        async with serving(script) as server:
            served.url = server.url.removesuffix("/messages")
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield served
    finally:
        stop[0]()
        thread.join()


def _deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant"}
    for piece in reply.thinking:
        yield {"reasoning_content": piece}
    for piece in reply.text:
        yield {"content": piece}
    for place, (name, arguments) in enumerate(reply.calls):
        function = {"name": name, "arguments": arguments}
        yield {"tool_calls": [{"index": place, "id": f"call_{place}", "type": "function", "function": function}]}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return _event({"id": "c1", "object": "chat.completion.chunk", "model": NAME, "choices": choices})


def _usage(reply: Reply) -> bytes:
    usage: dict[str, Any] = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    usage["prompt_tokens_details"] = {"cached_tokens": reply.cached}
    return _event({"id": "c1", "object": "chat.completion.chunk", "model": NAME, "choices": [], "usage": usage})


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
