"""Conversations in the forms of other libraries, and the way that each goes: in, through a history, out again.

`samples/interop` holds what other programs wrote when they were run: langchain-core 1.7, pydantic-ai 2.66, the AI SDK
5.0 and 4.3; and, talking to a scripted server: Claude Code 2.1, Codex 0.166, pi 0.74, llm 0.27 and 0.36, the OpenAI
Agents SDK 0.24. Paths and the programs' own prompts are replaced. The lists here are in the forms of the OpenAI and
Anthropic SDKs, whose types accept them.
"""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from dragoman import Message
from dragoman.history import AgentState, LevelOfDetail, to_messages
from dragoman.interop import (
    Imported,
    append_imported,
    import_agent_log,
    import_anthropic,
    import_claude_code,
    import_codex,
    import_langchain,
    import_openai_chat,
    import_openai_responses,
    import_pi,
    import_pydantic_ai,
    import_vercel_ui,
)

from .history_cases import fresh

SAMPLES = Path(__file__).parent / "samples" / "interop"
PIXEL = "iVBORw0KGgo="

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        ],
    },
    {
        "role": "assistant",
        "content": "One moment.",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "image"}'}},
            {"id": "call_2", "type": "function", "function": {"name": "look", "arguments": '{"at": '}},
            {"id": "call_3", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "A map."},
    {"role": "tool", "tool_call_id": "call_2", "content": "Not readable."},
    {"role": "tool", "tool_call_id": "call_3", "content": "a.pdf"},
    {"role": "assistant", "content": "A map and a file."},
    {"role": "user", "content": "Say something rude."},
    {"role": "assistant", "content": None, "refusal": "I would rather not."},
]

ANTHROPIC: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                "title": "a.pdf",
            },
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "notes"}},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/map.png"}},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "A map?", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "aGlkZGVu"},
            {"type": "text", "text": "One moment."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "image"}},
            {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "A map."},
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "content": [
                    {"type": "text", "text": "What?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                ],
                "is_error": True,
            },
            {"type": "text", "text": "Go on."},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "map"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            {
                "type": "text",
                "text": "A map.",
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "url": "https://example.com",
                        "title": "Maps",
                        "encrypted_index": "aW5kZXg=",
                        "cited_text": "map",
                    }
                ],
            },
        ],
    },
]

RESPONSES: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PIXEL}"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
            {"type": "input_file", "file_id": "file_1"},
        ],
    },
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "A map?"}],
        "encrypted_content": "c2VjcmV0",
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "One moment.", "annotations": []}],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "look",
        "arguments": '{"at": "image"}',
        "status": "completed",
    },
    {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "call_2",
        "name": "shell",
        "input": "ls -l",
        "status": "completed",
    },
    {"type": "function_call_output", "call_id": "call_1", "output": "A map."},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "a.pdf"},
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "map", "queries": ["map"]},
    },
    {
        "type": "message",
        "id": "msg_2",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "A map.", "annotations": []}],
    },
    {"role": "user", "content": "Thanks."},
]

# As the AI SDK wrote them before messages had parts.
VERCEL_WITHOUT_PARTS: list[dict[str, Any]] = [
    {
        "id": "u1",
        "role": "user",
        "content": "Weather?",
        "experimental_attachments": [{"contentType": "image/png", "url": f"data:image/png;base64,{PIXEL}"}],
    },
    {
        "id": "a1",
        "role": "assistant",
        "createdAt": "2026-01-02T03:04:05Z",
        "reasoning": "Look it up.",
        "content": "One moment.",
        "toolInvocations": [
            {
                "state": "result",
                "step": 0,
                "toolCallId": "call_1",
                "toolName": "weather",
                "args": {"city": "Paris"},
                "result": {"celsius": 9},
            },
            {"state": "call", "toolCallId": "call_2", "toolName": "weather", "args": {"city": "Oslo"}},
        ],
    },
]

AGENT_LOG: dict[str, Any] = {
    "id": "run-1",
    "source": "made up",
    "model": "some-model",
    "messages": [
        {"role": "system", "parts": [{"kind": "text", "text": "Be brief."}]},
        {
            "role": "user",
            "timestamp": "2026-01-02T03:04:05Z",
            "parts": [
                {"kind": "text", "text": "What is this?"},
                {"kind": "image", "media_type": "image/png", "bytes": 8},
            ],
        },
        {"role": "user", "meta": {"injected": True}, "parts": [{"kind": "text", "text": "It is late."}]},
        {
            "role": "assistant",
            "usage": {"input": 1, "output": 5, "cache_read": 100, "cache_write": 20},
            "parts": [
                {"kind": "thinking", "text": "A map?"},
                {"kind": "text", "text": "One moment."},
                {"kind": "tool_call", "id": "c1", "name": "look", "arguments": {"at": "image"}},
                {"kind": "tool_call", "id": "c2", "name": "look", "arguments": '{"at": '},
                {"kind": "tool_call", "id": "c3", "name": "wait", "arguments": {}},
            ],
        },
        {
            "role": "tool",
            "timestamp": "2026-01-02T03:04:09Z",
            "parts": [
                {"kind": "tool_result", "id": "c1", "name": "look", "text": "A map."},
                {"kind": "tool_result", "id": "c2", "name": "look", "text": "What?", "is_error": True},
                {
                    "kind": "tool_result",
                    "id": "c3",
                    "name": "wait",
                    "text": "[no result recorded]",
                    "is_error": True,
                    "synthetic": True,
                },
            ],
        },
        {"role": "user", "meta": {"compact_summary": True}, "parts": [{"kind": "text", "text": "So far …"}]},
        {"role": "assistant", "parts": [{"kind": "text", "text": "A map."}]},
    ],
    "tools": [],
    "stats": {"messages": 7},
}


def sample(name: str) -> bytes:
    """Return what a library wrote."""
    return (SAMPLES / f"{name}.json").read_bytes()


def transcript(name: str) -> list[dict[str, Any]]:
    """Return the lines of a session file that a program wrote."""
    return [json.loads(line) for line in (SAMPLES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def make_database(name: str, folder: Path) -> Path:
    """Return a database that holds what a program wrote."""
    path = folder / f"{name}.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((SAMPLES / f"{name}.sql").read_text(encoding="utf-8"))
    return path


# Every form: how it is imported, and a conversation in it.
FORMS: dict[str, tuple[Callable[[Any], Imported], Any]] = {
    "openai_chat": (import_openai_chat, CHAT),
    "openai_responses": (import_openai_responses, RESPONSES),
    "anthropic": (import_anthropic, ANTHROPIC),
    "vercel_4": (import_vercel_ui, sample("vercel_4")),
    "vercel_without_parts": (import_vercel_ui, VERCEL_WITHOUT_PARTS),
    "vercel_5": (import_vercel_ui, sample("vercel_5")),
    "langchain_dict": (import_langchain, sample("langchain_dict")),
    "langchain_dumpd": (import_langchain, sample("langchain_dumpd")),
    "pydantic_ai": (import_pydantic_ai, sample("pydantic_ai")),
    "agent_log": (import_agent_log, AGENT_LOG),
    "claude_code": (import_claude_code, transcript("claude_code")),
    "codex": (import_codex, transcript("codex")),
    "pi": (import_pi, transcript("pi")),
}


# The forms that are lines of JSON, not one value.
TRANSCRIPTS = ("claude_code", "codex", "pi")


def written(form: str) -> str:
    """Return a conversation as text in its form."""
    source = FORMS[form][1]
    plain = json.loads(source) if isinstance(source, bytes) else source
    return "\n".join(map(json.dumps, plain)) if form in TRANSCRIPTS else json.dumps(plain)


def recorded(imported: Imported) -> AgentState:
    """Return a history of the imported conversation alone."""
    state = fresh(widgets=())
    append_imported(state, imported)
    return state


def messages_of(state: AgentState) -> tuple[Message, ...]:
    """Return everything that the history says, nothing shortened."""
    return tuple(to_messages(state.render_live_context(lambda _age: LevelOfDetail.LIVE)))
