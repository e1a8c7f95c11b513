"""Every recorded exchange is read as the vendors' own SDKs read it."""

from pathlib import Path
from typing import Any

import pytest

from dragoman import Thinking, TokenUsage
from dragoman.stream import Assembly, StreamContract, assemble
from tests.corpus import PROTOCOLS, Record, all_records, decode, needs_corpus, records

EXCEPTIONS = {
    line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1].strip()
    for line in (Path(__file__).parent / "corpus_exceptions.txt").read_text().splitlines()
    if line and not line.startswith("#")
}

pytestmark = needs_corpus


def reported_sum(*counts: int | None) -> int | None:
    """The sum of what was reported; None where nothing was."""
    reported = [count for count in counts if count is not None]
    return sum(reported) if reported else None


def expected_usage(protocol: str, raw: dict[str, Any]) -> dict[str, Any]:
    """Our definitions, applied to a provider's own usage object: input counts all input, output counts reasoning."""
    if protocol == "anthropic-messages":
        read, written = raw.get("cache_read_input_tokens"), raw.get("cache_creation_input_tokens")
        details = raw.get("output_tokens_details") or {}
        return {
            "input_tokens": raw["input_tokens"] + (read or 0) + (written or 0),
            "output_tokens": raw["output_tokens"],
            "cache_read_tokens": read,
            "cache_write_tokens": written,
            "reasoning_tokens": details.get("thinking_tokens"),
        }
    if protocol == "bedrock-converse":
        read, written = raw.get("cacheReadInputTokens"), raw.get("cacheWriteInputTokens")
        return {
            "input_tokens": raw["inputTokens"] + (read or 0) + (written or 0),
            "output_tokens": raw["outputTokens"],
            "cache_read_tokens": read,
            "cache_write_tokens": written,
        }
    if protocol == "gemini":
        thoughts = raw.get("thoughtsTokenCount")
        return {
            "input_tokens": reported_sum(raw.get("promptTokenCount"), raw.get("toolUsePromptTokenCount")),
            "output_tokens": reported_sum(raw.get("candidatesTokenCount"), thoughts),
            "total_tokens": raw.get("totalTokenCount"),
            "cache_read_tokens": raw.get("cachedContentTokenCount"),
            "reasoning_tokens": thoughts,
        }
    if protocol == "openai-responses":
        return {
            "input_tokens": raw["input_tokens"],
            "output_tokens": raw["output_tokens"],
            "total_tokens": raw["total_tokens"],
            "cache_read_tokens": raw["input_tokens_details"]["cached_tokens"],
            "reasoning_tokens": raw["output_tokens_details"]["reasoning_tokens"],
        }
    return {
        "input_tokens": raw["prompt_tokens"],
        # Where the total is more than both, the rest is reasoning that the vendor leaves out of its completion tokens.
        "output_tokens": max(raw["completion_tokens"], raw["total_tokens"] - raw["prompt_tokens"]),
        "total_tokens": raw["total_tokens"],
        "reasoning_tokens": (raw.get("completion_tokens_details") or {}).get("reasoning_tokens"),
        "cache_read_tokens": next(
            (
                count
                for count in (
                    (raw.get("prompt_tokens_details") or {}).get("cached_tokens"),
                    raw.get("prompt_cache_hit_tokens"),
                    raw.get("num_cached_tokens"),
                    raw.get("cached_tokens"),
                )
                if count is not None
            ),
            None,
        ),
    }


def differences(protocol: str, record: Record, assembly: Assembly) -> dict[str, tuple[Any, Any]]:
    """What was read and what was expected, where they differ."""
    expect, message = record["expect"], assembly.message
    if message is None:
        return {"error": (assembly.error, None)}
    calls = [
        (call.tool_name, call.raw_args_text if call.arguments is None else call.arguments)
        for call in message.tool_calls
    ]
    expected_calls = [(call["name"], call["arguments"] or {}) for call in expect["tool_calls"]]
    ids = [call.tool_call_id for call in message.tool_calls]
    expected_ids = [call["id"] or own for call, own in zip(expect["tool_calls"], ids, strict=False)]
    thinking = "".join(part.text for part in message.parts if isinstance(part, Thinking))
    found = {
        "text": (message.text, expect["text"]),
        "thinking": (thinking, expect["thinking"]),
        "tool calls": (calls, expected_calls),
        "tool ids": (ids, expected_ids),
        "finish reason": (assembly.raw_finish_reason, expect["finish_reason"]),
    }
    raw = (expect["usage"] or {}).get("raw")
    if raw:
        usage = assembly.usage or TokenUsage()
        for name, value in expected_usage(protocol, raw).items():
            found[f"usage.{name}"] = (getattr(usage, name), value)
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_recorded_answer_is_read_as_its_vendor_reads_it(protocol: str) -> None:
    wrong = {
        record["id"]: found
        for record in records(protocol)
        if record["expect"] is not None
        and record["id"] not in EXCEPTIONS
        and (found := differences(protocol, record, assemble(decode(protocol, record))))
    }
    assert not wrong, f"{len(wrong)} records differ: {dict(list(wrong.items())[:5])}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_recorded_answer_keeps_the_contract(protocol: str) -> None:
    for record in records(protocol):
        contract = StreamContract(record["id"])
        for delta in decode(protocol, record):
            contract.check(delta)
        assert contract.finished, record["id"]


def test_at_most_one_record_in_a_hundred_is_an_exception() -> None:
    known = {record["id"] for _, record in all_records()}
    assert set(EXCEPTIONS) <= known
    assert len(EXCEPTIONS) <= len(known) / 100
