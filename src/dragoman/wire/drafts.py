"""A conversation that is read from another format: `Draft` collects it, `Imported` is the result. Knows no format."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from .._fieldtypes import require_field_types
from ..errors import ErrorCode
from ..message import Message, MessageMeta, Part, Role, ToolResult, UnknownPart
from .reading import Node, Notes, reading

__all__ = ["ERROR_CODE_KEY", "Draft", "Imported"]

# The key in `meta.extra` of a tool message under which the error code of a failed call is stored.
ERROR_CODE_KEY = "errorCode"


class Imported(msgspec.Struct, frozen=True):
    """A conversation of another program: its system text, its messages, and warnings about changes and omissions.

    `session_id` is the id that the conversation had there, where its format says it.
    """

    system: str | None
    messages: tuple[Message, ...]
    warnings: tuple[str, ...] = ()
    session_id: str | None = None

    def __post_init__(self) -> None:
        require_field_types(self)


class Draft:
    """Collects the messages of one import."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.notes = Notes()
        self.messages: list[Message] = []
        self.session_id: str | None = None
        self._system: list[str] = []

    def add_system(self, text: str) -> None:
        """Add a system text. Before any message it is the instruction; later it is a system message."""
        if self.messages:
            self.messages.append(Message.system(text))
        elif text:
            self._system.append(text)

    def add(
        self,
        role: Role,
        parts: list[Part],
        *,
        timestamp: datetime | None = None,
        extra: dict[str, Any] | None = None,
        run_id: str = "",
    ) -> None:
        """Add a message; `extra` are fields of its format that a message here does not have."""
        meta = MessageMeta(extra=extra)
        known = None if meta.extra is None else meta
        self.messages.append(Message(role, tuple(parts), run_id, timestamp, known))

    def add_result(
        self,
        result: ToolResult,
        *,
        timestamp: datetime | None = None,
        error_code: ErrorCode | None = None,
        extra: dict[str, Any] | None = None,
        run_id: str = "",
    ) -> None:
        """Add the result of a call; `extra` as in `add`."""
        code = {ERROR_CODE_KEY: error_code.value} if error_code is not None else {}
        self.add(Role.TOOL, [result], timestamp=timestamp, extra={**(extra or {}), **code} or None, run_id=run_id)

    def stamp(self, since: int, timestamp: datetime | None, extra: dict[str, Any] | None = None) -> None:
        """Give the messages from an index on the time and the further fields of the line that they came from."""
        for index, message in enumerate(self.messages[since:], since):
            meta = message.meta or MessageMeta()
            if extra:
                meta = replace(meta, extra={**(meta.extra or {}), **extra})
            known = None if meta == MessageMeta() else meta
            self.messages[index] = replace(message, timestamp=timestamp, meta=known)

    def own_fields(self, node: Node, known: frozenset[str]) -> dict[str, Any] | None:
        """Return the fields beside the known ones, under the name of the format."""
        rest = node.rest(known)
        return {self.form: rest} if rest else None

    def unshown(self, node: Node, kind: str) -> UnknownPart:
        """Return a part that keeps the node whole. No model is shown it."""
        self.notes.add(node.where, f"{kind[:40]!r} is kept as it is and shown to no model")
        with reading(node.where):
            return UnknownPart(f"{self.form}.{kind}", node.whole())

    def result(self, *sources: Node) -> Imported:
        """Return the import, with a warning for each field of its sources that the reader did not read."""
        for source in sources:
            for where, name in source.unseen():
                self.notes.add(where, f"{name[:40]!r} is not carried over")
        system = "\n\n".join(self._system) or None
        return Imported(system, tuple(self.messages), self.notes.all(), self.session_id)
