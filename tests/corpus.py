"""Recorded exchanges beside the checkout, where they are; tests that need them skip where they are not."""

import base64
import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dragoman import MessageDelta
from dragoman.testing.recorded import decode_recorded
from dragoman.wire import WIRE_APIS

# The recordings of Chat vendors other than OpenAI have a file of their own.
PROTOCOLS = (*WIRE_APIS, "openai-compatible")
CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"

needs_corpus = pytest.mark.skipif(
    not CORPUS.is_dir(), reason=f"no recorded exchanges in {CORPUS.name}/ beside the checkout"
)

Record = dict[str, Any]


@cache
def records(protocol: str) -> list[Record]:
    """All exchanges of one protocol."""
    with gzip.open(CORPUS / f"{protocol}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def all_records() -> Iterator[tuple[str, Record]]:
    """Every exchange with its protocol."""
    for protocol in PROTOCOLS:
        for record in records(protocol):
            yield protocol, record


def body_of(record: Record) -> bytes:
    """The bytes of the answer."""
    response = record["response"]
    return base64.b64decode(response["body_b64"]) if "body_b64" in response else response["body"].encode()


def decode(protocol: str, record: Record, chunks: list[bytes] | None = None) -> list[MessageDelta]:
    """The deltas of the answer, fed whole or in the given chunks."""
    response = record["response"]
    return decode_recorded(
        protocol,
        body_of(record) if chunks is None else chunks,
        vendor=record["vendor"],
        status=response["status"],
        content_type=response.get("content_type") or "",
        headers=response.get("headers"),
    )
