"""A memory notebook: what the model writes there stays in its sight when the rest of the conversation is folded away.

It runs offline: the model plays a script.
"""

import asyncio

from dragoman import Agent, AgentConfig, ContextConfig, ToolsConfig
from dragoman.history import NotebookEntry
from dragoman.testing import Call, ScriptedModel, ScriptedRequest, Turn

SMALL_TALK = "And then we talked about the weather, the news and the neighbours, at length. " * 60


def say(text: str) -> Turn:
    """Return an answer without a count of tokens: they are estimated."""
    return Turn(text=text, usage=None)


def answer_from_the_notebook(request: ScriptedRequest) -> Turn:
    """Say what the model sees last in every request: the live screen, with the notebook on it."""
    return say(f"Mira, as I have noted:\n{request.messages[-1].text}")


async def main() -> None:
    """Tell the agent something, talk for long, and ask."""
    model = ScriptedModel(
        Turn(calls=(Call("memory_notebook_append", {"text": "The user's sister is called Mira."}),), usage=None),
        say("I will remember that."),
        *[say("I see.")] * 8,
        answer_from_the_notebook,
    )
    config = AgentConfig(tools=ToolsConfig(notebook=True), context=ContextConfig(budget_tokens=3_000))
    agent = Agent(model, config=config)
    print((await agent.run(f"{SMALL_TALK} By the way, my sister is called Mira. {SMALL_TALK}")).output)
    for number in range(8):
        await agent.run(f"{number}: {SMALL_TALK}")
    print((await agent.run("What is my sister called?")).output)

    assert agent.session is not None
    whole, shown = (
        sum(len(each.text) for each in said) for said in (agent.session.messages, model.requests[-1].messages)
    )
    print(f"Of {whole} characters of conversation the model was shown {shown}.")
    changes = [entry for entry in agent.session.entries if isinstance(entry, NotebookEntry)]
    print(f"The notebook was changed {len(changes)} time: {changes[0].operation} at entry {changes[0].serial}.")


if __name__ == "__main__":
    asyncio.run(main())
