"""Answers what the tools of a run ask: a policy or a person, and the run's model within the run's limits.

The question is recorded before anyone is asked, the decision before the tool gets it. The tool waits in memory: after a
crash its call is interrupted, and the question ends with it.
"""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import msgspec

from .._finishing import finish
from ..errors import DragomanError, ErrorCode, IllegalAppend, InvalidValue, ModelError, ToolError, report_raised
from ..history import QuestionAction, QuestionAnsweredEntry, QuestionAskedEntry, SamplingEntry
from ..history.derived import AnswerEnd
from ..message import Message, ToolCall
from ..tools import Question, QuestionAnswer, SamplingRequest
from ..tools.asking import find_answer_problems
from ..tools.containing import Containing
from .answers import find_shortfall
from .budget import Budget
from .calling import ModelCaller
from .events import QuestionAskedEvent
from .scope import Scope

__all__ = ["Asker", "CallAsking", "QuestionPolicy", "QuestionRequest"]


class QuestionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A question of a tool that a policy or a person must answer."""

    session_id: str
    run_id: str
    question_id: str
    question: Question
    call: ToolCall


# What a policy answers to a question; None leaves it to a person.
QuestionPolicy: TypeAlias = Callable[[QuestionRequest], QuestionAnswer | Awaitable[QuestionAnswer | None] | None]


class Asker:
    """Answers the questions of one run's tools. Without `has_person` a question that the policy leaves has no answer.

    `tell_waiting` is called when the first question begins to wait for a person, and when none waits any more.
    """

    def __init__(
        self,
        scope: Scope,
        caller: ModelCaller,
        budget: Budget,
        *,
        policy: QuestionPolicy | None,
        has_person: bool,
        seconds: float,
    ) -> None:
        self._scope = scope
        self._caller = caller
        self._budget = budget
        self._policy = policy
        self._has_person = has_person
        self._seconds = seconds
        self._waiting: dict[str, asyncio.Future[QuestionAnsweredEntry]] = {}
        self._sampling = asyncio.Lock()  # one at a time: the next call sees what the one before has used
        self.tell_waiting: Callable[[bool], None] = lambda _: None

    @property
    def is_waiting(self) -> bool:
        """Whether a person is waited for."""
        return bool(self._waiting)

    async def ask_person(self, call: ToolCall, question: Question) -> QuestionAnswer:
        """Record the question, and return the decision once that is recorded too."""
        scope = self._scope
        question_id = f"question-{os.urandom(8).hex()}"
        asked = (question.text, question.schema, question.url, question.origin)
        await scope.append(QuestionAskedEntry(question_id, call.tool_call_id, *asked))
        request = QuestionRequest(
            session_id=scope.session.session_id,
            run_id=scope.run_id,
            question_id=question_id,
            question=question,
            call=call,
        )
        decision = await _decide(self._policy, request)
        if decision is None and self._has_person:
            scope.tell(QuestionAskedEvent, question_id, question, call)
            return await self._wait_for_person(question_id)
        decision = decision or QuestionAnswer(QuestionAction.CANCEL)
        return await self._settle(question_id, decision)

    async def ask_model(self, call: ToolCall, request: SamplingRequest) -> Message:
        """Return the model's whole answer, recorded and counted; raise ToolError if there is none."""
        async with self._sampling:
            limit = self._budget.sampling_reached()
            if limit is not None:
                raise ToolError(f"the model is not asked: {limit}")
            self._budget.note_sampling()
            most = self._budget.limits.max_sampling_tokens
            left = self._budget.tokens_left
            tokens = min(request.max_tokens, most, left if left is not None else most)
            try:
                answer, error = await self._caller.sample(msgspec.structs.replace(request, max_tokens=tokens))
            except (InvalidValue, ModelError) as problem:
                raise ToolError(f"the model cannot be asked: {problem}") from None
            self._budget.note_usage(answer.meta.usage if answer is not None and answer.meta is not None else None)
            if error is None and answer is not None:
                error = find_shortfall(AnswerEnd.of(answer))
            code = None if error is None else error.code
            await self._scope.append(
                SamplingEntry(call.tool_call_id, request.messages, request.system, answer, code, request.origin)
            )
        if code is ErrorCode.OUTPUT_CUT:
            raise ToolError(f"the model's answer was cut after {tokens} tokens")
        if error is not None or answer is None:
            raise ToolError(f"the model did not answer ({code})")
        return answer

    def take_news(self) -> None:
        """Give the decisions that are recorded by now to the tools that wait for them."""
        if not self._waiting:
            return
        open_ids = {asked.question_id for asked in self._scope.state.questions}
        if all(question_id in open_ids for question_id in self._waiting):
            return
        for entry in reversed(self._scope.session.entries):
            if isinstance(entry, QuestionAnsweredEntry):
                future = self._waiting.get(entry.question_id)
                if future is not None and not future.done():
                    future.set_result(entry)
            elif isinstance(entry, QuestionAskedEntry) and entry.question_id == next(iter(self._waiting)):
                return  # no other that waits was asked before it

    async def _wait_for_person(self, question_id: str) -> QuestionAnswer:
        no_answer = QuestionAnswer(QuestionAction.CANCEL)
        try:
            recorded = await self._recorded(question_id)
        except asyncio.CancelledError:  # the tool asks no more: the record must not go on to say that a person is asked
            with suppress(DragomanError):
                await finish(self._settle(question_id, no_answer))
            raise
        return _answer_of(recorded) if recorded is not None else await self._settle(question_id, no_answer)

    async def _recorded(self, question_id: str) -> QuestionAnsweredEntry | None:
        """The person's decision; None if there is none in time."""
        future: asyncio.Future[QuestionAnsweredEntry] = asyncio.get_running_loop().create_future()
        self._waiting[question_id] = future
        if len(self._waiting) == 1:
            self.tell_waiting(True)
        try:
            with self._budget.paused():
                self.take_news()
                await asyncio.wait({future}, timeout=self._seconds)
        finally:
            del self._waiting[question_id]
            if not self._waiting:
                self.tell_waiting(False)
        return future.result() if future.done() else None

    async def _settle(self, question_id: str, decision: QuestionAnswer) -> QuestionAnswer:
        """Record a decision that is no person's; a person who was faster is heard."""
        try:
            await self._scope.append(QuestionAnsweredEntry(question_id, decision.action, decision.content, by="policy"))
        except IllegalAppend:
            for entry in reversed(self._scope.session.entries):
                if isinstance(entry, QuestionAnsweredEntry) and entry.question_id == question_id:
                    return _answer_of(entry)
            raise
        return decision


class CallAsking:
    """How the tool of one call asks: `ToolContext.asking`."""

    def __init__(self, asker: Asker, call: ToolCall) -> None:
        self._asker = asker
        self._call = call

    async def ask_person(self, question: Question) -> QuestionAnswer:
        """Return what a person, or a policy, answers."""
        return await self._asker.ask_person(self._call, question)

    async def ask_model(self, request: SamplingRequest) -> Message:
        """Return the model's answer, which is whole."""
        return await self._asker.ask_model(self._call, request)


def _answer_of(entry: QuestionAnsweredEntry) -> QuestionAnswer:
    return QuestionAnswer(entry.action, entry.content)


async def _decide(policy: QuestionPolicy | None, request: QuestionRequest) -> QuestionAnswer | None:
    """The policy's answer; None where it leaves the question to a person, raises, or gives what does not fit."""
    if policy is None:
        return None
    answer: object = None
    where = "the question policy"
    with Containing(where):
        said = policy(request)
        answer = await said if inspect.isawaitable(said) else said
    if answer is None:
        return None
    if not isinstance(answer, QuestionAnswer):
        report_raised(InvalidValue.of_content("the answer", answer, "a QuestionAnswer or None"), where)
        return None
    if find_answer_problems(request.question.schema, answer):
        report_raised(InvalidValue("the answer does not fit the question"), where)
        return None
    return answer
