"""What is printed, and how: the one place where text of models, tools and files is made safe for a terminal.

Knows no command. Everything goes through `Output.write`, which lets no control character of others through; colour is
added here and nowhere else.
"""

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

__all__ = [
    "Output",
    "PrintablePieces",
    "confirm",
    "display_width",
    "fitted",
    "json_text",
    "one_line",
    "printable",
    "safe_json",
    "unbroken",
    "wants_color",
    "warn",
    "wrapped",
    "write_table",
]

# What a terminal may take for a command, what turns the direction of text around, and what is invisible, by which text
# can say something to a model that a person who copies it has not read. In Unicode's words: Cc, Cf, Zl, Zp, Cs and
# Default_Ignorable_Code_Point (which Python does not know), but for visible signs (Prepended_Concatenation_Mark), line
# breaks and tabs; and U+2800, a Braille sign without dots, which Unicode calls a symbol and which looks like a space.
# `tests/test_cli_output.py` holds the table against these properties.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_JOINERS = "\u200c\u200d"
_PRESENTATIONS = "\ufe0e\ufe0f"  # as text or as a picture
_NOT_ASCII = re.compile("[^\x00-\x7f]")
_STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_RESET = "\x1b[0m"
NARROWEST = 20
NARROW = 60  # columns, below which a table has no room


def printable(text: str) -> str:
    """Return a whole text with everything that could steer a terminal, or that is invisible, written out, as `\\x1b`.

    One joiner after a letter or an emoji, and one presentation selector after an emoji, may pass: Persian, Hindi and
    `👩‍💻` need them. `PrintablePieces` takes a text that comes in pieces.
    """
    return _UNSAFE.sub(_written_out, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return the text on one line, its white space made single spaces, safe to print."""
    return printable(" ".join(text.split()))


def unbroken(text: str) -> str:
    """Return a name or an id on one line, safe to print: a line break in it is written out, white space stays."""
    return printable(text).replace("\n", "\\n")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON that is safe to print; it means the same."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    return safe_json(text)


def safe_json(text: str) -> str:
    """Return JSON text with what could steer a terminal escaped, as JSON does it; it means the same."""
    return _UNSAFE.sub(_escaped, text)


def display_width(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def fitted(text: str, width: int) -> str:
    """Return the text cut to a width, with a mark where something is left out."""
    if display_width(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += _columns(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…"


def wrapped(text: str, width: int) -> list[str]:
    """Return one line of text cut into pieces of at most this width, all of it, at spaces where there are some."""
    pieces: list[str] = []
    line, used, space = "", 0, 0
    for character in text:
        columns = _columns(character)
        if used + columns > width and line:
            cut = space if space > 0 else len(line)
            pieces.append(line[:cut])
            line = line[cut:].removeprefix(" ")
            used, space = display_width(line), 0
        if character == " " and line:
            space = len(line)
        line += character
        used += columns
    return [*pieces, line]


def wants_color(stream: TextIO, setting: str = "auto") -> bool:
    """Whether a stream gets colour: not where it is no terminal or NO_COLOR is set, unless `always` was asked for."""
    if setting != "auto":
        return setting == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


class PrintablePieces:
    """Makes a text printable that comes in pieces: together they are what `printable` makes of the whole."""

    def __init__(self) -> None:
        self._held = ""  # a carriage return, which may be the first half of a line break
        self._last = ""  # the end of what was returned, before it was made printable

    def feed(self, piece: str) -> str:
        """Return what can be shown now; a carriage return at the end is kept for the next piece."""
        text, self._held = self._held + piece, ""
        if text.endswith("\r"):
            text, self._held = text[:-1], "\r"
        return self._shown(text.replace("\r\n", "\n"))

    def end(self) -> str:
        """Return what was kept; the next piece begins another text."""
        held, self._held = self._held, ""
        shown, self._last = self._shown(held), ""
        return shown

    def _shown(self, text: str) -> str:
        # `_written_out` only looks back, and at no more than two characters: the first part does not change.
        shown = _UNSAFE.sub(_written_out, self._last + text)[len(_UNSAFE.sub(_written_out, self._last)) :]
        self._last = (self._last + text)[-2:]
        return shown


class Output:
    """A stream for people. `color` is `auto`, `always` or `never`."""

    def __init__(self, stream: TextIO | None = None, *, color: str = "auto") -> None:
        self._stream = stream or sys.stdout
        self._pieces = PrintablePieces()
        self._has_color = wants_color(self._stream, color)

    @property
    def is_terminal(self) -> bool:
        """Whether a person sees it as it is written."""
        return self._stream.isatty()

    @property
    def is_narrow(self) -> bool:
        """Whether a table must do with fewer columns."""
        return self.is_terminal and self.width < NARROW

    @property
    def width(self) -> int:
        """How many columns there are; 80 where it is unknown."""
        return max(shutil.get_terminal_size((80, 24)).columns, NARROWEST)

    def write(self, text: str, style: str = "") -> None:
        """Write text, made safe, in a style: words of `_STYLES`. `end` or a `line` comes after the last piece."""
        self._put(self._pieces.feed(text), style)

    def end(self) -> None:
        """Write what was kept of a text that came in pieces."""
        self._stream.write(self._pieces.end())

    def line(self, text: str = "", style: str = "") -> None:
        """Write text and a line break."""
        self._put(self._pieces.feed(text) + self._pieces.end(), style)
        self._stream.write("\n")

    def indented(self, text: str, style: str = "", *, by: int = 4) -> None:
        """Write a text of any number of lines, each moved to the right."""
        for each in printable(text).split("\n"):
            self.line(" " * by + each if each else "", style)

    def json(self, value: Any, *, indent: int | None = 2) -> None:
        """Write a value as JSON, with a line break."""
        self.json_piece(json_text(value, indent=indent) + "\n")

    def json_line(self, encoded: bytes) -> None:
        """Write JSON that is encoded already, as one line."""
        self.json_piece(encoded.decode("utf-8", "replace") + "\n")

    def json_piece(self, text: str, *, is_exact: bool = False) -> None:
        """Write JSON text, safe unless it shall be `exact`: then every character stays, but not on a terminal."""
        if not is_exact or self.is_terminal:
            text = safe_json(text)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        if encoding.lower().replace("-", "") != "utf8":  # what the encoding lacks must still be JSON
            text = _NOT_ASCII.sub(_escaped, text)
        self.end()
        self._stream.write(text)

    def flush(self) -> None:
        """Show what was written so far."""
        self._stream.flush()

    def _put(self, safe: str, style: str) -> None:
        if style and safe and self._has_color:
            codes = ";".join(_STYLES[word] for word in style.split())
            # Each line on its own, so that a cut by `head` or `less` leaves no colour behind.
            safe = "\n".join(f"\x1b[{codes}m{line}{_RESET}" if line else "" for line in safe.split("\n"))
        self._stream.write(safe)


def write_table(
    output: Output, head: Sequence[str], rows: Iterable[Sequence[str]], *, right: frozenset[int] = frozenset()
) -> None:
    """Write rows under a head, columns aligned; on a terminal the last column is cut to fit."""
    cells = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(display_width(row[column]) for row in cells) for column in range(len(head))]
    last = len(head) - 1
    if output.is_terminal:
        widths[last] = max(output.width - sum(widths[:last]) - 2 * last, 8)
    for number, row in enumerate(cells):
        texts = [fitted(cell, width) for cell, width in zip(row, widths, strict=True)]
        padded = [
            _padded(text, widths[column], right=column in right) if column < last or column in right else text
            for column, text in enumerate(texts)
        ]
        output.line("  ".join(padded).rstrip(), "" if number else "dim")


def warn(words: str) -> None:
    """Write one line to standard error, with the program's name before it: the name of a file may hold line breaks."""
    sys.stderr.write(f"dragoman: {unbroken(words)}\n")


def confirm(question: str) -> bool:
    """Ask on the terminal and return whether the answer was yes; without a terminal it is no."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    sys.stderr.write(f"{unbroken(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _padded(text: str, width: int, *, right: bool) -> str:
    padding = " " * (width - display_width(text))
    return padding + text if right else text + padding


def _columns(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.combining(character) or character in _JOINERS + _PRESENTATIONS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _escaped(found: re.Match[str]) -> str:
    if _is_needed(found):
        return found[0]
    # json leaves U+007F as it is; what is beyond U+FFFF is two escapes.
    return "\\u007f" if found[0] == "\x7f" else json.dumps(found[0])[1:-1]


def _written_out(found: re.Match[str]) -> str:
    if _is_needed(found):
        return found[0]
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_needed(found: re.Match[str]) -> bool:
    """Whether an invisible character belongs to the one before it. A second one in a row never does."""
    text, offset = found.string, found.start()
    if offset == 0:
        return False
    last = text[offset - 1]
    if found[0] in _PRESENTATIONS:
        return last in "0123456789#*" or _is_emoji(last)
    if found[0] not in _JOINERS:
        return False
    if last == "\ufe0f":
        return offset > 1 and _is_emoji(text[offset - 2])
    is_letter = not last.isascii() and unicodedata.category(last)[0] in "LM" and _UNSAFE.match(last) is None
    return is_letter or _is_emoji(last)


def _is_emoji(character: str) -> bool:
    """Whether it may be one: a sign, or of a block of emoji that this Python may not know yet."""
    is_sign = not character.isascii() and unicodedata.category(character) in ("So", "Sm", "Sk", "Po", "Pd")
    return is_sign or "\U0001f000" <= character <= "\U0001faff" or character == "\N{INFORMATION SOURCE}"
