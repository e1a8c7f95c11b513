"""What objects show of themselves: enough to tell them apart, no key, no prompt."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from dragoman import Agent, MemoryStore, PostgresStore, ProviderRouter, SQLiteStore, ToolContext, model, start_session
from dragoman.testing import ReplayTransport, ScriptedModel
from tests.agent_cases import ROME, weather

KEY = "sk-secret-0123456789abcdef"
PROMPT = "the plans of the new engine"


def test_an_agent_shows_its_name_models_tools_and_session_and_no_prompt() -> None:
    agent = Agent(ScriptedModel(ROME, "Fine."), name="planner", tools=[weather], instructions=PROMPT)
    assert repr(agent) == "<Agent 'planner' of <ScriptedModel scripted:actor, asked 0 times>, tools weather>"
    agent.run_sync(PROMPT)
    assert agent.session is not None
    assert repr(agent).endswith(f", tools weather, {agent.session!r}>")
    assert PROMPT not in repr(agent)


def test_a_model_shows_its_name_and_no_key() -> None:
    asked = model("anthropic:claude-sonnet-4-5", api_key=KEY, transport=ReplayTransport([]))
    assert repr(Agent(asked)) == "<Agent of Model(anthropic:claude-sonnet-4-5)>"
    router = ProviderRouter({"plan": asked}, default=ScriptedModel())
    shown = "<ProviderRouter plan: Model(anthropic:claude-sonnet-4-5); default: <ScriptedModel scripted:actor"
    assert repr(router) == f"{shown}, asked 0 times>>"
    assert KEY not in repr(Agent(router))


def test_a_router_with_a_function_says_so() -> None:
    chooses = ProviderRouter(choose=lambda request: None, default=ScriptedModel())
    assert repr(chooses).endswith("; by a function>")
    assert repr(Agent(ProviderRouter(choose=lambda request: None))) == "<Agent of <ProviderRouter by a function>>"


def test_a_session_shows_its_id_its_length_and_where_it_is_kept(tmp_path: Path) -> None:
    async def kept() -> tuple[str, str]:
        async with SQLiteStore(tmp_path / "s.db") as store:
            session = await start_session(store, "sums", system_instruction=PROMPT)
            return repr(session), repr(store)

    shown, store = asyncio.run(kept())
    assert store == f"<SQLiteStore {str(tmp_path / 's.db')!r}>"
    assert shown == f"<Session 'sums', 1 entries, in {store}>"


def test_a_store_shows_what_it_is_and_no_password() -> None:
    assert repr(MemoryStore()) == "<MemoryStore, 0 sessions>"
    assert repr(PostgresStore(f"postgresql://ada:{KEY}@127.0.0.1/x", schema="ours")) == "<PostgresStore, schema 'ours'>"


def test_a_result_shows_status_output_and_tokens_and_no_key() -> None:
    result = Agent(ScriptedModel("It rains.")).run_sync(PROMPT)
    assert repr(result) == (
        f"<RunResult completed, output 'It rains.', 15 tokens, run {result.run_id!r} of session {result.session_id!r}>"
    )
    said = repr(Agent(ScriptedModel(f"Use {KEY} for it. " + "And on. " * 100)).run_sync(PROMPT))
    assert KEY not in said
    assert len(said) < 300
    failed = repr(Agent(ScriptedModel()).run_sync(PROMPT))
    assert "<RunResult failed, error invalid_request, 0 tokens" in failed


def test_a_run_shows_what_it_does() -> None:
    async def shown() -> tuple[str, str]:
        run = Agent(ScriptedModel("It rains.")).stream(PROMPT)
        before = repr(run)
        await run.result()
        return before, repr(run)

    before, after = asyncio.run(shown())
    assert before.endswith(", preparing>")
    assert after.endswith(", completed, ended>")
    sync = Agent(ScriptedModel("It rains.")).stream_sync(PROMPT)
    sync.result()
    assert repr(sync).startswith("<SyncRun of <AgentRun '")


def test_a_tool_context_shows_its_call_and_neither_runtime_nor_options() -> None:
    @dataclass
    class Desk:
        key: str

    context = ToolContext(
        session_id="s", run_id="r", tool_call_id="c", tool_name="sum", runtime=Desk(KEY), options={"key": KEY}
    )
    assert repr(context) == "<ToolContext 'sum', call 'c', session 's', run 'r', runtime of Desk>"
    assert repr(ToolContext()) == "<ToolContext session '', run '', runtime of NoneType>"
