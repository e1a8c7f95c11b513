"""Pictures and files from paths, bytes and URLs, with the media type found out."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman import FileRef, Image, InvalidValue, Message, from_json, to_json
from dragoman.mediatypes import _BEGINNINGS, guess_type

PNG = b"\x89PNG\r\n\x1a\n rest"
BYTES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "image/gif": b"GIF89a rest",
    "image/webp": b"RIFF\x10\0\0\0WEBPVP8 ",
    "image/bmp": b"BM\x10\0\0\0\0\0\0\0\x36",
    "image/tiff": b"II*\0\x08\0",
    "image/heic": b"\0\0\0\x18ftypheic",
    "image/avif": b"\0\0\0\x18ftypavif",
    "image/svg+xml": b'<?xml version="1.0"?>\n<svg xmlns="x">',
    "application/pdf": b"%PDF-1.7\n\xe2",
    "audio/wav": b"RIFF\x10\0\0\0WAVEfmt ",
    "audio/mpeg": b"ID3\x03\0rest",
    "audio/ogg": b"OggS\0rest",
    "audio/flac": b"fLaC\0rest",
    "audio/mp4": b"\0\0\0\x18ftypM4A rest",
    "video/quicktime": b"\0\0\0\x18ftypqt  rest",
    "video/mp4": b"\0\0\0\x18ftypisomrest",
    "video/webm": b"\x1aE\xdf\xa3rest",
    "application/zip": b"PK\3\4rest",
}


def test_every_beginning_has_an_example() -> None:
    assert set(BYTES) == {kind for _, kind in _BEGINNINGS}


@pytest.mark.parametrize("kind", BYTES)
def test_bytes_say_their_type_and_count_for_more_than_a_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_bytes(BYTES[kind])
    assert FileRef.from_bytes(BYTES[kind]).mime_type == kind
    assert guess_type(None, BYTES[kind]) == kind
    if kind not in ("application/zip", "video/mp4", "audio/ogg", "video/webm"):
        assert FileRef.from_path(path) == FileRef(data=BYTES[kind], mime_type=kind, name="wrong.txt")
    if kind.startswith("image/"):
        assert Image.from_path(path) == Image.from_bytes(BYTES[kind]) == Image(kind, BYTES[kind])


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.docx", BYTES["application/zip"], "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("a.unknown", BYTES["application/zip"], "application/zip"),
        ("a.m4a", BYTES["video/mp4"], "audio/mp4"),
        ("A.PDF", b"junk before %PDF-", "application/pdf"),
        ("notes.md", b"# Notes", "text/markdown"),
        ("notes.log", b"BM is no picture, ID3 no sound", "text/plain"),
        ("Makefile", "Gr\u00fc\u00dfe".encode(), "text/plain"),
        ("table.xls", b"\xd0\xcf\x11\xe0", "application/vnd.ms-excel"),
    ],
)
def test_where_bytes_do_not_tell_the_name_does_and_text_is_text(name: str, data: bytes, kind: str) -> None:
    assert FileRef.from_bytes(data, name=name).mime_type == kind


def test_the_type_that_is_given_counts() -> None:
    assert FileRef.from_bytes(b"\0\1", mime_type="Application/X-Own").mime_type == "application/x-own"
    assert Image.from_bytes(b"\0\1", mime_type="image/x-own").mime_type == "image/x-own"
    assert Image.from_url("https://x.org/p", mime_type="image/png").mime_type == "image/png"


@pytest.mark.parametrize("data", [b"", b"\0\1\2", b"\xfe\xff"])
def test_an_unknown_type_is_refused_with_what_to_do(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"the media type of the file cannot be told from its bytes: give it as"):
        FileRef.from_bytes(data)
    with pytest.raises(InvalidValue, match=r"the media type of 'a\.bin' cannot be told from its bytes or its name"):
        FileRef.from_bytes(data, name="a.bin")
    with pytest.raises(InvalidValue, match="the media type of the picture cannot be told"):
        Image.from_bytes(data)


@pytest.mark.parametrize("kind", ["application/pdf", "video/mp4"])
def test_a_file_that_is_no_picture_is_refused_as_one(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.dat"
    path.write_bytes(BYTES[kind])
    with pytest.raises(InvalidValue, match=rf"^'photo\.dat' is {kind}, and no picture: use FileRef for it$"):
        Image.from_path(path)
    with pytest.raises(InvalidValue, match="no picture"):
        Image.from_bytes(BYTES[kind])
    with pytest.raises(InvalidValue, match="no picture"):
        Image.from_url("https://x.org/a.pdf")


@pytest.mark.parametrize("maker", [Image.from_path, FileRef.from_path])
def test_a_path_that_cannot_be_read_is_told(maker: Callable[[Any], object], tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    for path, words in {
        tmp_path / "none.png": "none.png' cannot be read: No such file",
        tmp_path: "cannot be read: Is a directory",
        tmp_path / "empty.png": "empty.png' is empty",
        Path("nul\0.png"): "NUL",
    }.items():
        with pytest.raises(InvalidValue, match=words):
            maker(path)
    with pytest.raises(InvalidValue, match="the path of a file"):
        maker(3)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names")
@pytest.mark.parametrize("maker", [Image.from_path, FileRef.from_path])
def test_a_pipe_or_device_is_refused_before_it_is_opened(maker: Callable[[Any], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path / "pipe.png", Path(os.devnull)):
        with pytest.raises(InvalidValue, match="is a pipe or a device, and no file"):
            maker(path)


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "link").symlink_to("a.png")
    assert Image.from_path(tmp_path / "link") == Image("image/png", PNG)


@pytest.mark.parametrize("name", ["photo.php", "v2.1", "a.unknown"])
def test_a_picture_at_a_url_whose_ending_is_unknown_has_an_open_type(name: str) -> None:
    assert Image.from_url(f"https://x.org/{name}?id=3") == Image(url=f"https://x.org/{name}?id=3")


@pytest.mark.parametrize("url", ["data:application/x-own;base64,U0VDUkVU", "https://x.org/get/?U0VDUkVU"])
def test_an_error_does_not_quote_a_url(url: str) -> None:
    with pytest.raises(InvalidValue, match="the media type of the file at this URL") as raised:
        FileRef.from_url(url)
    assert "U0VDUkVU" not in str(raised.value)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidValue, match="name must be text"):
        FileRef.from_bytes(b"x", name=3)  # type: ignore[arg-type]  # the mistake


def test_a_url_says_its_type_by_its_name() -> None:
    assert Image.from_url("https://x.org/a/Photo%20One.JPG?size=3#x").mime_type == "image/jpeg"
    assert Image.from_url("https://x.org/picture") == Image(url="https://x.org/picture")
    file = FileRef.from_url("https://x.org/report%20one.pdf?x=1")
    assert file == FileRef(url="https://x.org/report%20one.pdf?x=1", mime_type="application/pdf", name="report one.pdf")
    assert FileRef.from_url("gs://bucket/talk.mp3").mime_type == "audio/mpeg"
    assert FileRef.from_url("data:application/pdf;base64,JVBERi0=").mime_type == "application/pdf"


@pytest.mark.parametrize("url", ["https://x.org/report", "https://x.org/", "https://x.org/a.unknown", "data:,x"])
def test_a_file_by_a_url_without_a_type_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue, match="cannot be told from its name: give it as mime_type="):
        FileRef.from_url(url)


@pytest.mark.parametrize("url", ["photo.png", "/tmp/photo.png", "", "https://[x/a.png", 3])
def test_what_is_no_url_is_refused(url: str) -> None:
    for maker in (Image.from_url, FileRef.from_url):
        with pytest.raises(InvalidValue):
            maker(url)


@pytest.mark.parametrize("data", ["text", None, bytearray(PNG), 3])
def test_only_bytes_are_bytes(data: bytes) -> None:
    for maker in (Image.from_bytes, FileRef.from_bytes):
        with pytest.raises(InvalidValue):
            maker(data)


def test_what_was_made_is_a_part_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(PNG)
    message = Message.user("Look.", Image.from_path(path), FileRef.from_bytes(BYTES["application/pdf"], name="a.pdf"))
    assert from_json(to_json(message)) == message
