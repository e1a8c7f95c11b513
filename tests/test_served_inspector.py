"""The inspector beside the gateway: under `/inspect`, by its own token, never by the key of a client."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

KEY = "a-key-of-clients"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of a gateway, and the token of its inspector."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "config.toml").touch()
    with (folder / "err").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "dragoman", "serve", "--port", "0", "--store", str(folder / "sessions.db")],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "DRAGOMAN_SERVE_KEY": KEY, "DRAGOMAN_CONFIG": str(folder / "config.toml")},
        )
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[-1]
            told = re.search(rf"{re.escape(address)}/inspect/\?token=(\S+)", (folder / "err").read_text())
            assert told is not None
            yield address, told[1]
        finally:
            process.terminate()
            assert process.stdout.read() == ""  # one line alone
            assert process.wait(10) == 0
            process.stdout.close()


def get(address: str, **headers: str) -> tuple[int, bytes]:
    """Status and body."""
    request = urllib.request.Request(address, headers={name.replace("_", "-"): text for name, text in headers.items()})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_the_token_opens_the_record(served: tuple[str, str]) -> None:
    address, token = served
    status, page = get(f"{address}/inspect/?token={token}")
    assert (status, b"<html" in page) == (200, True)
    status, body = get(f"{address}/inspect/api/sessions?token={token}")
    assert (status, json.loads(body)["sessions"]) == (200, [])


@pytest.mark.parametrize("query", ["", "?token=wrong"])
def test_neither_a_clients_key_nor_another_token_opens_it(served: tuple[str, str], query: str) -> None:
    address, _ = served
    for headers in ({}, {"Authorization": f"Bearer {KEY}"}, {"x_api_key": KEY}):
        assert get(f"{address}/inspect/api/sessions{query}", **headers)[0] in (401, 403)


def test_the_token_opens_no_front(served: tuple[str, str]) -> None:
    address, token = served
    assert get(f"{address}/v1/models?token={token}")[0] == 401
    assert get(f"{address}/v1/models", Authorization=f"Bearer {token}")[0] == 401
