"""Stands in for the package xllamacpp in a server process: the same names, with scripted answers instead of a model.

Beside a copy of this file lie `answers.json` (words of a question to the turns of its answer: a text, or a call with
`name` and `arguments`; `…` never ends) and `started`, to which every server adds its process id.
"""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FOLDER = Path(__file__).parent
ENDLESS = "…"


class CommonParams:
    """The settings that a server is made with."""

    def __init__(self) -> None:
        self.model = SimpleNamespace(path="")
        self.cpuparams = SimpleNamespace(n_threads=1)
        self.cpuparams_batch = SimpleNamespace(n_threads=1)
        self.port = 0


class Server:
    """Listens once it is made, as the real one does."""

    def __init__(self, params: Any) -> None:
        with (FOLDER / "started").open("a") as started:
            started.write(f"{os.getpid()}\n")
        with Path(params.model.path).open("rb") as weights:
            if weights.read(6) == b"broken":
                raise RuntimeError("this is no model")
        if (loading := FOLDER / "loading").exists():
            loading.read_text()  # a named pipe: the load ends when the test writes to it
        self._server = ThreadingHTTPServer(("127.0.0.1", params.port), _Handler)
        self.listening_address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        turn = _turn(asked["messages"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        if isinstance(turn, str):
            self._say({"content": turn})
        else:
            call = {"name": turn["name"], "arguments": json.dumps(turn["arguments"])}
            self._say({"tool_calls": [{"index": 0, "id": "call_0", "type": "function", "function": call}]})
        if turn == ENDLESS:
            threading.Event().wait()
        self._say({}, finish="stop" if isinstance(turn, str) else "tool_calls")
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _say(self, delta: dict[str, Any], finish: str | None = None) -> None:
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "stand-in"}
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self.wfile.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _turn(messages: list[dict[str, Any]]) -> Any:
    """The scripted turn: that of the last question, and as many turns on as tools have answered since."""
    last = max(index for index, message in enumerate(messages) if message["role"] == "user")
    question = json.dumps(messages[last]["content"], ensure_ascii=False)
    answers = json.loads((FOLDER / "answers.json").read_text())
    turns = next((turns for words, turns in answers.items() if words in question), ["I do not know."])
    return turns[sum(message["role"] == "tool" for message in messages[last:])]
