"""What a model is told of an MCP result: everything once. The samples are what official servers send, shortened."""

import base64
import json
from typing import Any

import pytest
from mcp import types

from dragoman import Image
from dragoman.history import to_plain_text
from dragoman.tools.definition import ToolOutput
from dragoman.tools.mcp_results import read_result

PICTURE = base64.b64encode(bytes(3_000)).decode()
SOUND = base64.b64encode(b"RIFF" + bytes(3_000)).decode()
LONG = "The whole story. " * 100
ENTITIES = [{"name": "Ann", "entityType": "person", "observations": ["tall"]}]


def told(content: list[Any], structured: Any) -> ToolOutput:
    result = types.CallToolResult.model_validate({"content": content, "structuredContent": structured})
    return read_result(result, str)


def text_of(output: ToolOutput) -> str:
    return to_plain_text(output.levels().live)


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


IMAGE = {"type": "image", "data": PICTURE, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": SOUND, "mimeType": "audio/wav"}
BLOB = {"type": "resource", "resource": {"uri": "file:///n.bin", "mimeType": "application/octet-stream", "blob": SOUND}}


@pytest.mark.parametrize(
    ("content", "structured", "expected"),
    [
        # server-filesystem: read_text_file, list_directory, directory_tree
        ([text("hello\nworld\n")], {"content": "hello\nworld\n"}, "hello\nworld\n"),
        ([text('{"x": 1}')], {"content": '{"x": 1}'}, '{"x": 1}'),
        # server-memory: create_entities, add_observations, read_graph
        ([text(json.dumps(ENTITIES, indent=2))], {"entities": ENTITIES}, json.dumps(ENTITIES, indent=2)),
        ([text(json.dumps([], indent=2))], {"results": []}, "[]"),
        ([text('{"entities": []}')], {"entities": []}, '{"entities": []}'),
        # the Python SDK: one text for each item of a list
        ([text("Ada"), text("Grace")], {"result": ["Ada", "Grace"]}, "Ada\n\nGrace"),
        ([text("3")], {"result": 3}, "3"),
        # wrapped twice
        ([text("hello")], {"result": {"content": "hello"}}, "hello"),
    ],
)
def test_what_structured_content_wraps_is_told_once(content: list[Any], structured: Any, expected: str) -> None:
    assert text_of(told(content, structured)) == expected


@pytest.mark.parametrize("block", [IMAGE, AUDIO, BLOB])
def test_media_that_structured_content_wraps_are_not_told_as_base64(block: dict[str, Any]) -> None:
    for structured in ({"content": [block]}, {"content": block}, {"media": [block], "width": 8}, {"width": 8, **block}):
        output = told([block], structured)
        assert PICTURE[:100] not in text_of(output)
        assert SOUND[:100] not in text_of(output)
        assert output.attachments == ([Image("image/png", bytes(3_000))] if block is IMAGE else [])
        assert ("width" in text_of(output)) == ("width" in structured)


def test_a_long_text_is_not_repeated_beside_what_structure_adds() -> None:
    said = text_of(told([text(LONG)], {"success": True, "message": LONG}))
    assert said.count(LONG) == 1
    assert '{"success":true,"message":"[as above]"}' in said


@pytest.mark.parametrize(
    ("content", "structured"),
    [
        ([text("Deleted.")], {"success": True, "message": "Deleted."}),
        ([text("3")], {"unread": 3}),
        ([text("It is cold.")], {"celsius": 3}),
        ([text("1")], {"result": True}),
        ([IMAGE], {"width": 8}),
    ],
)
def test_what_the_content_does_not_say_is_told(content: list[Any], structured: Any) -> None:
    compact = json.dumps(structured, separators=(",", ":"))
    assert text_of(told(content, structured)).endswith(compact)


@pytest.mark.parametrize("structured", [{}, {"result": None}, {"result": []}])
def test_nothing_is_told_of_a_result_that_says_nothing(structured: Any) -> None:
    assert text_of(told([], structured)) == ""
