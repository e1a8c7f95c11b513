"""The chat's own tools: a folder that cannot be left, a calculator that cannot be kept busy, the time."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import InvalidValue, ToolError
from dragoman.cli.chat import tools as module
from dragoman.cli.chat.calculator import calculate
from dragoman.cli.chat.tools import builtin_tools
from dragoman.folders import ConfinedFolder
from dragoman.tools import FunctionTool

OUTSIDE = "this is outside"
Call = Callable[..., str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with files, and with every kind of door that leads out of it."""
    (tmp_path / "secret.txt").write_text(OUTSIDE)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.txt").write_text(OUTSIDE)
    root = tmp_path / "root"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    (root / "sub" / "b.py").write_text("def b():\n    return 'two'\n")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "up").symlink_to("..")
    (root / "sub" / "out").symlink_to(tmp_path / "elsewhere")
    (root / "inner").symlink_to("a.txt")
    (root / "loop").symlink_to("loop")
    (root / "data.bin").write_bytes(b"\x00\x01two\x02")
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture
def tools(root: Path) -> dict[str, Call]:
    """The tools of that folder, as functions."""
    found = builtin_tools(root)
    assert all(isinstance(tool, FunctionTool) for tool in found)
    return {tool.name: tool for tool in found}  # type: ignore[misc]  # they can be called


# ---------------------------------------------------------------- which tools there are


def test_without_a_folder_there_are_no_file_tools(root: Path) -> None:
    assert [tool.name for tool in builtin_tools()] == ["calculate", "current_time"]
    assert [tool.name for tool in builtin_tools(root)][:3] == ["list_files", "read_file", "search_files"]


def test_tools_are_chosen_by_name(root: Path) -> None:
    assert [tool.name for tool in builtin_tools(root, ("files",))] == ["list_files", "read_file", "search_files"]
    assert [tool.name for tool in builtin_tools(None, ("calculate",))] == ["calculate"]
    with pytest.raises(InvalidValue, match="there is no built-in tool 'shell'"):
        builtin_tools(root, ("shell",))
    with pytest.raises(InvalidValue, match="needs a folder"):
        builtin_tools(None, ("read_file",))


def test_a_folder_that_is_none_is_refused(root: Path) -> None:
    for place in (root / "nothing", root / "a.txt"):
        with pytest.raises(InvalidValue, match="there is no folder"):
            builtin_tools(place)


# ---------------------------------------------------------------- reading


def test_files_are_listed_with_what_they_are(tools: dict[str, Call]) -> None:
    assert tools["list_files"]().splitlines() == [
        "a.txt  14",
        "data.bin  6",
        "inner  (a link, not followed)",
        "link.txt  (a link, not followed)",
        "loop  (a link, not followed)",
        "pipe  (no plain file)",
        "sub/",
        "up  (a link, not followed)",
    ]
    listed = tools["list_files"]("sub", recursive=True).splitlines()
    assert listed == ["sub/b.py  26", "sub/deep/", "sub/out  (a link, not followed)"]


def test_lines_of_a_file_are_read_with_their_numbers(tools: dict[str, Call]) -> None:
    assert tools["read_file"]("a.txt") == "1: one\n2: two\n3: three"
    assert tools["read_file"]("./a.txt", 2, 2) == "2: two\n[the file goes on after line 2]"
    assert tools["read_file"]("sub//b.py", 2) == "2:     return 'two'"
    assert tools["read_file"]("a.txt", 9) == "[the file has 3 lines]"


def test_what_is_found_is_named_by_file_and_line(tools: dict[str, Call]) -> None:
    assert tools["search_files"]("TWO") == "a.txt:2: two\nsub/b.py:2:     return 'two'"
    assert tools["search_files"]("two", "sub") == "sub/b.py:2:     return 'two'"
    assert tools["search_files"]("two", "a.txt") == "a.txt:2: two"
    assert tools["search_files"]("two", ".", "*.py") == "sub/b.py:2:     return 'two'"
    assert tools["search_files"]("nowhere to be found") == "[nothing was found]"


def test_secrets_are_blanked_out(tools: dict[str, Call], root: Path) -> None:
    (root / ".env").write_text("OPENAI_API_KEY=sk-" + "proj-0123456789abcdefghij\n")
    assert "0123456789" not in tools["read_file"](".env")
    assert "0123456789" not in tools["search_files"]("openai")


def test_lines_and_hits_are_bounded(tools: dict[str, Call], root: Path) -> None:
    (root / "long.txt").write_text("x" * 1_000_000 + "\n" + "many\n" * 10_000)
    read = tools["read_file"]("long.txt")
    assert len(read.splitlines()) == module.MOST_LINES + 1
    assert max(map(len, read.splitlines())) < module.LONGEST_LINE + 20
    assert len(tools["search_files"]("many").splitlines()) == module.MOST_HITS + 1


def test_a_huge_file_is_not_read_to_its_end(tools: dict[str, Call], root: Path) -> None:
    with (root / "huge.txt").open("wb") as file:
        for _ in range(module.MOST_BYTES // 2**20 + 1):
            file.write(b"x" * 2**20)
        file.write(b"\nthe end\n")
    first, second = tools["read_file"]("huge.txt").splitlines()
    assert first == f"1: {'x' * module.LONGEST_LINE}…"
    assert second == "2: [the file is too large to be read on]"
    assert "the end" not in tools["search_files"]("the end")


def test_a_list_and_a_search_of_many_files_are_bounded(tools: dict[str, Call], root: Path) -> None:
    many = root / "many"
    many.mkdir()
    for number in range(module.MOST_FILES + 1):
        (many / f"{number:06}.txt").touch()
    (many / "last.txt").write_text("here")
    assert len(tools["list_files"]("many").splitlines()) == module.MOST_ENTRIES + 1
    assert tools["search_files"]("here", "many") == "[there may be more: look in a folder of it]"


def test_a_deep_tree_ends(tools: dict[str, Call], root: Path) -> None:
    deep = root / "d"
    for _ in range(60):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "bottom.txt").write_text("bottom")
    assert "bottom" not in tools["list_files"](".", recursive=True)


# ---------------------------------------------------------------- no way out

ESCAPES = [
    "../secret.txt",
    "..",
    "sub/../../secret.txt",
    "sub/deep/../../../secret.txt",
    "./../secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "~/secret.txt",
    "~",
    "link.txt",
    "up/secret.txt",
    "up",
    "sub/out/secret.txt",
    "sub/out",
    "inner",
    "loop",
    "loop/x",
    "pipe",
    "a.txt/../../secret.txt",
    "a.txt/x",
    "\0",
    "a.txt\0.png",
    "x" * 5_000,
    "/".join(["sub"] * 3_000),
    "\ud800",
    "file:///etc/passwd",
    "\\..\\..\\secret.txt",
]


@pytest.mark.parametrize("path", ESCAPES, ids=lambda path: repr(path[:30]))
def test_no_path_leads_out_or_to_what_is_no_file(tools: dict[str, Call], tmp_path: Path, path: str) -> None:
    for tool, arguments in (("read_file", (path,)), ("search_files", ("outside", path)), ("search_files", ("x", path))):
        with pytest.raises(ToolError) as refused:
            tools[tool](*arguments)
        assert OUTSIDE not in str(refused.value)
        assert str(tmp_path) not in str(refused.value)


@pytest.mark.parametrize("path", [path for path in ESCAPES if path not in ("a.txt", "pipe", "inner")])
def test_no_folder_outside_can_be_listed(tools: dict[str, Call], path: str) -> None:
    for recursive in (False, True):
        with pytest.raises(ToolError):
            tools["list_files"](path, recursive=recursive)


def test_nothing_outside_is_found_or_listed(tools: dict[str, Call]) -> None:
    assert tools["search_files"]("outside") == "[nothing was found]"
    assert "secret" not in tools["list_files"](".", recursive=True)


def test_an_absolute_path_to_the_folder_itself_is_refused(tools: dict[str, Call], root: Path) -> None:
    with pytest.raises(ToolError, match="relative to the folder"):
        tools["read_file"](str(root / "a.txt"))


def test_a_socket_and_a_device_are_refused(root: Path) -> None:
    folder = ConfinedFolder(root)
    short = Path(os.path.relpath(root / "s"))
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(short))
        with pytest.raises(ToolError, match="no plain file"), folder.open_file("s"):
            pass
    finally:
        listener.close()
    with pytest.raises(ToolError, match="no plain file"), ConfinedFolder("/dev").open_file("zero"):
        pass


def test_a_file_that_may_not_be_read_is_told(tools: dict[str, Call], root: Path) -> None:
    (root / "gone").mkdir()
    folder = ConfinedFolder(root / "gone")
    (root / "gone").rmdir()
    with pytest.raises(ToolError, match="there is no such file or folder"):
        folder.list_folder(".")


@pytest.fixture
def swapped(root: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder in which somebody swaps a file and a folder for links that lead out, over and over."""
    (root / "swap").mkdir()
    (root / "swap" / "secret.txt").write_text("inside")
    (root / "file.txt").write_text("inside")
    is_over = threading.Event()

    def swap() -> None:
        hidden, door, file_door = root / "hidden", root / "door", root / "file_door"
        door.symlink_to(tmp_path / "elsewhere")
        file_door.symlink_to(tmp_path / "secret.txt")
        while not is_over.is_set():
            (root / "swap").rename(hidden)
            door.rename(root / "swap")
            (root / "swap").rename(door)
            hidden.rename(root / "swap")
            (root / "file.txt").rename(hidden)
            file_door.rename(root / "file.txt")
            (root / "file.txt").rename(file_door)
            hidden.rename(root / "file.txt")

    thread = threading.Thread(target=swap)
    thread.start()
    yield root
    is_over.set()
    thread.join()


def test_links_that_are_swapped_in_lead_nowhere(swapped: Path) -> None:
    tools: dict[str, Any] = {tool.name: tool for tool in builtin_tools(swapped)}
    outcomes: set[str] = set()
    for _ in range(3_000):
        for path in ("swap/secret.txt", "file.txt"):
            try:
                outcomes.add(tools["read_file"](path))
            except ToolError as refused:
                outcomes.add(type(refused).__name__)
    assert "1: inside" in outcomes
    assert not any(OUTSIDE in outcome for outcome in outcomes)


def test_without_steps_links_are_not_followed_either(root: Path) -> None:
    folder = ConfinedFolder(root, by_steps=False)
    with folder.open_file("sub/b.py") as file:
        assert file.readline() == b"def b():\n"
    assert folder.list_folder("sub")[0].path == "sub/b.py"
    for path in ("up/secret.txt", "sub/out/secret.txt", "link.txt", "../secret.txt", "pipe", "loop/x", "nothing/x"):
        with pytest.raises(ToolError), folder.open_file(path):
            pass


# ---------------------------------------------------------------- the calculator


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("2**10", 1024),
        ("2^10", 1024),
        ("7 // 2 + 7 % 2", 4),
        ("1 / 4", 0.25),
        ("-3 + +5", 2),
        ("6 × 7 ÷ 2 − 1", 20),  # noqa: RUF001  # as people write it
        ("sqrt(16) + abs(-2)", 6),
        ("round(2.567, 1)", 2.6),
        ("max(1, 2, 3) - min(4, 5)", -1),
        ("factorial(5)", 120),
        ("gcd(12, 18)", 6),
        ("1_000 * 2", 2000),
        ("1e3 + .5", 1000.5),
        ("log10(1000)", 3),
        ("10**400 / 10**399", 10),
    ],
)
def test_an_expression_is_computed(expression: str, result: float) -> None:
    assert calculate(expression) == pytest.approx(result)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "two plus two",
        "__import__('os').system('id')",
        "().__class__",
        "open('/etc/passwd')",
        "x = 1",
        "(x := 1)",
        "lambda: 0",
        "[1][0]",
        "{1: 2}",
        "'a' * 10",
        "f'{1}'",
        "1 if 1 else 2",
        "1if 1else 2",
        "1 < 2",
        "not 1",
        "~1",
        "1 << 9",
        "1 and 2",
        "True",
        "abs",
        "abs(x=1)",
        "abs(*(1,))",
        "abs(1)(2)",
        "pi.real",
        "1, 2",
        "5 5",
        "1;2",
        "1\n2",
        "5pi",
        "0x10",
        "1j",
        "9**9**9",
        "9**9**9**9",
        "10**100000",
        "2**-100000",
        "(10**1000)**(10**1000)",
        "factorial(100000)",
        "factorial(2.5)",
        "factorial(-1)",
        "round(10**1000, -10**9)",
        "round(1, 0.5)",
        "10**1000 * 10**1000",
        "1e308 * 10",
        "1e999",
        "exp(1000)",
        "1 / 0",
        "7 % 0",
        "0 ** -1",
        "(-8) ** 0.5",
        "sqrt(-1)",
        "log(0)",
        "10**1000 / 3.0",
        "min()",
        "abs(1, 2)",
        "(" * 240 + "1" + ")" * 240,
        "-" * 499 + "1",
        "1+" * 249 + "1",
        "9" * 501,
        "1e" + "9" * 400,
        "\0",
        "1\u202e+1",
        "\N{FULLWIDTH DIGIT ONE}+1",
    ],
    ids=lambda expression: repr(expression[:30]),
)
def test_what_is_no_cheap_arithmetic_is_refused(expression: str) -> None:
    with pytest.raises(ToolError, match="cannot be computed"):
        calculate(expression)


@given(st.text(alphabet="0123456789.+-*/%()eE_, piabsqrtlogfun^", max_size=60))
def test_no_text_does_anything_but_give_a_number_or_a_refusal(expression: str) -> None:
    try:
        result = calculate(expression)
    except ToolError:
        return
    assert isinstance(result, (int, float))


# ---------------------------------------------------------------- the time


def test_the_time_of_a_zone_is_told_and_no_path_is_a_zone(tools: dict[str, Call]) -> None:
    assert "+00:00 (UTC)" in tools["current_time"]("UTC")
    assert tools["current_time"]()[-1] == ")"
    for wrong in ("Nowhere/Land", "../../etc/passwd", "/etc/localtime", "\0", "x" * 5_000):
        with pytest.raises(ToolError, match="there is no time zone"):
            tools["current_time"](wrong)
