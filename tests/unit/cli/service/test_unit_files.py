"""How the templates are filled in, which installation they name, and whether it is a lasting one."""

from __future__ import annotations

import json
import os
import pwd
import re
import sys
from pathlib import Path

import pytest

import handoffd
from handoffd.cli.service import unit_files
from handoffd.cli.service.unit_files import Installation
from handoffd.errors import NotFound, Refused

_INSTALLATION = Installation(
    program=Path("/opt/hand off/bin/handoffd"),
    python=Path("/opt/100%/python3"),
    package=Path("/opt/$x/handoffd"),
)


def _program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_no_placeholder_is_left_outside_comments(tmp_path: Path) -> None:
    """Every template that ships is filled in whole."""
    account = pwd.getpwuid(os.getuid())
    files = (
        *unit_files.user_units(tmp_path, _INSTALLATION, {"PATH": "/bin"}),
        *unit_files.system_units(tmp_path, _INSTALLATION, account, "/bin"),
    )

    assert 4 == len({file.name for file in files})
    for file in files:
        settings = [line for line in file.text.splitlines() if not line.startswith("#")]
        assert [] == [line for line in settings if re.search(r"@[A-Z]+@", line)]


def test_paths_are_taken_literally() -> None:
    """A space does not split a path, and % and $ are not expanded."""
    filled = unit_files.fill(
        "ExecStart=@HANDOFFD@ run\nExecStart=@PYTHON@ @PACKAGE@/execute/runner/launcher.py %t/s",
        _INSTALLATION,
    )

    assert [
        unit_files.MARK,
        'ExecStart="/opt/hand off/bin/handoffd" run',
        "ExecStart=/opt/100%%/python3 /opt/$$x/handoffd/execute/runner/launcher.py %t/s",
    ] == filled.splitlines()


def test_a_line_break_in_a_path_is_refused() -> None:
    """It would start a setting of its own."""
    with pytest.raises(Refused):
        unit_files.exec_word("/opt/x\nExecStartPre=/bin/evil")


def test_the_environment_keeps_what_decides_where_files_are(tmp_path: Path) -> None:
    """A person's XDG folders apply to the service, too; nothing else of the shell does."""
    environment = {"PATH": "/bin", "XDG_STATE_HOME": '/da"ta/100%', "TOKEN": "hunter2", "XDG_CONFIG_HOME": ""}

    _, daemon = unit_files.user_units(tmp_path, _INSTALLATION, environment)

    lines = [line for line in daemon.text.splitlines() if line.startswith('Environment="')]
    assert ['Environment="PATH=/bin"', 'Environment="XDG_STATE_HOME=/da\\"ta/100%%"'] == lines


def test_the_program_is_named_free_of_links(tmp_path: Path) -> None:
    """pipx and uv put a link on PATH; the unit names what it leads to."""
    real = _program(tmp_path / "venvs/handoffd/bin/handoffd")
    link = tmp_path / "bin/handoffd"
    link.parent.mkdir()
    link.symlink_to(real)

    assert real.resolve() == unit_files.find_program([tmp_path / "missing", link])


def test_no_program_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    """A folder is not a program."""
    (tmp_path / "handoffd").mkdir()

    with pytest.raises(NotFound) as caught:
        unit_files.find_program([tmp_path / "handoffd"])

    assert "pipx install .  # in a checkout; or: uv tool install ." == caught.value.hint


def test_this_installation_is_the_one_beside_the_program_that_runs(tmp_path: Path) -> None:
    """`orchestrator service install` installs the `handoffd` of the same folder."""
    program = _program(tmp_path / "bin/handoffd")

    found = unit_files.this_installation(str(program.with_name("orchestrator")))

    assert program.resolve() == found.program
    assert Path(sys.executable).resolve() == found.python
    assert (found.package / "execute/runner/launcher.py").is_file()


def test_the_search_path_leaves_our_own_environment_out(tmp_path: Path) -> None:
    """Agents must find their own `python`, and relative folders mean nothing in a service."""
    program = _program(tmp_path / "venv/bin/handoffd")
    path = f"{program.parent}:/usr/bin:.:bin::/usr/bin:/bin"

    assert f"{program.parent}:/usr/bin:/bin" == unit_files.search_path(path, program)
    (tmp_path / "venv/pyvenv.cfg").touch()
    assert "/usr/bin:/bin" == unit_files.search_path(path, program)


def test_an_installation_that_root_owns_is_usable_by_every_account() -> None:
    """As one by the system's package manager is."""
    account = next(entry for entry in pwd.getpwall() if entry.pw_uid != 0)
    shared = Installation(program=Path("/usr/bin/env"), python=Path("/bin/sh"), package=Path("/usr/share"))

    unit_files.require_usable_by(account, shared)


def test_a_program_that_every_account_can_change_is_refused(tmp_path: Path) -> None:
    """An account that replaces the program could run code as the daemon's account."""
    program = _program(tmp_path / "open/handoffd")
    program.parent.chmod(0o777)
    own = pwd.getpwuid(os.getuid())
    open_to_all = Installation(program=program, python=Path("/bin/sh"), package=Path("/usr/share"))

    with pytest.raises(Refused, match="can be changed by any account"):
        unit_files.require_usable_by(own, open_to_all)


# --- whether the program will be there tomorrow -----------------------------------------------------
def _at(program: Path) -> Installation:
    return Installation(program=program, python=Path("/bin/sh"), package=program.parents[1] / "handoffd")


def test_a_program_in_a_cache_is_refused(tmp_path: Path) -> None:
    """`uvx` and `pipx run` sweep theirs, wherever it is configured to be."""
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv/CACHEDIR.TAG").touch()

    for program in (tmp_path / ".cache/pipx/x/bin/handoffd", tmp_path / "uv/archive-v0/x/bin/handoffd"):
        with pytest.raises(Refused, match="swept") as caught:
            unit_files.require_permanent(_at(program))
        assert "uv tool install" in (caught.value.hint or "")


def test_an_environment_that_uv_has_tagged_is_not_a_cache(tmp_path: Path) -> None:
    """It also tags the environments of `uv tool install` and of pipx."""
    (tmp_path / "tools/handoffd").mkdir(parents=True)
    (tmp_path / "tools/handoffd/CACHEDIR.TAG").touch()

    unit_files.require_permanent(_at(tmp_path / "tools/handoffd/bin/handoffd"))


def test_a_folder_that_is_emptied_is_reported() -> None:
    """The program works until then."""

    def emptied(program: str) -> list[str]:
        return [line for line in unit_files.cautions(_at(Path(program))) if "emptied" in line]

    (caution,) = emptied("/tmp/venv/bin/handoffd")
    assert "/tmp/venv/bin/handoffd is in /tmp" in caution
    assert [] == emptied("/opt/venv/bin/handoffd")


def test_a_checkout_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This one is; a wheel's package, and a distribution whose record does not say it, are not."""
    package = Path(handoffd.__file__).resolve().parent
    assert str(package.parents[1]) == unit_files.editable_source(package)
    assert unit_files.editable_source(tmp_path / "site-packages/handoffd") is None

    info = tmp_path / "handoffd-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: handoffd\nVersion: 9\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert unit_files.editable_source(tmp_path) is None
    for text in ("no json", "[]", json.dumps({"url": "file:///x", "dir_info": {}})):
        (info / "direct_url.json").write_text(text, encoding="utf-8")
        assert unit_files.editable_source(tmp_path) is None
