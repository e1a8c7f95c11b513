"""The command line: what a person types, and what is printed. What a command needs is loaded when it is run.

`COMMANDS` is the table. A command is a module of this package with `add_arguments(parser)`, which gives the parser its
arguments and, by `add_common`, the function that it runs; no module but the chosen one is loaded.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from ..errors import DragomanError, StoreError

__all__ = ["main"]

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130
PIPE_CLOSED = 141  # what a shell reports of a program that a closed pipe ended


class Command(NamedTuple):
    """A command: its line in `dragoman --help`, and the module that has it."""

    words: str
    module: str


COMMANDS: dict[str, Command] = {
    "ask": Command("ask one question and print the answer; a pipe's text goes along", "asking"),
    "chat": Command("talk to a model, or get one answer for a script", "chat.main"),
    "sessions": Command("list, show, fork, verify, export, import and erase sessions", "sessions"),
    "serve": Command("speak the APIs of vendors to other programs, with any model behind", "serving"),
    "inspect": Command("see the record in a browser: timeline, contexts, requests, cost, live runs", "inspecting"),
    "worker": Command("carry requested runs on, until it is told to stop", "working"),
    "runs": Command("request runs, list and show them, approve, deny, abort, try again", "runs"),
    "render": Command("print the exact request that a model would get, or compare those of several", "rendering"),
    "replay": Command("play a recorded stream or a stored run, delta by delta", "replaying"),
    "decode": Command("turn a captured answer of a provider into deltas, or into the message", "decoding"),
    "models": Command("list known models: what they can do, their windows, their prices", "catalogue"),
    "local": Command("fetch, list and serve models that run on this machine", "localmodels"),
    "keys": Command("keep keys of providers in the system's keyring", "keys"),
    "config": Command("show the settings, where they come from, and trust a project's", "configuring"),
    "doctor": Command("say what is there: keys, extras, versions, stores, settings", "doctor"),
    "schema": Command("print the JSON Schema of messages, deltas and entries", "schematext"),
}


# What `dragoman` alone prints.
FIRST_STEPS = """\
One conversation record that any model can carry on. To begin:

  dragoman ask "What is the capital of France?"    one answer; without a key, from a small model on this machine
  dragoman chat                                    talk to a model
  dragoman sessions import ~/.claude/projects      take over what was said elsewhere
  dragoman doctor                                  which keys, extras and stores are there
  dragoman --help                                  all commands
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, or 1 with one or two lines on standard error.

    Raises SystemExit as argparse does: 2 for a command line that makes no sense, 0 after `--help`.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    _make_forgiving()
    if not given:
        sys.stdout.write(FIRST_STEPS)
        return 0
    is_debugging = "--debug" in given
    try:
        chosen = _parser(given).parse_args(given)
        status = chosen.run(chosen) or 0
        sys.stdout.flush()
    except SystemExit:
        _flush_quietly()
        raise
    except BrokenPipeError:
        _flush_quietly()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        _flush_quietly()
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the one place where errors become words
        _flush_quietly()
        _tell(error, is_debugging=is_debugging)
        return FAILED
    return int(status)


class _Parser(argparse.ArgumentParser):
    """Prints a usage error in two lines: what is wrong, and which help to read."""

    _given: Sequence[str] = ()

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]  # its overloads say the same
        """Return what was read, and what a parser of commands leaves to another one."""
        self._given = list(args or ())
        chosen, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:  # else the error would name the help of `dragoman` alone
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return chosen, unknown

    def error(self, message: str) -> NoReturn:
        from .mistyped import meant_by, without_addresses
        from .output import printable

        said, given = without_addresses(message, self._given)
        meant = meant_by(said, self, given)
        words = f"{said}: {meant}" if meant else said
        self.exit(USAGE_ERROR, f"dragoman: {printable(words)}\nsee {self.prog} --help\n")


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command line. Only the commands that it may mean are loaded."""
    parser = _Parser(prog="dragoman", description="One conversation record that any model can carry on.")
    version = vars(sys.modules[__name__.partition(".")[0]])["__version__"]
    parser.add_argument("--version", action="version", version=f"dragoman {version}")
    parser.add_argument("--debug", action="store_true", help="show where an error arose")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        words = command.words
        added = commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        if name in given:
            import_module(f".{command.module}", __name__).add_arguments(added)
    return parser


def _make_forgiving() -> None:
    """Let no character break the output: what a terminal's encoding lacks is written out. Closed output is none."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123  # open to the end
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _flush_quietly() -> None:
    """Write what is left. If the reader has closed the pipe, keep the interpreter from reporting it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        except (OSError, ValueError):
            pass  # standard output is no file


def _tell(error: Exception, *, is_debugging: bool) -> None:
    from .output import printable, warn

    if is_debugging:
        import traceback

        sys.stderr.write(printable("".join(traceback.format_exception(error))))
    warn(_words_of(error))


def _words_of(error: Exception) -> str:
    if isinstance(error, StoreError):
        from .advice import STORE_ADVICE, with_advice

        return with_advice(str(error), STORE_ADVICE.get(error.code, ""))
    if isinstance(error, DragomanError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        where = error.filename if isinstance(error.filename, (str, os.PathLike)) else None
        return f"{os.fspath(where)}: {error.strerror}" if where is not None else str(error.strerror)
    # Its text may hold a prompt or a key.
    return f"this is a mistake in dragoman itself ({type(error).__name__}); --debug shows where"
