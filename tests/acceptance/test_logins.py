"""What agents keep in the home: a login is shared, settings are the person's, sessions the project's."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.agents import GATED, project_at, shell_agent
from tests.support.daemon import Daemon, Json, running
from tests.support.house import HAND_OVER
from tests.support.sandboxes import require_namespaces

pytestmark = pytest.mark.usefixtures("namespaces")

AGENT = f"""exec 2> /dev/null
cat > /dev/null
project=$PWD
cd ~/.agent
cat settings.json sessions/* > $project/seen
for file in settings.json hooks/evil rules.toml; do
  echo evil > $file; echo evil > new; mv -f new $file; rm -f $file
done
mkdir -p sessions
basename $project > sessions/last
{{refresh}}
cd $project
{HAND_OVER}"""
"""It tries to change the settings, keeps a session, and refreshes its login."""

IN_PLACE = "next=$(($(cat login) + 1)); echo $next > login; echo $next > more"
RENAMED = "echo $(($(cat login) + 1)) > login.new && cp login.new more && mv login.new login"


@pytest.fixture
def namespaces() -> None:
    """Skip the test where no sandbox can be made."""
    require_namespaces()


def agent_home(base: Path) -> Path:
    """Return the folder of the agent's program in a person's home, who is logged in and has settings."""
    kept = base / "home/.agent"
    (kept / "sessions").mkdir(parents=True)
    for name in ("login", "more"):
        (kept / name).write_text("1\n")
    (kept / "settings.json").write_text("a person's\n")
    (kept / "sessions/last").write_text("a person's session\n")
    return kept


def settings(base: Path, refresh: str, share: str, **more: object) -> Json:
    """Return the daemon's, with an agent that refreshes its login like that."""
    keeps: Json = {
        "own": ["~/.agent", "~/.agent/sessions"],
        "reads": ["~/.agent/settings.json", "~/.agent/hooks/", "~/.agent/rules.toml"],
        "env": ["AGENT_KEY"],
        "login": {
            "files": ["~/.agent/login"],
            "also": ["~/.agent/more"],
            "env": ["AGENT_KEY"],
            "share": share,
        },
    }
    agent = shell_agent(base, AGENT.format(refresh=refresh), **keeps)
    return {"executors": {"agent": agent}, "executor": "agent", "sandbox": {"writable": []}, **more}


def two_nights(daemon: Daemon, one: Path, two: Path) -> tuple[list[str], list[str]]:
    """Have the agent work in both projects, and again in the first; return what it saw in the last two."""
    daemon.to_review(one)
    daemon.to_review(two)
    assert "accepted" == daemon.verb("approve", one)["type"]
    daemon.wait_at(one, "done", "pass")
    daemon.begin(one, "US-002")
    daemon.wait_at(one, "review", "needs_human")
    return (two / "seen").read_text().splitlines(), (one / "seen").read_text().splitlines()


@pytest.mark.parametrize(("refresh", "share"), [(IN_PLACE, "file"), (RENAMED, "folder")])
def test_a_login_is_shared_and_settings_and_sessions_are_not(
    tmp_path: Path, refresh: str, share: str
) -> None:
    """Each agent, and the person, goes on from the login as the one before left it."""
    kept = agent_home(tmp_path)
    shop, blog = project_at(tmp_path / "shop", rules=GATED), project_at(tmp_path / "blog", rules=GATED)

    with running(tmp_path, settings(tmp_path, refresh, share), HOME=str(kept.parent)) as daemon:
        blogs, shops = two_nights(daemon, shop, blog)

    assert ["a person's"] == blogs
    assert ["a person's", "shop"] == shops
    assert ["4\n", "4\n"] == [(kept / name).read_text() for name in ("login", "more")]
    assert "a person's\n" == (kept / "settings.json").read_text()
    assert "a person's session\n" == (kept / "sessions/last").read_text()
    assert not (kept / "hooks/evil").exists()
    assert "" == ((kept / "rules.toml").read_text() if (kept / "rules.toml").exists() else "")


def test_with_a_key_in_the_environment_nothing_of_the_persons_can_be_written(tmp_path: Path) -> None:
    """Though the program would replace a login: it uses none."""
    kept = agent_home(tmp_path)
    shop, blog = project_at(tmp_path / "shop", rules=GATED), project_at(tmp_path / "blog", rules=GATED)
    key = {"AGENT_KEY": "key", "HOME": str(kept.parent)}

    with running(tmp_path, settings(tmp_path, RENAMED, "folder"), **key) as daemon:
        blogs, shops = two_nights(daemon, shop, blog)

    assert (["a person's"], ["a person's", "shop"]) == (blogs, shops)
    assert "1\n" == (kept / "login").read_text()
    assert {"login", "more", "settings.json", "sessions"} == {path.name for path in kept.iterdir()}
