"""`import dragoman` stays small: in a fresh interpreter it loads none of the heavy modules."""

import importlib
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


def test_importing_the_package_loads_the_values_alone() -> None:
    packages = ("agent", "catalogue", "context", "history", "models", "store", "stream", "transport", "wire")
    assert {f"dragoman.{package}" for package in packages}.isdisjoint(loaded_by("import dragoman"))


def test_asking_for_a_model_loads_the_handoff_and_nothing_of_the_record() -> None:
    loaded = loaded_by("import dragoman; dragoman.model('openai:gpt-4o', api_key='sk-fake')")
    assert {name for name in loaded if name.startswith("dragoman.history.")} == {
        f"dragoman.history.{name}" for name in ("handoff", "media")
    }
    assert loaded.isdisjoint(HEAVY)


def test_asking_for_a_name_of_the_record_loads_it() -> None:
    assert "dragoman.history.state" in loaded_by("from dragoman.history import AgentState")
    assert "dragoman.history.entries" not in loaded_by("from dragoman.history import Section")


def test_what_builds_contexts_is_loaded_when_it_is_asked_for() -> None:
    assert not {name for name in loaded_by("import dragoman") if name.startswith("dragoman.context")}
    assert "dragoman.context.manager" in loaded_by("from dragoman.context import ContextManager")


@pytest.mark.parametrize("module", ["dragoman", "dragoman.history"])
def test_a_name_that_is_not_there_is_an_attribute_error_and_the_others_are_listed(module: str) -> None:
    package = importlib.import_module(module)
    assert not hasattr(package, "nothing")
    assert set(package.__all__) <= set(dir(package))


def test_the_check_sees_a_module_that_is_loaded() -> None:
    assert "sqlite3" in loaded_by("import dragoman, sqlite3")


def test_naming_every_public_name_loads_asyncio_and_no_database_or_client() -> None:
    assert loaded_by("from dragoman import *").isdisjoint({"sqlite3", "aiohttp"})
