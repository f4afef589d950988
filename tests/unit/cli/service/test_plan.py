"""What an installation and its removal consist of: units, credentials, and the files on disk."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from handoffd.cli.service import plan, unit_files
from handoffd.cli.service.scope import Machine, Scope
from handoffd.cli.service.unit_files import Installation
from handoffd.errors import HandoffdError, NotFound, Refused

SHARED = Installation(program=Path("/usr/bin/env"), python=Path("/bin/sh"), package=Path("/usr/share"))


def _scope(root: Path, installation: Installation = SHARED) -> Scope:
    machine = Machine(
        environment={"HOME": str(root / "home"), "PATH": "/usr/bin"},
        systemd=root / "no systemd",
        system_units=root / "units",
        kernel=root / "kernel",
        installation=installation,
    )
    return Scope(account=None, machine=machine)


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    """A person's home, empty."""
    return _scope(tmp_path)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file with a secret."""
    path = tmp_path / "secret"
    path.touch(0o600)
    return path


# --- installation and removal -----------------------------------------------------------------------
def test_a_program_in_a_cache_gets_no_service(tmp_path: Path) -> None:
    """It would be gone tomorrow."""
    swept = Installation(program=tmp_path / ".cache/x/bin/handoffd", python=Path("/bin/sh"), package=tmp_path)

    with pytest.raises(Refused, match="cache"):
        plan.installing(_scope(tmp_path, swept), path=None, plain=(), encrypted=(), start=True)


def test_a_removal_takes_what_the_installation_wrote(scope: Scope, secret: Path) -> None:
    """All files, and without a systemd it runs no command."""
    todo = plan.installing(scope, path=None, plain=[f"a={secret}"], encrypted=(), start=False)
    plan.write(scope, todo.changed)

    end = plan.uninstalling(scope)

    assert {file.path for file, _ in todo.files} == set(end.removed)
    assert ((), (), (), (), None) == (end.before, end.after, end.last, end.kept, end.unanswered)


# --- files ------------------------------------------------------------------------------------------
def test_a_folder_that_cannot_be_written_is_reported(scope: Scope) -> None:
    """As an error for people, not a traceback."""
    scope.folder.parent.mkdir(parents=True)
    scope.folder.touch()
    file = unit_files.UnitFile(name="handoffd.service", path=scope.folder / "handoffd.service", text="")

    with pytest.raises(Refused, match="cannot be written"):
        plan.write(scope, [file])


def test_sockets_without_a_listener_are_removed() -> None:
    """The folder with the last of them; one at which a process listens stays."""
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

            plan.remove_sockets(person)
            assert ["launcher.sock"] == [path.name for path in folder.iterdir()]
        plan.remove_sockets(person)
        assert not folder.exists()

        plan.remove_sockets(person)
        assert Path(name).exists()


def test_the_folder_of_all_accounts_is_removed_with_the_last(tmp_path: Path) -> None:
    """systemd makes it, and does not remove a folder that it preserves."""
    machine = Machine(environment={}, system_runtime=tmp_path / "run")
    scope = Scope(account="build", machine=machine)
    scope.runtime.mkdir(parents=True)
    (tmp_path / "run/other").mkdir()

    plan.remove_sockets(scope)
    assert ["other"] == [path.name for path in (tmp_path / "run").iterdir()]
    (tmp_path / "run/other").rmdir()
    plan.remove_sockets(scope)

    assert not (tmp_path / "run").exists()


# --- credentials ------------------------------------------------------------------------------------
def _lines(file: unit_files.UnitFile | None) -> list[str]:
    assert file is not None
    assert [unit_files.MARK, "[Service]"] == file.text.splitlines()[:2]
    return file.text.splitlines()[2:]


def _keep(file: unit_files.UnitFile | None) -> None:
    assert file is not None
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_text(file.text, encoding="utf-8")


def test_without_credentials_there_is_no_drop_in(scope: Scope) -> None:
    """And nothing to caution against."""
    assert plan.drop_in(scope, (), ()) is None
    assert [] == plan.about_credentials(None)


def test_credentials_stay_until_they_are_taken_away(scope: Scope, secret: Path) -> None:
    """A name occurs once: the latest value counts."""
    _keep(plan.drop_in(scope, [f"webhook={secret}", f"key={secret}"], ()))
    _keep(plan.drop_in(scope, (), [f"key={secret}"]))

    encrypted, plain = f"LoadCredentialEncrypted=key:{secret}", f"LoadCredential=webhook:{secret}"
    assert [encrypted, plain] == _lines(plan.drop_in(scope, (), ()))
    assert [encrypted] == _lines(plan.drop_in(scope, ["webhook="], ()))
    assert [] == _lines(plan.drop_in(scope, ["webhook=", "key="], ()))


def test_another_persons_drop_in_is_not_read(scope: Scope, secret: Path) -> None:
    """Nor written over: `install` refuses that."""
    path = plan.path_of(scope)
    path.parent.mkdir(parents=True)
    path.write_text(f"[Service]\nLoadCredential=other:{secret}\n", encoding="utf-8")

    assert [f"LoadCredential=webhook:{secret}"] == _lines(plan.drop_in(scope, [f"webhook={secret}"], ()))


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("webhook", Refused), ("=/etc/passwd", Refused), ("a/b=/etc/passwd", Refused), ("a:b=/x", Refused),
        ("a=/etc/passwd\nExecStart=/bin/evil", Refused), ("a=/no/such/file", NotFound), ("a=/etc", NotFound),
    ],
)  # fmt: skip
def test_what_is_not_a_credential_is_refused(scope: Scope, text: str, family: type[HandoffdError]) -> None:
    """Before anything is written."""
    with pytest.raises(family):
        plan.drop_in(scope, [text], ())


def test_a_secret_that_others_can_read_is_reported(scope: Scope, secret: Path) -> None:
    """Unless it is encrypted."""
    assert [] == plan.about_credentials(plan.drop_in(scope, [f"a={secret}"], ()))
    secret.chmod(0o640)
    assert [] == plan.about_credentials(plan.drop_in(scope, (), [f"a={secret}"]))
    assert [f"{secret} can be read by other accounts: chmod 600 {secret}"] == plan.about_credentials(
        plan.drop_in(scope, [f"a={secret}"], ())
    )


def test_a_secret_that_is_gone_is_reported(scope: Scope, secret: Path) -> None:
    """systemd would not start the daemon without it, encrypted or not."""
    file = plan.drop_in(scope, [f"a={secret}"], [f"b={secret}"])
    secret.unlink()

    assert [
        f"the credential {name}: there is no file {secret}, and without it the daemon cannot start"
        for name in "ab"
    ] == plan.about_credentials(file)
