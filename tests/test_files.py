"""Paths and files that are not what they should be: each ends in its documented error, and none is read for ever."""

import asyncio
import gzip
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import DragomanError, ErrorCode, InvalidValue, StoreError, UnreadableData
from dragoman.cli.captures import read_answers
from dragoman.files import LARGEST_FILE, read_file
from dragoman.local.weights import find_weights
from dragoman.store import SQLiteStore
from dragoman.testing import ReplayTransport
from dragoman.testing.transports import read_recording
from tests.cli_cases import User, empty_user, require_words  # noqa: F401  # the fixture

needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
needs_zero = pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")


def refusal(path: Any) -> StoreError:
    """Return what the store says when it is first used."""

    async def use() -> None:
        async with SQLiteStore(path) as store:
            await store.create("s")

    with pytest.raises(StoreError) as raised:
        asyncio.run(use())
    return raised.value


@contextmanager
def endless(path: Path, piece: bytes) -> Iterator[Path]:
    """Have a pipe that gives the piece again and again, until the reader has gone."""
    os.mkfifo(path)

    def write() -> None:
        try:
            with path.open("wb", buffering=0) as pipe:
                while True:
                    pipe.write(piece)
        except BrokenPipeError:
            pass

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    yield path
    writer.join(timeout=30)
    assert not writer.is_alive()


# ---------------------------------------------------------------- stores


def test_a_store_is_no_folder(tmp_path: Path) -> None:
    error = refusal(tmp_path)
    assert error.code is ErrorCode.INVALID_REQUEST
    assert "is a folder" in str(error)
    assert refusal("").code is ErrorCode.INVALID_REQUEST  # the folder in which the program runs


def test_a_store_is_no_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "gone.db")
    error = refusal(tmp_path / "link.db")
    assert error.code is ErrorCode.NOT_FOUND
    assert "a link to a file that is not there" in str(error)
    assert not (tmp_path / "gone.db").exists()


@needs_pipes
def test_a_store_is_no_pipe_device_or_socket(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "socket", Path(os.devnull)):
            assert refusal(path).code is ErrorCode.INVALID_REQUEST


def test_a_store_is_in_no_file_and_has_no_endless_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file" / "store.db", tmp_path / ("a" * 300), tmp_path / ("b/" * 3_000)):
        assert "cannot be opened or created" in str(refusal(path))


def test_a_link_to_a_store_is_the_store(tmp_path: Path) -> None:
    async def use() -> None:
        async with SQLiteStore(tmp_path / "store.db") as store:
            await store.create("s")
        (tmp_path / "link.db").symlink_to(tmp_path / "store.db")
        async with SQLiteStore(tmp_path / "link.db") as store:
            assert (await store.info("s")).session_id == "s"

    asyncio.run(use())


@pytest.mark.parametrize("path", ["a\0b", "\ud800", 5, None, ["a"]])
def test_what_no_file_can_be_called_is_refused_at_once(path: Any) -> None:
    for take in (SQLiteStore, read_file, read_recording, ReplayTransport.from_recording):
        with pytest.raises(InvalidValue):
            take(path)


# ---------------------------------------------------------------- files that are read whole


@needs_pipes
@pytest.mark.parametrize("piece", [b"\0" * 65_536, b"[" * 65_536, b"{}\n" * 20_000, b" \n" * 30_000])
def test_an_endless_pipe_is_read_to_the_limit(tmp_path: Path, piece: bytes) -> None:
    with endless(tmp_path / "pipe", piece) as pipe, pytest.raises(UnreadableData, match="or it has no end"):
        read_file(pipe, limit=1 << 20)


def test_a_packed_file_is_unpacked_to_the_limit(tmp_path: Path) -> None:
    packed = tmp_path / "bomb.gz"
    packed.write_bytes(gzip.compress(bytes(1 << 21)))
    assert len(read_file(packed, limit=1 << 21)) == 1 << 21
    with pytest.raises(UnreadableData, match="larger than"):
        read_file(packed, limit=(1 << 21) - 1)
    packed.write_bytes(gzip.compress(b"{}")[:-4])
    for read in (read_file, read_recording):
        with pytest.raises(UnreadableData, match="is no gzip file, or it is damaged"):
            read(packed)


@needs_zero
def test_an_import_of_an_endless_file_is_refused(user: User) -> None:
    require_words(user.run("sessions", "import", "/dev/zero"), f"/dev/zero is larger than {LARGEST_FILE} bytes")


def test_an_import_of_what_is_no_file_is_told_in_words(user: User, tmp_path: Path) -> None:
    require_words(user.run("sessions", "import", str(tmp_path)), "holds no session files")
    (tmp_path / "link.json").symlink_to(tmp_path / "gone.json")
    require_words(user.run("sessions", "import", str(tmp_path / "link.json")), "No such file")


def test_a_capture_without_an_end_is_read_to_the_limit() -> None:
    def chunks(piece: bytes) -> Iterator[bytes]:
        for _ in range(LARGEST_FILE // len(piece) + 2):
            yield piece
        raise AssertionError("it was read beyond the limit")

    with pytest.raises(UnreadableData, match="or it has no end"):
        list(read_answers(chunks(b"{" * (1 << 24))))


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        "[]",
        "5",
        '{"response": []}',
        '{"response": {"status": 200, "body": "", "headers": []}}',
        '{"response":5}',
    ],
)
def test_a_recording_that_is_none_is_unreadable(tmp_path: Path, line: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(line)
    with pytest.raises(UnreadableData):
        read_recording(path)
    path.write_text(json.dumps({"response": {"status": 200, "body": "\ud800"}}))
    assert len(read_recording(path)) == 1


def test_weights_of_a_user_that_is_not_there_are_not_found() -> None:
    with pytest.raises(DragomanError) as raised:
        find_weights("~no-such-user-at-all/a.gguf")
    assert raised.value.code is ErrorCode.NOT_FOUND
