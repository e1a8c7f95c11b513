"""What a user gives by mistake is refused with words that say what to give instead."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman import (
    Agent,
    AgentConfig,
    ErrorCode,
    FileRef,
    Image,
    InvalidValue,
    MemoryStore,
    Message,
    ModelConfig,
    ModelError,
    ObservabilityConfig,
    RunFailed,
    StoreError,
    model,
    open_session,
    render_request,
    start_session,
)
from dragoman.testing import ScriptedModel

UNCHECKED: Any = None  # what checkers would refuse goes through it
CLAUDE = "anthropic:claude-opus-4-5"
ASKING: list[Callable[[Any], object]] = [
    model(CLAUDE).stream,
    model(CLAUDE).render,
    ScriptedModel("Hi.").stream,
    lambda messages: render_request(CLAUDE, messages),
]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Agent(UNCHECKED), "model must be a model, a name such as anthropic:.*, got None"),
        (lambda: Agent(3), "model must be a model, a name such as anthropic:.*, got 3"),  # type: ignore[call-overload]
        (lambda: Agent(ScriptedModel(), output_type=UNCHECKED), "got None: leave it out for text"),
        (lambda: ModelConfig("x", stop="x"), "has no setting 'stop': did you mean 'stop_sequences'"),  # type: ignore[call-arg]
        (lambda: ModelConfig("x", reasoning="high"), r'such as Reasoning\(effort="high"\)'),  # type: ignore[arg-type]
        (lambda: Agent(ScriptedModel()).run_sync(b"hi"), "got bytes: decode"),  # type: ignore[arg-type]
        (lambda: Agent(ScriptedModel()).run_sync(Message.user("hi")), "give message.text or message.parts"),  # type: ignore[arg-type]
        (
            lambda: Agent(ScriptedModel(), config=AgentConfig(model=ModelConfig("scripted:actor"))),
            r"without its provider, ModelConfig\('actor'\)",
        ),
        *((lambda ask=ask: ask("hi"), "messages must be a list of Message values, .*got a str") for ask in ASKING),
        *((lambda ask=ask: ask(Message.user("hi")), "got one Message: put it into a list") for ask in ASKING),
        *((lambda ask=ask: ask([{"role": "user"}]), "got a list of dict: .*import_openai_chat") for ask in ASKING),
        *((lambda ask=ask: ask(["hi"]), "messages must be a list of Message values, .*got a str") for ask in ASKING),
        *(
            (
                lambda start=start, store=store: asyncio.run(start(store, "a")),
                "store must be a store, such as SQLiteStore",
            )
            for start in (start_session, open_session)
            for store in ("x.db", Path("x.db"), None)
        ),
        (lambda: Agent(ScriptedModel()).run_sync(3), "a prompt must be text or parts, got 3"),  # type: ignore[arg-type]
        (lambda: Agent(ScriptedModel()).run_sync({"role": "user"}), "a prompt must be text or parts, got a dict"),  # type: ignore[arg-type]
        (lambda: Agent(ScriptedModel()).stream("hi"), r"stream_sync\(\) of an agent"),
        (lambda: ObservabilityConfig(log_level="loud"), "observability.log_level must be one of debug"),  # type: ignore[arg-type]
        (lambda: ModelConfig("m", max_tokens=0), "max_tokens must be a whole number"),
        (lambda: Image.from_url("ftp://host/a.png"), "url must begin with https, http, .* got ftp:"),
        (lambda: FileRef.from_url("file:///etc/a.pdf"), "url must begin with https, http, .* got file:"),
    ],
)
def test_a_mistake_is_refused_with_what_to_give(make: Callable[[], object], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        make()


def test_text_in_a_file_that_is_called_a_picture_is_none(tmp_path: Path) -> None:
    file = tmp_path / "text.png"
    file.write_text("These are words.")
    with pytest.raises(InvalidValue, match=r"'text.png' is text/plain, and no picture"):
        Image.from_path(file)
    drawing = tmp_path / "drawing.svg"
    drawing.write_text("<!-- one --><!-- two --><svg/>")
    assert Image.from_path(drawing).mime_type == "image/svg+xml"


def test_an_id_that_is_taken_is_refused_with_the_way_to_open_it() -> None:
    async def use() -> None:
        store = MemoryStore()
        await start_session(store, "a")
        with pytest.raises(StoreError, match="exist_ok=True"):
            await start_session(store, "a")

    asyncio.run(use())


def test_a_failure_names_where_the_providers_words_are_and_does_not_quote_them() -> None:
    error = ModelError("not found (HTTP 404)", code=ErrorCode.NOT_FOUND, provider_message="no model called Ada")
    with pytest.raises(RunFailed) as caught:
        Agent(ScriptedModel(error)).run_sync("Hi.").unwrap()
    assert str(caught.value).endswith("; provider_message has the provider's words")
    assert "Ada" not in str(caught.value)
    assert caught.value.provider_message == "no model called Ada"


def test_a_thread_of_the_program_has_the_other_model_if_it_is_given_the_context() -> None:
    agent = Agent(ScriptedModel("own", repeats=True))
    said: list[str] = []

    def work() -> None:
        said.append(agent.run_sync("Hi.").unwrap())

    with agent.override(model=ScriptedModel("other")):
        for target, given in ((work, ()), (contextvars.copy_context().run, (work,))):
            thread = threading.Thread(target=target, args=given)
            thread.start()
            thread.join()
    assert said == ["own", "other"]
