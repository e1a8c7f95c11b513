"""A docstring to what it says: its first paragraph, and a line for each parameter. Google, NumPy and Sphinx styles."""

import inspect
import re
from collections.abc import Iterator
from typing import NamedTuple

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


class Docstring(NamedTuple):
    """What a docstring says: of the whole in its first paragraph, and of the parameters by name."""

    summary: str | None
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Docstring:
    """Return what the docstring says; what is in no known style says nothing of the parameters."""
    if not text or not text.strip():
        return Docstring(None, {})
    lines = inspect.cleandoc(text).splitlines()
    parameters: dict[str, str] = {}
    for found in (_sphinx_parameters(lines), _numpy_parameters(lines), _google_parameters(lines)):
        for name, says in found:
            if says:
                parameters.setdefault(name, says)
    return Docstring(_summary(lines), parameters)


def class_docstring(cls: type) -> Docstring:
    """Return what a class says in its own docstring; one that was made by a decorator says nothing."""
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


def _google_parameters(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Indented lines under `Args:`; deeper ones go on with what was said."""
    inside, depth = False, 0
    name, said = "", list[str]()
    for line in [*lines, "End:"]:
        indent = len(line) - len(line.lstrip())
        section = _GOOGLE_SECTION.fullmatch(line) if indent == 0 else None
        found = _GOOGLE_PARAMETER.fullmatch(line.strip()) if inside and indent else None
        if line.strip() and (indent == 0 or (found and (not depth or indent <= depth))):
            if name:
                yield name, " ".join(said)
            name, said = "", []
        if section is not None or (indent == 0 and line.strip()):
            inside, depth = bool(section and section[1].lower() in _PARAMETER_SECTIONS), 0
        elif found and (not depth or indent <= depth):
            depth = depth or indent
            name, said = found[1], [found[2].strip()] if found[2].strip() else []
        elif name and line.strip():
            said.append(line.strip())


def _numpy_parameters(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Names at the margin under a ruled heading, what they are indented below each."""
    inside = False
    names, said = list[str](), list[str]()
    following = [*lines[1:], ""]
    for line, after in zip([*lines, "End"], [*following, "---"], strict=True):
        at_margin = bool(line.strip()) and not line[0].isspace()
        is_heading = at_margin and bool(_NUMPY_RULE.fullmatch(after))
        if at_margin and names:
            yield from ((name, " ".join(said)) for name in names)
            names, said = [], []
        if is_heading:
            inside = line.strip().lower() in _PARAMETER_SECTIONS
        elif inside and at_margin and not _NUMPY_RULE.fullmatch(line):
            found = _NUMPY_PARAMETER.fullmatch(line)
            names = [name.strip().lstrip("*") for name in found[1].split(",")] if found else []
        elif names and line.strip():
            said.append(line.strip())


def _sphinx_parameters(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Fields like `:param int limit: how many`; indented lines go on with what was said."""
    name, said = "", list[str]()
    for line in [*lines, ":end:"]:
        field = _sphinx_field(line)
        if field is not None or not line.strip() or not line[0].isspace():
            if name:
                yield name, " ".join(said)
            name, said = "", []
        if field is not None and field[1] in _SPHINX_PARAMETERS and field[2]:
            name, said = field[2].split()[-1].lstrip("*\\"), [field[3].strip()] if field[3].strip() else []
        elif name and line.strip():
            said.append(line.strip())


def _sphinx_field(line: str) -> re.Match[str] | None:
    return _SPHINX_FIELD.fullmatch(line)
