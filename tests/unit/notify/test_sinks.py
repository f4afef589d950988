"""The sinks that the settings ask for."""

from __future__ import annotations

from handoffd.notify.apprise import AppriseSink
from handoffd.notify.command import CommandSink
from handoffd.notify.ntfy import NtfySink
from handoffd.notify.sinks import sinks_of
from handoffd.notify.webhook import WebhookSink
from handoffd.settings_notify import NotifySettings


def test_each_form_has_its_sink_and_each_sink_its_name() -> None:
    """Those of one's own beside those of the simple forms."""
    forms = {
        "command": ["true"], "webhook": {"url": "http://h/"}, "ntfy": {"topic": "t"},
        "apprise": {"urls": ["json://h"]},
    }  # fmt: skip
    own = {f"my-{form}": {form: value} for form, value in forms.items()}

    made = sinks_of(NotifySettings.model_validate({**forms, "sinks": own}), {})
    kinds = (CommandSink, WebhookSink, NtfySink, AppriseSink)
    assert [*forms, *own] == [sink.name for sink in made]
    assert [*kinds, *kinds] == [type(sink) for sink in made]
    assert [] == sinks_of(NotifySettings(), {})
