"""What is printed is safe for a terminal, fits it, and has colour only where that was asked for."""

import io
import json
from functools import cache

import jsonschema_rs
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
    "a\u200bb\u00adc\u034fd\u061ce\u115ff\u180eg\u3164h\ufff9i\uffa0j\u17b4k\ufe01l",
    "a\u200db 1\u200c2 é\u200d\u200d👩\u200c\u200dx\ufe0f",  # joiners that join nothing
    "a\u2800b",
    "\U000e0001\U000e0041\U000e007f\U000e0100",  # tag characters: invisible ASCII
]
_UNSEEN = jsonschema_rs.validator_for({"pattern": r"^[\p{Default_Ignorable_Code_Point}\p{Cf}\p{Cc}\p{Zl}\p{Zp}]$"})
_VISIBLE = jsonschema_rs.validator_for({"pattern": r"^\p{Prepended_Concatenation_Mark}$"})
_MAY_PASS = "\u200c\u200d\ufe0e\ufe0f"  # where they belong to what is before them


@cache
def is_unsafe(character: str) -> bool:
    """Say by Unicode's properties, which Python knows in part, whether a character may not pass by itself."""
    if "\ud800" <= character <= "\udfff" or character in "\n\t":
        return character not in "\n\t"
    if character == "\u2800":  # a Braille sign without dots: a symbol by its properties, and nothing to see
        return True
    return _UNSEEN.is_valid(character) and not _VISIBLE.is_valid(character)


class Terminal(io.StringIO):
    """A stream that says that a person sees it."""

    def isatty(self) -> bool:
        return True


def is_safe(text: str) -> bool:
    return not any(is_unsafe(character) and character not in _MAY_PASS for character in text)


def test_what_is_written_out_is_what_unicode_calls_invisible_or_control() -> None:
    # Beyond plane 1 nothing is defined but ideographs and plane 14, whose first 4,096 are all of its kind.
    codes = [*range(0x20000), *range(0xE0000, 0xE2000), *range(0x2FFF0, 0x30010)]
    wrong = [f"{code:04x}" for code in codes if (printable(chr(code)) != chr(code)) != is_unsafe(chr(code))]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "👩\u200d💻 👩🏽\u200d🚀 👨\u200d👩\u200d👧",
        "❤\ufe0f ❤\ufe0f\u200d🔥 ☺\ufe0e ©\ufe0f ‼\ufe0f 〰\ufe0f \N{INFORMATION SOURCE}\ufe0f",
        "1\ufe0f\u20e3 #\ufe0f\u20e3",
        "می\u200cشود",  # Persian
        "क्\u200dष",  # Hindi: a joiner after a mark
        "\u0600\u0661",  # Arabic number sign: a format character that is seen
    ],
)
def test_what_scripts_and_emoji_are_made_of_stays(text: str) -> None:
    assert printable(text) == text
    assert json_text(text) == f'"{text}"'
    stream = io.StringIO()
    output = Output(stream)
    for character in text:
        output.write(character)  # as models stream it
    assert stream.getvalue() == text


@given(st.lists(st.text(st.characters() | st.sampled_from("\r\n👩💻\u200d\u200c\ufe0f❤é1"), max_size=4), max_size=20))
def test_a_text_in_pieces_is_printed_as_the_whole(pieces: list[str]) -> None:
    stream = io.StringIO()
    output = Output(stream)
    for piece in pieces:
        output.write(piece)
    output.end()
    assert stream.getvalue() == printable("".join(pieces))


@pytest.mark.parametrize(
    ("pieces", "shown"), [(("a\r", "\nb"), "a\nb\n"), (("a\r", "b"), "a\\x0db\n"), (("a\r",), "a\\x0d\n")]
)
def test_a_line_break_that_is_cut_is_one_line_break(pieces: tuple[str, ...], shown: str) -> None:
    stream = io.StringIO()
    output = Output(stream)
    for piece in pieces:
        output.write(piece)
    output.line()
    assert stream.getvalue() == shown


def test_a_run_of_joiners_is_written_out_however_it_is_cut() -> None:
    stream = io.StringIO()
    output = Output(stream)
    for piece in ("👩\u200d", "\u200d", "\u200c", "💻"):
        output.write(piece)
    assert stream.getvalue() == "👩\u200d\\u200d\\u200c💻"


@pytest.mark.parametrize("text", DANGEROUS)
def test_what_could_steer_a_terminal_is_written_out(text: str) -> None:
    assert is_safe(printable(text))
    assert is_safe(one_line(text))


def test_it_can_be_seen_what_was_there() -> None:
    assert printable("\x1b[31m\u202e\x9b") == r"\x1b[31m\u202e\x9b"
    assert printable("a\u2060\ufeff\U000e0041") == r"a\u2060\ufeff\U000e0041"


@pytest.mark.parametrize("text", DANGEROUS)
def test_json_has_none_of_it_and_means_the_same(text: str) -> None:
    shown = json_text(text)
    assert is_safe(shown)
    assert json.loads(shown) == text


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
