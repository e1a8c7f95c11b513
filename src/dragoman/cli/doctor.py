"""`dragoman doctor`: what is there and what is broken. Of keys it says that they are set, and never a character.

Touches no network, unless the store is a database elsewhere.
"""

import argparse
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from ..errors import DragomanError
from .arguments import add_common, add_store
from .output import Output, one_line

if TYPE_CHECKING:
    from ..store import SessionStore
    from .config import Configuration

__all__ = ["add_arguments"]

PACKAGE = "dragoman"
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)")
# What the clouds' own libraries look for; they find credentials elsewhere, too.
_CLOUD_VARIABLES = {
    "AWS_ACCESS_KEY_ID": ("bedrock", "anthropic-bedrock"),
    "AWS_PROFILE": ("bedrock", "anthropic-bedrock"),
    "GOOGLE_APPLICATION_CREDENTIALS": ("google-vertex", "anthropic-vertex"),
}
_HIDDEN_EXTRAS = frozenset({"dev"})  # for those who work on dragoman itself
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    add_common(parser, examine)
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def examine(chosen: argparse.Namespace) -> int:
    """Print what is there; 1 if something is broken."""
    from .config import load_configuration

    problems: list[str] = []
    configuration: Configuration | None = None
    try:
        configuration = load_configuration({"store": chosen.store})
    except DragomanError as error:
        problems.append(str(error))
    location = configuration.settings.store if configuration is not None else _typed_store(chosen.store)
    found = {
        "versions": _versions(),
        "settings": _settings(configuration),
        "providers": _providers(),
        "keys": _keys(configuration),
        "extras": _extras(),
        "store": _store(location, problems),
        "local": _local(),
        "terminal": _terminal(),
        "problems": problems,
    }
    output = Output(color=getattr(chosen, "color", None) or "auto")
    if chosen.json:
        output.json(found)
    else:
        _write(output, found)
    return 1 if problems else 0


# ---------------------------------------------------------------- what is there


def _versions() -> dict[str, str]:
    import platform
    import sqlite3

    return {
        PACKAGE: vars(sys.modules[PACKAGE])["__version__"],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "sqlite": sqlite3.sqlite_version,
    }


def _settings(configuration: "Configuration | None") -> dict[str, Any]:
    from .folders import config_file

    if configuration is None:
        return {"userFile": str(config_file()), "userFileIsThere": config_file().is_file()}
    found: dict[str, Any] = {
        "userFile": str(configuration.user_file),
        "userFileIsThere": configuration.has_user_file,
        "model": configuration.settings.model,
        "unknownVariables": list(configuration.unknown_variables),
    }
    if configuration.project is not None:
        found["projectFile"] = str(configuration.project.path)
        found["projectIsTrusted"] = configuration.is_trusted
        found["ignored"] = list(configuration.ignored)
    return found


def _providers() -> list[str]:
    from ..wire import PROVIDERS

    return sorted(PROVIDERS)


def _keys(configuration: "Configuration | None") -> list[dict[str, Any]]:
    """Each variable that may have a key, whether it is set, and whose it is."""
    from ..wire import PROVIDERS, find_dialect

    owners: dict[str, list[str]] = {variable: list(providers) for variable, providers in _CLOUD_VARIABLES.items()}
    for provider in PROVIDERS:
        for variable in find_dialect(provider).key_variables:
            owners.setdefault(variable, []).append(provider)
    if configuration is not None:
        for provider, settings in configuration.settings.providers.items():
            if settings.key_variable is not None:
                owners.setdefault(settings.key_variable, []).append(provider)
    return [
        {"variable": variable, "isSet": bool(os.environ.get(variable)), "providers": providers}
        for variable, providers in sorted(owners.items())
    ]


def _extras() -> dict[str, dict[str, str | None]]:
    """The packages of each extra with their versions, None where one is not installed."""
    from importlib.metadata import PackageNotFoundError, distribution, version

    try:
        requirements = distribution(PACKAGE).requires or []
    except PackageNotFoundError:
        return {}
    extras: dict[str, dict[str, str | None]] = {}
    for requirement in requirements:
        name, extra = _REQUIREMENT.match(requirement), _EXTRA.search(requirement)
        if name is None or extra is None or name[1] == PACKAGE or extra[1] in _HIDDEN_EXTRAS:
            continue
        try:
            installed: str | None = version(name[1])
        except PackageNotFoundError:
            installed = None
        extras.setdefault(extra[1], {})[name[1]] = installed
    return dict(sorted(extras.items()))


def _typed_store(typed: str | None) -> str:
    """The store to look at where the settings cannot be read: that of the option, unless that is the mistake."""
    from .folders import default_store
    from .places import place_mistake, read_place

    return read_place(typed) if typed and place_mistake(typed) is None else str(default_store())


def _store(location: str, problems: list[str]) -> dict[str, Any]:
    from pathlib import Path

    from .places import is_address, shown_place
    from .stores import each_session, with_store

    found: dict[str, Any] = {"location": shown_place(location)}
    if not is_address(location):
        found["isThere"] = Path(location).is_file()
        if not found["isThere"]:
            return found
        found["bytes"] = Path(location).stat().st_size

    async def count(store: "SessionStore") -> tuple[int, int]:
        sessions = damaged = 0
        async for info in each_session(store):
            sessions += 1
            damaged += isinstance(info, str)
        return sessions, damaged

    try:
        found["sessions"], damaged = with_store(location, count)
    except DragomanError as error:
        problems.append(f"store {shown_place(location)}: {error}")
        return found
    if damaged:
        problems.append(f"store {shown_place(location)}: {damaged} sessions are damaged: dragoman sessions verify")
    return found


def _local() -> list[dict[str, Any]]:
    from ..local import KNOWN_WEIGHTS

    return [
        {"name": weights.name, "path": str(weights.path), "isFetched": weights.is_here}
        for weights in KNOWN_WEIGHTS.values()
    ]


def _terminal() -> dict[str, Any]:
    from .output import wants_color

    output = Output()
    return {
        "isTerminal": output.is_terminal,
        "columns": output.width,
        "encoding": getattr(sys.stdout, "encoding", None),
        "color": wants_color(sys.stdout),
    }


# ---------------------------------------------------------------- what is printed


def _write(output: Output, found: dict[str, Any]) -> None:
    _section(output, "versions", [f"{name} {version}" for name, version in found["versions"].items()])
    _section(output, "settings", _settings_lines(found["settings"]))
    _section(output, "providers", [", ".join(found["providers"])])
    keys = [f"{key['variable']}: {', '.join(key['providers'])}" for key in found["keys"] if key["isSet"]]
    absent = [key["variable"] for key in found["keys"] if not key["isSet"]]
    _section(output, "keys that are set", keys or ["none"])
    _section(output, "keys that are not set", [", ".join(absent)] if absent else ["none"])
    _section(output, "extras", [_extra_line(extra, packages) for extra, packages in found["extras"].items()])
    _section(output, "store", [f"{found['store']['location']}: {_store_words(found['store'])}"])
    local = [f"local:{each['name']}: {'fetched' if each['isFetched'] else 'not fetched'}" for each in found["local"]]
    _section(output, "models on this machine", local)
    terminal = found["terminal"]
    color = "colour" if terminal["color"] else "no colour"
    _section(output, "terminal", [f"{terminal['columns']} columns, {terminal['encoding']}, {color}"])
    if found["problems"]:
        output.line("problems", "bold red")
        for problem in found["problems"]:
            output.line(f"  {one_line(problem)}", "red")
    else:
        output.line("no problems", "green")


def _section(output: Output, title: str, lines: list[str]) -> None:
    from .output import wrapped

    output.line(title, "bold")
    for line in lines:
        for piece in wrapped(line, output.width - 2) if output.is_terminal else [line]:
            output.line(f"  {piece}")


def _settings_lines(settings: dict[str, Any]) -> list[str]:
    lines = [settings["userFile"] + ("" if settings["userFileIsThere"] else " (not there)")]
    if "projectFile" in settings:
        trusted = "nothing in it needs trust, or it is trusted" if settings["projectIsTrusted"] else "NOT trusted"
        lines.append(f"{settings['projectFile']} ({trusted})")
    if settings.get("ignored"):
        lines.append(f"ignored until it is trusted: {', '.join(settings['ignored'])}")
    if settings.get("model"):
        lines.append(f"model {settings['model']}")
    return lines + [f"{name} is set and means nothing" for name in settings.get("unknownVariables", ())]


def _store_words(store: dict[str, Any]) -> str:
    if "sessions" in store:
        return "1 session" if store["sessions"] == 1 else f"{store['sessions']} sessions"
    return "not there yet" if store.get("isThere") is False else "cannot be read"


def _extra_line(extra: str, packages: dict[str, str | None]) -> str:
    missing = [name for name, version in packages.items() if version is None]
    if not missing:
        return f"{extra}: " + ", ".join(f"{name} {version}" for name, version in packages.items())
    return f"{extra}: not installed: {', '.join(missing)} (pip install 'dragoman[{extra}]')"
