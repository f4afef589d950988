"""Whether people would be told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from handoffd.doctor.finding import Finding
from handoffd.doctor.installation import SinkFacts, check_notices, silent_sink, sink_facts
from handoffd.settings.notify import NotifySettings


def found(environ: dict[str, str] | None = None, **values: Any) -> list[tuple[str, str, str | None]]:
    """Return severity, what and why of what is found about settings."""
    settings = NotifySettings.model_validate(values)
    given = dict(os.environ) if environ is None else environ
    facts = tuple(sink_facts(name, sink, given) for name, sink in settings.named().items())
    return [(one.severity, one.what, one.why) for one in check_notices(settings, facts)]


def test_a_program_must_be_there() -> None:
    """On the PATH that the daemon gives it."""
    assert [
        ("ok", "notifications go to command (nothing was sent; to test: handoffd notify test)", None)
    ] == found(command=["sh"])
    assert [("fault", "the sink command cannot deliver", "sh is not found")] == found(
        {"PATH": "/none"}, command=["sh"]
    )


@pytest.mark.slow
def test_a_file_with_addresses_must_be_readable_and_ours_alone(tmp_path: Path) -> None:
    """It is named."""
    config = tmp_path / "apprise.conf"
    apprise = {"config_file": str(config)}
    assert [("fault", "the sink apprise cannot deliver", f"{config} cannot be read")] == found(
        apprise=apprise
    )
    config.write_text("json://127.0.0.1:9/\n")
    config.chmod(0o644)
    why = "it holds a secret, and other accounts may read it"
    assert [("warning", f"{config} is open to others", why)] == found(apprise=apprise)
    config.chmod(0o600)
    assert ["ok"] == [severity for severity, _, _ in found(apprise=apprise)]


@pytest.mark.slow
def test_apprise_must_know_its_addresses() -> None:
    """By their numbers: they are secrets. Nothing is sent."""
    assert ["ok"] == [severity for severity, _, _ in found(apprise={"urls": ["json://127.0.0.1:9/"]})]
    why = "address 2: apprise does not know such an address"
    wrong = {"urls": ["json://127.0.0.1:9/", "nosuch://key"]}
    assert [("fault", "the sink x cannot deliver", why)] == found(sinks={"x": {"apprise": wrong}})


def test_nobody_to_tell_is_worth_a_warning() -> None:
    """Whoever sleeps learns of nothing then."""

    def told(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
        return [(one.severity, one.what) for one in findings]

    nothing = ("warning", "no notices are sent")
    assert [nothing] == told(check_notices(NotifySettings(), ()))
    assert [nothing] == told(check_notices(NotifySettings(events=()), (SinkFacts(name="x"),)))
    assert ["fault"] == [one.severity for one in check_notices(NotifySettings(), (silent_sink("x"),))]
