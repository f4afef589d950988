"""Secrets that the settings only refer to."""

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
    """A folder with a secret of its own, and one that a service manager hands over."""
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials/hook").write_text("https://example.org/KEY\n", encoding="utf-8")
    (tmp_path / "own").write_text("  sk-1\r\n", encoding="utf-8")
    return tmp_path


def test_a_secret_takes_the_place_of_what_refers_to_it(base: Path) -> None:
    """Wherever it stands, without the line's end, and as something that is not shown."""
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
def test_what_refers_to_no_secret_is_left_as_it_is(base: Path, values: dict[str, Any]) -> None:
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
def test_a_secret_that_is_not_there_is_a_problem(base: Path, value: dict[str, str], message: str) -> None:
    """Of the key that wants it, with the ones that are there."""
    (base / "empty").write_text("\n", encoding="utf-8")
    (base / "binary").write_bytes(b"\xff")
    (base / "long").write_bytes(b"x" * 65_537)

    _, problems = _fetched({"notify": {"webhook": {"url": value}}}, _vault(base))

    ((key, said, allowed),) = problems
    assert "notify.webhook.url" == key
    assert said.endswith(message)
    assert (("hook",) if "not given" in message else ()) == allowed


def test_credentials_that_cannot_be_looked_at_are_not_called_missing(base: Path) -> None:
    """Whoever looks for a credential that is there wants to know what is in the way of it."""
    (base / "file").touch()
    vault = Vault(environ={"CREDENTIALS_DIRECTORY": str(base / "file")}, base=base, required=True)

    _, ((_, said, _),) = _fetched({"notify": {"webhook": {"url": {"credential": "hook"}}}}, vault)

    assert f"the folder of credentials, {base / 'file'}, cannot be read (Not a directory)" == said


def test_outside_of_the_service_there_are_stand_ins(base: Path) -> None:
    """A verb in a terminal can read the settings; a daemon there cannot do without the secret."""
    values = {"notify": {"webhook": {"url": {"credential": "hook"}}}}

    found, problems = _fetched(values, _vault(base, service=False, required=False))
    _, refused = _fetched(values, _vault(base, service=False))

    assert (f"{STAND_IN}hook", []) == (found["notify"]["webhook"]["url"].get_secret_value(), problems)
    assert ["the credential hook is for the service, and this daemon is not run by it"] == [
        said for _, said, _ in refused
    ]


def test_a_stand_in_is_handed_to_nobody() -> None:
    """What the environment has under that name is right then."""
    assert {"A": "sk-1"} == opened({"A": SecretStr("sk-1"), "B": SecretStr(f"{STAND_IN}b")})


def test_the_files_that_hold_secrets_are_known(base: Path) -> None:
    """Whether they are there or not, each once; executors and prices have keys of their own."""
    values = {
        "notify": {"webhook": {"url": {"credential": "hook"}}, "urls": ["x", {"file": "own"}]},
        "execute": {"keys": {"A": {"file": "/no/such"}, "B": {"file": "own"}}},
        "executors": {"mine": {"prompt": {"file": "no"}}},
    }

    assert (base / "own", Path("/no/such")) == named_files(values, base)
