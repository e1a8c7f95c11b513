"""`import dragoman` stays small: in a fresh interpreter it loads none of the heavy modules."""

import subprocess
import sys

import pytest

HEAVY = ("asyncio", "ssl", "sqlite3", "aiohttp")


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter loads for `statement`, beyond those it starts with."""
    program = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    command = [sys.executable, "-I", "-W", "error", "-c", program]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("module", HEAVY)
def test_importing_the_package_leaves_out(module: str) -> None:
    loaded = loaded_by("import dragoman")
    assert "dragoman.message" in loaded
    assert module not in loaded


def test_the_check_sees_a_module_that_is_loaded() -> None:
    assert "sqlite3" in loaded_by("import dragoman, sqlite3")


def test_naming_every_public_name_leaves_them_out_too() -> None:
    assert loaded_by("from dragoman import *").isdisjoint(HEAVY)
