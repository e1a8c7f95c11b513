"""`dragoman keys`: keys of providers in the system's keyring, for the commands of this program.

A key is kept under the name of its environment variable, service `dragoman`. A variable that is set counts more. The
library itself reads the environment alone: to ask a keyring may open a window, which a program should decide.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._nearest import nearest
from ..errors import DragomanError, ErrorCode, InvalidValue, MissingExtra
from .arguments import add_task, add_tasks
from .output import Output

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["add_arguments", "stored_key"]

SERVICE = "dragoman"
LONGEST_KEY = 16_384  # as a header takes it
NAME_HELP = "a provider, or the environment variable of its key: openai, OPENAI_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    tasks = add_tasks(parser)
    setting = add_task(tasks, "set", "keep a key; it is asked for, or read from a pipe", set_key)
    setting.add_argument("name", help=NAME_HELP)
    removing = add_task(tasks, "remove", "forget a key", remove_key)
    removing.add_argument("name", help=NAME_HELP)
    listing = add_task(tasks, "list", "list the keys that are kept, and never a character of them", list_keys)
    listing.add_argument("--json", action="store_true", help="as JSON")


def set_key(chosen: argparse.Namespace) -> None:
    """Keep a key under the name of its variable."""
    variable = _variable(chosen.name)
    keyring = _keyring(variable)
    key = _read_key(variable)
    _ask(keyring.set_password, variable, key)
    Output().line(f"kept as {variable}; a variable of that name in the environment counts more")


def remove_key(chosen: argparse.Namespace) -> None:
    """Forget a key; raise DragomanError if none is kept."""
    variable = _variable(chosen.name)
    keyring = _keyring(variable)
    if _ask(keyring.get_password, variable) is None:
        raise DragomanError(f"no key is kept as {variable}", code=ErrorCode.NOT_FOUND)
    _ask(keyring.delete_password, variable)
    Output().line(f"forgotten: {variable}")


def list_keys(chosen: argparse.Namespace) -> None:
    """Print the names of the keys that are kept."""
    variables = _known_variables()
    keyring = _keyring(variables[0])
    kept = [variable for variable in variables if _ask(keyring.get_password, variable) is not None]
    output = Output()
    if chosen.json:
        output.json([{"name": variable, "isOverridden": bool(os.environ.get(variable))} for variable in kept])
        return
    for variable in kept:
        output.line(
            f"{variable}  (the environment has another, which counts)" if os.environ.get(variable) else variable
        )
    if not kept:
        output.line("none; keep one with: dragoman keys set NAME")


def stored_key(variables: Iterable[str]) -> str | None:
    """Return the first key that is kept under one of these names; None where no keyring can be asked."""
    try:
        import keyring
    except ImportError:
        return None
    for variable in variables:
        try:
            key = keyring.get_password(SERVICE, variable)
        except Exception:  # noqa: BLE001  # another's code: none on this machine, locked, broken: as if it had no key
            return None
        if key:
            return key
    return None


def _variable(name: str) -> str:
    """The environment variable of a provider's key, or that name itself; raise InvalidValue if no provider has it."""
    from ..wire import PROVIDERS, find_dialect

    known = _known_variables()
    if name in known:
        return name
    if name in PROVIDERS and (variables := find_dialect(name).key_variables):
        return variables[0]
    meant = nearest(name, [*PROVIDERS, *known], "dragoman doctor lists the names")
    raise InvalidValue(f"no provider takes a key called {name!r}; {meant}")


def _known_variables() -> list[str]:
    from ..wire import PROVIDERS, find_dialect

    return sorted({variable for provider in PROVIDERS for variable in find_dialect(provider).key_variables})


def _keyring(variable: str) -> "ModuleType":
    try:
        import keyring
    except ImportError:
        words = f"a keyring (without one: export {variable}=… in the shell's own file)"
        raise MissingExtra(words, "keyring") from None
    return keyring


def _ask(action: Any, variable: str, *key: str) -> Any:
    """What the keyring does; raise DragomanError without a character of the key where it cannot."""
    try:
        return action(SERVICE, variable, *key)
    except Exception as error:  # noqa: BLE001  # another's code, whose words may hold the key
        raise DragomanError(
            f"this machine's keyring cannot be used ({type(error).__name__}): export {variable}=… instead",
            code=ErrorCode.UNSUPPORTED,
        ) from None


def _read_key(variable: str) -> str:
    """The key that a person types, unseen, or that a pipe holds."""
    from getpass import getpass

    key = getpass(f"{variable}: ") if sys.stdin.isatty() else sys.stdin.read(LONGEST_KEY + 2)
    key = key.strip()
    if not key or not key.isprintable() or not key.isascii() or len(key) > LONGEST_KEY:
        raise InvalidValue(
            f"a key is one line of printable ASCII, of at most {LONGEST_KEY:,} characters, and not empty"
        )
    return key
