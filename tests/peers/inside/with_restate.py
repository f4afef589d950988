"""The steps as a restate service: one invocation, each step a `ctx.run`.

    python -m tests.peers.inside.with_restate ORDER

A handler whose side effects are in `ctx.run` is restate's documented form of a durable workflow, and its
fastest: each result is in the server's log before the handler continues. The invocation belongs to the
server, which calls the handler again when the service is back; the idempotency key makes the second command
attach to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import urllib.request

import hypercorn.asyncio
import hypercorn.config
import restate
from tests.peers.inside.stepping import Order, order, run_step, until_told

GIVEN = order()
steps = restate.Service("steps")


@steps.handler()
async def chain(ctx: restate.Context, _: str) -> int:
    """Run the steps in a row."""
    for name in GIVEN.names:
        await ctx.run_typed(name, run_step, restate.RunOptions(), GIVEN, name)
    return len(GIVEN.names)


@steps.handler()
async def fanout(ctx: restate.Context, _: str) -> int:
    """Run the steps, at most `slots` at once: restate has no such limit inside of an invocation."""
    slots = asyncio.Semaphore(GIVEN.slots)

    async def with_slot(given: Order, name: str) -> int:
        async with slots:
            return await run_step(given, name)

    futures = [ctx.run_typed(name, with_slot, restate.RunOptions(), GIVEN, name) for name in GIVEN.names]
    await restate.gather(*futures)
    return len(GIVEN.names)


def call() -> None:
    """Register the service with the server, and invoke the handler."""
    _post(f"{GIVEN.address['admin']}/deployments", {"uri": GIVEN.address["service"]})
    handler = "chain" if GIVEN.slots == 1 else "fanout"
    _post(f"{GIVEN.address['ingress']}/steps/{handler}", "go", **{"idempotency-key": "the-only-one"})


def _post(url: str, body: object, **headers: str) -> None:
    given = {"content-type": "application/json", **headers}
    request = urllib.request.Request(url, json.dumps(body).encode(), given)
    with urllib.request.urlopen(request, timeout=GIVEN.address["limit_s"]) as answer:
        answer.read()


async def main() -> None:
    """Serve, and call; serve on until told to end."""
    config = hypercorn.config.Config()
    config.bind = [GIVEN.address["service"].removeprefix("http://")]
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(hypercorn.asyncio.serve(restate.app([steps]), config, shutdown_trigger=over.wait))
        await _until_bound()
        _keep_from_children()
        await asyncio.to_thread(call)
        await until_told()
        over.set()


def _keep_from_children() -> None:
    """Close all but the standard streams in children: a step that outlives the service would keep its port.

    hypercorn leaves its socket open in them, for workers of its own.
    """
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one by which they are listed
            if int(name) > 2:
                os.set_inheritable(int(name), False)


async def _until_bound() -> None:
    host, _, port = GIVEN.address["service"].removeprefix("http://").rpartition(":")
    for _ in range(200):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            return
        await asyncio.sleep(0.02)
    raise TimeoutError("the service does not listen")


if __name__ == "__main__":
    asyncio.run(main())
