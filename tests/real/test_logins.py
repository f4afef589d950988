"""Two projects at once whose agents have one login, which is due for renewal: it stays valid."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.real.agents import CLAUDE, CODEX, Agent, Run
from tests.real.conftest import Told
from tests.real.driving import driven
from tests.real.provider.logins import Logins, access_token, logging_in, refresh_token
from tests.real.provider.turns import Asked
from tests.real.scripts import acting
from tests.support.agents import GATED, project_at
from tests.support.house import HAND_OVER

Json = dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """Where a CLI keeps its login, and what it is in there."""

    agent: Agent
    file: str
    login: Json
    refresh_token: Callable[[Json], str]
    variables: Callable[[Logins, Path], Mapping[str, str | None]]
    asks_alone: bool = True
    """Whether it has a lock while it asks. codex has none: of two that ask at once, one is refused, and goes
    on with the tokens that the other has written."""


KEPT = {
    "claude": Kept(
        CLAUDE,
        ".claude/.credentials.json",
        {
            "claudeAiOauth": {
                "accessToken": "access-1", "refreshToken": refresh_token(1), "expiresAt": 1,
                "scopes": ["user:inference", "user:profile"], "subscriptionType": "max",
            }
        },
        lambda found: str(found["claudeAiOauth"]["refreshToken"]),
        lambda logins, certificate: {
            "ANTHROPIC_API_KEY": None,
            "HTTPS_PROXY": logins.url,
            "NO_PROXY": "127.0.0.1",
            "NODE_EXTRA_CA_CERTS": str(certificate),
        },
    ),
    "codex": Kept(
        CODEX,
        ".codex/auth.json",
        {
            "auth_mode": "chatgpt",
            "OPENAI_API_KEY": None,
            "tokens": {
                "id_token": access_token(1, -60), "access_token": access_token(1, -60),
                "refresh_token": refresh_token(1), "account_id": "account-1",
            },
            "last_refresh": "2026-01-01T00:00:00Z",
        },
        lambda found: str(found["tokens"]["refresh_token"]),
        lambda logins, certificate: {
            "CODEX_API_KEY": None,
            "CODEX_REFRESH_TOKEN_URL_OVERRIDE": f"{logins.url}/oauth/token",
        },
        asks_alone=False,
    ),
}  # fmt: skip


def logged_in(kept: Kept, url: str) -> Mapping[str, str]:
    """Return the files of a HOME with a login that is due for renewal."""
    files = dict(kept.agent.home(url))
    if ".codex/config.toml" in files:  # what it asks with such a login is compressed by zstd otherwise
        files[".codex/config.toml"] += "enable_request_compression = false\n"
    return {**files, kept.file: json.dumps(kept.login)}


def handing_over(asked: Asked) -> list[Run]:
    """Return the one command that hands over: its words depend on no path."""
    return [Run(HAND_OVER.strip().replace("\n", "; "))]


@pytest.mark.parametrize("name", KEPT)
def test_two_projects_renew_one_login(name: str, tools: Path, tmp_path: Path, told: Told) -> None:
    """It is renewed once, both steps pass, and the login afterwards is the one that counts."""
    told(name, "two projects at once renew one login")
    kept = KEPT[name]
    agent = replace(kept.agent, home=lambda url: logged_in(kept, url))
    with logging_in(tmp_path) as logins:
        logins.strict = kept.asks_alone
        certificate = tmp_path / "login-server.pem"
        settings: Json = {"sandbox": {"writable": [], "visible": [str(certificate)]}}
        variables = kept.variables(logins, certificate)
        with driven(agent, tools, tmp_path, login=variables, settings=settings) as house:
            projects = [project_at(tmp_path / each, rules=GATED) for each in ("one", "two")]
            house.behave(acting(agent, tmp_path, handing_over))

            for project in projects:
                house.daemon.begin(project)
            for project in projects:
                house.daemon.wait_at(project, "review", "needs_human", 60)

            runs = [house.daemon.runs(project)[0]["exit"]["end"] for project in projects]
        found = json.loads((house.home / kept.file).read_text())

    assert ["clean", "clean"] == runs
    assert 2 == logins.number
    assert not (kept.asks_alone and logins.reused)
    assert logins.refresh_token == kept.refresh_token(found)
