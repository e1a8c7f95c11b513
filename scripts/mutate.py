"""Runs mutants of one package against the tests that execute them, and lists those that no test notices.

    python scripts/mutate.py history                # a sample of 500 mutants
    python scripts/mutate.py history --again        # those that survived the last run
    python scripts/mutate.py history --only callids # all mutants whose file or place holds this word

One process imports the tests once. It finds out which tests execute which lines, then forks for each mutant, replaces
the code of the mutated function in the child and runs those tests, quickest first, up to the first failure. For a
mutant of code that runs at import, and for one that was not noticed, the child imports everything anew.

A survivor that `tests/mutants.md` names is explained; any other makes the exit code 1.
"""

import argparse
import functools
import gc
import hashlib
import importlib.machinery
import json
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings
from mutants import Mutant, compile_mutant, find_mutants

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "dragoman"
EXPLAINED = ROOT / "tests" / "mutants.md"
SAMPLE = 500
MEMORY = 6 << 30  # a mutant whose loop never ends must not fill the machine
# Tests that run for minutes and find what others find, or that measure time.
SLOW = (
    "recorded_media_can_always_be_sent",
    "ten_megabytes",
    "takes_time_in_proportion",
    "many_open_calls",
    "many_calls",
    "postgres",  # each child would start a server of its own
)
FOLLOWED = 3_000  # lines of one function in one test; what it executes later is left to other tests
LONGEST = 20.0  # seconds that a test may take while its lines are noted; a longer one is left out
SHORTEST_LIMIT = 8.0  # seconds that any test may take, however quick it was
QUICK_ENOUGH = 40.0  # seconds of tests that one mutant may cost; beyond it the slowest are left out (`--seconds`)
PYTEST = ["-q", "-s", "--assert=plain", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(ROOT)]
PYTEST += ["-k", " and ".join(f"not {name}" for name in SLOW)]


class Package(NamedTuple):
    """Modules to mutate and the tests that must notice, as names of files in `src/dragoman` and `tests`."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


_WIRE_TESTS = tuple(
    f"test_{name}.py" for name in ("anthropic", "openai_chat", "openai_responses", "gemini", "bedrock", "wire_oddities")
)
PACKAGES = {
    "history": Package(
        ("history/*.py",),
        (
            "test_entries.py",
            "test_entry_json.py",
            "test_exchanges.py",
            "test_growing.py",
            "test_handoff.py",
            "test_history_rules.py",
            "test_json.py",
            "test_json_hostile.py",
            "test_media_handoff.py",
            "test_media_values.py",
            "test_metadata_keys.py",
            "test_result_limit.py",
            "test_router.py",
            "test_sections.py",
            "test_tool_results.py",
            "test_values.py",
            "test_widgets.py",
            "test_agent_state.py",
            "test_agent_replay.py",
            "test_context_messages.py",
        ),
    ),
    "stream": Package(
        ("stream/*.py",),
        (
            "test_assembly.py",
            "test_assembly_hostile.py",
            "test_contract.py",
            "test_cuts.py",
            "test_framings.py",
            "test_guard.py",
            "test_reader.py",
            "test_recording.py",
            "test_text_calls.py",
            "test_values.py",
            "test_wholeness.py",
            *_WIRE_TESTS,
        ),
    ),
    "store": Package(
        ("store/[!p]*.py", "store/protocol.py"),  # not Postgres, whose server no child can share
        (
            "test_store_conformance.py",
            "test_store_session.py",
            "test_store_sqlite.py",
            "test_store_sqlite_positions.py",
            "test_store_files.py",
            "test_store_writer.py",
            "test_store_faults.py",
            "test_store_parts.py",
            "test_closed_loops.py",
            "test_holding.py",
            "test_hostile_rows.py",
            "test_leases.py",
        ),
    ),
    "agent": Package(
        ("agent/*.py", "tools/executor.py"),
        (
            "test_agent*.py",
            "test_cancelled_often.py",
            "test_closed_loops.py",
            "test_leases.py",
            "test_loops.py",
            "test_chat_parts.py",
            "test_media_agent.py",
            "test_refused.py",
            "test_result_limit.py",
            "test_telemetry*.py",
            "test_tool_batches.py",
            "test_tool_executor.py",
            "test_values.py",
            "test_waits_that_end.py",
        ),
    ),
}


class Coverage(NamedTuple):
    """Which tests passed, how long each took, and which lines of the mutated modules it executed."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[int]]]  # by test and file


class Runner:
    """A pytest plugin: in place of the tests' own loop it runs `job` with the collected tests."""

    def __init__(self, job: Callable[[list[pytest.Item]], None]) -> None:
        self.job = job

    def pytest_sessionstart(self) -> None:
        """Make the property tests repeatable, and quick where they fail."""
        phases = (Phase.explicit, Phase.generate)
        parent = settings.get_profile("dragoman")
        settings.register_profile("mutants", parent, derandomize=True, database=None, phases=phases)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the job."""
        self.job(session.items)
        return True


# ---------------------------------------------------------------------------- which tests execute which lines


def measure(items: list[pytest.Item], files: frozenset[str], package: str) -> Coverage:
    """Return what each passing test executed: from the last run where neither its file nor the modules have changed."""
    cache = ROOT / "build" / f"mutants-{package}.json"
    known = json.loads(cache.read_text(encoding="utf-8")) if cache.exists() else {}
    digests = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in map(Path, files)}
    digests |= {str(item.path): hashlib.sha256(item.path.read_bytes()).hexdigest() for item in items}

    def key(item: pytest.Item, fact: dict[str, Any]) -> str:
        """What the fact depends on: the file of the test, and the modules that it executes."""
        return "".join(digests.get(file, "gone") for file in (str(item.path), *sorted(fact["lines"])))

    new = [item for item in items if not (fact := known.get(item.nodeid)) or fact["key"] != key(item, fact)]
    measured = _in_child(lambda: _measure_here(new, files)) if new else {}
    if measured is None:
        raise SystemExit("the run without a mutant ended by a signal")
    facts = {}
    for item in items:
        fact = measured.get(item.nodeid) or known.get(item.nodeid)
        if fact is not None:
            facts[item.nodeid] = {**fact, "key": key(item, fact)}
    cache.parent.mkdir(exist_ok=True)
    cache.write_text(json.dumps(facts), encoding="utf-8")
    passed = {test: fact for test, fact in facts.items() if fact["seconds"] is not None}
    return Coverage(
        {test: fact["seconds"] for test, fact in passed.items()},
        {test: fact["lines"] for test, fact in passed.items()},
    )


def _measure_here(items: list[pytest.Item], files: frozenset[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    caches = _caches()
    for index, item in enumerate(items):
        for cache in caches:
            cache.cache_clear()  # else only the first test that asks executes what is behind it
        tracer = _Tracer(files)
        begin = time.perf_counter()
        signal.signal(signal.SIGALRM, _end_test)
        signal.setitimer(signal.ITIMER_REAL, LONGEST)
        with tracer:
            passed = _passes(item, items[index + 1] if index + 1 < len(items) else None)
        signal.setitimer(signal.ITIMER_REAL, 0)
        facts[item.nodeid] = {"seconds": time.perf_counter() - begin if passed else None, "lines": tracer.hits()}
    return facts


def _end_test(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"the test takes longer than {LONGEST:g} seconds")


class _Tracer:
    """Notes which lines run. Once every line of a function has run, it is not followed any more."""

    def __init__(self, files: frozenset[str]) -> None:
        self.files = files
        self.left: dict[CodeType, set[int] | None] = {}
        self.followed: Counter[CodeType] = Counter()

    def __enter__(self) -> None:
        threading.settrace(self._enter_frame)
        sys.settrace(self._enter_frame)

    def __exit__(self, *_exc: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _enter_frame(self, frame: FrameType, _event: str, _arg: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in self.left:
            wanted = code.co_filename in self.files
            self.left[code] = {line for _, _, line in code.co_lines() if line} if wanted else None
        return self._run_line if self.left[code] and self.followed[code] < FOLLOWED else None

    def _run_line(self, frame: FrameType, event: str, _arg: Any) -> Callable[..., Any] | None:
        left = self.left[frame.f_code]
        self.followed[frame.f_code] += 1
        if event == "line" and left is not None:
            left.discard(frame.f_lineno)
        if not left or self.followed[frame.f_code] > FOLLOWED:
            frame.f_trace_lines = False
            return None
        return self._run_line

    def hits(self) -> dict[str, list[int]]:
        hits: dict[str, set[int]] = {}
        for code, left in self.left.items():
            if left is not None:
                ran = {line for _, _, line in code.co_lines() if line} - left
                hits.setdefault(code.co_filename, set()).update(ran)
        return {file: sorted(lines) for file, lines in hits.items()}


# ---------------------------------------------------------------------------- one mutant


def tests_of(mutant: Mutant, coverage: Coverage, quick_enough: float) -> list[str]:
    """Return the tests that execute the mutant, quickest first, as many as take `quick_enough` seconds together.

    For code that runs at import they are the tests that execute its module, for a constant also those that execute a
    module beside it that imports from it, and tests that execute no module at all: these look at tables and classes.
    """
    file = str(mutant.path)
    found: list[str] = []
    if mutant.function:
        found = [test for test, hit in coverage.lines.items() if not mutant.lines.isdisjoint(hit.get(file, ()))]
    if not found:  # also a function that only the import calls
        readers = {file, *(_importers(mutant.path) if mutant.place == "<module>" else ())}
        found = [test for test, hit in coverage.lines.items() if not hit or not readers.isdisjoint(hit)]
    found.sort(key=coverage.seconds.__getitem__)
    total = 0.0
    kept: list[str] = []
    for test in found:
        total += coverage.seconds[test]
        if total > quick_enough and kept:
            break
        kept.append(test)
    return kept


@functools.cache
def _importers(path: Path) -> frozenset[str]:
    """Return the modules beside this one that import from it."""
    phrase = f"from .{path.stem} import"
    return frozenset(str(each) for each in path.parent.glob("*.py") if phrase in each.read_text(encoding="utf-8"))


def noticed_by_fork(mutant: Mutant, tests: list[pytest.Item], seconds: dict[str, float]) -> str | None:
    """Return how a forked child noticed the mutant, or None."""
    answer = _in_child(lambda: {"by": _first_failure(tests, seconds) if _replace_code(mutant) else None})
    return "timeout" if answer is None else answer["by"]


def noticed_by_import(mutant: Mutant, tests: list[str], seconds: dict[str, float]) -> str | None:
    """Return how a forked child noticed the mutant that imported everything anew, the mutated module too; or None."""
    answer = _in_child(lambda: {"by": _first_failure_after_import(mutant, tests, seconds)})
    return "timeout" if answer is None else answer["by"]


def _first_failure_after_import(mutant: Mutant, tests: list[str], seconds: dict[str, float]) -> str | None:
    code = compile_mutant(mutant.path, mutant.index)
    loader = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        return code if self.path == str(mutant.path) else original(self, fullname)

    loader.get_code = get_code  # type: ignore[method-assign,assignment]  # for the one module
    for name in [name for name in sys.modules if name.partition(".")[0] in {"dragoman", "tests"}]:
        del sys.modules[name]
    noticed: list[str | None] = []

    def job(items: list[pytest.Item]) -> None:
        known = {item.nodeid: item for item in items}
        missing = [test for test in tests if test not in known]
        noticed.append(missing[0] if missing else _first_failure([known[test] for test in tests], seconds))

    signal.alarm(60)
    pytest.main([*PYTEST, *sorted({str(ROOT / test.split("::")[0]) for test in tests})], plugins=[Runner(job)])
    return noticed[0] if noticed else "import"  # the tests cannot even be collected


def _replace_code(mutant: Mutant) -> bool:
    """Give the live functions at the mutant's place its code; return False where that is impossible."""
    mutated = compile_mutant(mutant.path, mutant.index)
    codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(mutated)}
    replaced = False
    for function in _live_functions(str(mutant.path)):
        name = function.__code__.co_qualname
        new = codes.get((name, function.__code__.co_firstlineno))
        if new is None or not (name == mutant.function or name.startswith(f"{mutant.function}.")):
            continue
        if new.co_freevars != function.__code__.co_freevars:
            return False
        function.__code__ = new
        replaced = True
    for cache in _caches():
        cache.cache_clear()
    return replaced


@functools.cache
def _caches() -> "list[functools._lru_cache_wrapper[Any]]":
    found = [each for each in gc.get_objects() if type(each) is functools._lru_cache_wrapper]
    return [each for each in found if each.__module__.startswith("dragoman")]


@functools.cache
def _live_functions(file: str) -> list[FunctionType]:
    return [each for each in gc.get_objects() if type(each) is FunctionType and each.__code__.co_filename == file]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _first_failure(items: list[pytest.Item], seconds: dict[str, float]) -> str | None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for index, item in enumerate(items):
        signal.setitimer(signal.ITIMER_REAL, max(SHORTEST_LIMIT, 10 * seconds[item.nodeid]))
        if not _passes(item, items[index + 1] if index + 1 < len(items) else None):
            return item.nodeid
    signal.setitimer(signal.ITIMER_REAL, 0)
    return None


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    return not any(report.failed for report in runtestprotocol(item, nextitem=following, log=False))


def _in_child(job: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Return what the job returned in a forked child, or None if a signal ended it."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        answer: dict[str, Any] = {"by": "the runner itself"}
        try:
            answer = job()
        finally:
            with os.fdopen(writable, "w") as pipe:
                json.dump(answer, pipe)
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


# ---------------------------------------------------------------------------- all of them


def main() -> int:
    """Run the mutants that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("package", choices=PACKAGES)
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many mutants (%(default)s)")
    parser.add_argument("--only", default="", metavar="WORD", help="all mutants whose file or place holds this word")
    parser.add_argument("--again", action="store_true", help="those that survived the last run")
    parser.add_argument("--tests", nargs="*", help="other test files than those of the package")
    parser.add_argument(
        "--seconds", type=float, default=QUICK_ENOUGH, help="of tests that one mutant may cost (%(default)s)"
    )
    arguments = parser.parse_args()
    package = PACKAGES[arguments.package]
    modules = sorted(path for pattern in package.modules for path in SOURCE.glob(pattern))
    every = [mutant for path in modules for mutant in find_mutants(path)]
    chosen = [mutant for mutant in every if arguments.only in f"{mutant.path.relative_to(SOURCE)} {mutant.place}"]
    survived = ROOT / "build" / f"survivors-{arguments.package}.json"
    if arguments.again:
        names = set(json.loads(survived.read_text(encoding="utf-8")))
        chosen = [mutant for mutant in every if _name(mutant) in names]
    elif not arguments.only:
        chosen = sorted(chosen, key=lambda mutant: mutant.rank)[: arguments.sample]
    tests = sorted(str(path) for pattern in arguments.tests or package.tests for path in (ROOT / "tests").glob(pattern))
    print(f"{len(chosen)} of {len(every)} mutants of {arguments.package}", flush=True)
    unexplained: list[Mutant] = []

    def job(items: list[pytest.Item]) -> None:
        files = frozenset(map(str, modules))
        unexplained.extend(run_all(chosen, items, files, arguments.package, arguments.seconds))

    pytest.main([*PYTEST, *tests], plugins=[Runner(job)])
    survived.write_text(json.dumps([_name(mutant) for mutant in unexplained]), encoding="utf-8")
    return 1 if unexplained else 0


def run_all(
    chosen: Iterable[Mutant], items: list[pytest.Item], files: frozenset[str], package: str, quick_enough: float
) -> list[Mutant]:
    """Try every mutant, print a report, and return the survivors that no line explains."""
    begin = time.monotonic()
    coverage = measure(items, files, package)
    for item in items:
        if item.nodeid not in coverage.seconds:
            print(f"takes too long, or does not pass without a mutant: {item.nodeid}")
    passed, took = len(coverage.seconds), time.monotonic() - begin
    print(f"{passed} of {len(items)} tests pass without a mutant, {took:.0f} s", flush=True)
    known = {item.nodeid: item for item in items}
    explained = explained_mutants()
    _caches()
    for file in files:
        _live_functions(file)  # found now: what is frozen is not found any more
    gc.freeze()  # so that children share the memory
    counts = {"noticed": 0, "explained": 0, "survived": 0}
    unexplained = []
    for mutant in sorted(chosen, key=lambda mutant: (mutant.path, mutant.index)):
        tests = tests_of(mutant, coverage, quick_enough)
        noticed = None
        if mutant.function and tests:
            noticed = noticed_by_fork(mutant, [known[test] for test in tests], coverage.seconds)
        if noticed is None and tests:
            noticed = noticed_by_import(mutant, tests, coverage.seconds)
        name = _name(mutant)
        state = "noticed" if noticed else "explained" if name in explained else "survived"
        counts[state] += 1
        if state == "survived":
            unexplained.append(mutant)
            print(f"- {name} [line {min(mutant.lines)}, {len(tests)} tests]", flush=True)
    total = sum(counts.values())
    print(", ".join(f"{count} {state}" for state, count in counts.items()), f"of {total}: score", end=" ")
    print(f"{100 * counts['noticed'] / max(total, 1):.1f} %, {time.monotonic() - begin:.0f} s")
    return unexplained


def _name(mutant: Mutant) -> str:
    return f"{mutant.path.relative_to(SOURCE)} {mutant.text}"


def explained_mutants() -> frozenset[str]:
    """Return the mutants that `tests/mutants.md` names, each in a line `- file place: before → after — reason`."""
    if not EXPLAINED.exists():
        return frozenset()
    lines = EXPLAINED.read_text(encoding="utf-8").splitlines()
    return frozenset(line[2:].rpartition(" — ")[0] for line in lines if line.startswith("- "))


if __name__ == "__main__":
    sys.exit(main())
