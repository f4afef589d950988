"""The sinks that the settings ask for, and a sample through each of them.

The sample goes past the box: a person learns today whether they would be told tonight.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from handoffd.clock import Clock
from handoffd.errors import NotFound
from handoffd.notify.apprise import AppriseSink
from handoffd.notify.command import CommandSink
from handoffd.notify.http_sinks import NtfySink, WebhookSink
from handoffd.notify.notice import Notice
from handoffd.notify.ports import Sink
from handoffd.notify.sink_workers import attempt
from handoffd.settings.notify import FORMS, NotifySettings, SinkSettings


def sink_of(name: str, settings: SinkSettings, environ: Mapping[str, str]) -> Sink:
    """Return one sink. Of the environment, its programs get what they need to tell people."""
    if settings.webhook is not None:
        return WebhookSink(settings.webhook, name)
    if settings.ntfy is not None:
        return NtfySink(settings.ntfy, name)
    if settings.apprise is not None:
        return AppriseSink(settings.apprise, environ, name)
    return CommandSink(settings, environ, name)


# --- a sample ----------------------------------------------------------------------------------------
LIMIT_S = 50.0
"""Whoever asks waits for the answer; a sink that may take longer has failed this trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of the sample. `why` is None when it was taken, else why it was not, or was not sent."""

    sink: str
    form: str
    why: str | None
    seconds: float


async def try_sinks(
    settings: NotifySettings, environ: Mapping[str, str], clock: Clock, *, only: str | None, place: str
) -> tuple[Trial, ...]:
    """Send a sample through every sink, or through one; all at once, each within its own limit.

    Raises NotFound when there is no such sink, or none at all.
    """
    sinks = settings.named()
    if not sinks or (only is not None and only not in sinks):
        known = ", ".join(sinks) or "none: `notify` in the settings has no command, webhook, ntfy or apprise"
        what = "there is nobody to tell" if only is None else f"there is no sink {only[:40]!r}"
        raise NotFound(f"{what} (sinks: {known})", hint="handoffd config show")
    wanted = {name: sink for name, sink in sinks.items() if only in {None, name}}
    trials: dict[str, Trial] = {}

    async def run(name: str, sink: SinkSettings) -> None:
        trials[name] = await _try(name, sink, environ, clock, place)

    async with anyio.create_task_group() as tasks:
        for name, sink in wanted.items():
            tasks.start_soon(run, name, sink)
    return tuple(trials[name] for name in wanted)


async def _try(
    name: str, settings: SinkSettings, environ: Mapping[str, str], clock: Clock, place: str
) -> Trial:
    form = next(form for form in FORMS if getattr(settings, form) is not None)
    if settings.switched_off is not None:
        return Trial(sink=name, form=form, why=f"switched off: {settings.switched_off}", seconds=0)
    sink = sink_of(name, settings, environ)
    began_s = clock.monotonic()
    why: str | None = f"it did not end within {LIMIT_S:g} s"
    try:
        with anyio.move_on_after(LIMIT_S):
            failure = await attempt(sink, _sample(clock, place))
            why = None if failure is None else failure.why
    finally:
        sink.close()
    return Trial(sink=name, form=form, why=why, seconds=round(clock.monotonic() - began_s, 3))


def _sample(clock: Clock, place: str) -> Notice:
    return Notice(
        id=f"test-{secrets.token_hex(6)}", at=clock.now(), project=place, name="handoffd", story=None,
        step="", kind="test", text="this is a test: it would be told like this", action="handoffd status",
        why="somebody typed `handoffd notify test`",
    )  # fmt: skip
