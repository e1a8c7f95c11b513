"""Imports the registry of a worker's agents from a module of the user, and says what is wrong in that module.

The words of an exception may hold a key or a prompt: its type and its place are told, and `--debug` shows the rest.
"""

import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import DragomanError, ErrorCode, InvalidValue, type_name
from .stopping import Stopped

if TYPE_CHECKING:
    from ..durable import Agents

__all__ = ["load_agents"]


class Place(NamedTuple):
    """A line that was under way when an exception was raised, and the name of its module."""

    file: str
    line: int
    module: str


def load_agents(named: str) -> "Agents":
    """Return the registry that is named as `package.module:name`; raise InvalidValue or DragomanError."""
    from ..durable import Agents

    module_name, colon, name = named.partition(":")
    if not colon or not name or not all(module_name.split(".")):
        raise InvalidValue.of("--agents", named, "a module and a name in it, such as app.agents:agents")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  # as `python -m` does
    found = _import(named, module_name, name)
    if not isinstance(found, Agents):
        seen = "has no such name" if found is None else f"has a {type(found).__name__} of that name"
        raise InvalidValue(f"--agents {named}: the module {seen}; give it {name} = Agents({{…}})")
    return found


def _import(named: str, module_name: str, name: str) -> Any:
    from importlib import import_module

    try:
        return getattr(import_module(module_name), name, None)
    except (Stopped, KeyboardInterrupt):
        raise
    except BaseException as error:  # another's code
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            raise DragomanError(_words_of_absence(module_name, error.name), code=ErrorCode.NOT_FOUND) from error
        words = f"importing {module_name} raised {type_name(error)}{_place_words(error, module_name)}"
        raise DragomanError(f"--agents {named}: {words}", code=ErrorCode.INVALID_REQUEST) from error


def _words_of_absence(module_name: str, missing: str) -> str:
    if f"{module_name}.".startswith(f"{missing}."):
        return f"there is no module {missing!r} here: start the worker in its folder, or set PYTHONPATH"
    return f"{module_name} needs the module {missing!r}: install it"


def _place_words(error: BaseException, module_name: str) -> str:
    """Say where an exception was raised, and what is known of it without its words."""
    places = [
        Place(frame.f_code.co_filename, line, str(frame.f_globals.get("__name__")))
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    package = module_name.partition(".")[0]
    users = [place for place in places if _is_users(place.file)]
    installed = [place for place in places if place.module.partition(".")[0] == package]
    where = next(reversed(users or installed), None)
    if isinstance(error, SyntaxError) and error.filename and error.lineno and not error.filename.startswith("<"):
        where = Place(error.filename, error.lineno, "")
    at = "" if where is None else f" at {_shown(where.file)}:{where.line}"
    if isinstance(error, DragomanError):
        return f"{at}: {error}"  # our own words hold no secret
    if isinstance(error, KeyError) and places[-1].module == "os" and len(error.args) == 1:
        return f"{at}: the environment variable {error.args[0]!r} is not set"
    return f"{at}; --debug shows the traceback"


def _is_users(file: str) -> bool:
    """Whether a file is neither of Python, nor of an installed package, nor of this one."""
    paths = sysconfig.get_paths()
    others = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {str(Path(__file__).parents[1])}
    return not file.startswith("<") and not any(file.startswith(f"{folder}{os.sep}") for folder in others)


def _shown(file: str) -> str:
    """A path as it is typed in the current folder, where the file is below it."""
    here = f"{Path.cwd()}{os.sep}"
    return file.removeprefix(here)
