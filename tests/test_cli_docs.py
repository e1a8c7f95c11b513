"""docs/cli.md is true: its commands run, in order, and print what stands below them; its table has every setting."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from dragoman.cli import COMMANDS
from dragoman.cli.config import read_config_file
from dragoman.cli.settings import SETTINGS, Setting, variable_of
from tests.cli_cases import User, empty_user  # noqa: F401  # the fixture

PAGE = (Path(__file__).parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")
ANYTHING = "…"


class Step(NamedTuple):
    """A command of the page, and what it says is printed."""

    command: str
    printed: list[str]


def steps() -> list[Step]:
    """Return the commands of all console blocks."""
    found: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:], []))
            else:
                found[-1].printed.append(line)
    return found


def pattern_of(lines: list[str]) -> str:
    """Return a pattern of what is printed; `…` alone in a line stands for any lines, in a line for anything."""
    parts = [r"(?:.*\n)*?" if line == ANYTHING else re.escape(line).replace(ANYTHING, ".*") + r"\n" for line in lines]
    return "".join(parts)


def test_the_commands_of_the_page_print_what_it_says(user: User) -> None:
    for step in steps():
        if shown := re.fullmatch(r"cat (\w+\.json)", step.command):
            user.write(shown[1], "\n".join(step.printed) + "\n")
    user.set("DRAGOMAN_CACHE", str(user.home / "cache"))
    user.set("COLUMNS", "80")
    function = f'dragoman() {{ {shlex.quote(sys.executable)} -W error -m dragoman "$@"; }}\n'
    folder = user.folder
    for step in steps():
        script = f"{function}{step.command}\n"
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={**os.environ},
        )
        assert re.fullmatch(pattern_of(step.printed), done.stdout), f"$ {step.command}\n{done.stdout}"
        if step.command.startswith("mkdir project"):
            folder /= "project"


def test_there_are_many_commands_on_the_page() -> None:
    assert len(steps()) > 20


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_row_in_the_table(name: str) -> None:
    rows = [line for line in PAGE.splitlines() if re.match(rf"\| \[?`dragoman {name}`", line)]
    assert len(rows) == 1


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_setting_is_in_the_table(setting: Setting) -> None:
    key = setting.key.replace("*", "NAME")
    (row,) = [line for line in PAGE.splitlines() if line.startswith("|") and _names(line, key)]
    assert row.endswith("| trusted |") == setting.is_guarded
    assert (f"`{variable_of(setting)}`" in row) == setting.has_variable


def _names(row: str, key: str) -> bool:
    first = row.split("|")[1]
    return f"`{key}`" in first or (key.endswith(".project") and "`.project`" in first)


def test_the_example_of_settings_is_one(user: User) -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    user.write_config(example)
    assert read_config_file(user.config_file).values["context.budget_tokens"] == 100_000
