"""What a tool that runs may ask: a person something, or the model of its agent for an answer.

Knows no agent. An agent gives its tools an `Asking` in their context and decides who answers, and within which limits.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec.structs import force_setattr

from .._jsontext import freeze_object
from ..errors import InvalidValue
from ..history import QuestionAction
from ..message import Message, as_word, require_text
from .checking import SchemaChecker
from .jsonvalues import copy_json

__all__ = ["Asking", "Question", "QuestionAnswer", "SamplingRequest", "find_answer_problems"]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's question. `schema` describes the fields of the answer; None asks only whether the person agrees.

    With `url` the person is asked to do something at that address, which no program here opens. `origin` names the
    program that asks. Its words are not trusted.
    """

    text: str
    schema: dict[str, Any] | None = None
    url: str = ""
    origin: str = ""

    def __post_init__(self) -> None:
        for name in ("text", "url", "origin"):
            require_text(f"question.{name}", getattr(self, name))
        if self.schema is not None:
            freeze_object(self, "schema", "question.schema")


class QuestionAnswer(msgspec.Struct, frozen=True):
    """What becomes of a question: `accept` with the content that was asked for, `decline`, or `cancel`: no answer."""

    action: QuestionAction
    content: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "action", as_word("action", self.action, QuestionAction))
        if self.content is not None:
            freeze_object(self, "content", "content")
            if self.action is not QuestionAction.ACCEPT:
                raise InvalidValue(f"content belongs to the action 'accept', got it with {self.action.value!r}")

    def __repr__(self) -> str:  # a person may have typed something private
        return f"QuestionAnswer({self.action.value!r}{', …' if self.content is not None else ''})"


class SamplingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that a tool wants the agent's model to answer. The agent may allow fewer tokens than `max_tokens`."""

    messages: tuple[Message, ...]
    max_tokens: int
    system: str = ""
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    origin: str = ""


@runtime_checkable
class Asking(Protocol):
    """How a tool asks while it runs. Both methods raise ToolError, with the reason, where asking is not possible."""

    async def ask_person(self, question: Question) -> QuestionAnswer:
        """Return what a person, or a policy, answers."""
        ...

    async def ask_model(self, request: SamplingRequest) -> Message:
        """Return the model's answer, which is whole."""
        ...


def find_answer_problems(schema: Mapping[str, Any] | None, answer: QuestionAnswer) -> list[str]:
    """Return what is wrong with the answer to a question of that schema, in lines for the person; or nothing."""
    if answer.action is not QuestionAction.ACCEPT:
        return []
    if schema is None:
        return [] if answer.content is None else ["the question asks for no content"]
    if answer.content is None:
        return ["the question asks for content"]
    return SchemaChecker(copy_json(schema), "the schema of the question").problems(copy_json(answer.content))
