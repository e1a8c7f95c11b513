"""What a person probably meant by a command line that makes no sense. Loaded only when there is one."""

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise

from .._nearest import nearest
from .places import HIDDEN, may_hold_password

__all__ = ["meant_by", "without_addresses"]

LONGEST_QUOTED = 60  # characters of a value that advice repeats
MOST_LETTERS = 8  # of options that are given as one, as in -abc

_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
_UNKNOWN = re.compile(r"unrecognized arguments: .*?(--[\w-]+)")
_WITHOUT_VALUE = re.compile(r"argument (\S+): expected (?:one|at least one) argument")
_OPTION = re.compile(r"(--?[A-Za-z][\w-]*=)(.*)", re.DOTALL)


def without_addresses(message: str, given: Sequence[str]) -> tuple[str, list[str]]:
    """Return a usage error and the arguments that it may quote, with every address of a store in them hidden.

    An address may hold a password, and may be given in any place, as after a forgotten `--store`.
    """
    hidden = {text: shown for each in given for text, shown in _hidden_texts(each)}
    for text in sorted(hidden, key=len, reverse=True):  # a text may be part of a longer one
        message = message.replace(repr(text), hidden[text]).replace(text, hidden[text])
    return message, [hidden.get(each, each) for each in given]


def _hidden_texts(argument: str) -> Iterator[tuple[str, str]]:
    """Yield what an error may quote of an argument that may hold a password, and what is shown instead."""
    option = _OPTION.fullmatch(argument)
    if option is not None and (may_hold_password(option[2]) or may_hold_password(argument)):
        yield argument, f"{option[1]}{HIDDEN}"
        yield option[2], HIDDEN
    elif may_hold_password(argument):
        yield argument, HIDDEN
        if argument.startswith("-"):  # letters of options may come before a value
            for start in range(1, min(len(argument), MOST_LETTERS)):
                if may_hold_password(argument[start:]):
                    yield argument[start:], HIDDEN


def meant_by(message: str, parser: argparse.ArgumentParser, given: Sequence[str]) -> str:
    """Return what can be done about a usage error of this parser, to which these arguments were given; or nothing."""
    chosen = _CHOICE.search(message)
    if chosen is not None:
        return nearest(chosen[1], re.findall(r"[\w-]+", chosen[2]))
    unknown = _UNKNOWN.search(message)
    near = "" if unknown is None else nearest(unknown[1], _all_options(parser))
    return near or _about_dashes(message, parser, given)


def _all_options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options of a parser, and of the commands that the command line may mean."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _all_options(each)


def _about_dashes(message: str, parser: argparse.ArgumentParser, given: Sequence[str]) -> str:
    """Say how a value is given that begins with a dash, if there is one: it was taken for an option."""
    options = {option for action in parser._actions for option in action.option_strings}
    without_value = _WITHOUT_VALUE.match(message)
    if without_value is not None:
        return _about_value(without_value[1].split("/"), options, given)
    dashed = [each for each in _before_separator(given) if each[:1] == "-" and each != "-" and each not in options]
    is_lacking = message.startswith("the following arguments are required: ")
    if not dashed or not (is_lacking or message.startswith("unrecognized arguments: ")):
        return ""
    # A value that must be given is lacking; one that may be left out was not recognized.
    texts = [
        action.dest
        for action in parser._actions
        if not action.option_strings and not isinstance(action.choices, dict)
        if is_lacking is (action.nargs not in ("?", "*"))
    ]
    return f"put `--` before a {texts[0]} that begins with a dash" if texts else ""


def _about_value(names: Sequence[str], options: set[str], given: Sequence[str]) -> str:
    """Say how the value of an option is given that begins with a dash, if one stands after it."""
    for name, value in pairwise(given):
        if name in names and value[:1] == "-" and value not in ("-", "--", *options):
            shown = value if len(value) <= LONGEST_QUOTED else f"{value[:LONGEST_QUOTED]}…"
            long_name = max(names, key=len)
            return f"a value that begins with a dash is given as {shlex.quote(f'{long_name}={shown}')}"
    return ""


def _before_separator(given: Sequence[str]) -> Iterator[str]:
    for each in given:
        if each == "--":
            return
        yield each
