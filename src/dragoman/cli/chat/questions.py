"""Questions of tools to a person at the terminal: what is asked is shown, each field of the answer is read."""

from typing import TYPE_CHECKING, Any

from ...agent import QuestionAskedEvent
from ...errors import InvalidValue
from ...history import QuestionAction
from ..output import json_text, one_line
from .input import Interrupted

if TYPE_CHECKING:
    from .loop import Chat

__all__ = ["ask_question", "read_field"]

_YES = frozenset({"y", "yes", "true"})
_NO = frozenset({"n", "no", "false"})
LONGEST_TITLE = 300  # characters of what is said of a field


class _NoAnswer(Exception):
    """The person gives no answer: Ctrl-C, or the end of input."""


async def ask_question(chat: "Chat", event: QuestionAskedEvent) -> None:
    """Ask the person until there is an answer that fits, or a refusal; Ctrl-C gives no answer."""
    question = event.question
    who = one_line(question.origin or event.call.tool_name)
    chat.tell(f"{who} asks: {question.text}", "magenta")
    if question.url:
        chat.tell(f"at {question.url}", "magenta")
    chat.tell(f"(your answer goes to {who}, and is kept in the session)")
    agent = chat.talk.agent
    try:
        while True:
            if not await _agrees(chat, "Do so?" if question.schema is None else "Answer it?"):
                await agent.answer(event.question_id, action=QuestionAction.DECLINE)
                return
            content = None if question.schema is None else await _read_form(chat, question.schema)
            try:
                await agent.answer(event.question_id, content)
                return
            except InvalidValue as error:
                if all(asked.question_id != event.question_id for asked in _open_questions(chat)):
                    chat.tell("the question does not wait any more", "yellow")
                    return
                chat.tell(str(error), "red")
    except (_NoAnswer, Interrupted):
        if any(asked.question_id == event.question_id for asked in _open_questions(chat)):
            await agent.answer(event.question_id, action=QuestionAction.CANCEL)


def _open_questions(chat: "Chat") -> Any:
    session = chat.talk.session
    return session.state.derived.questions if session is not None else ()


async def _agrees(chat: "Chat", question: str) -> bool:
    while True:
        match (await _read_line(chat, f"{question} [y]es, [n]o:")).strip().lower():
            case "y" | "yes":
                return True
            case "n" | "no":
                return False
            case _:
                chat.tell("y or n")


async def _read_form(chat: "Chat", schema: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        about = one_line(str(field.get("description") or field.get("title") or ""))[:LONGEST_TITLE]
        choices = _choices(field)
        notes = [about, str(field["type"]), f"one of {', '.join(choices)}" if choices else ""]
        if name not in required:
            notes.append("may be empty")
        prompt = f"{one_line(name)} ({'; '.join(one_line(note) for note in notes if note)}):"
        default = field.get("default")
        while True:
            typed = await _read_line(chat, prompt, default="" if default is None else _shown(default))
            if not typed.strip() and name not in required:
                break
            try:
                content[name] = read_field(field["type"], typed)
                break
            except InvalidValue as error:
                chat.tell(str(error), "red")
    return content


def read_field(kind: str, typed: str) -> Any:
    """Return what was typed as a value of a field's type; raise InvalidValue if it is none."""
    text = typed.strip()
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean" if text.lower() in _YES | _NO:
                return text.lower() in _YES
            case "boolean":
                raise ValueError
            case "array":
                return [item.strip() for item in text.split(",") if item.strip()]
    except ValueError:
        wanted = {"integer": "a whole number", "number": "a number", "boolean": "yes or no"}[kind]
        raise InvalidValue(f"that is not {wanted}") from None
    return typed


def _shown(default: Any) -> str:
    if isinstance(default, str):
        return default
    return ", ".join(default) if isinstance(default, (list, tuple)) else json_text(default)


def _choices(field: dict[str, Any]) -> list[str]:
    holder = field.get("items", field)
    listed = holder.get("enum") or [item.get("const") for item in holder.get("oneOf") or holder.get("anyOf") or ()]
    return [str(item) for item in listed]


async def _read_line(chat: "Chat", prompt: str, default: str = "") -> str:
    line = await chat.editor.ask(prompt, default=default)
    if line is None:
        raise _NoAnswer
    return line
