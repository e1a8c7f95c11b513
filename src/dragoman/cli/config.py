"""The settings in force: the user's file, a project's file over it, the environment over that, options over all.

    defaults < config.toml < dragoman.toml < DRAGOMAN_… < options

A project file is whatever a cloned repository brings along. What it says about addresses, headers, commands, tools,
keys and stores counts only if the user trusts it (`dragoman config trust`); else it is named and ignored.
"""

import argparse
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from .._nearest import nearest
from ..errors import InvalidValue, redact
from .folders import CONFIG_VARIABLE, config_file
from .output import warn
from .places import is_address, shown_place
from .settings import (
    BY_KEY,
    SETTINGS,
    McpServerSettings,
    Setting,
    Settings,
    WrongValue,
    find_setting,
    is_guarded,
    make_settings,
    variable_of,
)
from .trust import is_trusted

__all__ = [
    "PROJECT_FILE",
    "ConfigFile",
    "Configuration",
    "configured",
    "find_project_file",
    "load_configuration",
    "read_config_file",
    "shown_value",
]

PROJECT_FILE = "dragoman.toml"
LARGEST_FILE = 1 << 20
# What begins with DRAGOMAN_ and is no setting.
OTHER_VARIABLES = frozenset(
    {"DRAGOMAN_CACHE", "DRAGOMAN_CONFIG", "DRAGOMAN_LIVE", "DRAGOMAN_POSTGRES", "DRAGOMAN_SERVE_KEY"}
)


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of settings: where it is, what was in it, and its values by their dotted keys."""

    path: Path
    data: bytes
    values: dict[str, Any]

    @property
    def guarded(self) -> dict[str, Any]:
        """What a project file may set only if it is trusted."""
        return {key: value for key, value in self.values.items() if is_guarded(_setting(key), value)}


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, where each of them comes from, and what a project file asked for and did not get.

    `sources` has the dotted keys of what was set anywhere; all others are defaults.
    """

    settings: Settings
    values: dict[str, Any]
    sources: dict[str, str]
    user_file: Path
    has_user_file: bool
    project: ConfigFile | None = None
    is_trusted: bool = False
    unknown_variables: tuple[str, ...] = ()

    @property
    def ignored(self) -> tuple[str, ...]:
        """The keys of the project file that do not count until it is trusted."""
        return () if self.project is None or self.is_trusted else tuple(self.project.guarded)

    @property
    def warning(self) -> str | None:
        """One line about what is ignored and what to do, if anything is."""
        if not self.ignored or self.project is None:
            return None
        listed = ", ".join(self.ignored)
        folder = self.project.path.parent
        return f"{self.project.path}: ignored until you trust it: {listed} (dragoman config trust {folder})"


def configured(chosen: argparse.Namespace, **options: Any) -> Settings:
    """Return the settings for a command; print to standard error which settings and variables are ignored.

    The options of the command that are settings (`--store`, `--model`, `--color`) count, and those that are given here.
    """
    given = {name: getattr(chosen, name, None) for name in ("store", "model", "color")}
    configuration = load_configuration({**given, **options})
    if configuration.warning:
        warn(configuration.warning)
    for name in configuration.unknown_variables:
        hint = nearest(name, sorted(_variables()), "`dragoman config show` lists the settings")
        warn(f"{name} is set and means nothing here; {hint}")
    return configuration.settings


def load_configuration(
    options: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Configuration:
    """Return what is in force in a folder, by default the current one. `options` have dotted keys; None is not given.

    Raises InvalidValue, which names the file and the key, for an unknown setting or a wrong value.
    """
    environment = os.environ if environment is None else environment
    user_path = config_file()
    user = read_config_file(user_path) if user_path.is_file() or CONFIG_VARIABLE in environment else None
    project_path = find_project_file(folder or Path.cwd())
    project = read_config_file(project_path) if project_path is not None else None
    is_project_trusted = project is not None and (not project.guarded or is_trusted(project.path, project.data))

    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    layers: list[tuple[str, dict[str, Any]]] = []
    if user is not None:
        layers.append((str(user.path), user.values))
    if project is not None:
        refused = () if is_project_trusted else project.guarded
        layers.append((str(project.path), {key: project.values[key] for key in project.values if key not in refused}))
    layers += [(name, {key: value}) for name, key, value in _from_environment(environment)]
    layers.append(("an option", _checked_options(options or {})))
    for source, layer in layers:
        values.update(layer)
        sources.update(dict.fromkeys(layer, source))
    return Configuration(
        settings=make_settings(values),
        values=values,
        sources=sources,
        user_file=user_path,
        has_user_file=user is not None,
        project=project,
        is_trusted=is_project_trusted,
        unknown_variables=_unknown_variables(environment),
    )


def find_project_file(folder: Path) -> Path | None:
    """Return the nearest project file, in the folder or above it; None if there is none."""
    here = folder.resolve()
    for each in (here, *here.parents):
        path = each / PROJECT_FILE
        try:
            if path.is_file():
                return path
        except OSError:
            continue  # a folder that may not be looked into has nothing for us
    return None


def read_config_file(path: Path) -> ConfigFile:
    """Return what a file of settings says; raise InvalidValue, which names file and key, where it is none."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidValue(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > LARGEST_FILE:
        raise InvalidValue(f"{path} is no file of settings: it is larger than {LARGEST_FILE} bytes")
    try:
        table = tomllib.loads(data.decode())
    except UnicodeDecodeError:
        raise InvalidValue(f"{path} is no TOML: it is not UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidValue(f"{path} is no TOML: {_short(str(error))}") from None
    values: dict[str, Any] = {}
    _read_table(table, (), path, values)
    return ConfigFile(path=path, data=data, values=values)


def shown_value(key: str, value: Any) -> str:
    """Return a value as it may be shown: of headers and variables the names alone, no password."""
    from .output import json_text

    if isinstance(value, McpServerSettings):
        fields = {name: getattr(value, name) for name in value.__struct_fields__ if getattr(value, name)}
        for secret in ("env", "headers"):
            if secret in fields:
                fields[secret] = sorted(fields[secret])
        return redact(json_text(fields))
    if _setting(key).is_secret:
        return json_text(sorted(value))
    if _setting(key).is_path:
        return json_text(shown_place(value))
    return redact(json_text(value))


def _read_table(table: dict[str, Any], above: tuple[str, ...], path: Path, values: dict[str, Any]) -> None:
    for name, value in table.items():
        key = (*above, name)
        dotted = ".".join(key)
        setting = find_setting(key)
        if setting is not None:
            values[dotted] = _resolved(setting, _read(setting, value, f"{path}: {dotted}"), path.parent)
        elif _has_below(key):
            if not isinstance(value, dict):
                raise InvalidValue(f"{path}: {_short(dotted)} must be a table, got a {type(value).__name__}")
            if len(key) == 2 and key[0] == "providers":
                _require_provider(name, path)
            _read_table(value, key, path, values)
        else:
            raise _unknown(key, path)


def _has_below(key: tuple[str, ...]) -> bool:
    """Whether there are settings whose keys begin like this."""
    return any(
        len(parts) > len(key) and all(part in ("*", each) for part, each in zip(parts, key, strict=False))
        for parts in (setting.key.split(".") for setting in SETTINGS)
    )


def _unknown(key: tuple[str, ...], path: Path) -> InvalidValue:
    dotted = ".".join(key)
    if key[-1].replace("-", "_").lower() in ("api_key", "key", "apikey", "token"):
        return InvalidValue(
            f"{path}: keys are not kept in files: put it into an environment variable, "
            f'and if that has no usual name, name it here: [providers.NAME] key_variable = "VARIABLE"'
        )
    siblings = sorted(
        {
            parts[len(key) - 1]
            for parts in (setting.key.split(".") for setting in SETTINGS)
            if len(parts) >= len(key) and all(part in ("*", each) for part, each in zip(parts, key[:-1], strict=False))
        }
        - {"*"}
    )
    otherwise = f"known here: {', '.join(siblings)}" if siblings else "see docs/cli.md"
    hint = nearest(key[-1], siblings, otherwise)
    return InvalidValue(f"{path}: there is no setting {_short(dotted)!r}: {hint}")


def _require_provider(name: str, path: Path) -> None:
    from ..wire import PROVIDERS

    if name not in PROVIDERS:
        hint = nearest(name, PROVIDERS, "`dragoman doctor` lists them")
        raise InvalidValue(f"{path}: there is no provider {_short(name)!r}: {hint}")


def _read(setting: Setting, value: object, where: str) -> Any:
    try:
        return setting.read(value)
    except WrongValue as error:
        is_shown = isinstance(value, (int, float, str)) and not setting.is_guarded and len(repr(value)) < 60
        got = repr(value) if is_shown else f"a {type(value).__name__}"
        raise InvalidValue(f"{where} must be {error}, got {got}") from None


def _resolved(setting: Setting, value: Any, folder: Path) -> Any:
    """A path in a file is meant from where the file is; so is the folder in which a server is started."""
    if isinstance(value, McpServerSettings):
        return value if value.cwd is None else msgspec.structs.replace(value, cwd=_path(value.cwd, folder))
    if setting.is_path and not is_address(value):
        return _path(value, folder)
    return value


def _path(text: str, folder: Path) -> str:
    return str(folder.resolve() / Path(text).expanduser())


def _from_environment(environment: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    found = []
    for setting in SETTINGS:
        name = variable_of(setting)
        given = environment.get(name) if setting.has_variable else None
        if given:
            found.append((name, setting.key, _expanded(setting, _read(setting, given, name))))
    return found


def _unknown_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in environment if name.startswith("DRAGOMAN_") and name not in _variables()))


def _variables() -> set[str]:
    return {variable_of(setting) for setting in SETTINGS if setting.has_variable} | OTHER_VARIABLES


def _checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in options.items() if value is not None}
    return {
        key: _expanded(BY_KEY[key], _read(BY_KEY[key], value, f"--{key.rpartition('.')[2].replace('_', '-')}"))
        for key, value in given.items()
    }


def _expanded(setting: Setting, value: Any) -> Any:
    return str(Path(value).expanduser()) if setting.is_path and not is_address(value) else value


def _setting(key: str) -> Setting:
    group, _, rest = key.partition(".")
    name, _, field = rest.rpartition(".")
    parts = (group, name, field) if group == "providers" else (group, rest) if rest else (group,)
    setting = find_setting(parts)
    assert setting is not None  # only keys of settings are kept
    return setting


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"
