"""Long strings out of the JSON of an entry, and back into it, byte for byte. Knows no database.

Images, files and long results repeat: two entries hold a result, its `tool finished` and the results of its turn.
Cut out, each is kept once. Base64 is kept as the bytes that it means.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["BLOB_SIZE", "Piece", "cut_pieces", "put_back"]

BLOB_SIZE = 4096  # bytes of a JSON string from which on it is kept apart

_JSON_STRING = re.compile(rb'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)


class Piece(NamedTuple):
    """What was cut out, and where it belongs in what was left."""

    offset: int
    is_base64: bool
    data: bytes


def cut_pieces(entry: bytes) -> tuple[bytes, list[Piece]]:
    """Return the entry with every long string emptied, and the pieces that `put_back` needs."""
    if len(entry) < BLOB_SIZE:
        return entry, []
    left: list[bytes] = []
    pieces: list[Piece] = []
    end = size = 0
    for found in _JSON_STRING.finditer(entry):
        if found.end(1) - found.start(1) >= BLOB_SIZE:
            left.append(entry[end : found.start(1)])
            size += len(left[-1])
            end = found.end(1)
            pieces.append(_piece(size, found[1]))
    left.append(entry[end:])
    return b"".join(left), pieces


def put_back(left: bytes, pieces: Iterable[Piece]) -> bytes:
    """Return the entry that was cut; `pieces` are in the order of their offsets."""
    whole: list[bytes] = []
    end = 0
    for offset, is_base64, data in pieces:
        whole += (left[end:offset], b64encode(data) if is_base64 else data)
        end = offset
    whole.append(left[end:])
    return b"".join(whole)


def _piece(offset: int, text: bytes) -> Piece:
    if len(text) % 4 == 0:
        try:
            data = b64decode(text, validate=True)
        except Error:
            return Piece(offset, False, text)
        if b64encode(data) == text:
            return Piece(offset, True, data)
    return Piece(offset, False, text)
