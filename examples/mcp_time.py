"""An agent that asks a real MCP server for the time. The server is a process; the model plays a script, offline.

It needs `pip install 'dragoman[mcp]' mcp-server-time`. For a real model, give its name in place of the script.
"""

import asyncio
import json
import sys

from dragoman import Agent, ToolResult
from dragoman.testing import Call, ScriptedModel, ScriptedRequest, Turn
from dragoman.tools import McpServer


def answer(request: ScriptedRequest) -> str:
    """Say what the tool has found out, as a model would."""
    (result,) = request.messages[-1].parts
    assert isinstance(result, ToolResult)
    assert isinstance(result.content, str)
    found = json.loads(result.content)["target"]
    return f"When it is noon in Paris, the clocks in Tokyo show {found['datetime'][11:16]}."


NOON = {"source_timezone": "Europe/Paris", "time": "12:00", "target_timezone": "Asia/Tokyo"}
SCRIPT = (Turn(text="Let me look.", calls=(Call("clock_convert_time", NOON),)), answer)


async def main() -> None:
    """Start the server, ask, and stop it."""
    clock = McpServer.stdio(sys.executable, "-m", "mcp_server_time", name="clock", prefix="clock_")
    async with clock as server:
        print("tools:", ", ".join(tool.name for tool in server.tools))
        agent = Agent(ScriptedModel(*SCRIPT), tools=[*server.tools])
        result = await agent.run("How late is it in Tokyo when it is noon in Paris?")
        print(result.output)


if __name__ == "__main__":
    asyncio.run(main())
