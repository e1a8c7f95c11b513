"""The documents are true: their code runs, their diagram is the contract's own table, the names they map exist."""

import asyncio
import base64
import importlib
import importlib.util
import logging
import pkgutil
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

import dragoman
from dragoman.delta import DELTA_CLASSES
from dragoman.message import PART_CLASSES
from dragoman.stream import TRANSITIONS
from tests.local_stage import Stage
from tests.media_upstreams import Upstreams
from tests.postgres_server import Place

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
CONCEPTS = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
DESIGN_TERMS = (ROOT / "docs" / "design-terms.md").read_text(encoding="utf-8")
NOT_YET = "not yet"
# What models on this machine say in the documents, where no weights are: see `llama_stand_in`.
LOCAL_ANSWERS: dict[str, list[Any]] = {
    "capital of France": ["The capital of France is Paris."],
    "How many lamps": [{"name": "stock", "arguments": {"item": "lamps"}}, "There are 7 lamps in stock."],
}
SVG = "http://www.w3.org/2000/svg"


class Term(NamedTuple):
    """A row of a mapping table: what a term is called in the design notes, and what the cell `here` says."""

    noted: str
    here: str


def python_blocks(markdown: str) -> Iterator[str]:
    """Yield each Python block, moved down by empty lines so that a traceback shows the document's own line."""
    for block in re.finditer(r"^```python\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL):
        yield "\n" * markdown.count("\n", 0, block.start(1)) + block[1]


def run_blocks(path: Path) -> dict[str, Any]:
    """Run the Python blocks of a document, in order, as one program; return its names."""
    namespace: dict[str, Any] = {"__name__": path.stem}
    for block in python_blocks(path.read_text(encoding="utf-8")):
        exec(compile(block, str(path), "exec", dont_inherit=True), namespace)
    return namespace


def mapping_terms(markdown: str) -> list[Term]:
    """Return the rows of every table whose header is `term | here | remark`."""
    tables = re.findall(r"^\| term \| here \| remark \|\n\|[-|]+\n((?:\|.*\n)+)", markdown, re.MULTILINE)
    return [Term(*row.strip("| \n").split(" | ")[:2]) for table in tables for row in table.splitlines()]


def exists(name: str) -> bool:
    """Return whether the package or one of its modules has `name`: `Message.run_id`, `stream.Guard`."""
    first, *further = name.split(".")
    homes = (module for module in [dragoman, *public_modules()] if first in module.__all__)
    value: Any = next((getattr(home, first) for home in homes), None)
    if value is None and importlib.util.find_spec(f"dragoman.{first}"):
        value = importlib.import_module(f"dragoman.{first}")
    for attribute in further:
        value = getattr(value, attribute, None) if value is not None else None
    return value is not None


def public_modules() -> list[Any]:
    """Return the direct modules and packages that are public."""
    names = (module.name for module in pkgutil.iter_modules(dragoman.__path__) if not module.name.startswith("_"))
    return [importlib.import_module(f"dragoman.{name}") for name in names]


def names_in(cell: str) -> list[str]:
    """Return the names in a cell's code spans."""
    return re.findall(r"`([^`]+)`", cell)


def generator() -> dict[str, Callable[..., Any]]:
    """Return the functions of scripts/generate_docs.py."""
    return runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))


def places(path: Path) -> set[str]:
    """Return the names by which the headings of a document can be linked to."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


TERMS = mapping_terms(DESIGN_TERMS)


@pytest.fixture(autouse=True)
def _loggers_as_they_were() -> Iterator[None]:
    """Undo what a document does to loggers: the other tests of this process have them too."""
    loggers = [logging.getLogger(name) for name in ("dragoman", "dragoman.agent")]
    before = [(logger.level, logger.handlers[:], logger.propagate) for logger in loggers]
    yield
    for logger, (level, handlers, propagates) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:], logger.propagate = handlers, propagates


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_python_blocks_of_a_document_run_in_order(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch, LOCAL_ANSWERS)
    monkeypatch.chdir(tmp_path)  # where they may write files
    if path.name == "media.md":
        Upstreams(tmp_path, monkeypatch)
    run_blocks(path)
    stage.close()


@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md"])
def test_the_first_programs_run_twice(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, monkeypatch, LOCAL_ANSWERS)
    monkeypatch.chdir(tmp_path)
    run_blocks(ROOT / name)
    run_blocks(ROOT / name)
    stage.close()


def test_the_guide_to_media_shows_them_to_three_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upstreams = Upstreams(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    run_blocks(ROOT / "docs" / "media.md")
    photo, report = (base64.b64encode((tmp_path / name).read_bytes()) for name in ("photo.png", "report.pdf"))
    for bodies in upstreams.sent.values():
        assert photo in bodies[0]
        assert report in bodies[0]
    assert photo in upstreams.sent["generativelanguage.googleapis.com"][1]  # the model that went on got it too


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path: Path) -> None:
    run = subprocess.run([sys.executable, "-W", "error", str(path)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout


def test_the_readme_and_the_concepts_show_code() -> None:
    for name in ("README.md", "docs/concepts.md"):
        assert list(python_blocks((ROOT / name).read_text(encoding="utf-8")))


def test_a_block_keeps_its_line_of_the_document() -> None:
    (block,) = python_blocks("# Title\n\n```python\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as failure:
        exec(compile(block, "document.md", "exec"), {})
    assert failure.traceback[-1].lineno + 1 == 4


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_link_of_a_document_leads_to_a_file(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_place_that_a_link_names_is_a_heading(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", path.read_text(encoding="utf-8"))
    assert [
        f"{file}#{place}" for file, place in links if place not in places(path.parent / file if file else path)
    ] == []


def test_the_tests_and_programs_that_the_readme_names_are_there() -> None:
    named = re.findall(r"(?:tests|bench|scripts|examples)/\w+\.py", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_picture_of_the_chat_is_whole_small_and_sends_nobody_anywhere() -> None:
    picture = (ROOT / "docs" / "images" / "chat.svg").read_text(encoding="utf-8")
    assert len(picture.encode()) < 100_000
    root = ElementTree.fromstring(picture)
    said = [element.text for element in root.iter(f"{{{SVG}}}text")]
    for words in ("> What is the capital of France?", "now talking to local:smollm2@anthropic", "> /context"):
        assert words in said
    assert not any(element.tag.endswith(("script", "image", "foreignObject")) for element in root.iter())
    assert set(re.findall(r"\w+://[^\s\"']+", picture)) == {SVG}
    assert not re.search(r"url\(|@import", picture)


def test_the_guide_to_postgresql_is_true(
    empty_postgres: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_blocks(ROOT / "docs" / "guides.md")
    with empty_postgres.database() as conninfo:
        assert asyncio.run(names["in_postgres"](conninfo)) == "400 km."


def test_the_contract_in_the_concepts_is_the_one_of_the_code() -> None:
    command = [sys.executable, "scripts/generate_docs.py", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (check.returncode, check.stderr) == (0, "")


def test_the_diagram_has_every_transition_of_the_table() -> None:
    arrows = re.findall(r"^    (\w+) --> (\w+): (.+)$", CONCEPTS, re.MULTILINE)
    drawn = {(state, kind, target) for state, target, kinds in arrows for kind in kinds.split(", ")}
    assert drawn == {(state, kind, target) for state, row in TRANSITIONS.items() for kind, target in row.items()}


def test_the_generator_notices_a_changed_diagram() -> None:
    functions = generator()
    changed = CONCEPTS.replace("idle --> open: start", "idle --> open: text")
    assert functions["with_section"](changed, functions["contract_section"]()) == CONCEPTS != changed


def test_the_generator_refuses_a_document_without_its_markers() -> None:
    with pytest.raises(ValueError, match="each marker once"):
        generator()["with_section"]("# Concepts\n", "")


def test_the_generator_refuses_rules_that_are_not_numbered_in_order() -> None:
    with pytest.raises(ValueError, match="without a gap"):
        generator()["contract_rules"]("#   1. One.\n#   3. Three.\n")


@pytest.mark.parametrize(
    ("noted", "told"),
    [
        ("`Message.runId`", "may be empty"),
        ("`Message.timestamp`", "may be None"),
        ("`requestMetadata.traceId`", "recorded with the message"),
        ("`AgentConfig.tools`", "which the seed puts under `loop`"),
        ("`model_name`, `supports_streaming`", "methods, as in the seed"),
        ("`IProviderClient`, `CallModelAsync`", "takes an `LlmRequest`"),
    ],
)
def test_the_documents_say_where_a_term_differs_from_the_seeds_and_why(noted: str, told: str) -> None:
    (row,) = [line for line in DESIGN_TERMS.splitlines() if line.startswith(f"| {noted} | ")]
    assert told in row.rsplit(" | ", 1)[1]


def test_the_concepts_map_many_terms() -> None:
    assert len(TERMS) > 100


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.noted.replace("`", ""))
def test_a_mapped_term_is_in_the_package_or_said_to_come(term: Term) -> None:
    names = names_in(term.here)
    if term.here.startswith(NOT_YET):
        assert [name for name in names if exists(name)] == [], "it is there now: map it"
    else:
        assert names, "name what it is here, or say: not yet"
        assert [name for name in names if not exists(name)] == []


@pytest.mark.parametrize("kind", sorted({*PART_CLASSES, *DELTA_CLASSES}))
def test_every_kind_is_mapped(kind: str) -> None:
    classes = {table[kind].__name__ for table in (PART_CLASSES, DELTA_CLASSES) if kind in table}
    rows = [term.here for term in TERMS if f"`{kind}`" in term.noted]
    assert {name for here in rows for name in names_in(here)} >= classes


@pytest.mark.parametrize(
    ("name", "there"),
    [("Message.run_id", True), ("stream.TRANSITIONS", True), ("Message.nothing", False), ("nothing", False)],
)
def test_the_check_of_names_knows_what_exists(name: str, there: bool) -> None:
    assert exists(name) is there


def test_the_site_shows_every_document_and_every_public_module() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    shown = set(re.findall(r"[\w./-]+\.md", site))
    public = (ROOT / "tests" / "public_names.txt").read_text(encoding="utf-8").split()
    modules = {name.partition(":")[0] for name in public} - {"dragoman.cli"}  # that one is a command
    wanted = {path.name for path in DOCUMENTS[1:]} | {f"reference/{module}.md" for module in modules}
    assert shown == wanted
    for module in modules:
        page = (ROOT / "docs" / "reference" / f"{module}.md").read_text(encoding="utf-8")
        assert page == f"# {module}\n\n::: {module}\n"
