"""docs/providers.md is true: its tables are the code's, and every failure gets the code that its rules state.

What is expected here is read from the document: its tables are parsed, its numbered rules are applied.
"""

import json
import re
import runpy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dragoman.delta import ErrorDelta
from dragoman.testing.recorded import decode_recorded
from dragoman.wire import PROVIDERS
from tests.corpus import PROTOCOLS, Record, all_records, body_of, decode, needs_corpus

ROOT = Path(__file__).parents[1]
DOCUMENT = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")


class Expected(NamedTuple):
    """The code of a failure, and whether the call may be made again."""

    code: str
    retryable: bool


def rows_under(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without its header; cells without code marks."""
    section = DOCUMENT.split(f"\n### {heading}\n", 1)[1].split("\n### ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    cells = [re.split(r"(?<!\\)\|", line.strip("|")) for line in lines]
    return [[cell.replace("\\|", "|").strip().strip("`").strip() for cell in row] for row in cells]


def codes_under(heading: str) -> dict[str, Expected]:
    return {row[0]: Expected(row[1], row[2] == "yes") for row in rows_under(heading)}


WORDS = codes_under("By word")
STATUSES = codes_under("By status")
WORDING = [re.compile(row[0], re.IGNORECASE) for row in rows_under("By wording")]
OVER = set(re.findall(r"`(\w+)`", DOCUMENT.split("\nOver: ", 1)[1].splitlines()[0]))
OVERFLOW = WORDS["context_length_exceeded"]


def stated(status: int | None, value: Any, header: str = "") -> Expected:
    """The code that the rules of the document state for a status and a body, or an error inside a stream."""
    value = value[0] if isinstance(value, list) else value
    inner = value.get("error", value) if isinstance(value, dict) else {}
    if isinstance(inner, str):
        words, message = [inner], value.get("message", inner)
    else:
        reasons = [detail.get("reason") for detail in inner.get("details") or ()]
        named = [str(inner.get(name) or "").rpartition("#")[2] for name in ("code", "type", "status", "__type")]
        words = [*reasons, header.partition(":")[0], *named]
        message = inner.get("message") or inner.get("Message") or inner.get("detail") or ""
    words = [word.lower() for word in words if word]
    if not isinstance(value, dict):
        message = value if isinstance(value, str) else ""
    if status is None:
        numbers = (str(inner.get(name)) for name in ("status_code", "code", "status"))
        meant = [int(number) for number in numbers if re.fullmatch(r"[45]\d\d", number)]
        status = meant[0] if meant else 400 if "invalid_request_error" in words else None
    found = STATUSES.get(str(status)) or STATUSES[_class_of(status)]
    if status != 429 or "insufficient_quota" in words:
        found = next((WORDS[word] for word in words if word in WORDS), found)
    if status != 429 and found.code in OVER and any(wording.search(message) for wording in WORDING):
        return OVERFLOW
    return found


def _class_of(status: int | None) -> str:
    if status is None:
        return "none"
    return "other 4xx" if 400 <= status < 500 else "other 5xx" if status >= 500 else "1xx and 3xx"


def read_code(protocol: str, status: int, body: bytes, **response: Any) -> Expected:
    """What the library makes of a response."""
    last = decode_recorded(protocol, body, status=status, **response)[-1]
    assert isinstance(last, ErrorDelta), last
    return Expected(last.error_code.value, bool(last.retryable))


def json_or_text(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


def errors_inside(record: Record) -> list[Any]:
    """The errors inside a stream: its JSON events that hold one."""
    lines = body_of(record).decode().splitlines()
    events = [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip() != "[DONE]"]
    return [event for event in events if event.get("error")]


@needs_corpus
def test_every_recorded_failure_gets_the_code_that_the_document_states() -> None:
    wrong = {}
    count = 0
    for protocol, record in all_records():
        response = record["response"]
        if response["status"] >= 400:
            header = (response.get("headers") or {}).get("x-amzn-errortype", "")
            expected = stated(response["status"], json_or_text(body_of(record)), header)
        elif "expect_before_error" in record:
            expected = stated(None, errors_inside(record)[0])
        else:
            continue
        count += 1
        last = decode(protocol, record)[-1]
        assert isinstance(last, ErrorDelta), record["id"]
        if (last.error_code, last.retryable) != expected:
            wrong[record["id"]] = (last.error_code, expected)
    assert wrong == {}
    assert count >= 30


# How each kind of API says an error, for a word and a message.
SHAPES: dict[str, Any] = {
    "code": lambda word, message: {"error": {"code": word, "message": message}},
    "type": lambda word, message: {"type": "error", "error": {"type": word, "message": message}},
    "status": lambda word, message: {"error": {"status": word, "message": message}},
    "bare": lambda word, message: {"__type": f"com.vendor.api#{word}", "Message": message},
    "text": lambda word, message: {"error": word, "message": message},
    "list": lambda word, message: [{"error": {"status": word, "message": message}}],
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_word_of_the_document_has_its_code_at_every_status(protocol: str, shape: str) -> None:
    for word in WORDS:
        for status in (400, 429, 500):
            value = SHAPES[shape](word.upper(), "Something is wrong.")
            read = read_code(protocol, status, json.dumps(value).encode(), content_type="application/json")
            assert read == stated(status, value), (word, status)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_status_has_the_code_of_the_document(protocol: str) -> None:
    for status in range(300, 600):
        assert read_code(protocol, status, b"no JSON") == stated(status, "no JSON"), status


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This model's maximum context length is 8192 tokens. Please reduce the length of the messages.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "Input is too long for requested model.",
        "the request exceeds the available context size, try increasing it",
        "Please send fewer tokens",
    ],
)
def test_an_overflow_is_told_by_its_wording_but_never_under_429(message: str) -> None:
    for protocol in PROTOCOLS:
        for status in (400, 413, 429, 500):
            value = {"error": {"message": message}, "message": message}
            expected = stated(status, value)
            assert read_code(protocol, status, json.dumps(value).encode()) == expected
            assert (expected == OVERFLOW) == (status == 413 or (status != 429 and "fewer" not in message))


def test_the_reason_in_the_details_of_google_goes_before_its_status() -> None:
    value = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}
    assert read_code("gemini", 400, json.dumps(value).encode()) == stated(400, value) == WORDS["api_key_invalid"]


def test_the_header_of_aws_goes_before_the_status() -> None:
    headers = {"x-amzn-errortype": "ThrottlingException:http://internal.amazon.com/"}
    read = read_code("bedrock-converse", 400, b'{"message":"slow down"}', headers=headers)
    assert read == stated(400, {"message": "slow down"}, headers["x-amzn-errortype"]) == WORDS["throttlingexception"]


def test_what_needs_no_word_is_retryable_as_the_code_says() -> None:
    generated = runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))
    for row in rows_under("Without a word from the provider"):
        assert generated["retryable"](row[1]) == row[2], row


def test_the_document_has_every_provider() -> None:
    section = DOCUMENT.split("\n## Where they are\n", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE) == list(PROVIDERS)


@pytest.mark.parametrize("name", ["hosts", "asked", "holds", "settings", "words", "wording", "statuses"])
def test_a_changed_table_is_noticed(name: str) -> None:
    generated = runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))
    section = generated["SECTIONS"]["providers.md"][name]()
    begin = f": begin {name} -->\n"
    changed = DOCUMENT.replace(begin, f"{begin}\nA line too many.\n")
    assert generated["with_section"](changed, section, name) == DOCUMENT != changed
