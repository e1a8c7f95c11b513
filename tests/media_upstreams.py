"""Three providers for a document that shows them pictures and files: each answers, and what they were sent is kept."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dragoman.testing import ReplayedResponse, ReplayTransport
from dragoman.transport import HttpRequest, HttpResponse, Timeouts

SAID = "A red square."
ANSWERS: dict[str, dict[str, Any]] = {
    "api.anthropic.com": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-5",
        "content": [{"type": "text", "text": SAID}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 9, "output_tokens": 4},
    },
    "api.openai.com": {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "gpt-5",
        "output": [
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": SAID, "annotations": []}],
            }
        ],
    },
    "generativelanguage.googleapis.com": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": SAID}]}, "finishReason": "STOP"}]
    },
}


class Upstreams:
    """The transport to all three. `sent` has the bodies that each got."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: dict[str, list[bytes]] = {host: [] for host in ANSWERS}
        (folder / "photo.png").write_bytes(red_square())
        (folder / "report.pdf").write_bytes(
            b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
        )
        monkeypatch.setattr("dragoman.transport._SHARED", [self])  # what models use that are given no transport
        for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
            monkeypatch.setenv(variable, "not-a-real-key")

    async def send(self, request: HttpRequest, timeouts: Timeouts) -> HttpResponse:
        host = urlsplit(request.url).hostname or ""
        self.sent[host].append(request.body)
        body = json.dumps(ANSWERS[host]).encode()
        answer = ReplayedResponse(chunks=(body,), headers={"content-type": "application/json"})
        return await ReplayTransport([answer]).send(request, timeouts)

    async def close(self) -> None:
        """Nothing is open."""


def red_square(size: int = 8) -> bytes:
    """A PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xff\0\0" * size) * size
    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
