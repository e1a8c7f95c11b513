"""Performs orders: opens the session, makes the agent, carries the session on, and returns the outcome.

The record alone says what is left to do. So an order that comes twice, late, or after its run has ended does no harm.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

import msgspec
from msgspec.structs import replace

from .._finishing import finish
from ..agent import Agent, RunError
from ..agent.agentrun import due_run_id
from ..agent.loop import end_run
from ..errors import DragomanError, ErrorCode, InvalidValue, MissingExtra, StoreError, report_raised, type_name
from ..history import HistoryEntry, RunStartedEntry, RunStatus
from ..store import LeaseLost, Session, SessionBusy, SessionStore, open_session
from ..store.leases import give_back_lease
from ..store.refusals import require_seconds, require_serial, require_session_id
from ..store.requests import ABORTED, QUEUED
from ..tools.containing import current_task, must_pass
from .agents import Agents, UnknownAgent
from .orders import Order, Progress
from .requested import ENDED, agent_due, find_request, is_due, newest_of_runs, request_due, status_of

__all__ = ["PASSING", "Performer", "Retries", "carry_on"]

LOGGER = logging.getLogger("dragoman.durable")
# Errors of a store that usually pass.
PASSING = frozenset({ErrorCode.CONNECTION, ErrorCode.TIMEOUT, ErrorCode.CONFLICT, ErrorCode.OVERLOADED})
LOST_SECONDS = 1.0  # before another look at a session that another owner has, or a store that is gone
# The longest wait for a lease that its owner no longer renews: engines notice a dead worker before its leases end.
LEASE_SECONDS = 5.0
MAKE_SECONDS = 60.0  # for the function that makes an agent
UNKNOWN = 10  # times as many attempts where workers do not know the agent, each after a tenth of the pause


class Retries(msgspec.Struct, frozen=True):
    """How often an order is tried again if its attempts add no entry. Each pause is twice as long as the one before.

    After the last attempt the run fails, with the code `given_up`. Workers that do not know the agent leave the order
    to others: ten times as often, with a tenth of the pauses.
    """

    attempts: int = 20
    seconds: float = 1.0
    longest_seconds: float = 60.0

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or self.attempts < 1:
            raise InvalidValue.of("attempts", self.attempts, "a whole number from 1 up")
        require_seconds(self.seconds, "seconds", 0.0)
        require_seconds(self.longest_seconds, "longest_seconds", 0.0)

    def pause_after(self, failures: int) -> float:
        """Return the seconds to wait after that many failures."""
        return min(self.longest_seconds, self.seconds * 2.0 ** min(failures - 1, 30))

    def for_unknown(self) -> "Retries":
        """Return how often, and how soon, an order is tried again by workers that do not know its agent."""
        return Retries(self.attempts * UNKNOWN, self.seconds / UNKNOWN, self.longest_seconds / UNKNOWN)


async def carry_on(store: SessionStore, agents: Agents, order: Order) -> Progress:
    """Carry the order's session on, until its run has ended or waits for a person; return what came of it."""
    return await Performer(store, agents).perform(order)


class Performer:
    """Performs the orders of one process. `stop` lets all runs stop at their next entry."""

    def __init__(self, store: SessionStore, agents: Agents, *, retries: Retries | None = None) -> None:
        self._store = store
        self._agents = agents
        self._retries = retries or Retries()
        self._working: dict[Agent[Any, Any], Session] = {}
        self._pausing: set[asyncio.Future[Any]] = set()
        self._stopping = asyncio.Event()

    @property
    def count(self) -> int:
        """How many runs are under way."""
        return len(self._working)

    @property
    def is_stopping(self) -> bool:
        """Whether it begins no more runs."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Let every run stop at its next entry, and begin none."""
        self._stopping.set()
        for agent in self._working:
            self._pause(agent)

    async def give_back(self) -> None:
        """Give back the leases of runs that did not stop in time. The process must end right after this."""
        for session in list(self._working.values()):
            hold = session.held
            if hold is not None and hold.lease is not None:
                await give_back_lease(self._store.release_lease, hold.lease)

    async def perform(self, order: Order) -> Progress:
        """Carry the session on, and return what came of it. Raises nothing but CancelledError."""
        try:
            require_session_id(order.session)
            require_serial(order.serial, "serial")
        except InvalidValue as error:  # it does not come from `submit`
            return Progress(ABORTED, -1, problem=f"no run can be requested there, the order is dropped: {error}")
        while True:
            try:
                if await find_request(self._store, order.session, order.serial) is None:
                    return await self._leave(order)
                return await self._carry_on(order, await open_session(self._store, order.session, live=True))
            except SessionBusy as busy:
                if not await self._outlasts(busy):
                    seconds = min(LOST_SECONDS, busy.lease.seconds / 4)
                    return Progress(QUEUED, order.head, order, seconds, str(busy))
            except StoreError as error:  # the store failed, not the order; a damaged session stays so for long
                LOGGER.warning("order %s: %s", order, error)
                seconds = LOST_SECONDS if error.code in PASSING else self._retries.longest_seconds
                return Progress(QUEUED, order.head, order, seconds, str(error))

    async def _outlasts(self, busy: SessionBusy) -> bool:
        """Wait for the end of a lease that is no longer renewed, if it ends soon; return whether it has ended.

        An engine would come back a second later, and may give the order to a worker that is suspended.
        """
        if not busy.is_overdue or busy.seconds_left > LEASE_SECONDS or self.is_stopping:
            return False
        try:
            await asyncio.wait_for(self._stopping.wait(), max(0.0, busy.seconds_left))
        except TimeoutError:
            return True
        return False

    async def _leave(self, order: Order) -> Progress:
        """Leave the order to workers of another store: this one has no such session."""
        if await self._store.tombstone(order.session) is not None or order.failures >= self._retries.attempts:
            return Progress(ABORTED, -1, problem="the session was erased, or no store here has it")
        problem = "this store has no such session, or no run was requested there"
        LOGGER.warning("order %s: %s; do workers of several stores share this engine?", order, problem)
        failures = order.failures + 1
        return Progress(QUEUED, -1, replace(order, failures=failures), self._retries.pause_after(failures), problem)

    async def _carry_on(self, order: Order, session: Session) -> Progress:
        """Carry on the runs that are due, one after the other. This order may belong to a later one.

        Until a run has the lease, others may begin or end runs: nothing is decided about another run than the one that
        was tried.
        """
        while is_due(session.state.derived) and not self.is_stopping:
            run_id, before = due_run_id(session), session.state.next_serial
            unknown: UnknownAgent | None = None
            try:
                error = await self._run_once(session, order, run_id)
            except UnknownAgent as raised:
                unknown = raised
            await session.refresh()
            if due_run_id(session) != run_id or not is_due(session.state.derived):
                continue
            if unknown is not None:
                return await self._leave_to_others(session, order, str(unknown))
            if error is None and session.state.next_serial == before and not self.is_stopping:
                error = RunError(ErrorCode.INTERNAL, "the run went on and recorded nothing")
            if error is not None:
                return await self._retry(session, order, error.message or error.code.value)
        later = order if is_due(session.state.derived) else None
        return Progress(status_of(session, order), session.state.next_serial - 1, later)

    async def _run_once(self, session: Session, order: Order, run_id: str) -> RunError | None:
        """Make the agent and carry that run on; return why it failed. Raises UnknownAgent and StoreError."""
        agent = await self._make(agent_due(session, order), session)
        if self.is_stopping:
            return None
        if isinstance(agent, RunError):
            return agent
        self._working[agent] = session
        try:
            result = await finish(agent.run(run_id=run_id), on_cancelled=lambda: self._pause(agent))
        except (SessionBusy, LeaseLost):
            raise
        except DragomanError as raised:
            return RunError.of(raised)
        finally:
            del self._working[agent]
        if result.error is not None and result.error.code in PASSING and session.run_id == run_id:
            raise StoreError(result.error.message, code=result.error.code)  # the store did not take the end of the run
        return result.error

    async def _make(self, name: str, session: Session) -> Agent[Any, Any] | RunError:
        """Return the agent, or why it could not be made. A worker that is told to stop does not wait for it."""
        making = asyncio.ensure_future(_made(self._agents.make(name, session)))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((making, stopping), timeout=MAKE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not making.done():
                return RunError(ErrorCode.INTERNAL, f"the agent was not made within {MAKE_SECONDS:g} s")
            if making.cancelled():  # by the function itself
                return RunError(ErrorCode.INTERNAL, "the function that makes the agent cancelled its task")
            return making.result()
        finally:
            making.cancel()
            stopping.cancel()

    async def _retry(self, session: Session, order: Order, problem: str) -> Progress:
        """Return the next attempt, or end the run after the last one."""
        order = _at_head(session, order)
        failures = order.failures + 1
        if failures >= self._retries.attempts:
            return await self._give_up(session, order, failures, problem)
        LOGGER.warning("order %s: attempt %d recorded nothing: %s", order, failures, problem)
        later = replace(order, failures=failures)
        return Progress(status_of(session, order), order.head, later, self._retries.pause_after(failures), problem)

    async def _leave_to_others(self, session: Session, order: Order, problem: str) -> Progress:
        """Leave the run that is due to a worker that knows its agent; give it up where no worker does."""
        due = request_due(session)
        if due not in (None, order.serial):  # another run comes first, or this order's run has ended
            if (status := status_of(session, order)) not in ENDED:
                return Progress(status, session.state.next_serial - 1, order, LOST_SECONDS, problem)
            # The run that is due has an order, but that one may have come too early, and be gone.
            order = Order(order.session, agent_due(session, order), due)
        order, retries = _at_head(session, order), self._retries.for_unknown()
        unknown = order.unknown + 1
        if unknown >= retries.attempts:
            return await self._give_up(session, order, unknown, problem)
        LOGGER.info("order %s is left to others: %s", order, problem)
        later = replace(order, unknown=unknown)
        return Progress(status_of(session, order), order.head, later, retries.pause_after(unknown), problem)

    async def _give_up(self, session: Session, order: Order, attempts: int, problem: str) -> Progress:
        """Record that the run which is due has failed, unless others have carried it on meanwhile.

        What was said to it is recorded too: it can be tried again.
        """
        run_id = due_run_id(session)
        async with session.hold():
            state = session.state.derived
            if due_run_id(session) != run_id or newest_of_runs(session) != order.head or not is_due(state):
                later = order if is_due(state) else None
                return Progress(status_of(session, order), session.state.next_serial - 1, later)
            LOGGER.error("order %s: given up after %d attempts: %s", order, attempts, problem)
            words = f"given up after {attempts} attempts that recorded nothing: {problem}"
            *results, end = end_run(state, run_id, RunStatus.FAILED, RunError(ErrorCode.GIVEN_UP, words))
            start: tuple[HistoryEntry, ...] = ()
            if not session.run_id:
                start, inputs = (RunStartedEntry(run_id=run_id),), state.requests[0].to_inputs()
                results += inputs
            recorded = await session.append(*start, *results, end, expected_serial=session.state.next_serial)
        # Something may have been said to the run before its end was recorded: then it is tried again.
        later = order if not recorded and is_due(session.state.derived) else None
        return Progress(status_of(session, order), session.state.next_serial - 1, later, problem=problem)

    def _pause(self, agent: Agent[Any, Any]) -> None:
        pausing = asyncio.ensure_future(agent.pause())
        self._pausing.add(pausing)
        pausing.add_done_callback(self._forget)

    def _forget(self, pausing: "asyncio.Future[Any]") -> None:
        self._pausing.discard(pausing)
        if not pausing.cancelled():
            pausing.exception()  # the caller of the run gets it


async def _made(making: Awaitable[Agent[Any, Any]]) -> Agent[Any, Any] | RunError:
    """Return the agent, or what its function raised. Raises UnknownAgent.

    The user's own code may raise anything: the order is tried again, then given up. Its words may be content. The words
    of InvalidValue and MissingExtra are ours.
    """
    task = current_task()
    try:
        return await making
    except UnknownAgent:
        raise
    except (InvalidValue, MissingExtra) as error:
        return RunError(ErrorCode.INTERNAL, str(error))
    except BaseException as error:
        if must_pass(error, task):
            raise
        report_raised(error, "the function that makes the agent")
        return RunError(ErrorCode.INTERNAL, f"{type_name(error)} where the agent is made: the log has its traceback")


def _at_head(session: Session, order: Order) -> Order:
    """Return the order with its counts of failed attempts, which are zero again if a run has recorded something."""
    head = newest_of_runs(session)
    return order if head == order.head else replace(order, failures=0, unknown=0, head=head)
