"""Packages of npm, installed once into a cache folder outside the checkout, and programs of them run on loopback."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
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


class NotInstalled(Exception):
    """Packages cannot be had here; the text says why."""


def installed_packages() -> Path:
    """Return the folder `node_modules` that holds the packages; skip the test where they cannot be had."""
    try:
        return install(PACKAGES) / "node_modules"
    except NotInstalled as error:
        pytest.skip(str(error))


def install(packages: Mapping[str, str], cache: Path | None = None, *, seconds: float = INSTALL_SECONDS) -> Path:
    """Return the folder where these packages are installed; raise NotInstalled where they cannot be had."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotInstalled("npm is not installed")
    manifest = json.dumps({"private": True, "dependencies": packages}, indent=1)
    with locked_folder(cache or cache_folder(), manifest) as folder:
        if not (folder / "installed").is_dir():
            _install(folder, manifest, seconds)
    return folder / "installed"


@contextmanager
def locked_folder(cache: Path, manifest: str) -> Iterator[Path]:
    """Yield the folder for what the manifest names. Several processes of one test run ask at once: one has it."""
    folder = cache / hashlib.sha256(manifest.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


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


def cache_folder() -> Path:
    """Return the user's cache folder, or the system's temporary one where there is no home to write to."""
    named = os.environ.get("XDG_CACHE_HOME")
    for folder in (Path(named) if named else None, Path("~/.cache").expanduser(), Path(tempfile.gettempdir())):
        if folder is not None and _is_writable(folder / "dragoman-tests"):
            return folder / "dragoman-tests"
    raise NotInstalled("there is no folder to install npm packages into")


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _install(folder: Path, manifest: str, seconds: float) -> None:
    """Install into a folder beside, and rename it when all is there: a broken install is never used."""
    building = Path(tempfile.mkdtemp(dir=folder))
    try:
        (building / "package.json").write_text(manifest, encoding="utf-8")
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
            timeout=seconds,
        )
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
            raise NotInstalled(f"npm could not install the packages: {said[:1]}")
        building.rename(folder / "installed")
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"npm did not install the packages within {seconds:.0f} seconds") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
