"""Two models in one session: one plans, the other executes, and each reads what the other has said.

It runs offline: the models play a script. With names such as "anthropic:claude-opus-4-5" in their place it is real.
"""

import asyncio

from dragoman import Agent, ProviderRouter, tool
from dragoman.message import ModelInvocationDescriptor
from dragoman.testing import Call, ScriptedModel, Turn

PLANNER = ScriptedModel(
    Turn(thinking="They want to leave soon.", text="1. Find a train. 2. Book it if it is under 50 euros."),
    "The train is booked. Pack an umbrella.",
    invocation=ModelInvocationDescriptor("anthropic", "anthropic-messages", "the-planner"),
)
WORKER = ScriptedModel(
    Turn(calls=(Call("find_trains", {"to": "Rome"}),)),
    Turn(text="39 euros is fine.", calls=(Call("book", {"train": "EC 85"}),)),
    "EC 85 is booked.",
    invocation=ModelInvocationDescriptor("openai", "openai-responses", "the-worker"),
)


@tool
def find_trains(to: str) -> list[str]:
    """Return the trains to a city, with their prices."""
    return [f"EC 85 to {to}, 39 euros", f"RJ 81 to {to}, 79 euros"]


@tool
def book(train: str) -> str:
    """Book a seat."""
    return f"{train}: seat 61."


async def main() -> None:
    """Plan, execute, and look back, in one conversation."""
    agent = Agent(ProviderRouter({"plan": PLANNER, "execute": WORKER}), tools=[find_trains, book])
    for strategy, prompt in (
        ("plan", "Get me to Rome tomorrow. Make a plan first."),
        ("execute", "Carry the plan out."),
        ("plan", "Anything I should think of?"),
    ):
        result = await agent.run(prompt, strategy=strategy)
        assert result.message is not None
        assert result.message.meta is not None
        assert result.message.meta.invocation is not None
        print(f"{result.message.meta.invocation.model}: {result.output}")
    assert agent.session is not None
    print(f"{len(agent.session.messages)} messages in session {agent.session.session_id[:8]}")


if __name__ == "__main__":
    asyncio.run(main())
