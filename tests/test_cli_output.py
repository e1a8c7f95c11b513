"""What is printed is safe for a terminal, fits it, and has colour only where that was asked for."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.cli.output import Output, display_width, fitted, json_text, one_line, printable, wrapped, write_table

DANGEROUS = [
    "\x1b[31mred",  # colour
    "\x1b]0;title\x07",  # the title of the window
    "\x1b]52;c;aGk=\x07",  # the clipboard
    "\x9b31m",  # the same in one character
    "\x90q\x9c",
    "a\rb",
    "a\x08b",
    "\x00\x07\x7f",
    "\u202eevil\u202c",
    "\u2066x\u2069",
    "\ud83d",
    "\ufeffhidden",
    "a\u2060b\u2061c\u2065d\u206ae",
    "\U000e0001\U000e0041\U000e007f\U000e0100",  # tag characters: ASCII that nobody sees
]
# Ranges of what may not pass, but for line breaks and tabs.
UNSAFE = [
    (0x00, 0x1F),
    (0x7F, 0x9F),
    (0x2028, 0x202E),
    (0x2060, 0x206F),
    (0xD800, 0xDFFF),
    (0xFEFF, 0xFEFF),
    (0xE0000, 0xE0FFF),
]


class Terminal(io.StringIO):
    """A stream that says that a person sees it."""

    def isatty(self) -> bool:
        return True


def is_safe(text: str) -> bool:
    codes = {ord(character) for character in text} - {ord("\n"), ord("\t")}
    return not any(first <= code <= last for code in codes for first, last in UNSAFE)


@pytest.mark.parametrize("text", DANGEROUS)
def test_what_could_steer_a_terminal_is_written_out(text: str) -> None:
    assert is_safe(printable(text))
    assert is_safe(one_line(text))


def test_it_can_be_seen_what_was_there() -> None:
    assert printable("\x1b[31m\u202e\x9b") == r"\x1b[31m\u202e\x9b"
    assert printable("a\u2060\ufeff\U000e0041") == r"a\u2060\ufeff\U000e0041"


@pytest.mark.parametrize(("first", "last"), UNSAFE)
def test_json_has_none_of_it_and_means_the_same(first: int, last: int) -> None:
    for code in (first, last):
        text = json_text(chr(code))
        assert is_safe(text)
        assert json.loads(text) == chr(code)


def test_line_breaks_tabs_and_ordinary_characters_stay() -> None:
    text = "a\tb\nÄ 日本 👩\u200d🔬 שלום"
    assert printable(text) == text
    assert printable("a\r\nb") == "a\nb"


@given(st.text(st.characters()))
def test_whatever_is_printed_is_safe_and_printing_twice_changes_nothing(text: str) -> None:
    assert is_safe(printable(text))
    assert printable(printable(text)) == printable(text)
    assert "\n" not in one_line(text)


@given(st.recursive(st.text(st.characters(codec="utf-8")), lambda inner: st.lists(inner)))
def test_json_is_safe_and_means_the_same(value: object) -> None:
    text = json_text(value)
    assert is_safe(text)
    assert json.loads(text) == value


@pytest.mark.parametrize("text", DANGEROUS)
@pytest.mark.parametrize("color", ["never", "always"])
def test_nothing_of_others_passes_an_output(text: str, color: str) -> None:
    stream = io.StringIO()
    output = Output(stream, color=color)
    output.write(text, "red")
    output.line(text)
    output.indented(text, "dim")
    output.json({"said": text})
    ours = stream.getvalue().replace("\x1b[31m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert is_safe(ours)


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_color_is_for_terminals_that_want_it(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    Output(terminal).write("x", "red")
    assert terminal.getvalue() == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv(variable, "1" if variable == "NO_COLOR" else "dumb")
    plain = Terminal()
    Output(plain).write("x", "red")
    assert plain.getvalue() == "x"


def test_a_pipe_gets_no_color_unless_it_is_asked_for() -> None:
    pipe = io.StringIO()
    Output(pipe).write("x", "red")
    Output(pipe, color="always").write("y", "red")
    assert pipe.getvalue() == "x\x1b[31my\x1b[0m"


def test_an_encoding_that_lacks_characters_still_gets_json() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, "ascii", errors="backslashreplace")
    Output(stream).json({"a": "é 👍"}, indent=None)
    stream.flush()
    assert json.loads(raw.getvalue()) == {"a": "é 👍"}


def test_a_table_on_a_terminal_is_not_wider_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    write_table(Output(terminal), ("ID", "N", "WORDS"), [("a", "1", "x" * 80), ("b", "20", "日本" * 40)])
    lines = terminal.getvalue().splitlines()
    assert len(lines) == 3
    assert max(map(display_width, lines)) <= 40
    assert lines[1].endswith("…")


def test_a_table_in_a_pipe_is_whole() -> None:
    pipe = io.StringIO()
    write_table(Output(pipe), ("N", "WORDS"), [("1", "x" * 200)], right=frozenset({0}))
    assert pipe.getvalue() == f"N  WORDS\n1  {'x' * 200}\n"


@given(st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" ")), st.integers(2, 30))
def test_wrapping_loses_nothing_but_spaces_and_fits(text: str, width: int) -> None:
    pieces = wrapped(text, width)
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")
    assert all(display_width(piece) <= width for piece in pieces)


@given(st.text(), st.integers(1, 20))
def test_what_is_cut_to_fit_fits(text: str, width: int) -> None:
    assert display_width(fitted(text, width)) <= max(width, 1)
