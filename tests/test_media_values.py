"""Pictures and files are checked where they are made, by each maker: a person, a tool, a provider, a file."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from dragoman import Agent, ErrorCode, FileRef, Image, InvalidValue, Message, UnreadableData, from_json, to_json, tool
from dragoman.delta import ImageDelta
from dragoman.history import ModelInputEntry, entry_from_json, entry_to_json
from dragoman.message import ProviderItem, UnknownPart
from dragoman.stream import ResponseReader, assemble
from dragoman.testing import Call, ScriptedModel
from dragoman.wire import find_codec, find_dialect
from tests.agent_cases import asks, kept, result_codes, result_texts, run

INJECTED = "image/png\r\nX-Injected: yes"
NOT_TYPES = (
    "png",
    "image",
    "image/",
    "/png",
    "image/png\n",
    INJECTED,
    "a b/c",
    "im\u00e4ge/png",
    "a/" + "b" * 300,
)
DATA = base64.b64encode(b"picture").decode()

# ---------------------------------------------------------------- by hand


@pytest.mark.parametrize("mime_type", [*NOT_TYPES, "text/html", "application/pdf", ""])
def test_a_picture_has_the_media_type_of_a_picture(mime_type: str) -> None:
    for make in (Image, lambda *fields: ImageDelta("r", 0, None, *fields)):
        with pytest.raises(InvalidValue, match=r"image\.mimeType"):
            make(mime_type, b"picture")


@pytest.mark.parametrize("mime_type", NOT_TYPES)
def test_a_file_has_a_media_type_or_none(mime_type: str) -> None:
    with pytest.raises(InvalidValue, match=r"file_ref\.mimeType"):
        FileRef(data=b"x", mime_type=mime_type)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Image("image/png", b""),
        lambda: ImageDelta("r", 0, None, "image/png", b""),
        lambda: FileRef(data=b"", mime_type="image/png"),
    ],
)
def test_a_picture_of_no_bytes_is_none(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidValue, match="bytes of a picture"):
        make()


@pytest.mark.parametrize("address", ["https://x.test/a\r\nX: y", "https://x.test/a b", "https://x.test/\x00", ""])
def test_an_address_has_no_spaces_and_no_control_characters(address: str) -> None:
    for make in (lambda: Image(url=address), lambda: FileRef(url=address), lambda: FileRef(file_id=address)):
        with pytest.raises(InvalidValue):
            make()


def test_a_media_type_is_kept_in_lower_case_with_its_parameters() -> None:
    assert Image("IMAGE/Png", b"x").mime_type == "image/png"
    assert FileRef(data=b"", mime_type='Text/Plain; charset="UTF-8"').mime_type == 'text/plain; charset="UTF-8"'
    assert FileRef(data=b"x", mime_type="audio/L16;rate=24000").mime_type == "audio/l16;rate=24000"


# ---------------------------------------------------------------- by a tool


@pytest.mark.parametrize(("mime_type", "data"), [("image/png", b""), (INJECTED, b"picture"), ("text/html", b"<p>")])
def test_the_bad_picture_of_a_tool_is_a_failed_result_with_clear_words(mime_type: str, data: bytes) -> None:
    @tool
    def photo() -> Image:
        """Take a photo."""
        return Image(mime_type, data)

    agent = Agent(ScriptedModel(asks(Call("photo", {})), "Never mind."), tools=[photo])

    assert run(agent.run("a photo, please")).output == "Never mind."
    session = kept(agent)
    assert result_codes(session) == [ErrorCode.TOOL_FAILED]
    (said,) = result_texts(session)
    assert said.startswith("photo failed: ")
    assert "image." in said


# ---------------------------------------------------------------- from JSON


@pytest.mark.parametrize("payload", [{"mimeType": "image/png", "data": ""}, {"mimeType": INJECTED, "data": DATA}])
def test_json_with_a_bad_picture_is_unreadable(payload: dict[str, Any]) -> None:
    with pytest.raises(UnreadableData):
        from_json(json.dumps({"role": "user", "parts": [{"kind": "image", "payload": payload}]}))
    with pytest.raises(UnreadableData):
        from_json(json.dumps({"seq": 1, "kind": "image", "payload": payload}))


@pytest.mark.parametrize("payload", [{"mimeType": "image/png", "data": ""}, {"mimeType": INJECTED, "data": DATA}])
@pytest.mark.parametrize("kind", ["image", "file_ref"])
def test_an_entry_of_an_earlier_version_with_a_bad_picture_still_opens(kind: str, payload: dict[str, Any]) -> None:
    entry = ModelInputEntry.of("look", Image("image/png", b"x"), FileRef(data=b"x"))
    said = json.loads(entry_to_json(entry))
    said["payload"]["parts"][1:] = [{"kind": kind, "payload": payload}]
    written = json.dumps(said, separators=(",", ":")).encode()

    read = entry_from_json(written)

    assert isinstance(read, ModelInputEntry)
    assert isinstance(read.parts[1], UnknownPart)
    assert entry_to_json(read) == written


# ---------------------------------------------------------------- from a provider


def _chat(mime_type: str, data: str) -> dict[str, Any]:
    picture = {"type": "image_url", "image_url": {"url": f"data:{mime_type};base64,{data}"}}
    message = {"role": "assistant", "content": "Here.", "images": [picture]}
    return {"id": "x", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def _responses(mime_type: str, data: str) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": data}
    item["output_format"] = mime_type.partition("/")[2]
    said: dict[str, Any] = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": []}
    said["content"] = [{"type": "output_text", "text": "Here.", "annotations": []}]
    return {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [item, said]}


def _gemini(mime_type: str, data: str) -> dict[str, Any]:
    parts: list[Any] = [{"text": "Here."}, {"inlineData": {"mimeType": mime_type, "data": data}}]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


def _bedrock(mime_type: str, data: str) -> dict[str, Any]:
    picture = {"image": {"format": mime_type.partition("/")[2], "source": {"bytes": data}}}
    content: list[Any] = [{"text": "Here."}, picture]
    return {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "end_turn"}


@pytest.mark.parametrize(("mime_type", "data"), [("image/png", ""), (INJECTED, DATA), ("image/png", "\u00e4\u00e4")])
@pytest.mark.parametrize(
    ("vendor", "answer"),
    [("openrouter", _chat), ("openai", _responses), ("google", _gemini), ("bedrock", _bedrock)],
)
def test_a_bad_picture_in_an_answer_breaks_nothing_and_is_no_image(
    vendor: str, answer: Callable[[str, str], dict[str, Any]], mime_type: str, data: str
) -> None:
    dialect = find_dialect(vendor, "m")
    reader = ResponseReader(
        find_codec(dialect.specification), dialect, run_id="r", headers={"content-type": "application/json"}
    )
    deltas = reader.feed(json.dumps(answer(mime_type, data)).encode()) + reader.end()

    assembly = assemble(deltas)

    assert reader.bug is None
    # What Bedrock sends goes back as it came: bytes that are no base64 and a format that it has not are violations.
    if vendor == "bedrock" and (mime_type == INJECTED or not data.isascii()):
        assert assembly.error is not None
        assert assembly.error.error_code is ErrorCode.PROTOCOL_VIOLATION
        return
    message = assembly.message
    assert message is not None
    assert message.text == "Here."
    assert not any(isinstance(part, Image) for part in message.parts)
    if vendor != "openrouter":  # which has no item around its pictures
        assert any(isinstance(part, ProviderItem) for part in message.parts)


def test_a_good_message_is_read_back_as_it_was() -> None:
    message = Message.user(
        Image("image/png", b"x"), FileRef(url="https://x.test/\u00e4.pdf", mime_type="application/pdf")
    )
    assert from_json(to_json(message)) == message
