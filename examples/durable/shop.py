"""A shop's agents for `dragoman worker --agents shop:agents`: docs/durable.md uses them, without a key or a model."""

from dragoman import Agent, Session, tool
from dragoman.durable import Agents
from dragoman.testing import Call, ScriptedModel, Turn


@tool(idempotent=True)
def find_parcel(number: int) -> str:
    """Say where a parcel is. It changes nothing, so it may run again after a crash."""
    return f"Parcel {number} is in Lyon."


@tool(requires_approval=True)
def refund(number: int, amount: int) -> str:
    """Pay money back. A person must agree, and it is never run twice."""
    return f"Paid {amount} back for parcel {number}."


# A model that plays a script. Yours is a name, such as "anthropic:claude-sonnet-5-5"; nothing else changes.
SCRIPT: list[Turn | str] = [
    Turn(calls=(Call("find_parcel", {"number": 7}),)),
    Turn(calls=(Call("refund", {"number": 7, "amount": 20}),)),
    "It was in Lyon, and you have your 20 euros back.",
]


def make_support(session: Session) -> Agent:
    """Return the agent that carries this session on: it is made anew for each attempt, wherever that is."""
    answers = sum(message.role == "assistant" for message in session.messages)
    return Agent(
        ScriptedModel(*SCRIPT[answers:], "Is there anything else?"), tools=[find_parcel, refund], session=session
    )


agents = Agents({"support": make_support})
