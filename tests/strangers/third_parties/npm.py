"""Packages of npm, installed once into a cache folder outside the checkout, and programs of them run on loopback."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

INSTALL_SECONDS = 300
STOP_SECONDS = 10

# Exact versions. There is no lock file: it would name the registry that it was made with.
PACKAGES = {
    "@copilotkit/aimock": "1.43.0",
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@modelcontextprotocol/server-memory": "2026.8.31",
}
MANIFEST = json.dumps({"private": True, "dependencies": PACKAGES}, indent=1)


def installed_packages() -> Path:
    """Return the folder `node_modules` that holds the packages; skip the test where they cannot be had."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = _cache() / hashlib.sha256(MANIFEST.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:  # several processes of one test run ask at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        modules = folder / "installed" / "node_modules"
        if not modules.is_dir():
            _install(folder)
    return modules


@contextmanager
def running(program: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Iterator[str]]:
    """Run a program of Node; yield the lines that it prints, and stop it afterwards."""
    command = ["node", str(program), *arguments]
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = subprocess.Popen(
        command, env={**environment, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        yield iter(process.stdout.readline, "")
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _cache() -> Path:
    """The user's cache folder, or the system's temporary one where there is no home to write to."""
    named = os.environ.get("XDG_CACHE_HOME")
    for folder in (Path(named) if named else None, Path("~/.cache").expanduser(), Path(tempfile.gettempdir())):
        if folder is not None and _is_writable(folder / "dragoman-tests"):
            return folder / "dragoman-tests"
    pytest.skip("there is no folder to install npm packages into")


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _install(folder: Path) -> None:
    """Install into a folder beside, and rename it when all is there: a broken install is never used."""
    building = Path(tempfile.mkdtemp(dir=folder))
    try:
        (building / "package.json").write_text(MANIFEST, encoding="utf-8")
        options = [
            "--ignore-scripts",
            "--no-package-lock",
            "--no-audit",
            "--no-fund",
            "--no-update-notifier",
            "--fetch-retries=1",
        ]
        done = subprocess.run(
            ["npm", "install", *options],
            cwd=building,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_SECONDS,
        )
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
            pytest.skip(f"npm could not install the packages: {said[:1]}")
        building.rename(folder / "installed")
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install the packages within {INSTALL_SECONDS} seconds")
    finally:
        shutil.rmtree(building, ignore_errors=True)
