"""The sinks that the settings ask for."""

from __future__ import annotations

from handoffd.notify.apprise import AppriseSink
from handoffd.notify.command import CommandSink
from handoffd.notify.sinks import NtfySink, WebhookSink, sink_of
from handoffd.settings.notify import NotifySettings


def test_each_form_has_its_sink_and_each_sink_its_name() -> None:
    """Those of one's own beside those of the simple forms."""
    forms = {
        "command": ["true"], "webhook": {"url": "http://h/"}, "ntfy": {"topic": "t"},
        "apprise": {"urls": ["json://h"]},
    }  # fmt: skip
    own = {f"my-{form}": {form: value} for form, value in forms.items()}

    settings = NotifySettings.model_validate({**forms, "sinks": own}).named()
    made = [sink_of(name, sink, {}) for name, sink in settings.items()]
    kinds = (CommandSink, WebhookSink, NtfySink, AppriseSink)
    assert [*forms, *own] == [sink.name for sink in made]
    assert [*kinds, *kinds] == [type(sink) for sink in made]
