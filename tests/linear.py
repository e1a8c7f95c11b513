"""Every function that reads text from outside, timed on long texts of every shape: does its time grow with the length?

    python -m tests.linear                  # a table at 1, 4 and 16 MB; minutes
    python -m tests.linear --sizes 1 4 --only context

`tests/test_linear.py` runs the same cases on short texts and compares two sizes.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, NamedTuple

import dragoman
from dragoman import Message, Model, ToolCall, ToolResult
from dragoman._jsontext import decode_json, encode_json, join_surrogates, parse_arguments
from dragoman.agent.output import OutputReader, PartialReader
from dragoman.cli import output
from dragoman.cli.chat.markdown import GrowingMarkdown
from dragoman.cli.chat.plain_view import WordWrap
from dragoman.cli.chat.view import result_lines
from dragoman.cli.delta_follower import SafePieces
from dragoman.cli.retelling import message_deltas
from dragoman.context import ContextBuildInput, ContextManager, EstimateCounter, find_counter, recall
from dragoman.context.cutting import cut_text
from dragoman.context.index import HistoryIndex
from dragoman.context.lines import argument_lines, key_of, names_in, split_lines
from dragoman.errors import InvalidValue, Secrets, UnreadableData, redact
from dragoman.history import AgentState, HistoryToolCallResult, ToolFinishedEntry, entry_from_json, entry_to_json
from dragoman.interop import append_imported, export_anthropic, export_openai_chat, import_openai_chat
from dragoman.request import ContextConfig
from dragoman.store.blobs import cut_pieces, put_back
from dragoman.stream import ResponseReader, SseParser
from dragoman.stream.eventstream import EventStreamParser, encode_frame
from dragoman.telemetry.content import write_output
from dragoman.testing.transports import _Redaction
from dragoman.tools.coercion import coerce_arguments
from dragoman.tools.docstrings import read_docstring
from dragoman.tools.results import read_returned
from dragoman.wire import find_codec, find_dialect
from dragoman.wire.gemini.arguments import FunctionCall, PartialArgument, StreamedCall
from dragoman.wire.media import result_content

MEGABYTE = 1_000_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MODELS = {
    "openai-chat": "openai-chat:gpt-4.1",
    "openai": "openai:gpt-5",
    "anthropic": "anthropic:claude-sonnet-4-5",
    "google": "google:gemini-2.5-pro",
    "bedrock": "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
}

# What a text is made of, over and over. Each has broken something, here or elsewhere.
SHAPES: dict[str, str] = {
    "words": "some words, and more ",
    "no spaces": "a",
    "lines": "a line of some text\n",
    "line ends": "\n",
    "spaces": " ",
    "emoji": "\U0001f642",
    "quotes": '"',
    "backslashes": "\\",
    "escaped quotes": '\\"',
    "open brackets": "[",
    "brackets": "[]",
    "braces": '{"a":',
    "names": "src/file_name_12.py ",
    "digits": "7",
    "fences": "```\n\n",
    "a fence, then spaces": "\n ",
    "secrets": "api_key: \\\\",
    "addresses": "https://user:",
    "base64": "QUJD",
    "carriage returns": "\r",
    "tabs and colons": "a :\t",
    "wide": "日本語",
    "joined": "e\u0301\u200d",
    "surrogates": "\ud83d",
}


def text_of(shape: str, size: int) -> str:
    """Return a text of so many bytes, or a little fewer."""
    piece = SHAPES[shape]
    opening = "```" if shape == "a fence, then spaces" else ""
    return opening + piece * (size // len(piece.encode("utf-8", "surrogatepass")))


# ---------------------------------------------------------------- the functions


def _quiet(call: Callable[[], object]) -> None:
    """What a text cannot be read as is no matter here: only the time is."""
    try:
        call()
    except (InvalidValue, UnreadableData, dragoman.DragomanError):
        pass


def _in_pieces(feed: Callable[[str], object], text: str, size: int = 64) -> None:
    for start in range(0, len(text), size):
        feed(text[start : start + size])


@cache
def _model(name: str) -> Model:
    return dragoman.model(name, api_key="sk-fake", region="us-east-1")


def _state(text: str, *, asked: str = "Read it.") -> AgentState:
    state = AgentState.create_default(session_id="linear", clock=lambda: NOW, widgets=())
    state.append_model_input(asked)
    said = state.append_model_output(Message.assistant(ToolCall("c1", "read_file", {"path": "a.py"})))
    state.append_tool_results([HistoryToolCallResult.of_text(said.tool_calls[0], text)])
    return state


def _build(text: str, *, limit: int | None = None, as_input: bool = False) -> None:
    state = _state("small", asked=text or "x") if as_input else _state(text)
    # Small, so that the shortest text does not fit and is folded, as the longest is.
    config = ContextConfig(budget_tokens=2_000)
    manager = ContextManager(config, counter=EstimateCounter(), result_limit_bytes=limit)
    for _ in range(2):
        built = manager.build_context(ContextBuildInput(entries=state.entries, now=NOW))
        for entry in built.entries:
            state.append(entry)
        state.append_model_input("Go on.")
        state.append_model_output(Message.assistant("Yes."))


def _index(text: str) -> None:
    index = HistoryIndex()
    for entry in _state(text).entries:
        index.add(entry, 1_000)


def _entry(text: str) -> bytes:
    request = ToolCall(tool_name="t", tool_call_id="c", raw_args_text="{}", arguments={})
    return entry_to_json(ToolFinishedEntry(HistoryToolCallResult.of_text(request, text)))


def _blobs(text: str) -> None:
    left, pieces = cut_pieces(encode_json({"text": text}))
    put_back(left, pieces)


def _render(name: str, text: str) -> None:
    call = ToolCall("c1", "read", {"text": text})
    said = (Message.user(text or "x"), Message.assistant(call), Message.tool(ToolResult("c1", text)))
    _model(name).render(said)


def _sse(text: str, size: int) -> None:
    parser = SseParser()
    wire = b"data: " + text.encode("utf-8", "replace").replace(b"\n", b"\ndata: ") + b"\n\n"
    for start in range(0, len(wire), size):
        parser.feed(wire[start : start + size])
    parser.end()


def _frames(text: str) -> None:
    parser = EventStreamParser()
    wire = encode_frame({":message-type": "event", ":event-type": "contentBlockDelta"}, text.encode("utf-8", "replace"))
    for start in range(0, len(wire), 4_096):
        parser.feed(wire[start : start + 4_096])


def _chat_answer(text: str, *, whole: bool) -> None:
    """An answer of Chat Completions with the text as its words and as its arguments, in pieces or in one."""
    size = len(text) or 1 if whole else 64
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    chunks: list[dict[str, Any]] = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    opening = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}
    chunks.append({"choices": [{"delta": {"tool_calls": [opening]}}]})
    for piece in pieces:
        call = {"index": 0, "function": {"arguments": piece}}
        chunks.append({"choices": [{"delta": {"tool_calls": [call]}}]})
    chunks.append({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    wire = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    dialect = find_dialect("openai-chat", "gpt-4.1")
    reader = ResponseReader(find_codec(dialect.specification), dialect, headers={"content-type": "text/event-stream"})
    for start in range(0, len(wire), 65_536):
        reader.feed(wire[start : start + 65_536])
    reader.end()


def _gemini_pieces(text: str) -> None:
    call: StreamedCall | None = None

    def feed(piece: str) -> None:
        nonlocal call
        part = FunctionCall(
            name="f", partial_args=[PartialArgument("$.content", string_value=piece, will_continue=True)]
        )
        if call is None:
            call = StreamedCall("c1", part)
        else:
            call.add(part)

    _in_pieces(feed, text)


def _gemini_path(text: str) -> None:
    piece = PartialArgument("$['" + text, string_value="x")
    StreamedCall("c1", FunctionCall(name="f", partial_args=[piece]))


def _coerced(text: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    coerce_arguments({"a": text}, schema)


def _markdown(text: str) -> None:
    growing = GrowingMarkdown()
    _in_pieces(growing.feed, text)
    growing.end()


def _partial(kind: Any, text: str) -> None:
    reader: PartialReader[Any] = PartialReader(OutputReader(kind))
    _in_pieces(reader.feed, text)


def _word_wrap(text: str) -> None:
    wrap = WordWrap(80)
    _in_pieces(wrap.feed, text)
    wrap.end()


def _safe_pieces(text: str) -> None:
    safe = SafePieces()
    _in_pieces(safe.feed, text)
    safe.end()


def _docstring(text: str) -> None:
    read_docstring(f"Say it.\n\nArgs:\n    a: {text}\n    b {text}\n\n:param c {text}")


def _imported(text: str) -> None:
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": text}}]},
        {"role": "tool", "tool_call_id": "1", "content": text},
    ]
    imported = import_openai_chat(messages)
    append_imported(AgentState.create_default(session_id="linear", clock=lambda: NOW, widgets=()), imported)
    export_openai_chat(imported.messages)
    export_anthropic(imported.messages)


def _result(text: str) -> HistoryToolCallResult:
    request = ToolCall(tool_name="t", tool_call_id="c", raw_args_text="{}", arguments={})
    return HistoryToolCallResult.of_text(request, text)


def _deltas(text: str) -> None:
    for _ in message_deltas(Message.assistant(text)):
        pass


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "context: split_lines": split_lines,
    "context: key_of": key_of,
    "context: names_in": names_in,
    "context: argument_lines": lambda text: argument_lines(ToolCall("c", "f", {"text": text})),
    "context: cut_text": lambda text: cut_text(text, 1, 4_000),
    "context: index": _index,
    "context: estimate": lambda text: EstimateCounter().count(text),
    "context: vocabulary": lambda text: find_counter("openai", "gpt-4.1").count(text),
    "context: build, result": _build,
    "context: build, limited result": partial(_build, limit=256_000),
    "context: build, input": partial(_build, as_input=True),
    "context: recall": lambda text: recall(_state(text).entries, {"entry": 2}, result_limit_bytes=256_000),
    "json: join_surrogates": join_surrogates,
    "json: encode": encode_json,
    "json: decode": decode_json,
    "json: decode a list": lambda text: decode_json(f"[{text}]"),
    "json: parse_arguments": lambda text: parse_arguments(f'{{"a": {encode_json(text).decode()}}}'),
    "json: parse broken arguments": lambda text: parse_arguments(f'{{"a": "{text}'),
    "errors: redact": redact,
    "tools: read_returned": read_returned,
    "tools: coerce_arguments": _coerced,
    "tools: docstring": _docstring,
    "stream: sse, small chunks": lambda text: _sse(text, 1_024),
    "stream: sse, one chunk": lambda text: _sse(text, 1 << 30),
    "stream: frames": _frames,
    "stream: answer in pieces": lambda text: _chat_answer(text, whole=False),
    "stream: answer in one": lambda text: _chat_answer(text, whole=True),
    "providers: gemini pieces": _gemini_pieces,
    "providers: gemini path": _gemini_path,
    "history: entry": lambda text: entry_from_json(_entry(text)),
    "store: blobs": _blobs,
    **{f"request: {name}": partial(_render, model) for name, model in MODELS.items()},
    "interop: chat": _imported,
    "interop: result_content": result_content,
    "agent: output": lambda text: OutputReader(dict).read(Message.assistant(text)),
    "agent: partial output": lambda text: _partial(dict, '{"a": ' + text),
    "agent: partial output, a text": lambda text: _partial(dict, '{"a": "' + text),
    "telemetry: output": lambda text: write_output(Message.assistant(text)),
    "testing: redaction": lambda text: _Redaction(Secrets(["secret-0123456789"])).body(text, "application/json"),
    "cli: printable": output.printable,
    "cli: one_line": output.one_line,
    "cli: safe_json": output.safe_json,
    "cli: wrapped": lambda text: output.wrapped(text, 80),
    "cli: fitted": lambda text: output.fitted(text, 80),
    "cli: markdown": _markdown,
    "cli: word wrap": _word_wrap,
    "cli: safe pieces": _safe_pieces,
    "cli: result lines": lambda text: result_lines(_result(text)),
    "cli: retold": _deltas,
}


class Measured(NamedTuple):
    """How long one function took on texts of one shape, by their size in bytes."""

    function: str
    shape: str
    seconds: dict[int, float]


def seconds_of(function: str, shape: str, size: int, *, tries: int = 1) -> float:
    """Return the processor time that the function takes, the least of some tries."""
    text, call = text_of(shape, size), FUNCTIONS[function]
    best = float("inf")
    gc.disable()  # a collection takes as long as the heap of the whole process is large
    try:
        for _ in range(tries):
            begun = time.thread_time()
            _quiet(lambda: call(text))
            best = min(best, time.thread_time() - begun)
    finally:
        gc.enable()
    return best


def measured(sizes: list[int], only: str = "", longest: float = 60.0) -> Iterator[Measured]:
    """Yield the times of every function and shape; one that takes too long is not tried on longer texts."""
    for function in FUNCTIONS:
        if only not in function:
            continue
        for shape in SHAPES:
            seconds: dict[int, float] = {}
            for size in sizes:
                seconds[size] = seconds_of(function, shape, size)
                if seconds[size] > longest:
                    break
            yield Measured(function, shape, seconds)


def main() -> None:
    """Print a line for each function: its slowest shape at the largest size, and the steepest growth of all shapes."""
    parser = argparse.ArgumentParser(prog="python -m tests.linear", description=main.__doc__)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1, 4, 16], help="in MB")
    parser.add_argument("--only", default="", help="functions whose name has this")
    parser.add_argument("--all", action="store_true", help="print every shape")
    options = parser.parse_args()
    sizes = [int(size * MEGABYTE) for size in options.sizes]
    print(f"{'function':34} {'shape':22}" + "".join(f"{size / MEGABYTE:>9g} MB" for size in sizes) + "   growth")
    by_function: dict[str, list[Measured]] = {}
    for each in measured(sizes, options.only):
        by_function.setdefault(each.function, []).append(each)
        if options.all:
            print(_line(each, sizes), flush=True)
        elif each.shape == list(SHAPES)[-1]:
            slowest = max(by_function[each.function], key=lambda one: max(one.seconds.values()))
            steepest = max(by_function[each.function], key=_growth)
            print(_line(slowest, sizes), flush=True)
            if steepest is not slowest and _growth(steepest) > 1.5:
                print(_line(steepest, sizes), flush=True)


def _line(each: Measured, sizes: list[int]) -> str:
    times = "".join(f"{each.seconds[size]:>10.3f} s" if size in each.seconds else f"{'-':>12}" for size in sizes)
    return f"{each.function:34} {each.shape:22}{times}{_growth(each):>9.1f}"


def _growth(each: Measured) -> float:
    """How much faster than the size the time grew between the first and the last one; 1 is linear."""
    (first, short), (last, long) = min(each.seconds.items()), max(each.seconds.items())
    return max(long, 0.005) / max(short, 0.005) / (last / first)


if __name__ == "__main__":
    main()
