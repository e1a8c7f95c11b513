"""Checks what an agent is given, and puts it into the form that the agent keeps."""

import logging
import warnings
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, TypeAlias, TypedDict, TypeVar

from ..context import RECALL_TOOL, Compactor
from ..errors import InvalidValue
from ..history import MemoryNotebookWidget
from ..message import Message, require_text
from ..models import model as named_model
from ..request import AgentConfig
from ..router import AnyModel, ProviderRouter
from ..store import MemoryStore, Session, start_session
from ..tools import ToolLike, ToolRegistry
from .approval import ApprovalPolicy
from .asking import QuestionPolicy
from .hooks import Hooks
from .instructions import Instructions

if TYPE_CHECKING:
    from ..interop import Imported

LOGGER = logging.getLogger("dragoman.agent")

__all__ = [
    "AgentOptions",
    "AnyRoute",
    "as_conversation",
    "as_hooks",
    "as_router",
    "begin_session",
    "chosen_tools",
    "require_kinds",
    "warn_of_unused_tools",
]

AnyRoute: TypeAlias = AnyModel | ProviderRouter | str | Sequence[AnyModel | str]


_D = TypeVar("_D")


class AgentOptions(TypedDict, Generic[_D], total=False):
    """What an agent may be given beside its model, the type of its output and its runtime."""

    name: str
    tools: Iterable[ToolLike[_D]]
    instructions: Instructions[_D] | None
    session: Session | None
    messages: "Iterable[Message] | Imported"
    config: AgentConfig | None
    approval: ApprovalPolicy | None
    questions: QuestionPolicy | None
    hooks: Iterable[Hooks]
    compactor: Compactor | None


def as_hooks(hooks: object) -> tuple[Hooks, ...]:
    """Return the hooks; raise InvalidValue for what is no list of them."""
    given = tuple(hooks) if isinstance(hooks, Iterable) else (hooks,)
    if not isinstance(hooks, Iterable) or not all(isinstance(each, Hooks) for each in given):
        raise InvalidValue.of("hooks", hooks, "a list of Hooks, such as [one_hook]")
    return given


def require_kinds(config: object, session: object, *, name: object) -> None:
    """Raise InvalidValue for what is of another type than an agent takes."""
    if config is not None and not isinstance(config, AgentConfig):
        raise InvalidValue.of("config", config, "an AgentConfig")
    if session is not None and not isinstance(session, Session):
        allowed = "a Session, which start_session() and open_session() return"
        if isinstance(session, Coroutine):
            session.close()  # it was given by mistake: Python need not warn of it too
            raise InvalidValue(f"session must be {allowed}, got a coroutine: await it first")
        raise InvalidValue.of("session", session, allowed)
    require_text("name", name)


def as_conversation(messages: "Iterable[Message] | Imported", session: Session | None) -> "Imported | None":
    """Return the conversation that the agent's own session begins with; None if it begins empty."""
    if messages == ():
        return None
    from ..interop.planning import as_imported

    conversation = as_imported(messages)
    if session is not None:
        raise InvalidValue("give a session or messages: import_into(session, messages) appends them to a session")
    return conversation if conversation.messages or conversation.system else None


async def begin_session(conversation: "Imported | None") -> Session:
    """Return a session in memory that begins with the conversation; the log has what could not be taken over."""
    session = await start_session(MemoryStore())
    if conversation is not None:
        from ..interop import import_into

        for warning in await import_into(session, conversation):
            LOGGER.warning("messages of the agent: %s", warning)
    return session


def as_router(model: AnyRoute, config: AgentConfig) -> ProviderRouter:
    """Return the router to the model; settings for a model that it never asks are a mistake."""
    if isinstance(model, ProviderRouter):
        router = model
    elif isinstance(model, Sequence) and not isinstance(model, str):
        router = ProviderRouter(default=[_as_model(each) for each in model])
    else:
        router = ProviderRouter(default=_as_model(model))
    wanted, asked = config.model, [each.invocation.model for each in router.models]
    if wanted is not None and wanted.model_id not in asked and not router.looks_at_context:
        known = ", ".join(dict.fromkeys(asked))
        bare = wanted.model_id.partition(":")[2]
        hint = f": give the name without its provider, ModelConfig({bare!r})" if bare in asked else ""
        raise InvalidValue(f"the settings are for the model {wanted.model_id!r}, but the agent asks {known}{hint}")
    return router


def _as_model(model: object) -> AnyModel:
    if isinstance(model, str):
        return named_model(model)
    if not isinstance(model, AnyModel):
        allowed = "a model, a name such as anthropic:claude-opus-4-5, a list of them, or a ProviderRouter"
        raise InvalidValue.of("model", model, allowed)
    return model


def warn_of_unused_tools(router: ProviderRouter, tools: ToolRegistry) -> None:
    """Warn of tools that a model of the routes cannot use: the agent does not offer them to it."""
    unable = dict.fromkeys(repr(each) for each in router.models if not each.supports("tools")) if tools else ()
    if unable:
        names = ", ".join(tools.names)
        warnings.warn(f"{', '.join(unable)} cannot use tools, and runs without {names}", stacklevel=3)


def chosen_tools(registry: ToolRegistry, config: AgentConfig, session: Session | None) -> ToolRegistry:
    """Return the tools that the settings leave on; a name there that no tool has is a mistake."""
    tools = config.tools
    of_widgets = MemoryNotebookWidget.tools if session is None else session.state.enumerate_widget_tools()
    built_in = {RECALL_TOOL.name, *(spec.name for spec in of_widgets)}
    unknown = sorted({*(tools.enabled or ()), *tools.disabled} - {*registry.names, *built_in})
    if unknown:
        raise InvalidValue(f"the settings name tools that are not there: {', '.join(unknown)}")
    return ToolRegistry(
        tool
        for tool in registry
        if (tools.enabled is None or tool.name in tools.enabled) and tool.name not in tools.disabled
    )
