"""The settings as values: frozen, closed, and with limits that make sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from handoffd.settings.model import (
    ExecuteSettings,
    ProjectSettings,
    RetentionSettings,
    SchedulingSettings,
    Settings,
    WatchSettings,
)
from handoffd.settings.notify import NotifySettings, WebhookSettings

SETTINGS = Settings(state_dir=Path("/state"), runtime_dir=Path("/run/h"))


def test_places_follow_from_the_two_directories() -> None:
    """Everything durable is in the state directory, every socket in the runtime directory."""
    assert Path("/state/journal.db") == SETTINGS.journal
    assert Path("/state/runs") == SETTINGS.runs_dir
    assert Path("/run/h/control.sock") == SETTINGS.control_socket
    assert Path("/run/h/launcher.sock") == SETTINGS.launcher_socket


def test_settings_do_not_change() -> None:
    """What was handed out stays as it was."""
    with pytest.raises(ValidationError):
        SETTINGS.watch.step_ms = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (WatchSettings, {"stepms": 5}),
        (WatchSettings, {"step_ms": 0}),
        (WatchSettings, {"sweep_s": "inf"}),
        (WatchSettings, {"shards": 11}),
        (ExecuteSettings, {"memory_max": "63M"}),
        (ExecuteSettings, {"memory_max": "2097152T"}),
        (ExecuteSettings, {"tasks_max": 1}),
        (RetentionSettings, {"runs_days": 999_999}),
        (RetentionSettings, {"notices_days": 999_999}),
        (RetentionSettings, {"journal_days": 999_999}),
        (Settings, {"state_dir": "relative", "runtime_dir": "/run"}),
        (Settings, {"state_dir": "/state", "runtime_dir": "/run", "projects": ["relative"]}),
        (NotifySettings, {"command": []}),
        (NotifySettings, {"events": ["everything"]}),
        (ProjectSettings, {"env": ["PATH=x"]}),
        (ProjectSettings, {"test": {"command": []}}),
        (ProjectSettings, {"external_edits": "ignore"}),
    ],
)
def test_what_makes_no_sense_is_refused(model: type[Any], values: dict[str, object]) -> None:
    """Unknown keys, numbers out of range, empty commands and names that are none are errors."""
    with pytest.raises(ValidationError):
        model.model_validate(values)


def test_a_project_belongs_to_the_first_group_that_names_it() -> None:
    """By its root, or by a pattern of it."""
    groups = {"web": {"projects": ["/srv/web*"]}, "all": {"projects": ["/srv/*"]}}
    scheduling = SchedulingSettings.model_validate({"groups": groups})

    found = [scheduling.group_of(root) for root in ("/srv/web/shop", "/srv/blog", "/home/x")]
    assert ["web", "all", None] == found


def test_a_route_leads_from_a_group_that_is_there() -> None:
    """Else its notices would go everywhere."""
    values = {
        "state_dir": "/state", "runtime_dir": "/run", "scheduling": {"groups": {"web": {}}},
        "notify": {"command": ["true"], "routes": [{"projects": ["group:wbe"], "to": ["command"]}]},
    }  # fmt: skip
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(values)

    (error,) = caught.value.errors()
    assert ("notify",) == error["loc"]
    assert "no group 'wbe' (groups: web)" in error["msg"]


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://host/x",
        "host/x",
        "https:///path",
        "http://host:99999/",
        "http://h/a b",
        "http://h/é",
    ],
)
def test_only_whole_web_addresses_are_webhooks(url: str) -> None:
    """Anything else is refused without being quoted: it may hold a key."""
    with pytest.raises(ValidationError) as caught:
        WebhookSettings.model_validate({"url": url})

    assert url not in caught.value.errors()[0]["msg"]


def test_a_webhook_is_not_shown_by_accident() -> None:
    """The text of the settings holds no key."""
    settings = WebhookSettings.model_validate({"url": "https://hooks.example.org/key"})

    assert "key" not in f"{settings!r} {settings}"
