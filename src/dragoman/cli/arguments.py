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
    "real",
]

Run: TypeAlias = Callable[[argparse.Namespace], int | None]
Tasks: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

SESSION_HELP = "an id, its beginning or its end, or @ for the session that was used last"
WHOLE_ID_HELP = "the session's whole id: a part of it, or @, could mean another session"
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


def natural(text: str) -> int:
    """Read a whole number from 0 up."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 up, got {text!r}")
    return number


def real(text: str) -> float:
    """Read a number from 0 up."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number from 0 up, got {text!r}")
    return number
