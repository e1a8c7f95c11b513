"""Errors: the codes, what may be retried, and that no error shows a key or the provider's words."""

import copy
import importlib
import pickle
import subprocess
import sys
import time
import traceback
from datetime import UTC, datetime
from typing import Any

import pytest

import dragoman
from dragoman import (
    DragomanError,
    ErrorCode,
    InvalidValue,
    MissingExtra,
    ModelError,
    StoreError,
    ToolError,
    UnreadableData,
    from_json,
    redact,
    to_json,
)
from dragoman.delta import ErrorDelta
from dragoman.errors import PROVIDER_MESSAGE_LIMIT, ContractViolation

NOW = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)

MODEL_CODES = (
    "authentication permission invalid_request not_found unsupported rate_limited quota_exceeded overloaded "
    "server_error timeout connection context_overflow content_filtered stream_truncated protocol_violation "
    "cancelled internal"
)
TOOL_CODES = "unknown_tool invalid_arguments tool_failed tool_timeout tool_denied tool_interrupted"
RUN_CODES = "output_cut output_unfinished limit_reached given_up invalid_output"
STORE_CODES = "conflict corrupt too_new busy"
RETRYABLE = {"rate_limited", "overloaded", "server_error", "timeout", "connection", "stream_truncated"}


# ---------------------------------------------------------------- codes and the tree


def test_the_codes_are_those_of_the_design_in_its_order() -> None:
    assert [code.value for code in ErrorCode] == f"{MODEL_CODES} {TOOL_CODES} {RUN_CODES} {STORE_CODES}".split()


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_is_retryable_by_its_code_unless_it_says_otherwise(code: ErrorCode) -> None:
    assert ModelError("failed", code=code).retryable is (code in RETRYABLE)
    assert ModelError("failed", code=code, retryable=True).retryable is True
    assert ModelError("failed", code=code, retryable=False).retryable is False


@pytest.mark.parametrize(
    ("error", "code", "builtin"),
    [
        (DragomanError("x"), "internal", Exception),
        (InvalidValue("x"), "invalid_request", ValueError),
        (UnreadableData("x"), "corrupt", ValueError),
        (ContractViolation("x"), "protocol_violation", Exception),
        (MissingExtra("x", "y"), "unsupported", ImportError),
        (ModelError("x"), "internal", Exception),
        (ToolError("x"), "tool_failed", Exception),
        (StoreError("x"), "corrupt", Exception),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_every_error_is_of_one_root_and_has_a_code(error: DragomanError, code: str, builtin: type) -> None:
    assert isinstance(error, DragomanError)
    assert isinstance(error, builtin)
    assert error.code == code


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = dragoman.errors.__doc__ or ""
    assert all(each.__name__ in drawn for each in DragomanError.__subclasses__())


def test_a_missing_extra_says_the_line_that_installs_it() -> None:
    assert "pip install 'dragoman[postgres]'" in str(MissingExtra("the store", "postgres"))


def test_the_strategies_without_hypothesis_say_which_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    testing = importlib.import_module("dragoman.testing")
    monkeypatch.delitem(vars(testing), "strategies", raising=False)
    monkeypatch.delitem(sys.modules, "dragoman.testing.strategies", raising=False)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dragoman\[testing\]'"):
        importlib.import_module("dragoman.testing.strategies")
    with pytest.raises(MissingExtra):
        _ = testing.strategies


def test_the_testing_package_loads_neither_hypothesis_nor_the_vendors_sdks() -> None:
    program = (
        "import sys; from dragoman.testing import RecordingTransport, WireSample, decode_recorded, require_conformance"
        "; from dragoman.testing import ReplayTransport, conformance, transports, validate_request, validators"
        "; decode_recorded('gemini', b''); print(*sys.modules)"
    )
    command = [sys.executable, "-I", "-W", "error", "-c", program]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert "dragoman.testing.validators" in loaded
    assert loaded.isdisjoint({"hypothesis", "pydantic", "openai", "anthropic", "google.genai", "botocore", "aiohttp"})


def test_the_testing_package_has_no_other_attributes() -> None:
    testing: Any = importlib.import_module("dragoman.testing")
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = testing.no_such_name


FACTS: dict[str, Any] = {
    "code": ErrorCode.RATE_LIMITED,
    "retryable": True,
    "retry_after": 2.5,
    "request_id": "req-1",
    "provider_message": "slow down",
}


@pytest.mark.parametrize(
    "error",
    [
        *(each("x", **FACTS) for each in (DragomanError, InvalidValue, UnreadableData, ContractViolation)),
        *(each("x", **FACTS) for each in (ModelError, ToolError, StoreError)),
        MissingExtra("x", "y"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_copied_and_sent_to_another_process(error: DragomanError) -> None:
    for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(same) is type(error)
        assert str(same) == str(error)
        assert vars(same) == vars(error)


def test_an_error_delta_becomes_an_exception_with_the_same_facts() -> None:
    error = ErrorDelta("r", 0, NOW, ErrorCode.RATE_LIMITED, "too many", True, 2.5, "req-1", "slow down").to_exception()
    assert type(error) is ModelError
    assert str(error) == "too many"
    assert {name: getattr(error, name) for name in FACTS} == FACTS


def test_an_error_delta_without_words_becomes_an_exception_that_names_its_code() -> None:
    assert "overloaded" in str(ErrorDelta("r", 0, NOW, ErrorCode.OVERLOADED).to_exception())


# ---------------------------------------------------------------- the provider's words


def test_the_providers_words_are_kept_apart() -> None:
    error = ModelError("the call failed", provider_message="Die Anfrage war falsch")
    assert error.provider_message == "Die Anfrage war falsch"
    assert "Anfrage" not in str(error)
    assert "Anfrage" not in repr(error)
    assert "Anfrage" not in "".join(traceback.format_exception_only(error))


def test_the_providers_words_are_capped() -> None:
    long = "word " * PROVIDER_MESSAGE_LIMIT
    error = ModelError("failed", provider_message=long)
    assert error.provider_message is not None
    assert len(error.provider_message) <= PROVIDER_MESSAGE_LIMIT
    assert long.startswith(error.provider_message.rstrip("…"))


@pytest.mark.parametrize("secret", ["https://user:{}@host/x", "sk-{}", "eyJhbGciOiJIUzI1NiJ9.{}.{}", "Bearer {}"])
def test_a_secret_at_the_cap_is_blanked_out_before_the_text_is_cut(secret: str) -> None:
    key = "Zq7xW2" * 5
    for before in range(PROVIDER_MESSAGE_LIMIT - 80, PROVIDER_MESSAGE_LIMIT):
        words = ". " * (before // 2) + secret.format(key, key) + " and so on" * 20
        kept = ModelError("failed", provider_message=words).provider_message
        assert kept is not None
        assert "Zq7" not in kept


@pytest.mark.parametrize(
    "words", ["password: hunter2hunter2", f"Authorization: Bearer sk-{'Zq7xW2' * 5}", "?key=abcdefgh"]
)
def test_an_error_delta_whose_words_were_blanked_out_survives_json(words: str) -> None:
    delta = ErrorDelta("r", 0, NOW, ErrorCode.AUTHENTICATION, words, provider_message=words)
    assert from_json(to_json(delta)) == delta


def test_the_words_of_an_error_delta_are_capped_and_blanked_out_too() -> None:
    words = f"your key sk-{'Zq7xW2' * 5} " + "is wrong " * PROVIDER_MESSAGE_LIMIT
    delta = ErrorDelta("r", 0, NOW, ErrorCode.AUTHENTICATION, words[:60], provider_message=words)
    assert delta.provider_message is not None
    assert len(delta.provider_message) <= PROVIDER_MESSAGE_LIMIT
    assert "Zq7" not in repr(delta)
    assert b"Zq7" not in to_json(delta)


# ---------------------------------------------------------------- secrets

BODY = "Zq7xW2mK9pL4vB8nR3tY6"  # occurs in every secret below, and must occur nowhere afterwards

KEYS = {
    "OpenAI": f"sk-{BODY}",
    "OpenAI project": f"sk-proj-{BODY}_{BODY}-{BODY}",
    "OpenAI service account": f"sk-svcacct-{BODY * 8}",
    "Anthropic": f"sk-ant-api03-{BODY}-{BODY}AA",
    "OpenRouter": f"sk-or-v1-{BODY}",
    "Groq": f"gsk_{BODY}",
    "xAI": f"xai-{BODY}",
    "Hugging Face": f"hf_{BODY}",
    "Replicate": f"r8_{BODY}",
    "Perplexity": f"pplx-{BODY}",
    "NVIDIA": f"nvapi-{BODY}",
    "Cerebras": f"csk-{BODY}",
    "Fireworks": f"fw_{BODY}",
    "Tavily": f"tvly-{BODY}",
    "Google": f"AIzaSy{BODY}",
    "Google access token": f"ya29.{BODY}",
    "Bedrock": f"ABSK{BODY}{BODY}=",
    "GitHub": f"ghp_{BODY}",
    "GitHub fine-grained": f"github_pat_{BODY}_{BODY}",
    "GitLab": f"glpat-{BODY}",
    "Slack": f"xoxb-{BODY}",
    "a JWT": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0{BODY}.{BODY}",
    "a JWT without a signature": f"eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0{BODY}",
}
PHRASES = {
    "a bearer token": f"Bearer {BODY}",
    "a bearer header": f"Authorization: Bearer {BODY}",
    "a bearer header in JSON": f'{{"Authorization": "Bearer {BODY}"}}',
    "a basic header": f"authorization: Basic {BODY}==",
    "a header with a token scheme": f"Authorization: Token {BODY}",
    "a header without a scheme": f"Authorization: {BODY}",
    "x-api-key": f"x-api-key: {BODY}",
    "x-goog-api-key": f"x-goog-api-key: {BODY}",
    "api-key": f"api-key: {BODY}",
    "api_key in JSON": f'{{"api_key": "{BODY}"}}',
    "apiKey in JSON": f'{{"apiKey":"{BODY}"}}',
    "api_key in JSON within JSON": rf'{{"body": "{{\"api_key\": \"{BODY}\"}}"}}',
    "api_key in Python": f"{{'api_key': '{BODY}'}}",
    "api_key in a call": f"Client(api_key='{BODY}')",
    "an environment variable": f"OPENAI_API_KEY={BODY}",
    "an AWS secret": f"aws_secret_access_key = {BODY}/{BODY}",
    "an AWS session token": f"AWS_SESSION_TOKEN={BODY}",
    "a client secret": f"client_secret={BODY}",
    "a secret key": f"SECRET_KEY={BODY}",
    "an access token": f'"access_token": "{BODY}"',
    "a refresh token": f'"refresh_token": "{BODY}"',
    "a password": f"password: {BODY}",
    "a database password": f"DB_PASSWORD={BODY}",
    "a password with spaces in it": f'"password": "correct horse {BODY}"',
    "a URL with a password": f"https://user:{BODY}@example.com/path",
    "a URL with only a password": f"redis://:{BODY}@localhost:6379/0",
    "a key in a query": f"https://example.com/v1/models?key={BODY}&alt=sse",
    "a token in a query": f"https://example.com/?a=1&token={BODY}",
    "a signed URL": f"https://bucket.example.com/a?X-Amz-Credential={BODY}&X-Amz-Signature={BODY}",
    "a private key": f"-----BEGIN PRIVATE KEY-----\n{BODY}\n{BODY}\n-----END PRIVATE KEY-----",
    "an RSA key": f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----",
    "an encrypted RSA key": "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0\n\n"
    f"{BODY}\n-----END RSA PRIVATE KEY-----",
    "a key cut short": f"-----BEGIN EC PRIVATE KEY-----\n{BODY}",
    "a private key in JSON": rf'"private_key": "-----BEGIN PRIVATE KEY-----\n{BODY}\n-----END PRIVATE KEY-----\n"',
}
PLACES = {
    "alone": "{}",
    "within a sentence": "The key {} was refused.",
    "at the end of a sentence": "We refused {}.",
    "in double quotes": 'got "{}", sorry',
    "in single quotes": "got '{}'",
    "in backquotes": "got `{}`",
    "in parentheses": "refused ({}).",
    "in brackets": "[{}]",
    "in angle brackets": "<{}>",
    "after a colon": "key:{}",
    "after an equals sign": "k={};",
    "after a slash": "/{}/models",
    "between commas": "a,{},b",
    "on a line of its own": "before\n{}\nafter",
    "after an escaped newline": r"before\n{}\nafter",
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_key_of_a_known_shape_is_blanked_out_wherever_it_stands(place: str) -> None:
    redacted = {vendor: redact(place.format(key)) for vendor, key in KEYS.items()}
    assert [vendor for vendor, text in redacted.items() if BODY in text or "[redacted]" not in text] == []


@pytest.mark.parametrize("phrase", PHRASES.values(), ids=PHRASES)
def test_what_is_called_a_secret_is_blanked_out(phrase: str) -> None:
    for text in (phrase, f"before {phrase} after", f"before\n{phrase}\nafter"):
        assert BODY not in redact(text)


def test_an_aws_key_id_is_blanked_out() -> None:
    assert "IOSFODNN" not in redact("the id AKIAIOSFODNN7EXAMPLE, and ASIAIOSFODNN7EXAMPLE")


@pytest.mark.parametrize(
    "secret",
    ["sk-{}", "Bearer {}", "password={}", "eyJhbGciOi.{}.x", "?key={}", "ghp_{}"],
    ids=lambda secret: secret[:8],
)
def test_a_very_long_secret_is_blanked_out_to_its_end(secret: str) -> None:
    assert "Zq7" not in redact(secret.format("a" * 9_000 + "Zq7"))


def test_what_surrounds_a_secret_is_kept() -> None:
    assert redact(f'{{"api_key": "sk-{BODY}", "model": "m"}}') == '{"api_key": "[redacted]", "model": "m"}'
    assert redact(f"https://user:{BODY}@example.com/a?b=c") == "https://user:[redacted]@example.com/a?b=c"
    assert redact(f"Authorization: Bearer {BODY}, next") == "Authorization: Bearer [redacted], next"


ORDINARY = [
    "The quick brown fox jumps over the lazy dog.",
    "max_tokens: 100",
    '{"max_tokens": 100, "input_tokens": 2048, "total_tokens": 2148}',
    "prompt is too long: 210000 tokens > 200000 maximum",
    "123e4567-e89b-12d3-a456-426614174000",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "request id req_011CSHoEeqs5C35K2UUqR7Fy",
    "toolu_01A09q90qw90lq917835lq9 and call_abc123def456",
    "task-management-system, risk-adjusted, desk-bound",
    "http://localhost:8080/path?x=1&y=2",
    "https://example.com:443/@user/post",
    "see git@github.com:owner/repository.git",
    "at 10:30 write to user@example.com",
    "def f(key: str, token: int) -> bool: return key in tokens",
    "for key, value in items: total[key] = value",
    "os.environ['OPENAI_API_KEY'] is not set",
    "the API key is missing or wrong",
    "You exceeded your current quota, please check your plan and billing details.",
    "secrets, passwords and credentials are never logged",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg==",
    "a basic understanding of bearer bonds",
    "basic authentication is required",
    "from huggingface_hub import hf_hub_download",
    "fw_version_string = 3",
    "asiapacificregion, AsiaPacificSoutheast",
    "-----BEGIN CERTIFICATE-----",
    "eyJ is how base64 of JSON begins",
    "",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("text", [*KEYS.values(), *PHRASES.values()], ids=[*KEYS, *PHRASES])
def test_what_is_blanked_out_once_is_left_alone_the_second_time(text: str) -> None:
    assert redact(redact(text)) == redact(text)


HOSTILE = [
    "sk-",
    "eyJ",
    "a:",
    "a-",
    "eyJ.",
    "://",
    "://a:",
    "bearer ",
    "api_key",
    "password=",
    "-----BEGIN PRIVATE KEY",
]


@pytest.mark.parametrize("piece", ["sk-", "eyJ", "a:"])
def test_a_megabyte_of_hostile_text_is_redacted(piece: str) -> None:
    redact(piece * (1_000_000 // len(piece)))


@pytest.mark.parametrize("piece", HOSTILE)
def test_four_times_the_hostile_text_costs_about_four_times_the_work(piece: str) -> None:
    def work(size: int) -> float:
        text = piece * (size // len(piece))
        costs = []
        for _ in range(3):
            before = time.process_time()
            redact(text)
            costs.append(time.process_time() - before)
        return min(costs)

    # Quadratic work would be sixteen times as much. Half a millisecond covers what the clock cannot tell apart.
    assert work(40_000) < 9 * (work(10_000) + 0.0005)


# ---------------------------------------------------------------- a key in no error


@pytest.mark.parametrize(
    "error_class",
    [DragomanError, InvalidValue, UnreadableData, ContractViolation, ModelError, ToolError, StoreError],
    ids=lambda error_class: error_class.__name__,
)
def test_a_key_appears_in_no_error(error_class: type[DragomanError]) -> None:
    for key in (*KEYS.values(), *PHRASES.values()):
        error = error_class(f"the key {key} was refused", provider_message=f"Incorrect key: {key}.")
        shown = "".join(traceback.format_exception_only(error))
        assert BODY not in f"{error}{error!r}{error.args}{shown}{error.provider_message}{vars(error)}"


def test_a_key_appears_in_no_refusal_of_a_value() -> None:
    assert BODY not in str(InvalidValue.of("modelId", f"sk-{BODY}", "a name"))


def test_a_number_too_long_to_print_is_refused_all_the_same() -> None:
    assert "size" in str(InvalidValue.of("size", 10**5_000, "a small number"))
