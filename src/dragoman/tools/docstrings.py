"""Reads the first paragraph and the parameters of a docstring in the style of Google, NumPy or Sphinx."""

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

__all__ = ["Docstring", "class_docstring", "read_docstring"]

_PARAMETER_SECTIONS = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters", "attributes"}
)
_GOOGLE_SECTION = re.compile(r"([A-Z][A-Za-z ]{2,24}):\s*")
_GOOGLE_PARAMETER = re.compile(r"\*{0,2}(\w++)\s*+(?:\([^()]*+(?:\([^()]*+\)[^()]*+)*+\)\s*+)?:\s*+(.*)")
_NUMPY_RULE = re.compile(r"-{3,}+\s*+")
_NUMPY_PARAMETER = re.compile(r"(\*{0,2}\w++(?:\s*+,\s*+\*{0,2}\w++)*+)\s*+(?::.*)?")
_SPHINX_FIELD = re.compile(r":(\w++)(?:\s++([^:]*+))?:\s*+(.*)")
_SPHINX_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword", "ivar", "var", "cvar"})

# The names that a line describes (empty if it ends the text before it, None if it continues it), and its text.
_Marked: TypeAlias = tuple[list[str] | None, str]


class Docstring(NamedTuple):
    """The first paragraph of a docstring, and the descriptions of parameters by name."""

    summary: str | None
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Docstring:
    """Return the parts of a docstring; in a style that is not known, no parameter has a description."""
    if not text or not text.strip():
        return Docstring(None, {})
    lines = inspect.cleandoc(text).splitlines()
    parameters: dict[str, str] = {}
    for found in (_sphinx_parameters(lines), _numpy_parameters(lines), _google_parameters(lines)):
        for name, says in _collect(found):
            if name and says:
                parameters.setdefault(name, says)
    return Docstring(_summary(lines), parameters)


def class_docstring(cls: type) -> Docstring:
    """Return the parts of a class's own docstring; the one that `@dataclass` writes is left out."""
    text = cls.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{cls.__name__}("):
        return Docstring(None, {})
    return read_docstring(text)


def _summary(lines: list[str]) -> str | None:
    paragraph: list[str] = []
    for line in lines:
        if not line.strip() or _starts_section(line):
            break
        paragraph.append(line.strip())
    return " ".join(paragraph) or None


def _starts_section(line: str) -> bool:
    google = _GOOGLE_SECTION.fullmatch(line)
    return bool((google and google[1].lower() in _PARAMETER_SECTIONS) or _sphinx_field(line))


def _collect(marked: Iterable[_Marked]) -> Iterator[tuple[str, str]]:
    """Each name with the text that follows it, up to the next names."""
    names, said = list[str](), list[str]()
    for begun, text in (*marked, ([], "")):
        if begun is not None:
            yield from ((name, " ".join(said)) for name in names)
            names, said = begun, []
        if text.strip():
            said.append(text.strip())


def _google_parameters(lines: list[str]) -> Iterator[_Marked]:
    """Indented lines under `Args:`; deeper ones continue the text."""
    inside, depth = False, 0
    for line in filter(str.strip, lines):
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            section = _GOOGLE_SECTION.fullmatch(line)
            inside, depth = bool(section and section[1].lower() in _PARAMETER_SECTIONS), 0
            yield [], ""
        elif inside:
            found = _GOOGLE_PARAMETER.fullmatch(line.strip()) if indent <= (depth or indent) else None
            depth = depth or (indent if found else 0)
            yield ([found[1]], found[2]) if found else (None, line)


def _numpy_parameters(lines: list[str]) -> Iterator[_Marked]:
    """Names at the margin under a ruled heading, the text indented below them."""
    inside = False
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if not line.strip() or line[0].isspace():
            yield None, line
            continue
        if _NUMPY_RULE.fullmatch(after):
            inside = line.strip().lower() in _PARAMETER_SECTIONS
            yield [], ""
            continue
        found = _NUMPY_PARAMETER.fullmatch(line) if inside and not _NUMPY_RULE.fullmatch(line) else None
        yield [name.strip().lstrip("*") for name in found[1].split(",")] if found else [], ""


def _sphinx_parameters(lines: list[str]) -> Iterator[_Marked]:
    """Fields like `:param int limit: how many`; indented lines continue the text."""
    for line in lines:
        field = _sphinx_field(line)
        if field is not None and field[1] in _SPHINX_PARAMETERS and field[2]:
            yield [field[2].split()[-1].lstrip("*\\")], field[3]
        else:
            continues = field is None and line.strip() and line[0].isspace()
            yield (None, line) if continues else ([], "")


def _sphinx_field(line: str) -> re.Match[str] | None:
    return _SPHINX_FIELD.fullmatch(line)
