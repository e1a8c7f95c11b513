"""The vendors' SDKs for JavaScript on every front: a whole answer is read, one that breaks off is an error."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_stage import FRONTS, PROVIDERS, Exchange, on_a_loop, staged, whole
from tests.strangers.third_parties.npm import NotInstalled, install

pytestmark = pytest.mark.slow

PACKAGES = {"@anthropic-ai/sdk": "1.10.0", "@google/genai": "3.1.0", "openai": "7.55.0"}
PROGRAM = Path(__file__).with_name("javascript_sdks.mjs")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program, beside the packages that it imports."""
    try:
        installed = install(PACKAGES)
    except NotInstalled as error:
        pytest.skip(str(error))
    (tmp_path / "node_modules").symlink_to(installed / "node_modules")
    return Path(shutil.copy(PROGRAM, tmp_path))


async def ask(program: Path, api: str, url: str, *, stream: bool) -> Any:
    """Return what the program prints."""
    given = (str(program), api, url, "stream" if stream else "whole")
    process = await asyncio.create_subprocess_exec("node", *given, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    return json.loads(printed)


async def break_off(exchange: Exchange) -> None:
    """Begin an answer, and close the connection in its middle."""
    await exchange.send(exchange.answer.opening + exchange.answer.piece)
    assert exchange.request.transport is not None
    exchange.request.transport.close()


@pytest.mark.parametrize("api", FRONTS)
@pytest.mark.parametrize("way", ["passed", "translated"])
@on_a_loop
async def test_a_whole_answer_is_read_and_a_cut_one_is_an_error(api: str, way: str, program: Path) -> None:
    other = FRONTS[(FRONTS.index(api) + 1) % len(FRONTS)]
    routes = () if way == "passed" else (f"*={PROVIDERS[other]}:m",)
    async with staged(*routes, script=whole) as stage:
        assert await ask(program, api, stage.url, stream=True) == {"text": "Hello."}
        stage.upstream.script = break_off
        for stream in (True, False) if way == "translated" else (True,):
            assert list(await ask(program, api, stage.url, stream=stream)) == ["error"]
