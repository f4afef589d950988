"""The drop-in that has systemd hand over secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.cli.service import unit_files
from handoffd.cli.service.plan import about_credentials, drop_in, path_of
from handoffd.cli.service.scope import Machine, Scope
from handoffd.errors import HandoffdError, NotFound, Refused


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    """A person's home."""
    return Scope(account=None, machine=Machine(environment={"HOME": str(tmp_path / "home")}))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file with a secret."""
    path = tmp_path / "secret"
    path.write_text("hunter2", encoding="utf-8")
    path.chmod(0o600)
    return path


def _lines(file: unit_files.UnitFile | None) -> list[str]:
    assert file is not None
    assert [unit_files.MARK, "[Service]"] == file.text.splitlines()[:2]
    return file.text.splitlines()[2:]


def _keep(file: unit_files.UnitFile | None) -> None:
    assert file is not None
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_text(file.text, encoding="utf-8")


def test_without_any_there_is_no_drop_in(scope: Scope) -> None:
    """Nothing is written for nothing."""
    assert drop_in(scope, (), ()) is None


def test_what_was_given_before_stays_until_it_is_taken_away(scope: Scope, secret: Path) -> None:
    """A name is given once: the latest word counts."""
    _keep(drop_in(scope, [f"webhook={secret}", f"key={secret}"], ()))
    _keep(drop_in(scope, (), [f"key={secret}"]))

    assert [f"LoadCredentialEncrypted=key:{secret}", f"LoadCredential=webhook:{secret}"] == _lines(
        drop_in(scope, (), ())
    )
    assert [f"LoadCredentialEncrypted=key:{secret}"] == _lines(drop_in(scope, ["webhook="], ()))
    assert [] == _lines(drop_in(scope, ["webhook=", "key="], ()))


def test_a_drop_in_of_somebody_else_is_not_read(scope: Scope, secret: Path) -> None:
    """Nor written over: that is for `install` to refuse."""
    path_of(scope).parent.mkdir(parents=True)
    path_of(scope).write_text(f"[Service]\nLoadCredential=other:{secret}\n", encoding="utf-8")

    assert [f"LoadCredential=webhook:{secret}"] == _lines(drop_in(scope, [f"webhook={secret}"], ()))


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("webhook", Refused), ("=/etc/passwd", Refused), ("a/b=/etc/passwd", Refused), ("a:b=/x", Refused),
        ("a=/etc/passwd\nExecStart=/bin/evil", Refused), ("a=/no/such/file", NotFound), ("a=/etc", NotFound),
    ],
)  # fmt: skip
def test_what_is_no_credential_is_refused(scope: Scope, text: str, family: type[HandoffdError]) -> None:
    """Before anything is written."""
    with pytest.raises(family):
        drop_in(scope, [text], ())


def test_a_secret_for_everybody_is_said(scope: Scope, secret: Path) -> None:
    """But not of one that is encrypted."""
    assert [] == about_credentials(drop_in(scope, [f"a={secret}"], ()))
    secret.chmod(0o640)
    assert [] == about_credentials(drop_in(scope, (), [f"a={secret}"]))
    assert [f"{secret} can be read by other accounts: chmod 600 {secret}"] == about_credentials(
        drop_in(scope, [f"a={secret}"], ())
    )
    assert [] == about_credentials(None)


def test_a_secret_that_has_gone_is_said(scope: Scope, secret: Path) -> None:
    """systemd would not start the daemon without it, encrypted or not."""
    file = drop_in(scope, [f"a={secret}"], [f"b={secret}"])
    secret.unlink()

    assert [
        f"the credential {name}: there is no file {secret}, and without it the daemon cannot start"
        for name in "ab"
    ] == about_credentials(file)
