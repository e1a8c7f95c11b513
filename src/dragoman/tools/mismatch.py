"""How a value that does not fit is described to a model: in one line, with a few characters of it at most."""

from .subschemas import json_type

__all__ = ["NAMES", "Mismatch", "quote", "shown_name"]

_QUOTED = 40  # characters of a value that a message may quote

# What a message to a model calls the JSON types.
NAMES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}


class Mismatch(Exception):
    """A value that fits its schema, but not its Python type: what is wrong, and the path to it."""

    def __init__(self, says: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(says)
        self.says = says
        self.path = path

    def under(self, step: str | int) -> "Mismatch":
        """Return the same mismatch with one more step in front of its path."""
        return Mismatch(self.says, (step, *self.path))


def quote(value: object) -> str:
    """Return a value as a message to a model may show it: itself if it is short, else its kind."""
    kind = json_type(value)
    if kind in ("array", "object"):
        return NAMES[kind]
    if isinstance(value, str):
        return repr(value) if len(value) <= _QUOTED else f"text of {len(value)} characters"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= 10**_QUOTED:
        return "a very large number"
    return repr(value)


def shown_name(name: str, length: int = 60) -> str:
    """Return a name as a message or a record may show it: on one line, and cut if it is long."""
    cut = name if len(name) <= length else f"{name[:length]}…"
    return cut if cut.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in cut)
