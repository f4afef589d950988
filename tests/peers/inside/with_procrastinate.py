"""The steps as procrastinate jobs: a worker in this process, each step a job.

    python -m tests.peers.inside.with_procrastinate ORDER

A chain is jobs that share a lock, which procrastinate runs one at a time in the order they were queued. All
are queued at once, with one statement: to queue each at the end of the one before would take a statement a
step, and could queue one twice. Jobs arrive by LISTEN/NOTIFY, its default. Its users must find the jobs of a
dead worker themselves: its manual has a task for that, which here runs more often than each minute, and with
a limit of one second in place of 30, like the heartbeat that temporal has here.
"""

from __future__ import annotations

import asyncio

import procrastinate
from tests.peers.inside.stepping import Order, order, run_step, until_told

BEAT_S = 0.25
STALLED_S = 1.0

given = order()
app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(kwargs={"host": given.address["socket"], "user": "postgres"})
)


@app.task(name="step")
async def step(name: str) -> None:
    """Run a step."""
    await run_step(given, name)


async def _retry_stalled() -> None:
    while True:
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_S):
            await app.job_manager.retry_job(job)
        await asyncio.sleep(BEAT_S)


async def _queue_once(given: Order) -> None:
    """Queue the jobs, unless an earlier run of this command has."""
    if await app.check_connection_async():
        return
    await app.schema_manager.apply_schema_async()
    lock = "chain" if given.slots == 1 else None
    await step.configure(lock=lock).batch_defer_async(*({"name": name} for name in given.names))


async def main() -> None:
    """Queue the jobs, and work until told to end."""
    async with app.open_async():
        await _queue_once(given)
        async with asyncio.TaskGroup() as group:
            worker = app.run_worker_async(
                concurrency=given.slots,
                # A new job is announced, one that is tried again is not: without this it waits for 5 s.
                fetch_job_polling_interval=BEAT_S,
                update_heartbeat_interval=BEAT_S,
                stalled_worker_timeout=STALLED_S,
                install_signal_handlers=False,
            )
            tasks = [group.create_task(worker), group.create_task(_retry_stalled())]
            await until_told()
            for task in tasks:
                task.cancel()


if __name__ == "__main__":
    asyncio.run(main())
