"""`dragoman config`: what is in force and where it comes from, where the files are, which projects are trusted."""

import argparse
import json
from pathlib import Path

from ..errors import DragomanError, ErrorCode
from .arguments import add_common, add_task, add_tasks
from .config import PROJECT_FILE, ConfigFile, find_project_file, load_configuration, read_config_file, shown_value
from .folders import config_file
from .output import Output
from .settings import SETTINGS
from .trust import distrust, is_trusted, trust, trusted_files

__all__ = ["add_arguments"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    tasks = add_tasks(parser)
    show = add_task(tasks, "show", "print the settings in force here, and where each comes from", show_settings)
    show.add_argument("--json", action="store_true", help="as JSON")
    add_task(tasks, "path", "print where the files of settings are", print_paths)
    words = "let a project's file set addresses, headers, commands, tools, keys and stores, as it is now"
    trusting = tasks.add_parser("trust", help=words, description=f"{words[0].upper()}{words[1:]}.")
    add_common(trusting, trust_project)
    trusting.add_argument("folder", nargs="?", type=Path, help=f"the folder that has the {PROJECT_FILE} (the nearest)")
    other = trusting.add_mutually_exclusive_group()
    other.add_argument("--remove", action="store_true", help="trust it no longer")
    other.add_argument("--list", action="store_true", help="print the files that are trusted")


def show_settings(chosen: argparse.Namespace) -> None:
    """Print the settings in force and their sources."""
    configuration = load_configuration({"color": getattr(chosen, "color", None)})
    output = Output(color=configuration.settings.color)
    shown = {key: shown_value(key, value) for key, value in configuration.values.items()}
    if chosen.json:
        output.json(
            {
                "settings": {
                    key: {"value": json.loads(text), "source": configuration.sources[key]}
                    for key, text in sorted(shown.items())
                },
                "ignored": list(configuration.ignored),
                "unknownVariables": list(configuration.unknown_variables),
            }
        )
        return
    order = [setting.key.split(".")[0] for setting in SETTINGS]
    for key in sorted(shown, key=lambda each: (order.index(each.split(".")[0]), each)):
        output.write(f"{key} = {shown[key]}")
        output.line(f"  # {configuration.sources[key]}", "dim")
    if "store" not in shown:
        output.write(f'store = "{configuration.settings.store}"')
        output.line("  # default", "dim")
    for name in configuration.unknown_variables:
        output.line(f"# {name} is set and means nothing here", "yellow")
    if configuration.warning:
        output.line(f"# {configuration.warning}", "yellow")


def print_paths(_chosen: argparse.Namespace) -> None:
    """Print where settings are looked for, in the order in which they count."""
    output = Output()
    user = config_file()
    output.line(f"{user}" + ("" if user.is_file() else "  (not there)"))
    project = find_project_file(Path.cwd())
    output.line(f"{project}" if project is not None else f"no {PROJECT_FILE} here or above")


def trust_project(chosen: argparse.Namespace) -> None:
    """Trust a project's file as it is now, or trust it no longer, or print those that are trusted."""
    output = Output()
    if chosen.list:
        for known in sorted(trusted_files()):
            output.line(f"{known}{_state_of(Path(known))}")
        return
    path = _project_file(chosen.folder)
    if chosen.remove:
        was = distrust(path)
        output.line(f"{path} is trusted no longer" if was else f"{path} was not trusted")
        return
    file = read_config_file(path)
    trust(path, file.data)
    output.line(f"trusted as it is now: {path}")
    for key, value in file.guarded.items():
        output.line(f"  {key} = {shown_value(key, value)}")
    if not file.guarded:
        output.line("  (it sets nothing that would have needed it)")
    output.line("When the file changes, it must be trusted again.", "dim")


def _project_file(folder: Path | None) -> Path:
    if folder is None:
        found = find_project_file(Path.cwd())
        if found is None:
            raise DragomanError(f"there is no {PROJECT_FILE} here or above: name its folder", code=ErrorCode.NOT_FOUND)
        return found
    path = folder.expanduser().resolve()
    path = path if path.name == PROJECT_FILE else path / PROJECT_FILE
    if not path.is_file():
        raise DragomanError(f"there is no file {path}", code=ErrorCode.NOT_FOUND)
    return path


def _state_of(path: Path) -> str:
    try:
        file: ConfigFile = read_config_file(path)
    except DragomanError:
        return "  (cannot be read now)" if path.exists() else "  (not there any more)"
    return "" if is_trusted(path, file.data) else "  (changed since: trust it again)"
