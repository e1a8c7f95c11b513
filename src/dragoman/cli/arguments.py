"""What the commands' parsers share: options that every command has, kinds of values. Loads nothing else."""

import argparse
from collections.abc import Callable
from typing import TypeAlias

__all__ = [
    "SESSION_HELP",
    "WHOLE_ID_HELP",
    "Run",
    "Tasks",
    "add_common",
    "add_model",
    "add_store",
    "add_task",
    "add_tasks",
    "natural",
    "read_digits",
    "real",
    "seconds",
    "serial_number",
    "whole",
    "word",
]

Run: TypeAlias = Callable[[argparse.Namespace], int | None]
Tasks: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

SESSION_HELP = "an id, its beginning or its end, or @ for the session that was used last"
WHOLE_ID_HELP = "the session's whole id: a part of it, or @, could mean another session"
# What stores and entries take at most, which is known without loading them.
LARGEST_SERIAL = 2**31 - 1
LONGEST_SECONDS = 1e9
LONGEST_WORD = 200
LONGEST_SHOWN = 40  # characters of a wrong value that an error repeats
_MOST_DIGITS = 18  # of a number that fits 64 bits

STORE_HELP = "a SQLite file, or postgresql://… (better in DRAGOMAN_STORE: others can read a command line)"


def add_tasks(parser: argparse.ArgumentParser) -> Tasks:
    """Return the subparsers to which a group of commands adds its own."""
    return parser.add_subparsers(dest="task", required=True, metavar="TASK")


def add_task(tasks: Tasks, name: str, words: str, run: Run) -> argparse.ArgumentParser:
    """Return the parser of one command of a group, with what every command has."""
    parser = tasks.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
    add_common(parser, run)
    return parser


def add_common(parser: argparse.ArgumentParser, run: Run) -> None:
    """Give a command what every command has: the function that it runs, `--debug` and `--color`."""
    parser.set_defaults(run=run)
    # Suppressed, so that what was said before the command is not taken back here.
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show where an error arose")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default=argparse.SUPPRESS, help="when to use colour (auto)"
    )


def add_store(parser: argparse.ArgumentParser) -> None:
    """Give a command `--store`."""
    parser.add_argument("--store", metavar="PLACE", help=STORE_HELP)


def add_model(parser: argparse.ArgumentParser) -> None:
    """Give a command `--model`, once."""
    parser.add_argument("--model", metavar="PROVIDER:NAME", help="the model, e.g. anthropic:claude-sonnet-4-5")


def whole(least: int = 0, most: int | None = None) -> Callable[[str], int]:
    """Return what reads a whole number in these bounds, written in digits alone."""
    words = f"from {least} up" if most is None else f"from {least} to {most:,}"

    def read(text: str) -> int:
        number = read_digits(text.removeprefix("-") if least < 0 else text)
        if number is not None and text.startswith("-"):
            number = -number
        if number is None or number < least or (most is not None and number > most):
            size = f" of at most {_MOST_DIGITS} digits" if len(text) > _MOST_DIGITS else ""
            raise argparse.ArgumentTypeError(f"expected a whole number {words}{size}, got {_shortened(text)}")
        return number

    return read


natural = whole()
serial_number = whole(0, LARGEST_SERIAL)


def read_digits(text: str) -> int | None:
    """Return the number that ASCII digits make; None for any other text, and for more digits than a number here has."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def real(text: str) -> float:
    """Read a number from 0 up."""
    return _real(text, None)


def seconds(text: str) -> float:
    """Read a span of time in seconds, as long as any store takes."""
    return _real(text, LONGEST_SECONDS)


def word(text: str) -> str:
    """Read a name or a key: what a store can look for."""
    if not text.strip() or len(text) > LONGEST_WORD or not text.isprintable():
        words = f"from 1 to {LONGEST_WORD} printable characters"
        raise argparse.ArgumentTypeError(f"expected {words}, got {_shortened(text)}")
    return text


def _real(text: str, most: float | None) -> float:
    import re

    number = float(text) if re.fullmatch(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", text) else -1.0
    if not 0 <= number < float("inf") or (most is not None and number > most):
        words = "from 0 up" if most is None else f"from 0 to {most:,.0f}"
        raise argparse.ArgumentTypeError(f"expected a number {words}, got {_shortened(text)}")
    return number


def _shortened(text: str) -> str:
    from .places import HIDDEN, may_hold_password

    if may_hold_password(text):
        return HIDDEN
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…")
