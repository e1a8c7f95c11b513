"""Public names are promises: listed in tests/public_names.txt, documented, annotated, and used where tests run them."""

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import dragoman

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dragoman"
LIST = ROOT / "tests" / "public_names.txt"
UPDATE = f"python tests/{Path(__file__).name}"


def public_modules() -> list[str]:
    """Return the package, its direct submodules, and the modules that a subpackage names in its `__all__`.

    What else lies inside a subpackage is public only through the names that the subpackage takes from it.
    """
    names = [module.name for module in pkgutil.iter_modules([str(SOURCE)]) if not module.name.startswith("_")]
    direct = ["dragoman", *(f"dragoman.{name}" for name in names)]
    return [*direct, *(f"{package}.{name}" for package in direct for name in _modules_named_by(package))]


def _modules_named_by(package: str) -> list[str]:
    loaded = importlib.import_module(package)
    return [name for name in loaded.__all__ if isinstance(getattr(loaded, name), ModuleType)]


def public_files() -> list[Path]:
    """Return the files of the public modules, and those that a public name comes from."""
    loaded = [importlib.import_module(module) for module in public_modules()]
    homes = {getattr(getattr(module, name), "__module__", None) for module in loaded for name in module.__all__}
    modules = [*loaded, *(sys.modules[home] for home in homes if home and home.startswith("dragoman."))]
    return sorted({Path(module.__file__) for module in modules if module.__file__})


def public_names() -> list[str]:
    """Return every public name as `module:name`, sorted."""
    return sorted(f"{module}:{name}" for module in public_modules() for name in importlib.import_module(module).__all__)


def promises_without(text: str) -> Iterator[str]:
    """Yield what each public function, class and method of a source text lacks: a docstring, an annotation."""
    yield from _body_without(ast.parse(text).body, "")


def _body_without(body: list[ast.stmt], owner: str) -> Iterator[str]:
    for node in body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        dunder = node.name.startswith("__") and node.name.endswith("__")
        if node.name.startswith("_") and not dunder:
            continue
        name = f"{owner}{node.name}"
        if not dunder and not ast.get_docstring(node):
            yield f"{name}: no docstring"
        if isinstance(node, ast.ClassDef):
            yield from _body_without(node.body, f"{name}.")
        else:
            yield from (f"{name}: no annotation of {missing}" for missing in _unannotated(node, is_method=bool(owner)))


def _unannotated(node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_method: bool) -> Iterator[str]:
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    static = any(ast.unparse(decorator) == "staticmethod" for decorator in node.decorator_list)
    if is_method and not static:
        positional = positional[1:]
    variadic = [argument for argument in (given.vararg, given.kwarg) if argument]
    for argument in [*positional, *given.kwonlyargs, *variadic]:
        if argument.annotation is None:
            yield argument.arg
    if node.returns is None:
        yield "the result"


def names_used(text: str) -> set[str]:
    """Return the names that a program takes from `dragoman` and uses; to import one is not yet to use it."""
    nodes = list(ast.walk(ast.parse(text)))
    imported = {
        alias.asname or alias.name: alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "dragoman"
        for alias in node.names
    }
    loaded = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    qualified = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dragoman"
    }
    return {original for name, original in imported.items() if name in loaded} | qualified


def programs() -> Iterator[str]:
    """Yield what test_docs.py runs: each example, and each document's Python blocks as one program."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        yield "\n".join(blocks)


def test_the_public_names_are_those_of_the_list() -> None:
    listed = set(LIST.read_text(encoding="utf-8").split())
    added, removed = sorted(set(public_names()) - listed), sorted(listed - set(public_names()))
    assert not added, f"new public names, each a promise: {added}. If they are meant, run: {UPDATE}"
    assert not removed, f"public names that are gone: {removed}. Their users break. If that is meant, run: {UPDATE}"


def test_a_module_inside_a_package_is_public_only_where_the_package_names_it() -> None:
    assert "dragoman.testing.transports" in public_modules()
    assert not [name for name in public_modules() if name.startswith(("dragoman.wire.", "dragoman.transport."))]


def test_the_home_of_a_public_name_is_held_to_its_promises() -> None:
    assert {SOURCE / "stream" / "guard.py", SOURCE / "transport" / "signing.py"} <= set(public_files())


def test_the_list_is_sorted_and_names_nothing_twice() -> None:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    assert lines == sorted(set(lines)), f"run: {UPDATE}"


@pytest.mark.parametrize("module", public_modules())
def test_a_public_name_exists(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []


@pytest.mark.parametrize("path", public_files(), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_public_functions_classes_and_methods_are_documented_and_annotated(path: Path) -> None:
    assert list(promises_without(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_every_name_of_the_package_is_used_in_a_document_or_example() -> None:
    used = {name for program in programs() for name in names_used(program)}
    assert sorted(set(dragoman.__all__) - used) == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("def f() -> None: ...", ["f: no docstring"]),
        ("class C:\n    def m(self) -> None: ...", ["C: no docstring", "C.m: no docstring"]),
        (
            "def f(a, *b, c, **d):\n    'x'",
            [f"f: no annotation of {name}" for name in ("a", "c", "b", "d", "the result")],
        ),
        ("class C:\n    'x'\n    def __init__(self, a) -> None: ...", ["C.__init__: no annotation of a"]),
        ("class C:\n    'x'\n    @staticmethod\n    def m(a) -> None:\n        'x'", ["C.m: no annotation of a"]),
        ("def _f(a): ...\nclass _C:\n    def m(a): ...", []),
    ],
)
def test_the_checker_sees_what_is_missing(text: str, missing: list[str]) -> None:
    assert list(promises_without(text)) == missing


def test_a_name_that_is_only_imported_is_not_used() -> None:
    assert names_used("from dragoman import A, B as b, C\nb()\nimport dragoman\ndragoman.D") == {"B", "D"}


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in public_names()), encoding="utf-8")
