"""The settings of notices: sinks and their names, routes, times."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from handoffd.settings.notify import EXAMPLE_TOPIC, NotifySettings

NTFY = {"topic": "shop-4711"}
NIGHT = {"start": "22:00", "end": "07:00"}


def notify(**values: Any) -> NotifySettings:
    """Return settings of notices."""
    return NotifySettings.model_validate(values)


def test_the_simple_forms_are_sinks_with_the_name_of_their_form() -> None:
    """Sinks with names of their own follow them."""
    settings = notify(command=["true"], command_timeout_s=5, ntfy=NTFY, sinks={"phone": {"ntfy": NTFY}})

    sinks = settings.named()
    assert ["command", "ntfy", "phone"] == list(sinks)
    assert (("true",), 5) == (sinks["command"].command, sinks["command"].command_timeout_s)
    assert sinks["ntfy"] == sinks["phone"]
    assert {} == notify().named()


def test_many_notices_at_once_become_one_for_sinks_that_reach_people() -> None:
    """A program gets each; a setting changes either."""
    sinks = notify(
        command=["true"], ntfy=NTFY,
        sinks={"a": {"apprise": {"urls": ["json://x"]}}, "b": {"ntfy": NTFY, "burst": False},
               "c": {"webhook": {"url": "http://x/"}, "burst": True}},
    ).named()  # fmt: skip

    folding = {name: sink.folds for name, sink in sinks.items()}
    assert {"command": False, "ntfy": True, "a": True, "b": False, "c": True} == folding


@pytest.mark.parametrize(
    ("values", "key", "words"),
    [
        ({"sinks": {"phone": {}}}, "sinks.phone", "exactly one of these: command, webhook, ntfy, apprise"),
        ({"sinks": {"x": {"ntfy": NTFY, "command": ["a"]}}}, "sinks.x", "exactly one"),
        ({"sinks": {"Phone!": {"ntfy": NTFY}}}, "sinks", "small letters"),
        ({"ntfy": NTFY, "sinks": {"ntfy": {"ntfy": NTFY}}}, "sinks", "twice"),
        ({"ntfy": {}}, "ntfy.topic", "required"),
        ({"ntfy": {"topic": " "}}, "ntfy.topic", "not be empty"),
        ({"ntfy": {**NTFY, "token": "a\r\nX: b"}}, "ntfy.token", "one word"),
        ({"ntfy": {**NTFY, "server": "ntfy.sh"}}, "ntfy.server", "whole address"),
        ({"ntfy": {**NTFY, "priority": {"done": 6}}}, "ntfy.priority.done", "less than or equal to 5"),
        ({"apprise": {}}, "apprise", "exactly one of these: urls, config_file"),
        ({"apprise": {"urls": ["# none\n"]}}, "apprise", "contains no address"),
        ({"apprise": {"config_file": "urls"}}, "apprise.config_file", "whole path"),
        ({"routes": [{"to": ["phone"]}]}, "routes", "no sink 'phone' (sinks: none)"),
        ({"ntfy": NTFY, "routes": [{"to": ["phone"]}]}, "routes", "(sinks: ntfy)"),
        ({"events": ["done", "escalation"]}, "events.1", "notify.remind.escalate"),
        ({"ntfy": NTFY, "routes": [{"kinds": ["escalation"], "to": ["ntfy"]}]}, "routes.0.kinds.0",
         "notify.remind.escalate"),
        ({"remind": {"escalate": [{"after_min": 5, "to": ["x"]}]}}, "remind", "no sink 'x'"),
        ({"remind": {"after_min": [0]}}, "remind.after_min.0", "greater than 0"),
        ({"quiet": {"start": "22", "end": "07:00"}}, "quiet.start", "from 00:00 to 23:59"),
        ({"quiet": {"start": "22:00", "end": "24:00"}}, "quiet.end", "from 00:00 to 23:59"),
        ({"quiet": {**NIGHT, "timezone": "Europe/Bonn"}}, "quiet.timezone", "be a time zone"),
        ({"quiet": {**NIGHT, "timezone": "../etc"}}, "quiet.timezone", "be a time zone"),
        ({"quiet": {"start": "07:00", "end": "07:00"}}, "quiet", "no notice would ever be sent"),
        ({"digest": {}}, "digest", "exactly one of these: at, every_h"),
        ({"digest": {"at": "07:30", "every_h": 2}}, "digest", "exactly one"),
        ({"digest": {"every_h": 1e300}}, "digest.every_h", "less than or equal to 8784"),
        ({"remind": {"after_min": [1e300]}}, "remind.after_min.0", "less than or equal to 527040"),
        ({"burst": {"within_s": 1e300}}, "burst.within_s", "less than or equal to 31622400"),
        ({"burst": {"most": 0}}, "burst.most", "greater than or equal to 1"),
    ],
)  # fmt: skip
def test_invalid_settings_are_refused(values: dict[str, Any], key: str, words: str) -> None:
    """The error has the key."""
    with pytest.raises(ValidationError) as caught:
        notify(**values)

    (error,) = caught.value.errors()
    assert (key, True) == (".".join(map(str, error["loc"])), words in error["msg"]), error["msg"]


def test_escalations_may_be_urgent_collected_and_have_a_priority() -> None:
    """Only routes and `events` refuse that kind."""
    settings = notify(
        ntfy={**NTFY, "priority": {"escalation": 4}}, quiet={**NIGHT, "urgent": ["escalation"]},
        digest={"at": "07:30", "kinds": ["escalation"]},
    )  # fmt: skip

    assert settings.ntfy is not None
    assert {"escalation": 4} == settings.ntfy.priority


def test_a_route_to_an_invalid_sink_is_no_second_problem() -> None:
    """The sink exists once its own problem is fixed."""
    with pytest.raises(ValidationError) as caught:
        notify(sinks={"phone": {"ntfy": {}}}, routes=[{"to": ["phone"]}])

    assert [("sinks", "phone", "ntfy", "topic")] == [error["loc"] for error in caught.value.errors()]


def test_secrets_are_not_shown_by_accident() -> None:
    """Topics, tokens and addresses are secrets."""
    settings = notify(
        ntfy={"topic": "key1", "token": "key2"}, apprise={"urls": ["tgram://key3/key4"]},
        sinks={"x": {"ntfy": {"topic": "key5"}}}, webhook={"url": "https://hooks.example.org/key"},
    )  # fmt: skip

    assert "key" not in f"{settings!r} {settings}"


def test_a_sink_with_the_topic_of_the_example_is_switched_off() -> None:
    """Routes may name it; it sends nothing, and a warning names it."""
    example = {"topic": EXAMPLE_TOPIC}
    settings = notify(ntfy=example, sinks={"phone": {"ntfy": NTFY}}, routes=[{"to": ["ntfy"]}])

    assert ["ntfy", "phone"] == list(settings.named())
    assert ["phone"] == list(settings.in_use())
    (warning,) = settings.warnings
    assert warning.startswith("the sink ntfy is switched off: its topic, a-name-that-is-hard-to-guess, is")
    assert () == notify(ntfy=NTFY).warnings
