"""Recorded answers, written again by each API that we serve, and what they then say.

`python -m tests.written_answers` runs the laws over every recorded exchange and prints their counts; `--every N` takes
each Nth exchange.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from dragoman import FinishReason, Image, Text, Thinking, TokenUsage, ToolCall
from dragoman.delta import DoneDelta, MessageDelta, StartDelta
from dragoman.stream import AnswerForm, Assembler, Assembly, frame_events
from dragoman.testing.recorded import decode_recorded
from dragoman.wire import PROVIDERS, WIRE_APIS, find_codec, find_provider
from tests.corpus import PROTOCOLS, decode, records
from tests.wire_samples import KITS

SERVED = tuple(name for name in WIRE_APIS if find_codec(name).open_writer is not None)
NOW = 1_700_000_000

# How a finish reads once an API has said it. A reason that is missing stays as it is; None is said as an error.
_UNFINISHED = {FinishReason.PAUSE: FinishReason.LENGTH}
SAID_FINISHES: dict[str, dict[FinishReason, FinishReason | None]] = {
    "anthropic-messages": {FinishReason.CONTENT_FILTER: FinishReason.REFUSAL, FinishReason.OTHER: None},
    "openai-chat": {**_UNFINISHED, FinishReason.REFUSAL: FinishReason.CONTENT_FILTER, FinishReason.OTHER: None},
    "openai-responses": {**_UNFINISHED, FinishReason.REFUSAL: FinishReason.CONTENT_FILTER, FinishReason.OTHER: None},
    "gemini": {**_UNFINISHED, FinishReason.REFUSAL: FinishReason.CONTENT_FILTER},
}
# The counts of a usage that each API can say.
_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
SAID_COUNTS = dict.fromkeys(WIRE_APIS, _COUNTS) | {
    "gemini": ("input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens")
}
IMAGES = frozenset({"openai-chat", "openai-responses", "gemini"})


def assembled(deltas: Sequence[MessageDelta]) -> Assembly:
    """What the deltas of a legal stream come to."""
    assembler = Assembler()
    for delta in deltas:
        assembler.feed(delta)
    return assembler.result()


def form_of(deltas: Sequence[MessageDelta], source: str, *, stream: bool) -> AnswerForm:
    """The form under which an answer is written again."""
    start = next((delta for delta in deltas if isinstance(delta, StartDelta)), None)
    answer_id, model = (start.request_id, start.model_id) if start else ("", "")
    return AnswerForm(answer_id=answer_id or "7fe2", model=model, created=NOW, stream=stream, source=source)


def write(deltas: Sequence[MessageDelta], api: str, form: AnswerForm) -> bytes | None:
    """The answer as bytes of the API: events, or the whole body; None for a whole one that failed."""
    open_writer = find_codec(api).open_writer
    assert open_writer is not None
    writer = open_writer(form)
    events = [event for delta in deltas for event in writer.write([delta])] + writer.end()
    if form.stream:
        return frame_events(events)
    assert not events
    return writer.body() if writer.failure is None else None


def read(body: bytes, protocol: str, *, stream: bool, vendor: str = "") -> list[MessageDelta]:
    """The deltas that a client of the API reads."""
    kind = "text/event-stream" if stream else "application/json"
    return decode_recorded(protocol, body, vendor=vendor, content_type=kind)


def recorded_answers(every: int = 1) -> Iterator[tuple[str, str, str, list[MessageDelta]]]:
    """Protocol, vendor, name and deltas of every recorded answer that ended well."""
    for protocol in PROTOCOLS:
        for record in records(protocol)[::every]:
            deltas = decode(protocol, record)
            if isinstance(deltas[-1], DoneDelta):
                yield protocol, record["vendor"], record["id"], deltas


def sample_answers() -> Iterator[tuple[str, str, str, list[MessageDelta]]]:
    """The same of our own samples."""
    for provider, (_, samples) in KITS.items():
        for sample in samples:
            deltas = decode_recorded(provider, sample.body, content_type=sample.content_type)
            if isinstance(deltas[-1], DoneDelta):
                yield provider, "", sample.name, deltas


def api_of(protocol: str) -> str:
    """The wire API of a protocol of the recordings."""
    return PROVIDERS[find_provider("openai-chat" if protocol == "openai-compatible" else protocol)]


# ---------------------------------------------------------------- what an answer says


def said(assembly: Assembly, api: str) -> dict[str, Any]:
    """What an answer says to a client of an API that other vendors' data mean nothing to."""
    message = assembly.message
    assert message is not None
    reason = assembly.finish_reason
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    return {
        "text": message.text,
        "thinking": "".join(part.text for part in message.parts if isinstance(part, Thinking)),
        "calls": [(call.tool_name, _arguments(call, api)) for call in calls if _is_said(call, reason, api)],
        "images": sum(isinstance(part, Image) for part in message.parts) if api in IMAGES else 0,
        "usage": _counts(assembly.usage or TokenUsage(), api),
    }


def _counts(usage: TokenUsage, api: str) -> dict[str, int]:
    counts = {name: getattr(usage, name) or 0 for name in SAID_COUNTS[api]}
    if api == "anthropic-messages":  # there, all input is the sum of three counts
        read = counts["cache_read_tokens"] = min(counts["cache_read_tokens"], counts["input_tokens"])
        counts["cache_write_tokens"] = min(counts["cache_write_tokens"], counts["input_tokens"] - read)
    return counts


def _is_said(call: ToolCall, reason: FinishReason | None, api: str) -> bool:
    """Whether the API can say the call: one that was cut is no `functionCall`."""
    is_cut = reason in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.OTHER, FinishReason.REFUSAL)
    return api in ("openai-chat", "openai-responses") or call.arguments is not None or not is_cut


def _arguments(call: ToolCall, api: str) -> Any:
    if call.arguments is None and api not in ("openai-chat", "openai-responses"):
        return {"unparsed_arguments": call.raw_args_text}
    return call.raw_args_text if call.arguments is None else call.arguments


def pair_problem(protocol: str, deltas: Sequence[MessageDelta], api: str, *, stream: bool) -> str | None:
    """How the answer differs once another API has said it; None where it says the same."""
    before = assembled(deltas)
    assert before.finish_reason is not None
    expected = SAID_FINISHES[api].get(before.finish_reason, before.finish_reason)
    body = write(deltas, api, form_of(deltas, "", stream=stream))
    if body is None or expected is None:
        again = None if body is None else assembled(read(body, api, stream=stream))
        is_error = again is None or again.error is not None
        return None if is_error and expected is None else f"ended in an error, not in {expected}"
    after = assembled(read(body, api, stream=stream))
    if after.error is not None:
        return f"reads as the error {after.error.message}"
    if after.finish_reason is not expected:
        return f"finishes with {after.finish_reason}, not {expected}"
    one, other = said(before, api), said(after, api)
    return next(
        (f"{name}: {one[name]!r} became {other[name]!r}"[:600] for name in one if one[name] != other[name]), None
    )


def own_problem(protocol: str, vendor: str, deltas: Sequence[MessageDelta], *, stream: bool) -> str | None:
    """How an answer differs once its own API has written it again; None where it is equal."""
    api = api_of(protocol)
    before = assembled(deltas)
    body = write(deltas, api, form_of(deltas, api, stream=stream))
    if body is None:
        return "ended in an error"
    after = assembled(read(body, protocol, stream=stream, vendor=vendor))
    if after.error is not None:
        return f"reads as the error {after.error.message}"
    one, other = facts(before, api, stream=stream), facts(after, api, stream=stream)
    if not before.raw_finish_reason:  # a vendor that finishes without a word: an answer of ours has one
        del one["word"]
    return next(
        (f"{name}: {one[name]!r} became {other[name]!r}"[:900] for name in one if one[name] != other[name]), None
    )


def cuts_that_finish(deltas: Sequence[MessageDelta], api: str, points: int = 8) -> tuple[int, int]:
    """How many cuts of the deltas were written, at most this many spread evenly, and how many read as finished."""
    lengths = sorted({len(deltas) * point // points for point in range(points)} | {len(deltas) - 1})
    finished = 0
    for length in lengths:
        for stream in (True, False):
            body = write(deltas[:length], api, form_of(deltas, "", stream=stream))
            finished += body is not None and assembled(read(body, api, stream=stream)).message is not None
    return 2 * len(lengths), finished


# Provider data that a stream of the API cannot say again: the id of an item, which its first event has and our deltas
# only at its end; and texts that repeat the pieces.
_UNSAID_IN_STREAMS: dict[str, frozenset[str]] = {
    "openai-responses": frozenset({"id", "summary", "content", "status"}),
    "openai-chat": frozenset({"reasoning_details"}),
}


def facts(assembly: Assembly, api: str, *, stream: bool) -> dict[str, Any]:
    """Parts with their provider data, usage and finish of an answer. Parts in a row without data count as one."""
    message = assembly.message
    assert message is not None
    unsaid = _UNSAID_IN_STREAMS.get(api, frozenset()) if stream else frozenset()
    parts: list[Any] = []
    for part in message.parts:
        data = {
            name: value for name, value in (getattr(part, "provider_data", None) or {}).items() if name not in unsaid
        }
        if api == "openai-chat":
            data.pop("id", None)  # a repeated id: ours is the one that is written
        if isinstance(data.get("content"), dict):  # of Responses; log probabilities are not written
            content = {name: value for name, value in data.pop("content").items() if name != "logprobs"}
            data.update({"content": content} if content else {})
        if isinstance(part, (Text, Thinking)):
            if not part.text and not data:
                continue
            joins = parts and parts[-1][0] == part.kind and not data and not parts[-1][2]
            if joins:
                parts[-1] = (part.kind, parts[-1][1] + part.text, {})
            else:
                parts.append((part.kind, part.text, data))
        elif isinstance(part, ToolCall):
            unread = part.raw_args_text if part.arguments is None else ""  # an object has no text of its own
            call_id = "" if data.get("id") == "" else part.tool_call_id  # Gemini without ids: ours has the answer's
            parts.append((part.kind, call_id, part.tool_name, part.arguments, unread, data))
        else:
            parts.append((part.kind, part))
    return {
        "parts": parts,
        "usage": assembly.usage,
        "finish": assembly.finish_reason,
        "word": assembly.raw_finish_reason,
        "model": message.meta.model_id if message.meta else None,
    }


def main(every: int) -> None:
    """Run the laws over the recordings and print the counts."""
    counts: Counter[str] = Counter()
    for protocol, vendor, name, deltas in recorded_answers(every):
        for stream in (True, False):
            way = "streamed" if stream else "whole"
            if api_of(protocol) in SERVED:
                problem = own_problem(protocol, vendor, deltas, stream=stream)
                counts[f"own, {api_of(protocol)}, {way}: {'equal' if problem is None else 'different'}"] += 1
                if problem is not None:
                    print("own", protocol, name, way, problem)
            for api in SERVED:
                problem = pair_problem(protocol, deltas, api, stream=stream)
                counts[f"{api_of(protocol)} as {api}, {way}: {'same' if problem is None else 'different'}"] += 1
                if problem is not None:
                    print("pair", protocol, name, "as", api, way, problem)
        for api in SERVED:
            cuts, finished = cuts_that_finish(deltas, api)
            counts[f"cut, as {api}: written"] += cuts
            counts[f"cut, as {api}: read as finished"] += finished
    for line in sorted(counts):
        print(f"{counts[line]:6} {line}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    main(parser.parse_args().every)
