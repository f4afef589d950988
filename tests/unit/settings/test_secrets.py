"""Secrets outside the settings file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from handoffd.settings.secrets import STAND_IN, Vault, fetched, named_files, opened

Problems = list[tuple[str, str, tuple[str, ...]]]


def _vault(base: Path, *, service: bool = True, required: bool = True) -> Vault:
    environ = {"CREDENTIALS_DIRECTORY": str(base / "credentials")} if service else {}
    return Vault(environ=environ, base=base, required=required)


def _fetched(values: dict[str, Any], vault: Vault) -> tuple[dict[str, Any], Problems]:
    problems: Problems = []

    def report(*problem: Any) -> None:
        problems.append(problem)

    return fetched(values, vault, report), problems


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with a file that holds a secret, and with a credential of the service."""
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials/hook").write_text("https://example.org/KEY\n", encoding="utf-8")
    (tmp_path / "own").write_text("  sk-1\r\n", encoding="utf-8")
    return tmp_path


def test_a_secret_takes_the_place_of_its_reference(base: Path) -> None:
    """At any depth, without the line's end, and as a type that is not shown."""
    values = {
        "notify": {
            "webhook": {"url": {"credential": "hook"}},
            "urls": ["plain", {"file": str(base / "own")}],
        },
        "execute": {"slots": 4, "keys": {"A_KEY": {"file": "own"}}},
    }

    found, problems = _fetched(values, _vault(base))

    assert [] == problems
    assert "https://example.org/KEY" == found["notify"]["webhook"]["url"].get_secret_value()
    assert ["plain", SecretStr("sk-1")] == found["notify"]["urls"]
    assert {"slots": 4, "keys": {"A_KEY": SecretStr("sk-1")}} == found["execute"]
    assert "KEY" not in repr(found["notify"]["webhook"])


@pytest.mark.parametrize(
    "values",
    [
        {"executors": {"mine": {"prompt": {"file": "own"}}}},
        {"prices": {"file": {"input": 1}}},
        {"notify": {"webhook": {"url": {"credential": "hook", "file": "own"}}}},
        {"notify": {"webhook": {"url": {"credential": 1}}}},
        {"credential": "hook"},
    ],
)
def test_other_values_stay_as_they_are(base: Path, values: dict[str, Any]) -> None:
    """Executors and prices have keys of their own."""
    assert (values, []) == _fetched(values, _vault(base))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"credential": "ntfy"}, "the service was not given the credential ntfy"),
        ({"credential": "../own"}, "'../own' is not the name of a credential"),
        ({"file": "missing"}, "missing cannot be read (No such file or directory)"),
        ({"file": "credentials"}, "credentials cannot be read (Is a directory)"),
        ({"file": "empty"}, "empty is empty"),
        ({"file": "binary"}, "binary is not text"),
        ({"file": "long"}, "long is too long to be a secret"),
    ],
)
def test_a_missing_or_unusable_secret_is_a_problem(base: Path, value: dict[str, str], message: str) -> None:
    """It has the key of the setting, and lists the credentials that exist."""
    (base / "empty").write_text("\n", encoding="utf-8")
    (base / "binary").write_bytes(b"\xff")
    (base / "long").write_bytes(b"x" * 65_537)

    _, problems = _fetched({"notify": {"webhook": {"url": value}}}, _vault(base))

    ((key, said, allowed),) = problems
    assert "notify.webhook.url" == key
    assert said.endswith(message)
    assert (("hook",) if "not given" in message else ()) == allowed


def test_a_folder_of_credentials_that_cannot_be_read_is_named(base: Path) -> None:
    """The credential is not called missing."""
    (base / "file").touch()
    vault = Vault(environ={"CREDENTIALS_DIRECTORY": str(base / "file")}, base=base, required=True)

    _, ((_, said, _),) = _fetched({"notify": {"webhook": {"url": {"credential": "hook"}}}}, vault)

    assert f"the folder of credentials, {base / 'file'}, cannot be read (Not a directory)" == said


def test_outside_of_the_service_there_are_stand_ins(base: Path) -> None:
    """A verb in a terminal can read the settings; a daemon there needs the secret."""
    values = {"notify": {"webhook": {"url": {"credential": "hook"}}}}

    found, problems = _fetched(values, _vault(base, service=False, required=False))
    _, refused = _fetched(values, _vault(base, service=False))

    assert (f"{STAND_IN}hook", []) == (found["notify"]["webhook"]["url"].get_secret_value(), problems)
    assert ["the credential hook is for the service, and this daemon is not run by it"] == [
        said for _, said, _ in refused
    ]


def test_a_stand_in_does_not_hide_the_variable_of_the_environment() -> None:
    """Only real secrets are set."""
    assert {"A": "sk-1"} == opened({"A": SecretStr("sk-1"), "B": SecretStr(f"{STAND_IN}b")})


def test_the_files_of_secrets_are_listed(base: Path) -> None:
    """Each once, whether it exists or not; executors and prices have keys of their own."""
    values = {
        "notify": {"webhook": {"url": {"credential": "hook"}}, "urls": ["x", {"file": "own"}]},
        "execute": {"keys": {"A": {"file": "/no/such"}, "B": {"file": "own"}}},
        "executors": {"mine": {"prompt": {"file": "no"}}},
    }

    assert (base / "own", Path("/no/such")) == named_files(values, base)
