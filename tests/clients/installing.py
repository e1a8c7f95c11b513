"""The clients, installed once into a cache folder: `DRAGOMAN_CLIENTS` names it, else it is the cache of the user."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.strangers.third_parties.npm import NotInstalled, cache_folder, install, locked_folder

from .programs import Client

__all__ = ["NotInstalled", "installed"]

# The two that every run of the slow tests installs take 8 and 6 seconds, and 350 and 440 MB.
INSTALL_SECONDS = 120
PIP_SECONDS = 400


def installed(client: Client) -> Path:
    """Return the client's program; raise NotInstalled, with the reason, where it cannot be had."""
    named = os.environ.get("DRAGOMAN_CLIENTS")
    cache = Path(named) if named else cache_folder()
    if client.requirement:
        folder = _install_python(client.requirement, cache)
    else:
        folder = install(client.packages, cache, seconds=INSTALL_SECONDS)
    found = sorted(folder.glob(client.program))
    if not found:
        raise NotInstalled(f"the packages of {client.name} have no program for this machine")
    return found[0]


def _install_python(requirement: str, cache: Path) -> Path:
    """Install into a virtual environment of its own. It cannot be moved, so a file says that all of it is there."""
    with locked_folder(cache, requirement) as folder:
        whole = folder / "whole"
        if not whole.exists():
            shutil.rmtree(folder / "installed", ignore_errors=True)
            for command in (
                [sys.executable, "-m", "venv", str(folder / "installed")],
                [str(folder / "installed" / "bin" / "pip"), "install", "-q", requirement],
            ):
                try:
                    subprocess.run(command, check=True, capture_output=True, timeout=PIP_SECONDS)
                except subprocess.SubprocessError as error:
                    raise NotInstalled(f"pip could not install {requirement}: {type(error).__name__}") from error
            whole.touch()
    return folder / "installed"
