"""The project as a whole: few dependencies, types, its licence, the README's commands, no trace of a machine."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

GENERATED = re.compile(r"\.git|__pycache__|\.hypothesis|dist|build|\..*_cache|.*\.egg-info")
MACHINE_PATH = re.compile(rb"(?<![\w.~$}])/(?:home|root|Users|work|workspace|mnt|opt)/[\w.-]+|[A-Z]:\\+Users\\")
REGISTRY = re.compile(
    rb"pypi\.org|pythonhosted\.|(?:index|registry)[-_a-z]* *[:=] *.?(?:https?|file):|find-links *[:=]"
    rb"|(?:https?|file)://[^\s\"']*/(?:simple|packages)/"
)


def shell_blocks() -> list[str]:
    """Return the contents of the README's shell blocks, in order."""
    return re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def repository_files() -> Iterator[Path]:
    """Yield every file of the checkout that is neither generated nor part of a virtual environment."""
    for folder, subfolders, names in os.walk(ROOT):
        here = Path(folder)
        subfolders[:] = [
            name for name in subfolders if not GENERATED.fullmatch(name) and not (here / name / "pyvenv.cfg").exists()
        ]
        yield from (here / name for name in names if not GENERATED.fullmatch(name))


def test_there_are_at_most_four_base_dependencies() -> None:
    assert len(PROJECT["dependencies"]) <= 4


def test_python_3_11_is_enough() -> None:
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_installed_package_says_that_it_is_typed() -> None:
    assert files("dragoman").joinpath("py.typed").is_file()


@pytest.mark.slow
def test_the_wheel_holds_the_type_marker_and_the_licence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("dragoman-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "dragoman/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_licence_is_mit() -> None:
    words = " ".join((ROOT / "LICENSE").read_text(encoding="utf-8").split())
    assert PROJECT["license"] == "MIT"
    assert words.startswith("MIT License Copyright (c)")
    assert "to deal in the Software without restriction" in words
    assert words.endswith("OR OTHER DEALINGS IN THE SOFTWARE.")


def test_the_first_two_shell_blocks_of_the_readme_are_one_line_each() -> None:
    assert [len(block.splitlines()) for block in shell_blocks()[:2]] == [1, 1]


def test_ci_runs_the_two_commands_of_the_readme() -> None:
    printed = subprocess.run(["bash", ".ci/run", "--commands"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout == "".join(shell_blocks()[:2])


def test_ci_can_be_executed() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY], ids=["machine path", "registry"])
def test_no_file_names_a_machine_or_a_registry(pattern: re.Pattern[bytes]) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0].decode(errors='replace')}"
        for path in repository_files()
        for match in pattern.finditer(path.read_bytes())
    ]
    assert found == []


@pytest.mark.parametrize(
    "path", ["/home" + "/me/x", "see /root" + "/.cache", "'/work" + "/main'", "C:" + "\\Users\\me"]
)
def test_the_search_finds_a_path_of_a_machine(path: str) -> None:
    assert MACHINE_PATH.search(path.encode())


@pytest.mark.parametrize("line", ["https://pypi" + ".org/simple", "--index-url=" + "https://x", "find-links " + "= y"])
def test_the_search_finds_a_registry(line: str) -> None:
    assert REGISTRY.search(line.encode())


def test_a_commit_is_linted_as_ci_lints() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    hooks = re.findall(r"entry: (.+)", (ROOT / ".pre-commit-config.yaml").read_text())
    linted = ci[ci.index("say 'lint, format, types'") : ci.index("say 'slow tests")].splitlines()[1:]
    assert hooks == [line for line in linted if line]
