"""What a model file says of itself: its window, and whether its chat template has a place for tools.

Reads the beginning of a GGUF file and no more of its format than two values: a key, the number of its type, its value.
"""

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

__all__ = ["MAGIC", "GgufFacts", "read_facts"]

MAGIC = b"GGUF"
# Metadata are at the beginning, before the weights. A large vocabulary takes some ten megabytes of them.
LONGEST_METADATA = 1 << 26
_UINT32, _STRING, _UINT64 = (struct.pack("<I", kind) for kind in (4, 8, 10))


class GgufFacts(NamedTuple):
    """The model's own window in tokens, None where the file does not say; whether its template takes tools."""

    context_tokens: int | None
    uses_tools: bool


def read_facts(path: Path) -> GgufFacts:
    """Return what the file says; raise OSError where it cannot be read. A file of another kind says nothing."""
    size = path.stat().st_size
    if size < len(MAGIC):
        return GgufFacts(None, False)
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), min(size, LONGEST_METADATA), access=mmap.ACCESS_READ) as head,
    ):
        template = _text_after(head, b"tokenizer.chat_template")
        has_tool_template = head.find(b"tokenizer.chat_template.tool_use") >= 0
        return GgufFacts(_number_after(head, b".context_length"), has_tool_template or b"tools" in template)


def _number_after(head: mmap.mmap, key: bytes) -> int | None:
    for kind, size in ((_UINT32, 4), (_UINT64, 8)):
        start = head.find(key + kind)
        if start >= 0:
            start += len(key) + len(kind)
            return int.from_bytes(head[start : start + size], "little") or None
    return None


def _text_after(head: mmap.mmap, key: bytes) -> bytes:
    start = head.find(key + _STRING)
    if start < 0:
        return b""
    start += len(key) + 4
    length = int.from_bytes(head[start : start + 8], "little")
    return head[start + 8 : start + 8 + length]
