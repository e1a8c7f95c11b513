"""An MCP server made with the official package: `python tests/mcp_official_server.py [stdio | http [token]]`.

Over HTTP it prints the port that the system has chosen for it; with a token it takes only requests that carry it.
"""

import asyncio
import base64
import socket
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import uvicorn
from mcp.server.mcpserver import (
    AcceptedElicitation,
    Context,
    Elicit,
    ElicitationResult,
    Image,
    MCPServer,
    Resolve,
    Sample,
)
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    CreateMessageResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel, Field

# The smallest PNG there is: one pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAV = base64.b64encode(b"RIFF0000WAVE").decode()

server = MCPServer("official", instructions="Ask nicely.", log_level="CRITICAL")


@dataclass
class Weather:
    """What the sky does."""

    city: str
    celsius: float


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def weather(city: str) -> Weather:
    """Return the weather of a city."""
    return Weather(city, 9.5)


@server.tool()
def names() -> list[str]:
    """Return several texts."""
    return ["Ada", "Grace"]


@server.tool()
def picture() -> Image:
    """Return a picture."""
    return Image(data=PNG, format="png")


@server.tool()
def gallery() -> CallToolResult:
    """Return one of each kind of content."""
    blob = base64.b64encode(b"%PDF-").decode()
    pixel = base64.b64encode(PNG).decode()
    return CallToolResult(
        content=[
            TextContent(type="text", text="Look:"),
            ImageContent(type="image", data=pixel, mime_type="image/png"),
            ImageContent(type="image", data="@@@", mime_type="image/png"),
            AudioContent(type="audio", data=WAV, mime_type="audio/wav"),
            EmbeddedResource(
                type="resource", resource=TextResourceContents(uri="memo://1", mime_type="text/plain", text="A memo.")
            ),
            EmbeddedResource(
                type="resource",
                resource=BlobResourceContents(uri="file://a.pdf", mime_type="application/pdf", blob=blob),
            ),
            EmbeddedResource(
                type="resource", resource=BlobResourceContents(uri="file://b.png", mime_type="image/png", blob=pixel)
            ),
            ResourceLink(type="resource_link", uri="memo://2", name="the other memo", mime_type="text/plain"),
        ],
        structured_content={"count": 8},
    )


@server.tool()
def bare() -> CallToolResult:
    """Return structure and no text."""
    return CallToolResult(content=[], structured_content={"rows": [1, 2]})


@server.tool()
def broken() -> str:
    """Fail."""
    raise ToolError("the gears are stuck")


@server.tool()
async def hang() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "unreachable"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def look_forever() -> str:
    """Never end, and change nothing."""
    await asyncio.Event().wait()
    return "unreachable"


@server.tool()
def headers(context: Context[Any]) -> dict[str, str]:
    """Return the headers of the request."""
    request = context.request_context.request
    return dict(request.headers) if request is not None else {}


def grown() -> str:
    """Be new."""
    return "new"


@server.tool()
async def grow(context: Context[Any]) -> str:
    """Get one more tool."""
    server.add_tool(grown)
    await context.notify_tools_changed()
    return "grown"


class Guest(BaseModel):
    """What a host asks a guest."""

    name: str = Field(min_length=2, description="Your name")
    nights: int = 1


def who_comes() -> Elicit[Guest]:
    """Ask who comes."""
    return Elicit("Who comes, and for how long?", Guest)


@server.tool()
def book(guest: Annotated[ElicitationResult[Guest], Resolve(who_comes)]) -> str:
    """Book a room for a guest, who is asked."""
    if isinstance(guest, AcceptedElicitation):
        return f"A room for {guest.data.name}, {guest.data.nights} nights."
    return f"No room: {guest.action}."


def a_rhyme(word: str) -> Sample:
    """Ask the model for a rhyme."""
    asked = SamplingMessage(role="user", content=TextContent(type="text", text=f"A rhyme for {word}?"))
    return Sample([asked], max_tokens=50, system_prompt="You rhyme.", temperature=0.5, stop_sequences=["END"])


@server.tool()
def rhyme(word: str, found: Annotated[CreateMessageResult, Resolve(a_rhyme)]) -> str:  # for `a_rhyme`
    """Return a rhyme that the model has found."""
    return f"{found.content.text} ({found.model}, {found.stop_reason})"  # type: ignore[union-attr]  # asked for text


def serve_http(token: str | None) -> None:
    """Serve at a port of the loopback interface."""
    application = server.streamable_http_app()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        if scope["type"] == "http" and token is not None and given != f"Bearer {token}":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await application(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(guarded, log_level="critical", timeout_graceful_shutdown=1)).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        serve_http(sys.argv[2] if len(sys.argv) > 2 else None)
    else:
        server.run()
