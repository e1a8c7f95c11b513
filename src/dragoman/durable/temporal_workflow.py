"""The Temporal workflow of one order: perform it, sleep, perform the next one. Deterministic; sees no content.

This module must never know a store, a session or a clock but Temporal's own. Temporal replays `OrderWorkflow` from its
history. A change of its commands between two versions of Dragoman needs `workflow.patched`, or a new WORKFLOW name.
"""

import asyncio
from datetime import timedelta
from functools import cache
from typing import Any

__all__ = [
    "ABORT",
    "AGENT",
    "LONGEST_PAUSE_SECONDS",
    "PERFORM",
    "SESSION",
    "STATUS",
    "WAKE",
    "WORKFLOW",
    "OrderWorkflow",
    "define_workflow",
]

WORKFLOW = "dragoman-order-1"
WAKE = "wake"
PERFORM = "dragoman-perform"
ABORT = "dragoman-abort"

# The search attributes, all of type Keyword.
SESSION = "DragomanSession"
AGENT = "DragomanAgent"
STATUS = "DragomanStatus"

LONGEST_ATTEMPT_DAYS = 30  # Temporal demands a limit; the heartbeat tells it of dead workers long before
LONGEST_PAUSE_SECONDS = 31 * 86_400.0  # an engine gives no longer one
RETRY_SECONDS = 0.2  # before a lost order is given to another worker


class OrderWorkflow:
    """Performs an order as often as it is told, and ends when the run has ended or waits for a person.

    Nothing waits in it for a person: what the person says is an entry, and scheduling the order again starts it again.
    `define_workflow` makes it a workflow of Temporal.
    """

    def __init__(self) -> None:
        self._due: float | None = None  # when to perform the order, in Temporal's time; None if there is no reason to

    async def run(self, order: dict[str, Any], seconds: float = 0.0, silent_seconds: float = 3.0) -> dict[str, Any]:
        """Return status and serial after the last attempt. Orders and progress are JSON objects.

        A worker that sends no heartbeat for `silent_seconds` loses its attempt to another.
        If a user cancels the workflow, the attempt under way is cancelled, and the ABORT activity ends the run.
        """
        from temporalio import workflow
        from temporalio.exceptions import ActivityError

        if self._due is None:  # else the signal that came with the start has set it
            self.wake(seconds)
        try:
            progress = await self._carry_on(PERFORM, order, silent_seconds)
        except (asyncio.CancelledError, ActivityError):
            if workflow.cancellation_reason() is None:
                raise
        else:
            if workflow.cancellation_reason() is None:
                return {"status": progress["status"], "serial": progress["serial"]}
        self.wake(0.0)
        await self._carry_on(ABORT, order, silent_seconds)
        raise asyncio.CancelledError  # Temporal then shows the workflow as cancelled

    def wake(self, *given: object) -> None:
        """Perform the order that many seconds from now, or earlier if it is due earlier. An attempt under way is
        followed by another one.

        A signal with other arguments counts as one without a pause.
        """
        from temporalio import workflow

        due = workflow.time() + _as_seconds(given[0] if given else None)
        self._due = due if self._due is None else min(due, self._due)

    async def _carry_on(self, activity: str, order: dict[str, Any], silent_seconds: float) -> dict[str, Any]:
        """Perform the order, then its next orders; `activity` is the first attempt's. Stop when it is cancelled."""
        from temporalio import workflow

        was_cancelled = workflow.cancellation_reason() is not None
        progress: dict[str, Any] = {}
        while self._due is not None:
            if workflow.info().is_continue_as_new_suggested() and not was_cancelled:
                workflow.continue_as_new(args=[order, max(0.0, self._due - workflow.time()), silent_seconds])
            await self._sleep_until_due()
            self._due = None
            self._show("running")
            progress = await _perform(activity, order, silent_seconds)
            self._show(progress["status"])
            if workflow.cancellation_reason() is not None and not was_cancelled:
                break  # the attempt ended before Temporal told it of the cancellation
            activity = PERFORM
            if "next" in progress:
                order = {**order, **progress["next"]}
                self.wake(progress.get("seconds"))
        return progress

    async def _sleep_until_due(self) -> None:
        from temporalio import workflow

        while self._due is not None and self._due > workflow.time():
            due = self._due
            try:
                await workflow.wait_condition(lambda due=due: self._due != due, timeout=due - workflow.time())  # type: ignore[misc]
            except TimeoutError:
                return

    def _show(self, status: str) -> None:
        """Set the search attribute, if the workflow was started with it and the status is another."""
        from temporalio import workflow
        from temporalio.common import SearchAttributeKey

        key = SearchAttributeKey.for_keyword(STATUS)
        if workflow.info().typed_search_attributes.get(key, status) != status:
            workflow.upsert_search_attributes([key.value_set(status)])


async def _perform(activity: str, order: dict[str, Any], silent_seconds: float) -> dict[str, Any]:
    from temporalio import workflow
    from temporalio.common import RetryPolicy

    progress: Any = await workflow.execute_activity(
        activity,
        order,
        start_to_close_timeout=timedelta(days=LONGEST_ATTEMPT_DAYS),
        heartbeat_timeout=timedelta(seconds=silent_seconds),
        # Only lost workers, and an `abort` whose store is away, lead to another attempt: no other error is retryable.
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=RETRY_SECONDS), backoff_coefficient=1.0),
        # A cancelled attempt stops at its next entry; the abort that the workflow records meanwhile ends it sooner.
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
    )
    return _as_progress(progress)


def _as_progress(given: Any) -> dict[str, Any]:
    """Return the progress. If a user completed the activity by hand, ask for another attempt."""
    is_progress = (
        isinstance(given, dict)
        and isinstance(given.get("status"), str)
        and isinstance(given.get("serial"), int)
        and isinstance(given.get("next", {}), dict)
    )
    return given if is_progress else {"status": "queued", "serial": -1, "next": {}, "seconds": 1.0}


def _as_seconds(given: object) -> float:
    """Return a pause that a timer can have; 0.0 for any other value."""
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    return float(given) if is_number and 0 <= given <= LONGEST_PAUSE_SECONDS else 0.0  # type: ignore[operator,arg-type]


@cache
def define_workflow() -> type[OrderWorkflow]:
    """Return OrderWorkflow with Temporal's marks on it. They are set here because temporalio is an extra."""
    from temporalio import workflow

    workflow.run(OrderWorkflow.run)
    workflow.signal(name=WAKE)(OrderWorkflow.wake)
    # Outside of the sandbox, which would import this package once more for each workflow: it only schedules.
    return workflow.defn(name=WORKFLOW, sandboxed=False)(OrderWorkflow)
