"""The table of all settings: key, allowed values, and whether a project file may set it without trust.

Knows no file: `config` reads them, and names file and key in its errors.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..request import ContextConfig
from .arguments import read_digits
from .folders import default_store
from .places import place_mistake, read_place

__all__ = [
    "BY_KEY",
    "SETTINGS",
    "McpServerSettings",
    "ProviderSettings",
    "Setting",
    "Settings",
    "WrongValue",
    "find_setting",
    "is_guarded",
    "make_settings",
    "variable_of",
]

COLORS = ("auto", "always", "never")
THEMES = ("auto", "dark", "light")
POLICIES = ("epochs", "simple")
LEAST_BUDGET = 2_000
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class WrongValue(Exception):
    """A value that its setting does not take; the message says what would be right, and quotes nothing."""


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider is reached. `key_variable` is the name of the environment variable that has the key."""

    base_url: str | None = None
    key_variable: str | None = None
    region: str | None = None
    project: str | None = None
    text_calls: str | None = None
    headers: dict[str, str] = {}


class McpServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server: a command that is started, or the URL of one that runs."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    allow_elicitation: bool = False
    allow_sampling: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is in force, from whichever source. Paths are absolute or as the user typed them."""

    model: str | None = None
    store: str
    instructions: str | None = None
    color: str = "auto"
    theme: str = "auto"
    tools: tuple[str, ...] = ()
    tools_folder: Path | None = None
    context: ContextConfig = ContextConfig()
    providers: dict[str, ProviderSettings] = {}
    mcp_servers: dict[str, McpServerSettings] = {}


class Setting(NamedTuple):
    """One key. `read` takes what a TOML file says, `read_text` what an environment variable says.

    `*` in the key stands for a name. A guarded setting of a project file counts only if the user trusts that file.
    """

    key: str
    words: str
    read: Callable[[object], Any]
    is_guarded: bool = False
    has_variable: bool = True
    is_path: bool = False
    is_secret: bool = False


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise WrongValue("text")
    return value


def _store(value: object) -> str:
    text = _text(value)
    mistake = place_mistake(text)
    if mistake is not None:
        raise WrongValue(mistake)
    return read_place(text)


def _one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise WrongValue(f"one of {', '.join(words)}")
        return str(value)

    return read


def _model(value: object) -> str:
    provider, colon, name = _text(value).partition(":")
    if not colon or not provider or not name:
        raise WrongValue("provider:name, such as anthropic:claude-sonnet-4-5 or local:smollm2")
    return f"{provider}:{name}"


def _count(least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = read_digits(value.strip()) if isinstance(value, str) else value
        if type(number) is not int or number < least:
            raise WrongValue(f"a whole number from {least} up")
        return number

    return read


def _flag(value: object) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    flag = words.get(value.strip().lower()) if isinstance(value, str) else value
    if type(flag) is not bool:
        raise WrongValue("true or false")
    return flag


def _names(value: object) -> tuple[str, ...]:
    listed = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)) or not all(isinstance(each, str) and each for each in listed):
        raise WrongValue("a list of names")
    return tuple(listed)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise WrongValue("a list of texts")
    return tuple(value)


def _pairs(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise WrongValue("a table of names and texts")
    return dict(value)


def _url(value: object) -> str:
    if not isinstance(value, str) or not re.match(r"https?://[^\s/]", value):
        raise WrongValue("a URL that begins with http:// or https://")
    return value


def _variable(value: object) -> str:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise WrongValue("the name of an environment variable, not the key itself")
    return value


_SERVER_FIELDS: dict[str, Callable[[object], Any]] = {
    "command": _text,
    "args": _texts,
    "env": _pairs,
    "cwd": _text,
    "url": _url,
    "headers": _pairs,
    "allow_elicitation": _flag,
    "allow_sampling": _flag,
}


def _server(value: object) -> McpServerSettings:
    """A server is one value: a project's replaces the user's of the same name, whole."""
    if not isinstance(value, dict):
        raise WrongValue("a table with command or url")
    unknown = sorted(set(value) - set(_SERVER_FIELDS))
    if unknown:
        raise WrongValue(f"a table of {', '.join(_SERVER_FIELDS)}; {unknown[0][:40]!r} is none of these")
    fields = {}
    for name, given in value.items():
        try:
            fields[name] = _SERVER_FIELDS[name](given)
        except WrongValue as error:
            raise WrongValue(f"a table in which {name} is {error}") from None
    if ("command" in fields) == ("url" in fields):
        raise WrongValue("a table with either command or url")
    return McpServerSettings(**fields)


SETTINGS: tuple[Setting, ...] = (
    Setting("model", "the model to talk to, as provider:name", _model),
    Setting(
        "store", "where sessions are kept: a SQLite file, or postgresql://…", _store, is_guarded=True, is_path=True
    ),
    Setting("instructions", "the system instruction of new sessions", _text),
    Setting("color", "auto, always or never", _one_of(*COLORS)),
    Setting("theme", "the colours of the chat: auto, dark or light", _one_of(*THEMES)),
    Setting("tools", "the built-in tools that the chat may use", _names, is_guarded=True),
    Setting("tools_folder", "the folder to which file tools are confined", _text, is_guarded=True, is_path=True),
    Setting("context.budget_tokens", "how large a request may get", _count(LEAST_BUDGET)),
    Setting("context.output_reserve", "how much of a model's window is left for its answer", _count(0)),
    Setting("context.policy", "epochs or simple", _one_of(*POLICIES)),
    Setting("context.recall", "whether the model may ask for what was folded", _flag),
    Setting("providers.*.base_url", "where the provider is", _url, is_guarded=True, has_variable=False),
    Setting(
        "providers.*.key_variable", "the variable that has the key", _variable, is_guarded=True, has_variable=False
    ),
    Setting("providers.*.region", "the region of a cloud", _text, is_guarded=True, has_variable=False),
    Setting("providers.*.project", "the project of a cloud", _text, is_guarded=True, has_variable=False),
    Setting(
        "providers.*.text_calls",
        "json or xml: its models write their calls as text",
        _one_of("json", "xml"),
        is_guarded=True,
        has_variable=False,
    ),
    Setting("providers.*.headers", "further headers", _pairs, is_guarded=True, has_variable=False, is_secret=True),
    Setting("mcp_servers.*", "an MCP server", _server, is_guarded=True, has_variable=False, is_secret=True),
)
BY_KEY: dict[str, Setting] = {setting.key: setting for setting in SETTINGS}


def variable_of(setting: Setting) -> str:
    """Return the environment variable of a setting."""
    return "DRAGOMAN_" + setting.key.upper().replace(".", "_")


def is_guarded(setting: Setting, value: object) -> bool:
    """Whether a project file may set this only if the user trusts it."""
    # A file of weights is read by native code: a repository must not bring one along unasked.
    is_model_file = setting.key == "model" and isinstance(value, str) and bool(re.match(r"local:.*[/\\.]", value))
    return setting.is_guarded or is_model_file


def find_setting(key: tuple[str, ...]) -> Setting | None:
    """Return the setting of a key whose second part may be a name; None if there is none."""
    exact = BY_KEY.get(".".join(key))
    if exact is not None or len(key) < 2 or not _NAME.fullmatch(key[1]):
        return exact
    return BY_KEY.get(".".join((key[0], "*", *key[2:])))


def make_settings(values: Mapping[str, Any]) -> Settings:
    """Return the settings of checked values by their dotted keys."""
    plain: dict[str, Any] = {"store": str(default_store())}
    context: dict[str, Any] = {}
    providers: dict[str, dict[str, Any]] = {}
    servers: dict[str, McpServerSettings] = {}
    for key, value in values.items():
        group, _, rest = key.partition(".")
        if group == "context":
            context[rest] = value
        elif group == "providers":
            name, _, field = rest.rpartition(".")
            providers.setdefault(name, {})[field] = value
        elif group == "mcp_servers":
            servers[rest] = value
        else:
            plain[key] = Path(value) if key == "tools_folder" else value
    return Settings(
        **plain,
        context=ContextConfig(**context),
        providers={name: ProviderSettings(**fields) for name, fields in providers.items()},
        mcp_servers=servers,
    )
