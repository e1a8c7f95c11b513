"""The known models on this machine, with their real weights: what the documents show of them is true."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import Agent, DragomanError, tool
from dragoman.history import ModelOutputEntry
from dragoman.local import KNOWN_WEIGHTS, pull_weights
from dragoman.local.gguf import read_facts
from dragoman.local.server import close_shared_servers
from tests.test_docs import ROOT, run_blocks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def weights() -> None:
    """All known weights. CI fetches what is missing; where that cannot be, the tests are skipped."""
    pytest.importorskip("xllamacpp")
    for known in KNOWN_WEIGHTS.values():
        if known.is_here:
            continue
        if os.environ.get("DRAGOMAN_LIVE") != "required":
            pytest.skip(f"the weights are not here: dragoman local pull {known.name}")
        try:
            pull_weights(known.name, quiet=True)
        except DragomanError as error:
            pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _servers_end() -> Iterator[None]:
    yield
    close_shared_servers()


@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md", "docs/local.md"])
def test_what_the_documents_show_of_local_models_is_true(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(ROOT / name)


def test_a_local_agent_calls_the_tool_that_fits_and_uses_its_result() -> None:
    seen: list[tuple[int, int]] = []

    @tool
    def add(left: int, right: int) -> int:
        """Add two numbers."""
        seen.append((left, right))
        return left + right

    @tool
    def distance(origin: str, destination: str) -> str:
        """Return the distance between two cities."""
        return "417 km"

    agent = Agent("local:qwen2.5-coder", tools=[distance, add])
    result = agent.run_sync("What is 17 + 25?")
    assert result.error is None
    assert seen == [(17, 25)]
    assert "42" in str(result.output)
    assert agent.session is not None
    answers = [entry.message for entry in agent.session.entries if isinstance(entry, ModelOutputEntry)]
    assert [call.tool_name for call in answers[0].tool_calls] == ["add"]


@pytest.mark.parametrize(("name", "of_file"), [("smollm2", False), ("qwen2.5-coder", True)])
def test_what_is_known_of_weights_is_what_their_file_says(name: str, of_file: bool) -> None:
    facts = read_facts(KNOWN_WEIGHTS[name].path)
    assert facts.uses_tools is of_file is KNOWN_WEIGHTS[name].uses_tools
    assert facts.context_tokens is not None
    assert facts.context_tokens >= KNOWN_WEIGHTS[name].context_tokens
