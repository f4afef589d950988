"""Secrets that a service manager hands to the daemon: who gets them, and where they are never seen."""

from __future__ import annotations

from pathlib import Path

from tests.support.agents import shell_agent, shop
from tests.support.commands import typed
from tests.support.daemon import Daemon, Json, running

AGENT = """cat > /dev/null
env > {base}/env-$HANDOFFD_STEP
tr '\\0' '\\n' < /proc/$PPID/environ > {base}/shim-env
printf -- '---\\nstep: %s\\nstatus: pass\\n---\\n' "$HANDOFFD_STEP" > .ai/HANDOFF.md
"""
SECRET = "sk-live-0123456789"
OTHER = "sk-live-9876543210"


def _settings(base: Path) -> Json:
    agent = shell_agent(base, AGENT.format(base=base), env=["AGENT_KEY"])
    keys = {"AGENT_KEY": {"credential": "agent"}, "UNUSED_KEY": {"credential": "unused"}}
    return {
        "executor": "agent",
        "executors": {"agent": agent},
        "execute": {"keys": keys, "env_allow": ["PATH", "HOME"]},
    }


def test_a_key_reaches_the_executor_that_names_it_and_nothing_else(tmp_path: Path) -> None:
    """Not the log, not the answers about settings, runs and events, not the daemon's own environment."""
    project = shop(tmp_path)
    given = tmp_path / "credentials"
    given.mkdir()
    (given / "agent").write_text(f"{SECRET}\n")
    (given / "unused").write_text(f"{OTHER}\n")
    daemon = Daemon(tmp_path, _settings(tmp_path))
    daemon.environment["CREDENTIALS_DIRECTORY"] = str(given)
    daemon.fresh = True  # the kernel shows the environment that a program was executed with
    try:
        daemon.start()
        daemon.to_review(project)
        told = [str(daemon.get(path)) for path in ("/v1/status", "/v1/runs", "/v1/events")]
        own = Path(f"/proc/{daemon.pid}/environ").read_text()
    finally:
        daemon.close()

    seen = (tmp_path / "env-bdd").read_text().splitlines()
    assert f"AGENT_KEY={SECRET}" in seen
    assert not [line for line in seen if line.startswith(("UNUSED_KEY", "CREDENTIALS_DIRECTORY"))]
    log = daemon.log()
    assert str(given) in own
    for text in (log, own, *told, (tmp_path / "shim-env").read_text()):
        assert SECRET not in text
        assert OTHER not in text


def test_without_the_credential_the_daemon_does_not_start(tmp_path: Path) -> None:
    """It says which one, and where it was asked for, and exits as for any other bad configuration."""
    daemon = Daemon(tmp_path, _settings(tmp_path))
    (tmp_path / "credentials").mkdir()
    daemon.environment["CREDENTIALS_DIRECTORY"] = str(tmp_path / "credentials")
    try:
        assert 78 == daemon.refusal()
    finally:
        daemon.close()

    log = daemon.log()
    assert "execute.keys.AGENT_KEY: the service was not given the credential agent" in log


def test_a_key_that_changes_counts_for_the_next_attempt(tmp_path: Path) -> None:
    """With the settings that name another file, which a person trusts, and no restart."""
    project = shop(tmp_path)
    for name in ("first", "second"):
        (tmp_path / name).write_text(f"key-{name}\n")
    wanted = _settings(tmp_path)
    wanted["execute"]["keys"] = {"AGENT_KEY": {"file": "first"}}
    with running(tmp_path, wanted) as daemon:
        text = daemon.config.read_text()
        daemon.config.write_text(text.replace('"first"', '"second"'))
        assert "reloaded" == daemon.post("/v1/reload", {})["type"]
        assert 0 == typed(daemon, "trust", "--daemon", "--yes").code
        daemon.to_review(project)

    assert "AGENT_KEY=key-second" in (tmp_path / "env-bdd").read_text().splitlines()
