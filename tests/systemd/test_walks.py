"""Both ways from nothing to a supervised workspace in docs/how-to/install.md, typed as they stand there."""

from __future__ import annotations

import re

import pytest
from tests.support.walks import OWN_MACHINE, SERVER, script, typed
from tests.systemd.box import Box, Done

EDITOR = """\
#!/bin/sh
echo sk-secret > "$1"
"""


@pytest.fixture(scope="module")
def alice(box: Box) -> str:
    """An account that may use sudo, with a checkout in its home, and an editor that knows the key."""
    box.must("useradd --create-home --shell /bin/bash alice")
    box.path("/etc/sudoers.d/alice").write_text("alice ALL=(ALL) NOPASSWD: ALL\n", encoding="utf-8")
    editor = box.path("/usr/local/bin/editor")
    editor.write_text(EDITOR, encoding="utf-8")
    editor.chmod(0o755)
    box.put_checkout("/home/alice/handoffd", "alice")
    return "alice"


def walked(box: Box, account: str, heading: str) -> Done:
    """Return what came of typing the commands below a heading of the page, in the checkout."""
    opening = "set -ux; exec 2>&1; export EDITOR=/usr/local/bin/editor; cd handoffd\n"
    return box.run(opening + script(typed(heading)), user=account)


def begun(box: Box, account: str) -> list[str]:
    """Return the agent's starts in the project of the page."""
    return box.path(f"/var/tmp/desks/{account}-shop/begun").read_text(encoding="utf-8").splitlines()


def test_your_own_machine(box: Box, alice: str) -> None:
    """Installation, a story, an upgrade with a live agent, removal; the projects stay."""
    done = walked(box, alice, OWN_MACHINE)

    assert 0 == done.returncode, done.stdout
    assert "lingering    yes" in done.stdout
    assert re.search(r"^handoffd\.service: active \(running\), pid \d+$", done.stdout, re.MULTILINE)
    assert re.search(r"^shop +US-001 +bootstrap", done.stdout, re.MULTILINE), done.stdout
    assert 1 == len(begun(box, "alice")), "the agent is started once, and outlives the upgrade"
    home = box.path("/home/alice")
    assert (home / "projects/shop/.ai/STATE.json").exists()
    left = (".secrets", ".config/handoffd", ".config/systemd/user/handoffd.service", ".local/state/handoffd")
    assert [] == [name for name in left if (home / name).exists()]


def test_a_server(box: Box, alice: str) -> None:
    """The same with an account for agents under the machine's systemd."""
    done = walked(box, alice, SERVER)

    assert 0 == done.returncode, done.stdout
    assert re.search(r"^handoffd@agents\.service: active \(running\), pid \d+$", done.stdout, re.MULTILINE)
    assert "claude runs as process" in done.stdout, done.stdout
    assert 1 == len(begun(box, "agents")), "the agent is started once, and outlives reload and restart"
    assert box.path("/srv/projects/shop/.ai/STATE.json").exists()
    left = (
        "/etc/handoffd",
        "/var/lib/handoffd",
        "/etc/systemd/system/handoffd@agents.service",
        "/home/agents",
    )
    assert [] == [name for name in left if box.path(name).exists()]
