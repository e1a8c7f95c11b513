"""Finish words and events called errors: which of them make an answer good, cut or failed."""

from typing import Any

import pytest

from dragoman import ErrorCode, FinishReason
from dragoman.stream import Assembly
from tests.wire_answers import (
    BEGUN,
    STOPPED,
    TOOL_USE,
    anthropic,
    bedrock,
    call_of,
    candidate,
    chat,
    chunk,
    completed,
    ended,
    error_of,
    gemini,
    item_done,
    read,
    read_body,
    responses,
    text_item,
    text_piece,
)
from tests.wire_streams import Object, block, sse

# ---------------------------------------------------------------- events that are called errors


@pytest.mark.parametrize(
    ("protocol", "good"),
    [
        ("anthropic-messages", [BEGUN, *block(0, {"type": "text", "text": "hi"}), *ended("end_turn")]),
        ("openai-compatible", [chunk({"content": "hi"}), chunk({"content": "hi"}), chunk({}, "stop")]),
        ("gemini", [candidate({"text": "hi"}), candidate({"text": "hi"}), candidate({"text": ""}, "STOP")]),
        (
            "openai-responses",
            [{"type": "response.created", "response": {}}, text_piece("hi"), item_done(text_item("hi")), completed()],
        ),
    ],
)
def test_an_event_that_is_called_error_is_one_whatever_its_data_says(protocol: str, good: list[Object]) -> None:
    events = sse(*good)
    assert read(protocol, events).error is None
    for place in range(len(events)):
        named = [*events[:place], b"event: error\n" + events[place], *events[place + 1 :]]
        assert read(protocol, named).error is not None


# ---------------------------------------------------------------- finish words


@pytest.mark.parametrize(
    "answer",
    [
        chat(chunk({"content": "hi"}), chunk({}, "tool_calls")),
        anthropic(BEGUN, *block(0, {"type": "text", "text": "hi"}), *ended("tool_use")),
        bedrock(("messageStart", {}), ("messageStop", {"stopReason": "tool_use"})),
    ],
    ids=["chat", "anthropic", "bedrock"],
)
def test_an_answer_that_finished_for_a_call_and_has_none_is_an_error(answer: Assembly) -> None:
    assert error_of(answer) is ErrorCode.STREAM_TRUNCATED


@pytest.mark.parametrize(
    "answer",
    [
        gemini({"text": "hi"}, finish="MALFORMED_FUNCTION_CALL"),
        gemini({"text": "hi"}, finish="A_NEW_WORD"),
        bedrock(("messageStart", {}), ("messageStop", {"stopReason": "malformed_model_output"})),
        anthropic(BEGUN, *ended("a_new_word")),
        chat(chunk({"content": "hi"}), chunk({}, "a_new_word")),
        *(responses(completed(status=status)) for status in ("cancelled", "queued", "in_progress", "a_new_word")),
        read_body("openai-chat", {"choices": [{"message": {"content": "hi"}, "finish_reason": None}]}),
        read_body("gemini", {"candidates": [{"content": {"parts": [{"text": "hi"}]}}]}),
    ],
)
def test_a_finish_word_that_is_not_known_to_be_good_is_other(answer: Assembly) -> None:
    assert answer.finish_reason is FinishReason.OTHER


def gemini_finishes(*words: str) -> Assembly:
    return read("gemini", sse(*({"candidates": [{"content": {}, "finishReason": word}]} for word in words)))


def anthropic_finishes(*words: str) -> Assembly:
    return anthropic(BEGUN, *(ended(word)[0] for word in words), STOPPED)


def bedrock_finishes(*words: str) -> Assembly:
    return bedrock(("messageStart", {}), *(("messageStop", {"stopReason": word}) for word in words))


def chat_finishes(*words: str) -> Assembly:
    return chat(chunk({"content": "hi"}), *(chunk({}, word) for word in words))


def native_finishes(*words: str) -> Assembly:
    good, bad = sorted(words, key=str.isupper)  # the second is the word of the provider behind the gateway
    last = chunk({}, good)
    last["choices"][0]["native_finish_reason"] = bad
    return chat(chunk({"content": "hi"}), last)


CUT, FILTERED, OTHER = FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.OTHER


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("finishes", "good", "bad", "reason"),
    [
        (chat_finishes, "stop", "length", CUT),
        (chat_finishes, "tool_calls", "length", CUT),
        (chat_finishes, "stop", "content_filter", FILTERED),
        (chat_finishes, "length", "content_filter", FILTERED),
        (chat_finishes, "stop", "refusal", FinishReason.REFUSAL),
        (chat_finishes, "stop", "a_new_word", OTHER),
        (native_finishes, "stop", "MAX_TOKENS", CUT),
        (native_finishes, "stop", "SAFETY", FILTERED),
        (anthropic_finishes, "end_turn", "max_tokens", CUT),
        (anthropic_finishes, "tool_use", "max_tokens", CUT),
        (anthropic_finishes, "end_turn", "pause_turn", FinishReason.PAUSE),
        (bedrock_finishes, "end_turn", "max_tokens", CUT),
        (bedrock_finishes, "end_turn", "guardrail_intervened", FILTERED),
        (gemini_finishes, "STOP", "MAX_TOKENS", CUT),
        (gemini_finishes, "STOP", "SAFETY", FILTERED),
    ],
)
def test_of_two_finish_words_the_worse_one_counts(
    finishes: Any, good: str, bad: str, reason: FinishReason, order: int
) -> None:
    answer = finishes(*(good, bad)[::order])
    assert (answer.finish_reason, answer.raw_finish_reason) == (reason, bad)


@pytest.mark.parametrize("words", [("error", "stop"), ("stop", "error")])
def test_a_word_that_says_failure_is_an_error_beside_a_good_one(words: tuple[str, str]) -> None:
    assert error_of(chat_finishes(*words)) is ErrorCode.SERVER_ERROR


def test_a_blocked_prompt_of_gemini_is_not_taken_back() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}}
    answer = read("gemini", sse(blocked, {"candidates": [{"content": {}, "finishReason": "STOP"}]}))
    assert answer.finish_reason is FILTERED


@pytest.mark.parametrize(
    ("kind", "status", "details", "reason"),
    [
        ("completed", "completed", "max_output_tokens", CUT),
        ("completed", None, "max_output_tokens", CUT),
        ("completed", "completed", "content_filter", FILTERED),
        ("completed", "completed", "a_new_word", OTHER),
        ("incomplete", "completed", None, OTHER),
        ("incomplete", "completed", "max_output_tokens", CUT),
        ("completed", "incomplete", "max_output_tokens", CUT),
        ("cancelled", "completed", None, OTHER),
    ],
)
def test_a_response_is_as_good_as_the_worst_that_its_end_says(
    kind: str, status: str | None, details: str | None, reason: FinishReason
) -> None:
    last = completed(text_item("hi"), status=status, incomplete_details=details and {"reason": details})
    answer = responses(text_piece("hi"), item_done(text_item("hi")), {**last, "type": f"response.{kind}"})
    assert answer.finish_reason is reason


def test_a_call_without_argument_text_in_an_answer_that_ended_otherwise_is_not_used() -> None:
    assert call_of(anthropic(BEGUN, *block(0, TOOL_USE), *ended("a_new_word"))).parse_error
