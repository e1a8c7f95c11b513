"""The fronts: what a client asks for, by method and path, and what each wire API needs of a server. Pure.

A front is a wire API that clients speak. Paths may stand behind `/session/ID`: then the client joins that session.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

import msgspec

__all__ = [
    "ANTHROPIC",
    "CHAT",
    "FRONTS",
    "GEMINI",
    "RESPONSES",
    "Action",
    "Front",
    "Wanted",
    "find_wanted",
    "is_plain_path",
    "name_client",
    "name_conversation",
    "route_of",
]

Action: TypeAlias = Literal["answer", "count", "models", "model", "stored", "delete", "health", "metrics", "other"]

ANTHROPIC, RESPONSES, CHAT, GEMINI = "anthropic-messages", "openai-responses", "openai-chat", "gemini"


class Front(msgspec.Struct, frozen=True, kw_only=True):
    """A wire API as it is served: what its clients are called, what keeps its streams alive, what must be passed on."""

    api: str
    client: str  # what a client is called that does not say what it is
    # What a client gets while nothing comes; empty where its SDK cannot read such lines.
    keep_alive: bytes = b""
    # Whether a stream that ends in an error has no end of its own: its SDK for JavaScript skips the error's event.
    breaks_off: bool = False
    # Header fields of a request that say how its body is meant.
    headers: tuple[str, ...] = ()
    # Providers that keep the answers of this API, so that a request may name an earlier one.
    keepers: frozenset[str] = frozenset()


FRONTS: dict[str, Front] = {
    ANTHROPIC: Front(
        api=ANTHROPIC,
        client="messages",
        keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n',
        headers=("anthropic-version", "anthropic-beta"),
    ),
    RESPONSES: Front(
        api=RESPONSES,
        client="responses",
        keep_alive=b": keep-alive\n\n",
        headers=("openai-beta",),
        keepers=frozenset({"openai", "azure-responses"}),
    ),
    CHAT: Front(api=CHAT, client="chat", keep_alive=b": keep-alive\n\n", headers=("openai-beta",)),
    # No keep-alive: its Python SDK takes a comment for broken JSON.
    GEMINI: Front(api=GEMINI, client="gemini", breaks_off=True),
}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks for: an action on a front. `path` is the API's own, without `/session/ID`.

    `model` and `is_stream` are there where the path tells them; `target` is the id in the path.
    """

    action: Action
    api: str
    path: str
    model: str = ""
    is_stream: bool | None = None
    target: str = ""
    session_id: str = ""


_SESSION = re.compile(r"/session/([^/]+)(/.*)?")
_POSTED: dict[str, tuple[Action, str]] = {
    "/v1/messages": ("answer", ANTHROPIC),
    "/v1/messages/count_tokens": ("count", ANTHROPIC),
    "/v1/responses": ("answer", RESPONSES),
    "/v1/chat/completions": ("answer", CHAT),
}
_GEMINI = re.compile(r"/v1(?:beta)?/models/(.+):(generateContent|streamGenerateContent|countTokens)")
_RESPONSE = re.compile(r"/v1/responses/([^/]+)")
_OF_RESPONSE = re.compile(r"/v1/responses/([^/]+)(?:/.*)?", re.IGNORECASE)
_PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9_.:@~+-]+)+")
_MODEL = re.compile(r"/v1(?:beta)?/models/(.+)")


def find_wanted(method: str, raw_path: str, headers: Mapping[str, str]) -> Wanted:
    """Return what is asked for. An unknown path is the action `other` of the API that it looks like."""
    path, session_id = raw_path, ""
    if joined := _SESSION.fullmatch(path):
        session_id, path = unquote(joined[1]), joined[2] or "/"
    path = path.rstrip("/") or "/"
    found = _find(method, path, headers)
    return msgspec.structs.replace(found, session_id=session_id) if session_id else found


def _find(method: str, path: str, headers: Mapping[str, str]) -> Wanted:
    if method == "POST" and path in _POSTED:
        action, api = _POSTED[path]
        return Wanted(action=action, api=api, path=path)
    if method == "POST" and (asked := _GEMINI.fullmatch(path)):
        is_count, model = asked[2] == "countTokens", unquote(asked[1])
        is_stream = asked[2] == "streamGenerateContent"
        return Wanted(action="count" if is_count else "answer", api=GEMINI, path=path, model=model, is_stream=is_stream)
    if method in ("GET", "HEAD") and path in ("/", "/healthz"):
        return Wanted(action="health", api=CHAT, path=path)
    if method == "GET" and path == "/metrics":
        return Wanted(action="metrics", api=CHAT, path=path)
    if method in ("GET", "DELETE") and (stored := _RESPONSE.fullmatch(path)):
        return Wanted(
            action="stored" if method == "GET" else "delete", api=RESPONSES, path=path, target=unquote(stored[1])
        )
    api = _api_of(path, headers)
    if method == "GET" and path in ("/v1/models", "/v1beta/models"):
        return Wanted(action="models", api=api, path=path)
    if method == "GET" and (named := _MODEL.fullmatch(path)):
        return Wanted(action="model", api=api, path=path, target=unquote(named[1]))
    part = _OF_RESPONSE.fullmatch(path)
    return Wanted(action="other", api=api, path=path, target=unquote(part[1]) if part else "")


def is_plain_path(path: str) -> bool:
    """Whether a path has one spelling. Servers read `%72`, `//` and `..` in their own ways, and might find a front."""
    return _PLAIN_PATH.fullmatch(path) is not None and not {".", ".."} & set(path.split("/"))


def route_of(wanted: Wanted) -> str:
    """Return the path of a request with names and ids left out, as routes are written; empty for an unknown one."""
    match wanted.action:
        case "other":
            return ""
        case "stored" | "delete":
            return "/v1/responses/{id}"
        case "model":
            return "/v1beta/models/{model}" if wanted.path.startswith("/v1beta") else "/v1/models/{model}"
        case _ if asked := _GEMINI.fullmatch(wanted.path):
            return f"{wanted.path.partition('models/')[0]}models/{{model}}:{asked[2]}"
    return wanted.path


def _api_of(path: str, headers: Mapping[str, str]) -> str:
    """The API that a client probably speaks where its path does not tell."""
    if path.startswith("/v1beta") or "x-goog-api-key" in headers:
        return GEMINI
    if "anthropic-version" in headers or path.startswith("/v1/messages"):
        return ANTHROPIC
    return RESPONSES if path.startswith("/v1/responses") else CHAT


# The beginning of a user agent, in lower case -> what its sessions are called.
_CLIENTS = {
    "claude-cli/": "claude-code",
    "codex": "codex",
    "opencode/": "opencode",
    "geminicli": "gemini-cli",
    "qwencode": "qwen-code",
    "litellm": "litellm",
}
# Header fields by which clients name their conversations.
_CONVERSATION_HEADERS = ("x-claude-code-session-id", "thread-id", "session-id", "session_id", "x-session-id")
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,100}")


def name_client(front: Front, headers: Mapping[str, str]) -> str:
    """Return what kind of program asks: by its user agent, else by the API that it speaks."""
    agent = headers.get("user-agent", "").lower()
    return next((name for mark, name in _CLIENTS.items() if agent.startswith(mark)), front.client)


def name_conversation(headers: Mapping[str, str], metadata: Any = None) -> str:
    """Return the client's own name for its conversation, empty if it gives none that can be one."""
    given = [headers.get(name, "") for name in _CONVERSATION_HEADERS]
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if isinstance(user, str) and user.startswith("{"):  # Claude Code: JSON in a text
        try:
            given.append(msgspec.json.decode(user, type=dict[str, Any]).get("session_id", ""))
        except (msgspec.DecodeError, RecursionError):
            pass
    return next((name for name in given if isinstance(name, str) and _NAME.fullmatch(name)), "")
