"""What is found, written and removed."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from handoffd.cli.service import unit_files
from handoffd.cli.service.plan import differs, is_ours, remove, remove_sockets, write
from handoffd.cli.service.scope import Machine, Scope
from handoffd.errors import Refused


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    """A person's home."""
    return Scope(account=None, machine=Machine(environment={"HOME": str(tmp_path)}))


def _file(scope: Scope, *below: str, text: str = "[Service]") -> unit_files.UnitFile:
    text = f"{unit_files.MARK}\n{text}\n"
    return unit_files.UnitFile(name="handoffd.service", path=scope.folder.joinpath(*below), text=text)


def test_a_file_is_written_when_it_is_missing_or_other(scope: Scope) -> None:
    """And carries our mark then."""
    file = _file(scope, "handoffd.service")
    assert differs(file)

    write(scope, [file])

    assert is_ours(file.path)
    assert not differs(file)
    assert differs(_file(scope, "handoffd.service", text="[Unit]"))


def test_a_file_that_is_not_ours_is_refused(scope: Scope) -> None:
    """With the command that puts it aside."""
    file = _file(scope, "handoffd.service")
    file.path.parent.mkdir(parents=True)
    file.path.write_text("[Service]\n", encoding="utf-8")

    with pytest.raises(Refused) as caught:
        differs(file)

    assert str(caught.value.hint).startswith(f"mv {file.path} ")
    assert not is_ours(file.path)


def test_removing_leaves_no_empty_folder_and_nobody_elses(scope: Scope) -> None:
    """A folder goes with its last file."""
    unit, drop_in = _file(scope, "handoffd.service"), _file(scope, "handoffd.service.d", "credentials.conf")
    write(scope, [unit, drop_in])
    (scope.folder / "other.service").touch()

    remove(scope, [unit.path, drop_in.path])
    assert ["other.service"] == [path.name for path in scope.folder.iterdir()]
    (scope.folder / "other.service").unlink()
    remove(scope, [unit.path])

    assert not scope.folder.parent.exists()


def test_a_folder_that_cannot_be_written_is_said(scope: Scope) -> None:
    """With the folder to look at."""
    scope.folder.parent.mkdir(parents=True)
    scope.folder.write_text("in the way", encoding="utf-8")

    with pytest.raises(Refused, match="cannot be written"):
        write(scope, [_file(scope, "handoffd.service")])


def test_sockets_at_which_nobody_listens_go() -> None:
    """The folder with the last of them; one at which somebody answers stays."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as name:
        machine = Machine(environment={"XDG_RUNTIME_DIR": name}, system_runtime=Path(name, "handoffd"))
        person = Scope(account=None, machine=machine)
        folder = person.runtime
        folder.mkdir()
        with (
            socket.socket(socket.AF_UNIX) as control,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as launcher,
        ):
            control.bind(str(folder / "control.sock"))
            launcher.bind(str(folder / "launcher.sock"))
            launcher.listen()

            remove_sockets(person)
            assert ["launcher.sock"] == [path.name for path in folder.iterdir()]
        remove_sockets(person)
        assert not folder.exists()

        remove_sockets(person)
        assert Path(name).exists()


def test_the_folder_of_all_accounts_goes_with_the_last(tmp_path: Path) -> None:
    """systemd makes it, and removes none that is to be preserved."""
    machine = Machine(environment={}, system_runtime=tmp_path / "run")
    scope = Scope(account="build", machine=machine)
    scope.runtime.mkdir(parents=True)
    (tmp_path / "run/other").mkdir()

    remove_sockets(scope)
    assert ["other"] == [path.name for path in (tmp_path / "run").iterdir()]
    (tmp_path / "run/other").rmdir()
    remove_sockets(scope)

    assert not (tmp_path / "run").exists()
