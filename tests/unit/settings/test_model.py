"""The settings as values: frozen, closed, and with limits that make sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from handoffd.settings.model import (
    ExecuteSettings,
    ProjectSettings,
    RetentionSettings,
    SchedulingSettings,
    Settings,
    WatchSettings,
)
from handoffd.settings.notify import NotifySettings, WebhookSettings
from handoffd.settings.section import Size

SETTINGS = Settings(state_dir=Path("/state"), runtime_dir=Path("/run/h"))


def test_paths_follow_from_the_two_directories() -> None:
    """All durable files are in the state directory, the sockets in the runtime directory."""
    assert Path("/state/journal.db") == SETTINGS.journal
    assert Path("/state/runs") == SETTINGS.runs_dir
    assert Path("/run/h/control.sock") == SETTINGS.control_socket
    assert Path("/run/h/launcher.sock") == SETTINGS.launcher_socket


def test_settings_do_not_change() -> None:
    """Sections are frozen."""
    with pytest.raises(ValidationError):
        SETTINGS.watch.step_ms = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("model", "values"),
    [
        *[
            (WatchSettings, row)
            for row in ({"stepms": 5}, {"step_ms": 0}, {"sweep_s": "inf"}, {"shards": 11})
        ],
        (WatchSettings, {"sweep_s": float("nan")}),
        (ExecuteSettings, {"memory_max": "63M"}),
        (ExecuteSettings, {"memory_max": "2097152T"}),
        (ExecuteSettings, {"tasks_max": 1}),
        (RetentionSettings, {"runs_days": 999_999}),
        (RetentionSettings, {"notices_days": 999_999}),
        (RetentionSettings, {"journal_days": 999_999}),
        (Settings, {"state_dir": "relative", "runtime_dir": "/run"}),
        (Settings, {"state_dir": "~/x", "runtime_dir": "/run"}),
        (Settings, {"state_dir": "/a\0b", "runtime_dir": "/run"}),
        (Settings, {"state_dir": "/state", "runtime_dir": "/run", "projects": ["relative"]}),
        (NotifySettings, {"command": []}),
        (NotifySettings, {"events": ["everything"]}),
        (ProjectSettings, {"env": ["PATH=x"]}),
        (ProjectSettings, {"test": {"command": []}}),
        (ProjectSettings, {"test": {"command": ["make"], "reports": ["*.xml"]}}),
        (ProjectSettings, {"external_edits": "ignore"}),
    ],
)
def test_invalid_settings_are_refused(model: type[Any], values: dict[str, object]) -> None:
    """Unknown keys, numbers out of range, relative paths, empty commands and invalid names are errors."""
    with pytest.raises(ValidationError):
        model.model_validate(values)


def test_a_project_belongs_to_the_first_group_that_names_it() -> None:
    """A group names roots or patterns of roots."""
    groups = {"web": {"projects": ["/srv/web*"]}, "all": {"projects": ["/srv/*"]}}
    scheduling = SchedulingSettings.model_validate({"groups": groups})

    found = [scheduling.group_of(root) for root in ("/srv/web/shop", "/srv/blog", "/home/x")]
    assert ["web", "all", None] == found


def test_a_route_cannot_name_an_unknown_group() -> None:
    """Its notices would go nowhere."""
    values = {
        "state_dir": "/state", "runtime_dir": "/run", "scheduling": {"groups": {"web": {}}},
        "notify": {"command": ["true"], "routes": [{"projects": ["group:wbe"], "to": ["command"]}]},
    }  # fmt: skip
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(values)

    (error,) = caught.value.errors()
    assert ("notify",) == error["loc"]
    assert "no group 'wbe' (groups: web)" in error["msg"]


NOT_WEB = ["file:///etc/passwd", "ftp://host/x", "host/x", "https:///path"]
BROKEN = ["http://host:99999/", "http://h/a b", "http://h/é"]


@pytest.mark.parametrize("url", NOT_WEB + BROKEN)
def test_a_webhook_needs_a_whole_web_address(url: str) -> None:
    """The message about another one does not quote it: it may contain a secret."""
    with pytest.raises(ValidationError) as caught:
        WebhookSettings.model_validate({"url": url})

    assert url not in caught.value.errors()[0]["msg"]


@pytest.mark.parametrize(
    ("given", "count", "shown"),
    [
        ("4G", 4 << 30, "4G"),
        ("2GiB", 2 << 30, "2G"),
        ("2 GiB", 2 << 30, "2G"),
        ("2 G", 2 << 30, "2G"),
        ("512MiB", 512 << 20, "512M"),
        ("1.5 GiB", 1536 << 20, "1536M"),
        ("0.125K", 128, "128"),
        ("1536M", 1536 << 20, "1536M"),
        ("1024M", 1 << 30, "1G"),
        (1 << 20, 1 << 20, "1M"),
        ("100", 100, "100"),
        ("0", 0, "0"),
    ],
)
def test_a_size_has_a_unit(given: str | int, count: int, shown: str) -> None:
    """It is shown with the largest unit that makes it a whole number."""
    found = TypeAdapter(Size).validate_python(given)
    assert (count, shown) == (found, str(found))
    assert count == TypeAdapter(Size).validate_python(shown)


SIZES = ["4 gigs", "4g", "4GB", "4Gib", "4  GiB", "4Gi", "1.5", ".5G", "-1", "9999999999999999", "٣"]


@pytest.mark.parametrize("given", [*SIZES, "", -1, True, 1.5, None])
def test_an_invalid_size_is_refused(given: object) -> None:
    """The message has examples of valid ones; some people mean a power of 1000 by GB."""
    with pytest.raises(ValidationError, match="must be a size such as 512M"):
        TypeAdapter(Size).validate_python(given)
