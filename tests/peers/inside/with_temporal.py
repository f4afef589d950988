"""The steps as a temporal workflow: a worker in this process, each step an activity.

    python -m tests.peers.inside.with_temporal ORDER

Ordinary activities, not local ones: those are for work of a few seconds, and a step takes the place of an
agent here. A new worker continues the workflow, but the activity in flight only when the server has missed
its heartbeat, so there is one, with a limit of one second; else a limit on the whole activity would decide.
Everything else is the SDK's default, the eager start of activities included.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from tests.peers.inside.stepping import Order, order, run_step, until_told

HEARTBEAT_LIMIT_S = 1.0
BEAT_S = 0.25


@activity.defn
async def step(given: Order, name: str) -> int:
    """Run a step, and tell the server all the while that it goes on."""
    async with asyncio.TaskGroup() as group:
        beating = group.create_task(_beat())
        code = await run_step(given, name)
        beating.cancel()
    return code


async def _beat() -> None:
    while True:
        await asyncio.sleep(BEAT_S)
        activity.heartbeat()


@workflow.defn
class Steps:
    """All steps, in a row or all at once: the worker has the slots."""

    @workflow.run
    async def run(self, given: Order) -> int:
        """Return how many steps were run."""
        if given.slots == 1:
            for name in given.names:
                await self._step(given, name)
        else:
            async with asyncio.TaskGroup() as group:
                for name in given.names:
                    group.create_task(self._step(given, name))
        return len(given.names)

    async def _step(self, given: Order, name: str) -> None:
        await workflow.execute_activity(
            step,
            args=[given, name],
            start_to_close_timeout=timedelta(minutes=5),
            heartbeat_timeout=timedelta(seconds=HEARTBEAT_LIMIT_S),
            # By default the first retry comes after a second; it has been lost already when it is retried.
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10)),
        )


async def main() -> None:
    """Work, and start the workflow or attach to it; end when told to."""
    given = order()
    client = await Client.connect(given.address["server"])
    worker = Worker(
        client,
        task_queue="steps",
        workflows=[Steps],
        activities=[step],
        max_concurrent_activities=given.slots,
    )
    async with worker:
        await client.execute_workflow(
            Steps.run,
            given,
            id="the-only-one",
            task_queue="steps",
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        await until_told()


if __name__ == "__main__":
    asyncio.run(main())
