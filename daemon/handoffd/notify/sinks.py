"""The sinks that the settings ask for."""

from __future__ import annotations

from collections.abc import Mapping

from handoffd.notify.apprise import AppriseSink
from handoffd.notify.command import CommandSink
from handoffd.notify.ntfy import NtfySink
from handoffd.notify.sink import Sink
from handoffd.notify.webhook import WebhookSink
from handoffd.settings_notify import NotifySettings, SinkSettings


def sink_of(name: str, settings: SinkSettings, environ: Mapping[str, str]) -> Sink:
    """Return one sink. Of the environment, its programs get what they need to tell people."""
    if settings.webhook is not None:
        return WebhookSink(settings.webhook, name)
    if settings.ntfy is not None:
        return NtfySink(settings.ntfy, name)
    if settings.apprise is not None:
        return AppriseSink(settings.apprise, environ, name)
    return CommandSink(settings, environ, name)


def sinks_of(settings: NotifySettings, environ: Mapping[str, str]) -> list[Sink]:
    """Return every sink."""
    return [sink_of(name, sink, environ) for name, sink in settings.named().items()]
