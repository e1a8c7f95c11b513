"""An MCP server in plain Python, as ill-behaved as a test wants it: `python tests/mcp_plain_server.py [options]`.

It speaks the handshake of 2025-11-25 over stdio, by hand: so it starts at once, and can say what no SDK lets one say.
"""

import argparse
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
NOTHING = object()  # a call that is not answered


def described(name: str, properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a tool as a list has it."""
    return {"name": name, "inputSchema": {"type": "object", "properties": properties or {}}, **more}


TEXT = {"text": {"type": "string"}}
TOOLS = [
    described("echo", TEXT, description="Says the text again.", annotations={"readOnlyHint": True}),
    described("environment"),
    described("pid"),
    described("hang"),
    described("die"),
    described("die_once", {"path": {"type": "string"}}, annotations={"idempotentHint": True}),
    described("die_always", annotations={"readOnlyHint": True}),
    described("grow"),
    described("many", {"count": {"type": "integer"}}),
    described("junk"),
    described("garble", {"form": {"type": "string"}}),
    described("refuse"),
    described("ask", {"params": {"type": "object"}, "times": {"type": "integer"}}),
    described("sample", {"params": {"type": "object"}, "times": {"type": "integer"}}),
    described("ask_deeply"),
    described("capabilities"),
    described("fail"),
]

# Results as no parser, or only a lenient one, takes them.
GARBLED = {
    "half a pair": r'{"content": [{"type": "text", "text": "\ud800 ok"}]}',
    "too deep": '{"content": [], "structuredContent": {"a": ' + "[" * 3_000 + "]" * 3_000 + "}}",
    "a list": "[]",
    "no JSON": '{"content": [',
}

NESTED: dict[str, Any] = {}
for _ in range(400):
    NESTED = {"not": NESTED}

HOSTILE = [
    described("good", TEXT),
    described("good", description="the same name again"),
    described("bad name"),
    described(""),
    described("x" * 300),
    described("long", description="d" * 100_000),
    described("strange description", description=5) | {"name": "strange"},
    described("huge", {f"p{number}": {"type": "string", "description": "d" * 100} for number in range(2_000)}),
    {"name": "schemaless"},
    {"name": "listed", "inputSchema": []},
    {"name": "no_object", "inputSchema": {"type": "string"}},
    {"name": "wrong_type", "inputSchema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}},
    {"name": "wrong_properties", "inputSchema": {"type": "object", "properties": [1, 2]}},
    {
        "name": "elsewhere",
        "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/s.json"}}},
    },
    {"name": "untyped", "inputSchema": {"properties": {"text": {"type": "string"}}}},
    {"name": "output", "inputSchema": NO_ARGUMENTS, "outputSchema": {"type": "nonsense"}},
    {"name": "tasks", "inputSchema": NO_ARGUMENTS, "execution": {"taskSupport": "required"}},
    {"name": "annotated", "inputSchema": NO_ARGUMENTS, "annotations": [1]},
    {"name": 7, "inputSchema": NO_ARGUMENTS},
    {"inputSchema": NO_ARGUMENTS},
    "no tool at all",
    None,
]


class Server:
    """Answers requests from standard input until it ends."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._tools = list(HOSTILE if options.hostile else TOOLS)
        self._hanging: set[Any] = set()
        self._asking: dict[
            str, tuple[Any, list[Any], int]
        ] = {}  # by our ids: the call, the answers, how many there are
        self._asked = 0
        self._capabilities: Any = None
        self._reporter = socket.create_connection(("127.0.0.1", options.report)) if options.report else None

    def report(self, line: str) -> None:
        """Tell the test what has happened."""
        if self._reporter is not None:
            self._reporter.sendall(f"{line}\n".encode())

    def serve(self) -> None:
        """Read and answer messages."""
        if self._options.chatty:
            print("Welcome!", flush=True)
        for number, line in enumerate(sys.stdin):
            message = json.loads(line)
            if number == 0 and self._options.only_initialize and message["method"] != "initialize":
                sys.exit(4)
            if self._options.mute:
                continue
            if "method" not in message:
                self.take_answer(message)
            elif message["method"] == "notifications/cancelled":
                if message["params"]["requestId"] in self._hanging:
                    self.report("cancelled")
            elif "id" in message:
                self.answer(message)

    def answer(self, request: dict[str, Any]) -> None:
        """Answer one request."""
        method, params = request["method"], request.get("params", {})
        if method == "initialize":
            self._capabilities = params.get("capabilities")
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "plain", "version": "1"}
            result: Any = {
                "protocolVersion": "2025-11-25",
                "capabilities": capabilities,
                "serverInfo": info,
                "instructions": "Be gentle.",
            }
        elif method == "tools/list":
            result = self.page(int(params.get("cursor") or 0))
        elif method == "tools/call":
            result = self.call(request["id"], params["name"], params.get("arguments") or {})
        else:
            send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
            return
        if result is not NOTHING:
            send({"id": request["id"], "result": result})

    def ask(self, call_id: Any, method: str, params: Any, times: int) -> object:
        """Ask the client something, as often as that, before the call is answered."""
        self.report("asking")
        answers: list[Any] = []
        for _ in range(times):
            self._asked += 1
            self._asking[f"asked-{self._asked}"] = (call_id, answers, times)
            send({"id": f"asked-{self._asked}", "method": method, "params": params})
        return NOTHING

    def take_answer(self, message: dict[str, Any]) -> None:
        """Take an answer of the client; with the last one the call has its result: all of them."""
        call_id, answers, times = self._asking.pop(message["id"])
        answers.append(message.get("result") or message.get("error"))
        if len(answers) == times:
            send({"id": call_id, "result": said(json.dumps(answers))})

    def page(self, first: int) -> dict[str, Any]:
        """Return a part of the list, and where the next one begins."""
        size = self._options.page or len(self._tools)
        page: dict[str, Any] = {"tools": self._tools[first : first + size]}
        if self._options.endless:
            return page | {"nextCursor": "0"}
        return page | ({"nextCursor": str(first + size)} if first + size < len(self._tools) else {})

    def call(self, request_id: Any, name: str, arguments: dict[str, Any]) -> Any:
        """Run a tool."""
        match name:
            case "echo":
                return said(arguments["text"])
            case "environment":
                return said(json.dumps(dict(os.environ)))
            case "many":
                return {"content": [], "structuredContent": {"items": [[]] * arguments["count"]}}
            case "pid":
                return said(str(os.getpid()))
            case "hang":
                self._hanging.add(request_id)
                self.report("hanging")
                return NOTHING
            case "ask":
                return self.ask(request_id, "elicitation/create", arguments["params"], arguments.get("times", 1))
            case "sample":
                return self.ask(request_id, "sampling/createMessage", arguments["params"], arguments.get("times", 1))
            case "ask_deeply":
                self._asking["deep"] = (request_id, [], 1)
                deep = "[" * 3_000 + "]" * 3_000
                params = f'{{"message": "?", "requestedSchema": {{"type": "object", "properties": {deep}}}}}'
                print(
                    f'{{"jsonrpc": "2.0", "id": "deep", "method": "elicitation/create", "params": {params}}}',
                    flush=True,
                )
                return NOTHING
            case "capabilities":
                return said(json.dumps(self._capabilities))
            case "die" | "die_always":
                die()
            case "die_once":
                path = Path(arguments["path"])
                if not path.exists():
                    path.touch()
                    die()
                return said("alive again")
            case "grow":
                self._tools.append(described("grown", TEXT))
                send({"method": "notifications/tools/list_changed"})
                return said("grown")
            case "junk":
                return {"content": [{"type": "hologram", "data": 5}], "isError": "maybe"}
            case "garble":
                print("a line of a log")
                result = GARBLED[arguments["form"]]
                print(f'{{"jsonrpc": "2.0", "id": {json.dumps(request_id)}, "result": {result}}}', flush=True)
                return NOTHING
            case "fail":
                return said(f"It failed. {os.environ.get('TOKEN', '')}") | {"isError": True}
            case "good":
                return said("good")
        send({"id": request_id, "error": {"code": -32000, "message": f"{name} is not for sale"}})
        return NOTHING


def said(text: str) -> dict[str, Any]:
    """Return a result that is one text."""
    return {"content": [{"type": "text", "text": text}]}


def send(message: dict[str, Any]) -> None:
    """Write one message."""
    print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)


def die() -> NoReturn:
    """End in the middle of everything."""
    print("it was the tool", os.environ.get("TOKEN", ""), file=sys.stderr, flush=True)
    os._exit(3)


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", type=int, default=0)
    parser.add_argument("--page", type=int, default=0)
    for name in ("--hostile", "--mute", "--only-initialize", "--broken", "--deep", "--endless", "--chatty"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    if options.broken:
        print("the database is on fire", os.environ.get("TOKEN", ""), file=sys.stderr, flush=True)
        sys.exit(5)
    if options.deep:
        HOSTILE.append({"name": "deep", "inputSchema": NESTED | {"type": "object"}})
    Server(options).serve()


if __name__ == "__main__":
    main()
