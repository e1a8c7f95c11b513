"""`dragoman decode`: a captured answer of a provider, from a file or a pipe, to deltas or to the message."""

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from .arguments import add_common, natural
from .output import Output, warn

if TYPE_CHECKING:
    from io import BufferedReader

    from ..delta import ErrorDelta, MessageDelta

__all__ = ["add_arguments"]

API_HELP = (
    "the wire API or the provider: openai-chat, openai-responses, anthropic-messages, gemini, bedrock-converse, groq …"
)
CHUNK = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    add_common(parser, decode)
    parser.add_argument(
        "file",
        nargs="?",
        default="-",
        help="a response's body, with or without its HTTP head (curl -i), or a recording (standard input)",
    )
    parser.add_argument("--api", help=f"{API_HELP} (found out)")
    parser.add_argument("--message", action="store_true", help="print the message, not the deltas")
    parser.add_argument("--status", type=natural, help="the HTTP status, where there is no head (200)")
    parser.add_argument("--content-type", help="the type of the body, where there is no head (found out)")


def decode(chosen: argparse.Namespace) -> int:
    """Print what was captured as JSON lines; 1 if an answer ended in an error."""
    from ..jsonform import to_json
    from ..stream import Assembler
    from .captures import read_answers

    output = Output()
    is_live = chosen.file == "-"
    answers = read_answers(
        _chunks(chosen.file),
        api=chosen.api,
        status=chosen.status,
        content_type=chosen.content_type,
        clock=(lambda: datetime.now(UTC)) if is_live else None,
    )
    has_failed = False
    for answer in answers:
        assembler = Assembler()
        last: MessageDelta | None = None
        for delta in answer.deltas:
            last = delta
            assembler.feed(delta)
            if not chosen.message:
                output.json_line(to_json(delta))
                if is_live:
                    output.flush()
        result = assembler.result()
        if chosen.message and result.message is not None:
            output.json_line(to_json(result.message))
        if last is not None and last.kind == "error":
            has_failed = True
            _tell(answer.name, last)  # type: ignore[arg-type]  # the one delta of this kind
    return int(has_failed)


def _tell(name: str, error: "ErrorDelta") -> None:
    which = f"{name}: " if name else ""
    said = f"; the provider said: {error.provider_message}" if error.provider_message else ""
    words = f"{which}the answer ended in an error, {error.error_code}: {error.message or ''}{said}"
    warn(" ".join(words.split()))


def _chunks(name: str) -> Iterator[bytes]:
    """What is in a file, or what comes through the pipe, as it comes."""
    if name != "-":
        from .conversations import read_source

        yield read_source(name)
        return
    source = cast("BufferedReader", sys.stdin.buffer)
    while chunk := source.read1(CHUNK):
        yield chunk
