"""Digests of the requests that recorded conversations become: a change of structure must leave every one equal.

`python -m tests.request_bytes OUT.json` renders each conversation with `Model.render` and writes a digest per
conversation, target and variant. `--against BEFORE.json` compares with an earlier output and fails where they differ.

Three kinds of digests, each over method, path, headers and body of its requests, or over the error instead:
- `alone`: at some model calls and cuts, each on a model of its own, so that no prefix is known;
- `growing`: turn by turn on one model, so that a prefix is reused;
- `settings`: the whole conversation with tools, tool choice, reasoning, caching and the other settings, for every
  provider, on every tenth conversation.
"""

import argparse
import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import dragoman
from dragoman import DragomanError, HostedTool, Message, Model, OneTool, Reasoning, ToolSpec
from dragoman.request import WireRequest
from dragoman.wire import PROVIDERS
from tests.conversations import (
    CONVERSATIONS,
    TARGETS,
    VARIANTS,
    History,
    Record,
    Target,
    cut_cases,
    read_history,
    read_records,
    turn_cases,
)

Digests = dict[str, str]

TURNS, CUTS, GROWING = 3, 2, 12
EVERY_WITH_SETTINGS = 10

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
_TOOLS = (
    ToolSpec("look", "Look around.", _SCHEMA),
    ToolSpec("look_closer", "Look again.", {**_SCHEMA, "required": ["city", "days"]}, strict=True),
)
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no cache": {"cache": False},
    "tools": {"tools": _TOOLS},
    "one tool": {"tools": _TOOLS, "tool_choice": OneTool("look")},
    "required": {"tools": _TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
    "no tool": {"tools": _TOOLS, "tool_choice": "none"},
    "effort": {"reasoning": Reasoning(effort="medium", summary=True), "tools": _TOOLS},
    "no thinking": {"reasoning": Reasoning(effort="off"), "temperature": 0.5},
    "budget": {"reasoning": Reasoning(budget_tokens=2_048), "max_tokens": 8_192},
    "schema": {"output_schema": _SCHEMA},
    "hosted": {"hosted_tools": (HostedTool("web_search"),)},
    "sampling": {"temperature": 0.3, "top_p": 0.9, "max_tokens": 100, "stop_sequences": ("END",)},
    "extensions": {"extensions": {"user": "u1", "metadata": {"a": 1}, "generationConfig": {"seed": 3}}},
    "session": {"metadata": {"session_id": "s1"}, "anchors": True, "tools": _TOOLS},
}
# Every provider, and models that a provider is told to treat in a way of their own.
NAMES = (
    *(f"{provider}:some-model" for provider in sorted(PROVIDERS)),
    *(f"{target.provider}:{target.model}" for target in TARGETS.values()),
    "anthropic:claude-opus-4-6",
    "google:gemini-2.5-pro",
    "bedrock:amazon.nova-pro-v1:0",
    "bedrock:openai.gpt-oss-120b-1:0",
    "bedrock:mistral.mistral-large-2402-v1:0",
    "openrouter:anthropic/claude-sonnet-4.5",
)


def digests_of(record: Record, number: int) -> Digests:
    """Return the digests of one conversation."""
    warnings.simplefilter("ignore")  # settings that a vendor drops are part of what is compared, not of the output
    found: Digests = {}
    for name, target in TARGETS.items():
        for variant in VARIANTS:
            history, settings = read_history(record, variant, target), _settings_of(target, variant)
            key = f"{number} {history.name} {name} {variant}"
            found[f"{key} alone"] = _digest(_alone(target, history, settings))
            found[f"{key} growing"] = _digest(_growing(target, history, settings))
    if number % EVERY_WITH_SETTINGS == 0:
        for model_name in NAMES:
            target = Target(*model_name.split(":", 1))
            history = read_history(record, "native", target)
            for kind, settings in SETTINGS.items():
                rendered = _rendered_with(target, history, dict(settings))
                found[f"{number} {history.name} {model_name} settings {kind}"] = _digest([rendered])
    return found


def _settings_of(target: Target, variant: str) -> dict[str, Any]:
    if variant == "native" and "claude" in target.model:
        return {"max_tokens": 8_192, "reasoning": Reasoning(budget_tokens=2_048)}
    return {"cache": variant == "hard"}


def _new_model(target: Target, settings: dict[str, Any]) -> Model:
    return dragoman.model(
        f"{target.provider}:{target.model}",
        api_key="not-a-real-key",
        base_url="https://provider.example/v1",
        region="us-east-1",
        project="project",
        **settings,
    )


def _alone(target: Target, history: History, settings: dict[str, Any]) -> Iterator[bytes]:
    for case in [*turn_cases(history, TURNS), *cut_cases(history, CUTS)]:
        yield _rendered(_new_model(target, settings), history, case.messages)


def _growing(target: Target, history: History, settings: dict[str, Any]) -> Iterator[bytes]:
    model = _new_model(target, settings)
    for case in turn_cases(history, GROWING):
        yield _rendered(model, history, case.messages)


def _rendered_with(target: Target, history: History, settings: dict[str, Any]) -> bytes:
    call: dict[str, Any] = {
        "tool_choice": settings.pop("tool_choice", None),
        "request_metadata": settings.pop("metadata", None),
        "cache_anchors": (0, len(history.messages) // 2) if settings.pop("anchors", False) else (),
    }
    tools: Sequence[ToolSpec] = settings.pop("tools", history.tools)
    try:
        model = _new_model(target, settings)
    except DragomanError as error:
        return repr(error).encode()
    return _rendered(model, History(history.name, history.system, history.messages, tuple(tools)), **call)


def _rendered(model: Model, history: History, messages: Sequence[Message] | None = None, **call: Any) -> bytes:
    given = history.messages if messages is None else messages
    try:
        request: WireRequest = model.render(given, history.tools, history.system, **call)
    except DragomanError as error:
        return repr(error).encode()
    return b"\n".join([request.method.encode(), request.path.encode(), repr(request.headers).encode(), request.body])


def _digest(rendered: Iterator[bytes] | Sequence[bytes]) -> str:
    digest, count = hashlib.sha256(), 0
    for request in rendered:
        digest.update(len(request).to_bytes(8, "big") + request)
        count += 1
    return f"{count}:{digest.hexdigest()[:32]}"


def main() -> None:
    """Write the digests, compare them where asked, and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.request_bytes", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="where the digests go, as JSON")
    parser.add_argument("--against", type=Path, help="digests from before the change")
    parser.add_argument("--every", type=int, default=1, help="only each n-th conversation")
    options = parser.parse_args()
    if not CONVERSATIONS.is_dir():
        raise SystemExit(f"skipped: no recorded conversations in {CONVERSATIONS.name}/ beside the checkout")
    started = time.monotonic()
    records = list(read_records(options.every))
    found: Digests = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for digests in pool.map(digests_of, records, range(0, len(records) * options.every, options.every)):
            found.update(digests)
    options.out.write_text(json.dumps(found, indent=0, sort_keys=True), encoding="utf-8")
    requests = sum(int(digest.partition(":")[0]) for digest in found.values())
    spent = time.monotonic() - started
    print(f"{len(records)} conversations: {len(found):,} digests of {requests:,} requests ({spent:.0f} s)")
    if options.against is not None:
        before: Digests = json.loads(options.against.read_text(encoding="utf-8"))
        different = [key for key, digest in found.items() if before.get(key) != digest]
        print(f"{len(found) - len(different):,} equal, {len(different):,} different")
        for key in different[:20]:
            print(f"  {key}")
        raise SystemExit(bool(different))


if __name__ == "__main__":
    main()
