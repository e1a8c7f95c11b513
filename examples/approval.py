"""A call that a person must approve: the question is kept in a file, and answered after a restart.

It runs offline: the model plays a script.
"""

import asyncio
import tempfile
from pathlib import Path

from dragoman import Agent, SQLiteStore, open_session, start_session, tool
from dragoman.agent import ApprovalRequest
from dragoman.testing import Call, ScriptedModel, Turn

REQUEST = "Pay the printer 80 euros and the landlord 900."
CALLS = Turn(
    text="Two payments.",
    calls=(
        Call("pay", {"whom": "printer", "euros": 80}, "payment-1"),
        Call("pay", {"whom": "landlord", "euros": 900}, "payment-2"),
    ),
)


@tool(requires_approval=True)
def pay(whom: str, euros: int) -> str:
    """Pay somebody."""
    print(f"  [{euros} euros go to the {whom}]")
    return f"{euros} euros paid to the {whom}."


def small_sums_are_fine(request: ApprovalRequest) -> bool | None:
    """Decide without a person up to 100 euros."""
    return True if request.arguments["euros"] <= 100 else None


async def ask(path: Path) -> None:
    """Begin, and stop where a person must be asked."""
    async with SQLiteStore(path) as store:
        session = await start_session(store, "payments")
        agent = Agent(ScriptedModel(CALLS), tools=[pay], session=session, approval=small_sums_are_fine)
        result = await agent.run(REQUEST)
        for call in result.approvals:
            print(f"{result.status}: may {call.tool_name} run with {call.arguments}?")


async def answer(path: Path) -> None:
    """Go on in what may be another process: answer, and carry the run on."""
    async with SQLiteStore(path) as store:
        session = await open_session(store, "payments")
        agent = Agent(ScriptedModel("The printer and half of the rent are paid."), tools=[pay], session=session)
        for asked in session.state.derived.approvals_asked:
            await agent.approve(asked.tool_call_id, arguments={"whom": "landlord", "euros": 450}, reason="Half of it.")
        result = await agent.run()
        print(f"{result.status}: {result.output}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(ask(Path(folder) / "sessions.db"))
        asyncio.run(answer(Path(folder) / "sessions.db"))
