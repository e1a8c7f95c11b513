"""Media in runs: refused before they are recorded, handed over as text once they are, files read in one folder only."""

import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import (
    Agent,
    AgentConfig,
    ContextConfig,
    ErrorCode,
    FileRef,
    Image,
    InvalidValue,
    LoopConfig,
    MemoryStore,
    Message,
    ModelError,
    ProviderRouter,
    RuntimeConfig,
    Text,
    ToolContext,
    ToolResult,
    open_session,
    render_request,
    start_session,
    tool,
)
from dragoman.agent import FinishedEvent, MediaNotShownEvent
from dragoman.history import ModelInputEntry
from dragoman.message import ModelInvocationDescriptor
from dragoman.target import TargetRules
from dragoman.testing import Call, ScriptedModel
from tests.agent_cases import Gate, asks, kept, kinds, read, require_sound, result_codes, result_texts, run

PICTURE = Image("image/png", b"\x89PNG picture")
PAPER = FileRef(data=b"%PDF-1.7", mime_type="application/pdf", name="paper.pdf")
BLIND = TargetRules(user_media=frozenset())
ALL = TargetRules(
    user_media=frozenset({"image/", "application/pdf", "text/"}), result_media=frozenset({"image/", "text/"})
)


def blind(*script: Any, name: str = "blind", **more: Any) -> ScriptedModel:
    invocation = ModelInvocationDescriptor("scripted", "script", name)
    return ScriptedModel(*script, rules=BLIND, invocation=invocation, **more)


def seeing(*script: Any) -> ScriptedModel:
    return ScriptedModel(*script, rules=ALL)


def sent(model: ScriptedModel, turn: int = -1) -> list[Any]:
    """The parts of the user's messages in a request."""
    return [part for message in model.requests[turn].messages if message.role == "user" for part in message.parts]


# ---------------------------------------------------------------- what the model cannot read


@pytest.mark.parametrize("medium", [PICTURE, PAPER, Image(url="https://x.test/a.png"), FileRef(file_id="f")])
def test_media_that_the_model_cannot_read_are_refused_before_they_are_recorded(medium: Image | FileRef) -> None:
    model = blind("Hello.")
    agent = Agent(model)

    refused = run(agent.run(["look", medium]))

    assert refused.error is not None
    assert (refused.status, refused.error.code) == ("failed", ErrorCode.UNSUPPORTED)
    assert "cannot read" in refused.error.message
    assert kinds(agent) == []
    assert model.requests == []
    assert run(agent.run("then only this")).output == "Hello."
    require_sound(kept(agent))


def test_a_text_file_is_text_to_a_model_that_reads_no_files() -> None:
    model = blind("Yes.")
    file = FileRef(data=b'{"a": 1}', mime_type="application/json", name="a.json")
    assert run(Agent(model).run(["this?", file])).output == "Yes."
    assert file in sent(model)  # the handoff of a real model writes it down as text


def test_steering_with_what_the_model_cannot_read_is_refused_at_once() -> None:
    async def steer() -> None:
        gate = Gate(1)
        agent = Agent(blind("A.", "B.", between=gate))
        under_way = agent.stream("hi")
        with pytest.raises(ModelError) as refused:
            await under_way.steer(PICTURE)
        assert refused.value.code is ErrorCode.UNSUPPORTED
        await under_way.steer("words")
        gate.opened.set()
        assert (await under_way.result()).status == "completed"
        assert [
            part for entry in kept(agent).entries if isinstance(entry, ModelInputEntry) for part in entry.parts
        ] == [
            Text("hi"),
            Text("words"),
        ]

    run(steer())


def test_a_router_decides_which_model_must_read_the_input() -> None:
    eyes, words = seeing("A cat."), blind("Hello.")
    router = ProviderRouter({"look": eyes, "talk": words}, choose=lambda request: "look" if request.context else "talk")
    assert run(Agent(router).run(["what?", PICTURE])).output == "A cat."
    assert run(Agent(ProviderRouter({"look": eyes, "talk": words})).run(PICTURE, strategy="talk")).status == "failed"


def test_recorded_media_are_a_marked_line_to_another_model_and_an_event_tells() -> None:
    async def go_on() -> None:
        agent = Agent(seeing("A cat."), config=AgentConfig(context=ContextConfig(budget_tokens=100_000)))
        await agent.run(["look", PICTURE, PAPER])
        other = blind("I see none.", "Still none.")
        agent.use(other)
        events = await read(agent.stream("and now?"))

        told = [event for event in events if isinstance(event, MediaNotShownEvent)]
        assert [(event.what, event.why) for event in told] == [
            ("image/png, 12 bytes", "this model cannot read it"),
            ("paper.pdf, application/pdf, 8 bytes", "this model cannot read it"),
        ]
        assert Text("[image/png, 12 bytes: not shown, this model cannot read it]") in sent(other)
        assert (await agent.run("and?")).output == "Still none."
        first, second = (request.messages for request in other.requests)
        assert all(one is two for one, two in zip(first, second, strict=False))  # the cached prefix stands
        require_sound(kept(agent))

    run(go_on())


def test_media_that_were_recorded_without_an_agent_never_fail_a_run() -> None:
    async def carry_on() -> None:
        session = await start_session(MemoryStore())
        await session.append(ModelInputEntry.of("look", PICTURE, FileRef(path="/etc/passwd"), FileRef(file_id="f")))
        model = blind("Nothing to see.")
        events = await read(Agent(model, session=session).stream())
        assert isinstance(events[-1], FinishedEvent)
        assert events[-1].status == "completed"
        assert sum(isinstance(event, MediaNotShownEvent) for event in events) == 3
        assert all(isinstance(part, Text) for part in sent(model))

    run(carry_on())


def test_a_tool_s_picture_is_told_of_where_the_model_cannot_read_it() -> None:
    @tool
    def photo() -> Image:
        """Take a photo."""
        return PICTURE

    async def take() -> None:
        agent = Agent(blind(asks(Call("photo", {})), "Done."), tools=[photo])
        events = await read(agent.stream("a photo"))
        assert [event.what for event in events if isinstance(event, MediaNotShownEvent)] == ["image/png, 12 bytes"]
        assert result_codes(kept(agent)) == [None]

    run(take())


def test_a_server_that_refuses_a_picture_gets_a_line_of_text_at_the_next_attempt() -> None:
    @tool
    def photo() -> Image:
        """Take a photo."""
        return PICTURE

    async def talk() -> None:
        refusal = ModelError("image input is not supported", code=ErrorCode.UNSUPPORTED)
        model = seeing(refusal, "I see none.", asks(Call("photo", {})), "Nothing.")
        settings = AgentConfig(loop=LoopConfig(backoff_seconds=0.0), context=ContextConfig(budget_tokens=100_000))
        agent = Agent(model, tools=[photo], config=settings)

        events = await read(agent.stream(["look", PICTURE]))

        assert isinstance(events[-1], FinishedEvent)
        assert events[-1].status == "completed"
        assert sum(isinstance(event, MediaNotShownEvent) for event in events) == 1
        assert (PICTURE in sent(model, 0), PICTURE in sent(model, 1)) == (True, False)
        refused = await agent.run(["again", PICTURE])  # now it is known before it is recorded
        assert refused.error is not None
        assert (refused.error.code, len(model.requests)) == (ErrorCode.UNSUPPORTED, 2)
        assert (await agent.run("take one")).output == "Nothing."
        (result,) = model.requests[-1].messages[-1].parts
        assert isinstance(result, ToolResult)
        assert all(isinstance(part, Text) for part in result.content)
        require_sound(kept(agent))

    run(talk())


# ---------------------------------------------------------------- files by their path


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "root"
    (folder / "sub").mkdir(parents=True)
    (folder / "notes.txt").write_text("buy milk")
    (folder / "sub" / "paper.pdf").write_bytes(b"%PDF-1.7 paper")
    (folder / "empty.png").write_bytes(b"")
    (folder / "large.bin").write_bytes(b"x" * 2_000)
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "inside.txt").symlink_to(folder / "notes.txt")
    (folder / "out").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(str(folder / "socket"))
        yield folder
    finally:
        server.close()


def config(root: Path | None, **runtime: Any) -> AgentConfig:
    return AgentConfig(runtime=RuntimeConfig(root=None if root is None else str(root), **runtime))


def test_a_path_is_read_in_the_folder_and_recorded_as_it_was_given(root: Path) -> None:
    model = seeing("Milk.")
    agent = Agent(model, config=config(root))

    assert run(agent.run(["what?", FileRef(path="notes.txt"), FileRef(path="sub/paper.pdf")])).output == "Milk."

    assert sent(model)[1:] == [
        FileRef(data=b"buy milk", mime_type="text/plain", name="notes.txt"),
        FileRef(data=b"%PDF-1.7 paper", mime_type="application/pdf", name="paper.pdf"),
    ]
    entry = next(entry for entry in kept(agent).entries if isinstance(entry, ModelInputEntry))
    digest = hashlib.sha256(b"buy milk").hexdigest()
    assert entry.parts[1] == FileRef(path="notes.txt", mime_type="text/plain", size=8, sha256=digest)
    require_sound(kept(agent))


def test_an_absolute_path_inside_the_folder_is_read(root: Path) -> None:
    model = seeing("Milk.")
    run(Agent(model, config=config(root)).run(FileRef(path=str(root / "notes.txt"))))
    assert sent(model) == [FileRef(data=b"buy milk", mime_type="text/plain", name="notes.txt")]


ESCAPES = [
    "../secret.txt",
    "sub/../../secret.txt",
    "/etc/passwd",
    "/proc/self/environ",
    "/dev/zero",
    "link.txt",
    "inside.txt",
    "out/secret.txt",
    "pipe",
    "socket",
    "sub",
    ".",
    "~/x",
    "no such file",
    "notes.txt/x",
    "notes.txt/",
    "notes.txt/.",
    "a\0b",
    "x" * 5_000,
    "large.bin",
    "empty.png",
]


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leads_out_of_the_folder_or_to_what_is_no_file(root: Path, path: str) -> None:
    model = seeing("Hello.")
    agent = Agent(model, config=config(root, file_limit_bytes=1_000))
    with pytest.raises(InvalidValue, match="cannot be read"):
        run(agent.run(["look", FileRef(path=path)]))
    assert kinds(agent) == []
    assert run(agent.run("hi")).output == "Hello."


@pytest.mark.parametrize("path", ESCAPES)
def test_a_tool_that_names_such_a_path_has_failed(root: Path, path: str) -> None:
    @tool
    def fetch() -> FileRef:
        """Fetch a file."""
        return FileRef(path=path)

    agent = Agent(
        seeing(asks(Call("fetch", {})), "Never mind."), tools=[fetch], config=config(root, file_limit_bytes=1_000)
    )
    assert run(agent.run("fetch it")).output == "Never mind."
    assert result_codes(kept(agent)) == [ErrorCode.TOOL_FAILED]
    assert "cannot be read" in result_texts(kept(agent))[0]
    assert "secret" not in result_texts(kept(agent))[0].replace("secret.txt", "")


def test_a_tool_s_file_is_read_for_the_model(root: Path) -> None:
    @tool
    def fetch() -> FileRef:
        """Fetch a file."""
        return FileRef(path="notes.txt")

    model = seeing(asks(Call("fetch", {})), "Milk.")
    assert run(Agent(model, tools=[fetch], config=config(root)).run("fetch it")).output == "Milk."
    (result,) = model.requests[-1].messages[-1].parts
    assert isinstance(result, ToolResult)
    assert result.content == (FileRef(data=b"buy milk", mime_type="text/plain", name="notes.txt"),)


def test_without_a_folder_no_path_is_read() -> None:
    with pytest.raises(InvalidValue, match=r"AgentConfig\.runtime\.root"):
        run(Agent(seeing("x")).run(FileRef(path="notes.txt")))


def test_a_folder_that_is_none_is_refused_when_the_agent_is_made(root: Path) -> None:
    with pytest.raises(InvalidValue, match="no folder"):
        Agent(seeing("x"), config=config(root / "notes.txt"))


def _changed(file: Path) -> None:
    file.write_text("buy bread")


def _linked(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/passwd")


def _piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        (_changed, "the file has changed since it was given"),
        (Path.unlink, "no such file"),
        (_linked, "links are not followed"),
        (_piped, "no plain file"),
    ],
)
def test_a_file_that_has_changed_or_is_gone_is_a_marked_line(
    root: Path, happens: Callable[[Path], None], said: str
) -> None:
    async def go_on() -> None:
        model = seeing("Milk.", "Gone.", "Back.")
        agent = Agent(model, config=config(root))
        await agent.run(["what?", FileRef(path="notes.txt")])
        happens(root / "notes.txt")

        events = await read(agent.stream("and now?"))

        assert isinstance(events[-1], FinishedEvent)
        assert events[-1].status == "completed"
        (told,) = [event for event in events if isinstance(event, MediaNotShownEvent)]
        assert said in told.why
        (line,) = [part.text for part in sent(model) if isinstance(part, Text) and part.text.startswith("[")]
        assert line.startswith("[notes.txt, text/plain, 8 bytes by path: not shown, ")
        assert said in line
        (root / "notes.txt").unlink(missing_ok=True)
        (root / "notes.txt").write_text("buy milk")
        await agent.run("again?")
        assert FileRef(data=b"buy milk", mime_type="text/plain", name="notes.txt") in sent(model)

    run(go_on())


def test_a_file_that_stays_as_it_was_keeps_the_prefix_of_the_request(root: Path) -> None:
    model = seeing("Milk.", "Yes.", "No.")
    agent = Agent(model, config=config(root))
    for words in (["what?", FileRef(path="notes.txt")], "sure?", "really?"):
        run(agent.run(words))  # type: ignore[arg-type]  # each is a prompt
    one, two, three = (request.messages for request in model.requests)
    assert one[0] is two[0] is three[0]


def test_what_a_person_says_is_read_by_the_next_process_too(root: Path) -> None:
    async def restart() -> None:
        store = MemoryStore()
        agent = Agent(seeing("Milk."), session=await start_session(store), config=config(root))
        await agent.run(["what?", FileRef(path="notes.txt")])
        model = seeing("Still milk.")
        session = await open_session(store, kept(agent).session_id)
        await Agent(model, session=session, config=config(root)).run("and?")
        assert FileRef(data=b"buy milk", mime_type="text/plain", name="notes.txt") in sent(model)

    run(restart())


def test_a_digest_that_the_caller_gives_must_be_that_of_the_file(root: Path) -> None:
    agent = Agent(seeing("Milk."), config=config(root))
    with pytest.raises(InvalidValue, match="sha256"):
        run(agent.run(FileRef(path="notes.txt", sha256="0" * 64)))
    with pytest.raises(InvalidValue, match=r"file_ref\.sha256"):
        FileRef(path="notes.txt", sha256="abc")


# ---------------------------------------------------------------- what tools are told


def test_the_folder_and_the_options_reach_tools(root: Path) -> None:
    seen: list[Any] = []

    @tool
    def look(context: ToolContext[Any]) -> str:
        """Look."""
        seen.append((context.root, dict(context.options)))
        context.options["depth"]["most"] = 99
        return "ok"

    options = {"depth": {"most": 3}}
    agent = Agent(
        seeing(asks(Call("look", {})), asks(Call("look", {})), "Done."),
        tools=[look],
        config=config(root, options=options),
    )
    assert run(agent.run("look")).output == "Done."
    assert [one[0] for one in seen] == [str(root.resolve())] * 2
    assert agent.config.runtime.options == {"depth": {"most": 3}}  # a tool's changes stay its own
    plain = Agent(seeing(asks(Call("look", {})), "Done."), tools=[look], config=config(None, options=options))
    run(plain.run("look"))
    assert seen[-1][0] is None


def test_a_message_with_a_path_tells_a_plain_model_s_caller_what_to_do() -> None:
    with pytest.raises(ModelError, match=r"AgentConfig\.runtime\.root") as refused:
        render_request("anthropic:claude-sonnet-4-5", [Message.user(FileRef(path="notes.txt"))])
    assert refused.value.code is ErrorCode.UNSUPPORTED
