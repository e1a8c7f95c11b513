"""Credentials of requests: keys, token functions, AWS signatures."""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from dragoman import MissingExtra, ModelError
from dragoman.transport import (
    AwsKeys,
    AwsSigner,
    HttpRequest,
    HttpxTransport,
    KeySigner,
    Signer,
    TokenSigner,
    azure_token_source,
    google_token_source,
)

PLAIN = HttpRequest("POST", "http://127.0.0.1:1/v1", {}, b"{}")


def signed(signer: Signer, request: HttpRequest = PLAIN) -> dict[str, str]:
    return asyncio.run(signer.sign(request)).headers


def test_a_key_goes_into_the_header_that_the_vendor_names() -> None:
    assert signed(KeySigner("k-1")) == {"authorization": "Bearer k-1"}
    assert signed(KeySigner("k-1", "X-Api-Key")) == {"x-api-key": "k-1"}


def test_a_key_takes_the_place_of_one_that_was_there() -> None:
    request = HttpRequest("POST", "http://h/", {"X-API-Key": "old", "a": "b"}, b"")
    assert signed(KeySigner("new", "x-api-key"), request) == {"a": "b", "x-api-key": "new"}


async def async_token() -> str:
    return "t-1"


@pytest.mark.parametrize(
    "source", [lambda: "t-1", async_token, lambda: async_token()], ids=["plain", "async", "lambda"]
)
def test_a_token_comes_from_a_function(source: Any) -> None:
    assert signed(TokenSigner(source)) == {"authorization": "Bearer t-1"}


def test_a_token_source_that_fails_is_an_authentication_error_without_its_words() -> None:
    def fail() -> str:
        raise ValueError("planted")

    for source in (fail, lambda: "", lambda: 7):
        with pytest.raises(ModelError, match="token source") as caught:
            signed(TokenSigner(source))  # type: ignore[arg-type]  # the point of the test
        assert caught.value.code == "authentication"
        assert caught.value.__context__ is None


def test_tokens_of_given_credentials_need_no_package() -> None:
    class Held:
        valid = True
        token = "t-1"

        def get_token(self, scope: str) -> "Held":
            assert scope.endswith("/.default")
            return self

    assert signed(TokenSigner(google_token_source(credentials=Held()))) == {"authorization": "Bearer t-1"}
    assert signed(TokenSigner(azure_token_source(credential=Held()))) == {"authorization": "Bearer t-1"}


@pytest.mark.parametrize("token", [None, "session-token"])
def test_a_signature_is_the_one_that_botocore_makes(token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    url = "https://bedrock-runtime.us-east-1.amazonaws.com/model/a.claude-v1%3A0/converse-stream?x=1"
    request = HttpRequest("POST", url, {"Content-Type": "application/json", "accept": "*/*"}, b'{"a":1}')
    ours = signed(AwsSigner("us-east-1", keys=AwsKeys("AKID", "secret", token), clock=lambda: now), request)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: now)
    theirs = AWSRequest(method="POST", url=url, headers={"content-type": "application/json"}, data=request.body)
    SigV4Auth(Credentials("AKID", "secret", token), "bedrock", "us-east-1").add_auth(theirs)
    wanted = {name.lower(): value for name, value in theirs.headers.items()}
    assert {name.lower(): value for name, value in ours.items()} == {**wanted, "accept": "*/*"}


def test_aws_keys_are_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDFROMENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert "Credential=AKIDFROMENV/" in signed(AwsSigner("eu-west-1"))["authorization"]


def test_missing_aws_keys_are_an_authentication_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for signer in (AwsSigner("eu-west-1"), AwsSigner("eu-west-1", profile="nobody")):
        with pytest.raises(ModelError, match="AWS credentials") as caught:
            signed(signer)
        assert caught.value.code == "authentication"


@pytest.mark.parametrize(
    ("modules", "extra", "use"),
    [
        (["httpx"], "httpx", lambda: HttpxTransport(None)),  # type: ignore[arg-type]  # refused before it is looked at
        (["botocore.auth"], "bedrock", lambda: signed(AwsSigner("eu-west-1", keys=AwsKeys("a", "b")))),
        (["google.auth", "google"], "vertex", lambda: signed(TokenSigner(google_token_source()))),
        (["azure.identity", "azure"], "azure", lambda: signed(TokenSigner(azure_token_source()))),
    ],
    ids=["httpx", "bedrock", "vertex", "azure"],
)
def test_a_missing_package_is_named_by_the_line_that_installs_it(
    modules: list[str], extra: str, use: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'dragoman\[{extra}\]'"):
        use()
