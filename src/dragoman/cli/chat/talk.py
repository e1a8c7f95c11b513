"""A conversation as the chat has it: a store, one session of it, a model, tools, and the agent that joins them.

Draws nothing and asks nothing. A session is made when the first thing is said, so that no empty ones are left behind.
"""

import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from ...agent import Agent, AgentRun, QuestionRequest
from ...agent.contexts import Contexts
from ...context import INJECTED_KEY, ContextBuildResult
from ...errors import InvalidValue
from ...history import (
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    OpenCall,
    QuestionAction,
    RunFinishedEntry,
    RunStartedEntry,
)
from ...message import ModelInvocationDescriptor, Text, Thinking
from ...models import Model
from ...request import AgentConfig, ContextConfig, ModelConfig, ObservabilityConfig, Reasoning, ToolsConfig
from ...router import AnyModel
from ...store import Session, SessionStore, open_session, start_session
from ...tools import QuestionAnswer, ToolDefinition
from ...toolspec import ToolSpec
from ...usage import TokenUsage
from ..entrytext import title_of
from ..modelchoice import MODEL_KEY
from .models import ChatModels

__all__ = ["Spent", "Talk", "TalkOptions", "last_model"]


class TalkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may be said of a conversation. `instructions` are those of a new session; `system` changes any session's.

    Without `has_person` questions of tools get no answer.
    """

    instructions: str | None = None
    system: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    think: str | None = None
    approval: str = "as_declared"
    has_person: bool = True
    context: ContextConfig = ContextConfig()


class Spent(NamedTuple):
    """What one model has used in a session."""

    invocation: ModelInvocationDescriptor | None
    answers: int
    usage: TokenUsage


class Talk:
    """One conversation. `session` is None until something is said, unless one was opened."""

    def __init__(
        self,
        store: SessionStore,
        models: ChatModels,
        *,
        tools: Sequence[ToolDefinition] = (),
        options: TalkOptions | None = None,
    ) -> None:
        self.store = store
        self.tools = tuple(tools)
        self.session: Session | None = None
        self.model_name = ""
        self.model: AnyModel | None = None
        self._models = models
        self._options = options or TalkOptions()
        self._wanted_id: str | None = None
        self._agent: Agent | None = None
        self._contexts: dict[ModelInvocationDescriptor, Contexts] = {}

    # ------------------------------------------------------------ which session, which model

    async def open(self, session_id: str) -> None:
        """Carry on a session of the store."""
        self._take(await open_session(self.store, session_id))

    def name_session(self, session_id: str) -> None:
        """Give the session that is made next this id."""
        self._wanted_id = session_id

    async def use(self, name: str) -> None:
        """Talk to another model from now on; the session stays. If it cannot be asked, nothing changes."""
        self.model = await self._models.open(name)
        self.model_name = name
        self._agent = None

    async def fork(self, new_id: str | None = None, serial: int | None = None) -> str:
        """Go on in a new session that shares the entries up to `serial`, all by default; return the old one's id."""
        session = self._required()
        at = session.state.next_serial - 1 if serial is None else serial
        title = session.metadata.get("title")
        metadata = {"title": title} if isinstance(title, str) else {}
        forked = await session.fork(at, new_session_id=new_id or _new_id(), metadata=metadata)
        self._take(forked)
        return session.session_id

    async def undo(self) -> str:
        """Go on in a new session that ends before the last turn; return what was said in that."""
        entries = self._required().entries
        index = _last_turn(entries)
        if index is None:
            raise InvalidValue("there is nothing to undo: nothing was said here")
        said = next(entry for entry in entries[index:] if _is_said(entry))
        assert isinstance(said, ModelInputEntry)
        await self.fork(serial=index - 1)
        return " ".join(part.text for part in said.parts if isinstance(part, Text))

    # ------------------------------------------------------------ talking

    async def say(self, text: str | None, *, wait_seconds: float = 0.0) -> AgentRun[str]:
        """Say something, or nothing to carry on what was interrupted; return the run, which is under way."""
        assert self.model is not None
        if self.session is None:
            if text is None:
                raise InvalidValue("there is nothing to carry on: nothing was said yet")
            self._take(await self._new_session(text))
        prompt = None if text is None else ModelInputEntry.of(text, metadata={MODEL_KEY: self.model_name})
        return self.agent.stream(prompt, wait_seconds=wait_seconds)

    @property
    def agent(self) -> Agent:
        """The agent of this session and this model."""
        assert self.model is not None
        if self._agent is None:
            self._agent = Agent(
                self.model,
                tools=self.tools,
                session=self.session,
                instructions=self._options.system,
                config=self._config(self.model),
                questions=None if self._options.has_person else _give_no_answer,
            )
        return self._agent

    # ------------------------------------------------------------ what is there

    @property
    def pending(self) -> tuple[OpenCall, ...]:
        """The calls that wait for a person's decision."""
        if self.session is None:
            return ()
        return tuple(call for call in self.session.state.derived.open_calls if call.awaits_answer)

    @property
    def is_unfinished(self) -> bool:
        """Whether the model owes an answer: the last run was cut off, or failed."""
        session = self.session
        return session is not None and bool(session.run_id or session.state.derived.owes_answer)

    @property
    def can_use_tools(self) -> bool:
        """Whether the model can be offered tools."""
        return self.model is not None and self.model.supports("tools")

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The environment variables that the model's key is taken from."""
        return self._models.key_variables(self.model) if isinstance(self.model, Model) else ()

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """The tools that the model is offered: those that the user asked for."""
        return tuple(tool.spec for tool in self.tools)

    def context(self) -> ContextBuildResult | None:
        """Return what the model would be sent now; None while there is nothing to send."""
        if self.session is None or self.model is None:
            return None
        model = self.model
        contexts = self._contexts.get(model.invocation)
        if contexts is None:
            contexts = self._contexts[model.invocation] = Contexts(self._config(model))
        return contexts.build_now(model, self.session.entries, self.tool_specs)

    def spent(self) -> list[Spent]:
        """Return what each model has used in this session, in the order in which they came."""
        found: dict[ModelInvocationDescriptor | None, Spent] = {}
        for entry in self.session.entries if self.session is not None else ():
            if isinstance(entry, ModelOutputEntry):
                meta = entry.message.meta
                who = meta.invocation if meta is not None else None
                before = found.get(who, Spent(who, 0, TokenUsage()))
                found[who] = Spent(who, before.answers + 1, before.usage + (entry.usage or TokenUsage()))
        return list(found.values())

    def last_thinking(self) -> str:
        """Return what the model thought before its last answer."""
        for entry in reversed(self.session.entries if self.session is not None else ()):
            if isinstance(entry, ModelOutputEntry):
                thoughts = [part.text for part in entry.message.parts if isinstance(part, Thinking) and part.text]
                if thoughts:
                    return "\n\n".join(thoughts)
        return ""

    def last_exchange(self) -> list[tuple[str, str]]:
        """Return what the person and the model said last, each with a mark of who it was."""
        said: dict[str, str] = {}
        for entry in self.session.entries if self.session is not None else ():
            parts = entry.message.parts if isinstance(entry, ModelOutputEntry) else ()
            if isinstance(entry, ModelInputEntry) and _is_said(entry):
                parts, said = entry.parts, {}
            text = " ".join(part.text for part in parts if isinstance(part, Text)).strip()
            if text:
                said[">" if isinstance(entry, ModelInputEntry) else "<"] = text
        return list(said.items())

    # ------------------------------------------------------------ steps

    async def _new_session(self, text: str) -> Session:
        title = title_of([ModelInputEntry.of(text)])
        name, self._wanted_id = self._wanted_id or _new_id(), None
        return await start_session(
            self.store, name, metadata={"title": title}, system_instruction=self._options.instructions
        )

    def _take(self, session: Session) -> None:
        self.session = session
        self._agent = None
        self._contexts = {}

    def _required(self) -> Session:
        if self.session is None:
            raise InvalidValue("there is no conversation yet: say something first")
        return self.session

    def _config(self, model: AnyModel) -> AgentConfig:
        options = self._options
        settings: dict[str, Any] = {"temperature": options.temperature, "max_tokens": options.max_tokens}
        if options.think is not None and model.supports("reasoning"):
            settings["reasoning"] = Reasoning(effort=options.think, summary=options.think != "off")  # type: ignore[arg-type]  # it checks
        given = {name: value for name, value in settings.items() if value is not None}
        return AgentConfig(
            model=ModelConfig(model.invocation.model, **given) if given else None,
            tools=ToolsConfig(approval=options.approval),  # type: ignore[arg-type]  # it checks
            context=options.context,
            observability=ObservabilityConfig(log_level="off"),  # what went wrong is drawn
        )


def last_model(session: Session) -> str | None:
    """Return the name of the model that was asked last, as a person had typed it; None if it was not noted."""
    for entry in reversed(session.entries):
        if isinstance(entry, ModelInputEntry) and isinstance(entry.metadata.get(MODEL_KEY), str):
            return str(entry.metadata[MODEL_KEY])
    return None


def _last_turn(entries: Sequence[HistoryEntry]) -> int | None:
    """Where the last turn begins: with what a person said last, or with the run in which that was said."""
    said = next((index for index in range(len(entries) - 1, -1, -1) if _is_said(entries[index])), None)
    if said is None:
        return None
    for index in range(said - 1, -1, -1):
        if isinstance(entries[index], RunStartedEntry):
            return index
        if isinstance(entries[index], RunFinishedEntry):
            break
    return said


def _is_said(entry: HistoryEntry) -> bool:
    return isinstance(entry, ModelInputEntry) and not entry.metadata.get(INJECTED_KEY)


def _give_no_answer(_request: QuestionRequest) -> QuestionAnswer:
    return QuestionAnswer(QuestionAction.CANCEL)


def _new_id() -> str:
    """An id that people can tell apart, and that sorts by time."""
    return f"chat-{datetime.now():%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"
