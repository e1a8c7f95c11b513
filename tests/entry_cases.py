"""Values that tests of entries are made of."""

from datetime import UTC, datetime
from typing import Any

from dragoman import Image
from dragoman.history import HistoryToolCallResult, LevelOfDetailSections
from dragoman.message import ModelInvocationDescriptor

NOW = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)
PLACE: dict[str, Any] = {"serial": 7, "entry_id": "s:7", "timestamp": NOW, "run_id": "r"}
PICTURE = Image("image/png", b"\x00\xff")
INVOCATION = ModelInvocationDescriptor("p", "s", "m")


def result(text: str = "found", **fields: Any) -> HistoryToolCallResult:
    levels = LevelOfDetailSections.of_text(text)
    return HistoryToolCallResult(**{"tool_name": "f", "tool_call_id": "c", "result": levels, **fields})
