"""Whose rights agents have."""

from __future__ import annotations

import os
import pwd
import subprocess

from tests.support.children import ending

from handoffd.doctor.installation import AccountFacts, account_facts, check_account
from handoffd.doctor.service import Service


def test_the_account_is_that_of_the_daemon() -> None:
    """Without one, or with one that is gone, it is that of whoever asks."""
    mine = pwd.getpwuid(os.geteuid()).pw_name
    expected = AccountFacts(name=mine, is_root=os.geteuid() == 0, own=False)
    with ending(subprocess.Popen(["sleep", "600"])) as process:
        try:
            assert expected == account_facts(process.pid, Service(unit="handoffd"))
        finally:
            process.kill()
    assert expected == account_facts(None, Service(unit=None)) == account_facts(2**22 + 1, Service(unit=None))
    assert account_facts(None, Service(unit="handoffd", account="agents")).own


def test_root_is_warned_of() -> None:
    """There is nothing that an agent could not do."""
    (found,) = check_account(AccountFacts(name="root", is_root=True, own=False))
    assert ("warning", "agents work as root") == (found.severity, found.what)
    assert "sudo handoffd service install --system --user ACCOUNT" == found.action


def test_what_an_account_means_is_said() -> None:
    """No finding to be mended, but nobody shall think that there is a sandbox."""
    (person,) = check_account(AccountFacts(name="ann", is_root=False, own=False))
    (own,) = check_account(AccountFacts(name="agents", is_root=False, own=True))
    assert ("ok", "ok") == (person.severity, own.severity)
    assert "agents work with all rights of ann: there is no sandbox around them" == person.what
    assert "agents work as agents, without a sandbox" == own.what
