"""Every import in `src/`, held to the layer table of docs/architecture.md; and the checker, tried on made-up code."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PACKAGE = "dragoman"
FREE_ROW = "\N{EN DASH}"  # may import everything, is imported by nothing
ORDERED_ROW = 1  # modules may import those to their left


class Place(NamedTuple):
    """Where the table puts a module: its row (None for the free row), its column, and whether it is a package."""

    row: int | None
    column: int
    is_package: bool


class Import(NamedTuple):
    """One import statement: `deferred` inside a function, `typing_only` under `if TYPE_CHECKING`."""

    target: str
    line: int
    deferred: bool
    typing_only: bool


class Module(NamedTuple):
    """A file of source: its dotted name, its text, and whether it is a package's `__init__`."""

    name: str
    text: str
    is_init: bool = False


def read_table(markdown: str) -> dict[str, Place]:
    """Return the place of every module that the table names; a name that stands twice is an error."""
    table: dict[str, Place] = {}
    for row, modules in re.findall(rf"^\| *(\d+|{FREE_ROW}) *\|([^|]*)\|", markdown, re.MULTILINE):
        for column, name in enumerate(re.findall(r"`([a-z_]+/?)`", modules)):
            unit = name.removesuffix("/")
            assert unit not in table, f"{unit} stands twice in the layer table"
            table[unit] = Place(None if row == FREE_ROW else int(row), column, name.endswith("/"))
    return table


def read_modules(source: Path) -> list[Module]:
    """Return every Python file under `source`."""
    modules = []
    for path in sorted(source.rglob("*.py")):
        names = path.relative_to(source).with_suffix("").parts
        is_init = names[-1] == "__init__"
        modules.append(Module(".".join(names[:-1] if is_init else names), path.read_text(encoding="utf-8"), is_init))
    return modules


def imports_of(module: Module) -> Iterator[Import]:
    """Yield every import of the module under its absolute name, wherever in the file it stands.

    `from dragoman import x` is an import of `dragoman.x`: whether x is a module or a name, the checker decides.
    """
    pending: list[tuple[ast.AST, bool, bool]] = [(ast.parse(module.text), False, False)]
    while pending:
        node, deferred, typing_only = pending.pop()
        for target in _targets(node, module):
            yield Import(target, getattr(node, "lineno", 0), deferred, typing_only)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += [(child, deferred, True) for child in node.body]
            pending += [(child, deferred, typing_only) for child in node.orelse]
            continue
        inside = deferred or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        pending += [(child, inside, typing_only) for child in ast.iter_child_nodes(node)]


def _targets(node: ast.AST, module: Module) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = _absolute(node.module or "", node.level, module)
        return [f"{base}.{alias.name}" for alias in node.names] if base == PACKAGE else [base]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
        name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if not isinstance(name, str):
            return []
        level = len(name) - len(name.lstrip("."))
        return [_absolute(name.lstrip("."), level, module)]
    return []


def _absolute(name: str, level: int, module: Module) -> str:
    if not level:
        return name
    parents = module.name.split(".")
    parents = parents[: len(parents) - level + (1 if module.is_init else 0)]
    return ".".join([*parents, name] if name else parents)


def violations(module: Module, table: dict[str, Place], base_modules: frozenset[str]) -> list[str]:
    """Return what is wrong with the module's place and imports, one line each."""
    unit = _unit(module.name)
    found = []
    if unit is not None:
        if unit not in table:
            return [f"{module.name}: not in the layer table of docs/architecture.md"]
        is_package = module.is_init or module.name.count(".") > 1
        if table[unit].is_package != is_package:
            found.append(f"{module.name}: the layer table must name it as {unit + ('/' if is_package else '')}")
    for statement in imports_of(module):
        reason = _forbidden(unit, statement, table, base_modules)
        if reason:
            found.append(f"{module.name}:{statement.line} imports {statement.target}: {reason}")
    return found


def _forbidden(
    unit: str | None, statement: Import, table: dict[str, Place], base_modules: frozenset[str]
) -> str | None:
    """The reason why `unit` (None: the package's own `__init__` or `__main__`) may not have this import."""
    place = table[unit] if unit else None
    free = place is not None and place.row is None
    top, _, rest = statement.target.partition(".")
    if top != PACKAGE:
        allowed = top in sys.stdlib_module_names or top in base_modules
        if free or allowed or statement.deferred or statement.typing_only:
            return None
        return f"{top} is no base dependency; import it inside the function that needs it"
    target_unit = rest.split(".")[0]
    target = table.get(target_unit)
    if target is None:
        if free or unit is None:
            return None
        return "rows import from modules of the table, never from the package itself"
    if free or target_unit == unit:
        return None
    if target.row is None:
        return f"nothing imports {target_unit}"
    if place is None or place.row is None or target.row < place.row:
        return None
    if target.row == place.row == ORDERED_ROW and target.column < place.column:
        return None
    return f"{unit} is in row {place.row}, {target_unit} in row {target.row}"


def _unit(module_name: str) -> str | None:
    parts = module_name.split(".")
    return None if parts[1:] in ([], ["__main__"]) else parts[1]


def read_base_modules() -> frozenset[str]:
    """Return the importable names of the base dependencies in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    distributions = {
        re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")
        for requirement in project["dependencies"]
    }
    return frozenset(
        module
        for module, owners in packages_distributions().items()
        if distributions & {owner.lower().replace("_", "-") for owner in owners}
    )


TABLE = read_table((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
BASE_MODULES = read_base_modules()
MODULES = read_modules(SOURCE)


def test_the_table_has_every_row_of_the_design() -> None:
    assert {place.row for place in TABLE.values()} == {*range(9), None}


def test_every_base_dependency_is_importable() -> None:
    assert "msgspec" in BASE_MODULES


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_a_module_imports_only_what_its_layer_may_know(module: Module) -> None:
    assert violations(module, TABLE, BASE_MODULES) == []


MADE_UP_TABLE = read_table(
    f"""
    | row | modules | know |
    |---|---|---|
    | 0 | `ground` | |
    | 1 | `left` `right` | |
    | 2 | `near/` `far/` | |
    | 3 | `single` `other` | |
    | {FREE_ROW} | `testing/` | |
    """.replace("    |", "|")
)


def found_in(name: str, text: str, *, is_init: bool = False) -> list[str]:
    return violations(Module(name, text, is_init), MADE_UP_TABLE, frozenset({"msgspec"}))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dragoman.ground", "import dragoman.left"),
        ("dragoman.ground", "import dragoman.left as l"),
        ("dragoman.ground", "from dragoman.left import Thing"),
        ("dragoman.ground", "from dragoman import left"),
        ("dragoman.ground", "from .left import Thing"),
        ("dragoman.ground", "from . import left"),
        ("dragoman.ground", "def f():\n    from .left import Thing"),
        ("dragoman.ground", "class C:\n    async def f(self):\n        import dragoman.left"),
        ("dragoman.ground", "f = lambda: __import__('dragoman.left')"),
        ("dragoman.ground", "import importlib\nimportlib.import_module('dragoman.left')"),
        ("dragoman.ground", "if TYPE_CHECKING:\n    from .left import Thing"),
        ("dragoman.ground", "try:\n    from .near.inner import Thing\nexcept ImportError: pass"),
        ("dragoman.left", "from .right import Thing"),
        ("dragoman.near.inner", "from ..far import Thing"),
        ("dragoman.near.inner", "from ..far.inner import Thing"),
        ("dragoman.near.inner", "from .. import far"),
        ("dragoman.near.deep.inner", "from ...single import Thing"),
        ("dragoman.single", "from .other import Thing"),
    ],
)
def test_an_import_from_the_same_or_a_higher_row_is_found(name: str, text: str) -> None:
    (violation,) = found_in(name, text)
    assert " in row " in violation


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dragoman.right", "from .left import Thing"),
        ("dragoman.left", "from .ground import Thing\nimport os.path\nimport msgspec"),
        ("dragoman.near.inner", "from ..left import Thing\nfrom .sibling import Other\nfrom . import sibling"),
        ("dragoman.single", "import dragoman.near.inner"),
        ("dragoman.testing.kit", "import hypothesis\nfrom ..single import Thing\nfrom dragoman import Message"),
        ("dragoman.single", "def f():\n    import torch"),
        ("dragoman.single", "if TYPE_CHECKING:\n    import torch"),
        ("dragoman", "from .single import Thing"),
        ("dragoman.__main__", "from .single import Thing"),
    ],
)
def test_an_import_that_the_rules_allow_passes(name: str, text: str) -> None:
    assert found_in(name, text, is_init=name == "dragoman") == []


def test_a_relative_import_in_a_package_init_starts_at_the_package() -> None:
    assert found_in("dragoman.near", "from .inner import Thing\nfrom ..left import Other", is_init=True) == []
    assert found_in("dragoman.near", "from ..far import Thing", is_init=True) != []


def test_a_module_that_is_missing_in_the_table_is_found() -> None:
    assert found_in("dragoman.newcomer", "") == ["dragoman.newcomer: not in the layer table of docs/architecture.md"]


def test_a_package_that_the_table_calls_a_module_is_found() -> None:
    assert "must name it as single/" in found_in("dragoman.single.inner", "")[0]


@pytest.mark.parametrize("name", ["dragoman", "dragoman.single", "dragoman.__main__"])
def test_nothing_may_import_testing(name: str) -> None:
    (violation,) = found_in(name, "import dragoman.testing.kit", is_init=name == "dragoman")
    assert "nothing imports testing" in violation


@pytest.mark.parametrize("text", ["import dragoman", "from dragoman import Message", "from . import __version__"])
def test_a_row_may_not_import_from_the_package_itself(text: str) -> None:
    assert "never from the package itself" in found_in("dragoman.single", text)[0]


@pytest.mark.parametrize(
    "text", ["import torch", "class C:\n    import torch", "try:\n    import torch\nexcept E: pass"]
)
def test_a_third_party_import_at_the_top_must_be_a_base_dependency(text: str) -> None:
    assert "torch is no base dependency" in found_in("dragoman.single", text)[0]


def test_a_name_that_stands_twice_in_the_table_is_refused() -> None:
    with pytest.raises(AssertionError, match="stands twice"):
        read_table("| 1 | `left` | |\n| 2 | `left/` | |")
