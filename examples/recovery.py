"""An agent whose process is killed in the middle of a payment, and the one that goes on where it stopped.

The result of the tool that had finished is kept. The payment may or may not have been made, so it is not made again:
the model is told. It runs offline: the model plays a script.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from dragoman import Agent, SQLiteStore, open_session, start_session, tool
from dragoman.history import ToolResultsEntry
from dragoman.testing import Call, ScriptedModel, Turn

SCRIPT = (Turn(calls=(Call("look_up_price", {"what": "tickets"}),)), Turn(calls=(Call("pay", {"euros": 60}),)))


@tool(idempotent=True)
async def look_up_price(what: str) -> str:
    """Return what something costs."""
    return f"The {what} cost 60 euros."


@tool
async def pay(euros: int) -> str:
    """Pay; in this story the bank never answers."""
    print(f"paying {euros} euros", flush=True)
    await asyncio.Event().wait()
    return "Paid."


async def work(path: Path) -> None:
    """Be the process that is killed."""
    async with SQLiteStore(path) as store:
        session = await start_session(store, "tickets")
        await Agent(ScriptedModel(*SCRIPT), tools=[look_up_price, pay], session=session).run("Buy the tickets.")


async def recover(path: Path) -> None:
    """Go on in another process."""
    async with SQLiteStore(path) as store:
        print(f"the file is sound: {(await store.verify('tickets')).is_sound}")
        session = await open_session(store, "tickets")
        print(f"it stopped while it was {session.state.status}, with {len(session.entries)} entries")
        model = ScriptedModel("The tickets cost 60 euros. Please check whether they are paid before I try again.")
        agent = Agent(model, tools=[look_up_price, pay], session=session)
        result = await agent.run()
        for entry in session.entries:
            if isinstance(entry, ToolResultsEntry):
                for answered in entry.results:
                    print(f"  {answered.tool_name}: {answered.status}: {answered.text()}")
        print(f"{result.status}: {result.output}")


def main() -> None:
    """Start the one, kill it in the middle of the payment, and be the other."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.db"
        command = [sys.executable, __file__, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603  # this file itself
            assert child.stdout is not None
            print(child.stdout.readline().strip())
            child.kill()
        print("killed")
        asyncio.run(recover(path))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work(Path(sys.argv[1])))
    else:
        main()
