"""mypy and pyright, run over the programs in a folder. Each gives the places of its errors as `file.py:line: words`."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def mypy_errors(folder: Path) -> list[str]:
    """Return what mypy, in its strict mode, says against the programs in the folder."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    command += ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache" / "programs")]
    programs = sorted(path.name for path in folder.glob("*.py"))
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, *programs], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    return [line.replace(": error:", ":") for line in re.findall(r"^\S+: error: .*$", done.stdout, re.MULTILINE)]


def pyright_errors(folder: Path, *, mode: str = "standard") -> list[str]:
    """Return what pyright, in that mode, says against the programs in the folder; skip the test if it is missing."""
    if importlib.util.find_spec("pyright") is None:
        reason = "pyright is missing: pip install 'pyright[nodejs]'"
        if os.environ.get("DRAGOMAN_LIVE") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    config = {"typeCheckingMode": mode, "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout[done.stdout.index("{") :])["generalDiagnostics"]
    return [
        f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in found
        if each["severity"] == "error"
    ]
