"""What a person decides about a session that waits: a call that needs approval, a question that a tool asked."""

from ..errors import InvalidValue
from ..history import ApprovalAnsweredEntry, QuestionAnsweredEntry
from ..store import Session
from ..tools import QuestionAnswer, ToolRegistry
from ..tools.asking import find_answer_problems
from .approval import ApprovalDecision

__all__ = ["decide_call", "decide_question"]


async def decide_call(
    session: Session | None, tools: ToolRegistry, tool_call_id: str, decision: ApprovalDecision
) -> None:
    """Record the decision. Raises InvalidValue if no such call waits, and for arguments that do not fit its tool."""
    if session is not None:
        await session.refresh()  # another agent may have asked, or answered
    call = session.state.derived.open_call(tool_call_id) if session is not None else None
    if session is None or call is None:
        raise InvalidValue(f"no call {tool_call_id!r} waits for an answer")
    tool = tools.find(call.request.tool_name)
    problems = tool.find_problems(decision.arguments) if tool is not None and decision.arguments is not None else []
    if problems:
        raise InvalidValue(f"the arguments do not fit {call.request.tool_name}: {'; '.join(problems)}")
    await session.append(ApprovalAnsweredEntry(tool_call_id, decision.approved, decision.reason, decision.arguments))


async def decide_question(session: Session | None, question_id: str, answer: QuestionAnswer) -> None:
    """Record the answer. Raises InvalidValue if no such question waits, and for content that does not fit it."""
    if session is not None:
        await session.refresh()  # the run may be another process's
    waiting = session.state.derived.questions if session is not None else ()
    asked = next((each for each in waiting if each.question_id == question_id), None)
    if session is None or asked is None:
        raise InvalidValue(f"no question {question_id!r} waits for an answer")
    problems = find_answer_problems(asked.schema, answer)
    if problems:
        raise InvalidValue(f"the answer does not fit the question: {'; '.join(problems)}")
    await session.append(QuestionAnsweredEntry(question_id, answer.action, answer.content))
