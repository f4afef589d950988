"""The control API of a real daemon: what is asked once is done once, and a reader misses nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.agents import add_asking
from tests.support.daemon import REPOSITORY, Daemon, Json, running, sample
from tests.support.eventually import eventually_sync
from tests.support.jsonschemas import complaints
from tests.support.loopback import free_port

from handoffd.api.http.application import ENDPOINTS

_ARMED = """
import os, signal, sqlite3
from handoffd import failpoints

def act(point, subject):
    if point != "after_commit" or not os.path.exists(os.environ["TEST_ARMED"]):
        return
    query = "SELECT 1 FROM requests WHERE status IS NULL AND " + os.environ["TEST_WHEN"]
    db = sqlite3.connect(os.environ["TEST_JOURNAL"])
    found = db.execute(query).fetchone()
    db.close()
    if found:
        os.kill(os.getpid(), signal.SIGKILL)

failpoints.arm(act)
"""
"""Kills its process as soon as the journal says what the test waits for."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that is not running yet."""
    made = Daemon(tmp_path)
    yield made
    made.close()


def client(daemon: Daemon) -> httpx.Client:
    """Return a client of its socket."""
    transport = httpx.HTTPTransport(uds=str(daemon.socket))
    return httpx.Client(transport=transport, base_url="http://handoffd", timeout=60)


def note(daemon: Daemon, project: Path, key: str) -> httpx.Response:
    """Return the answer to a note under a key."""
    body = {"project": str(project), "text": "mind the rounding"}
    with client(daemon) as asker:
        return asker.post("/v1/verbs/note", json=body, headers={"Idempotency-Key": key})


@pytest.mark.parametrize(("when", "replayed"), [("seq IS NOT NULL", True), ("seq IS NULL", False)])
def test_a_verb_is_given_once_though_the_daemon_is_killed_before_it_answers(
    daemon: Daemon, tmp_path: Path, when: str, replayed: bool
) -> None:
    """After its commit the answer is replayed, before it the work is done: one note either way."""
    armed, hooks = tmp_path / "armed", tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(_ARMED)
    daemon.environment = {
        "PYTHONPATH": f"{hooks}:{REPOSITORY / 'daemon'}", "TEST_ARMED": str(armed), "TEST_WHEN": when,
        "TEST_JOURNAL": str(daemon.state_dir / "journal.db"),
    }  # fmt: skip
    project = sample(tmp_path)
    daemon.start()
    daemon.verb("init", project)
    armed.touch()
    with pytest.raises(httpx.TransportError):
        note(daemon, project, "a")
    daemon.lost()
    armed.unlink()

    daemon.start()
    first, second = note(daemon, project, "a"), note(daemon, project, "a")

    assert (200, 200) == (first.status_code, second.status_code)
    assert (replayed, True) == tuple("Idempotent-Replay" in one.headers for one in (first, second))
    assert first.json() == second.json()
    assert ["noted"] == [event["kind"] for event in daemon.events(project) if event["kind"] == "noted"]


def test_a_reader_goes_on_where_it_was_before_the_daemon_was_killed(tmp_path: Path) -> None:
    """Over the port, by the number of the last event; what came meanwhile is not missed."""
    port = free_port()
    project = sample(tmp_path)
    with running(tmp_path, {"control": {"tcp": {"port": port}}}) as daemon:
        daemon.verb("init", project)
        daemon.verb("note", project, text="one")
        seen = _read(daemon, port, {}, lambda found: "noted" in [kind for _, kind in found])
        daemon.kill()
        daemon.start()
        daemon.verb("note", project, text="two")
        rest = _read(daemon, port, {"Last-Event-ID": str(seen[-1][0])}, bool)

    numbers = [number for number, _ in seen + rest]
    assert list(range(1, numbers[-1] + 1)) == numbers


def test_every_question_is_answered_as_the_document_says(daemon: Daemon, tmp_path: Path) -> None:
    """Of a project at its review, and with a flow: each `GET` of the daemon's own description, one by one."""
    project = sample(tmp_path)
    add_asking(project)
    daemon.start()
    daemon.to_review(project)
    flow = daemon.verb("flow_start", project, pipeline="asks")["flow"]
    with client(daemon) as asker:
        document = asker.get("/v1/openapi.json").json()
        questions = {
            path: one["get"].get("parameters", [])
            for path, one in document["paths"].items() if "get" in one
        }  # fmt: skip
        run = daemon.runs(project)[0]["run"]
        given = {"project": str(project), "folder": str(tmp_path), "run": run, "flow": flow}
        wrong = {
            path: _against(document, path, asker.get(path.format(**given), params=_query(asked, given)))
            for path, asked in questions.items()
        }

    assert {one.path.replace(":path", "") for one in ENDPOINTS if one.method == "GET"} == wrong.keys()
    assert {} == {path: found for path, found in wrong.items() if found}


def _query(parameters: list[Json], given: dict[str, str]) -> dict[str, str]:
    return {
        one["name"]: given[one["name"]] for one in parameters if one["name"] in given and one["in"] == "query"
    }


def _against(document: Json, path: str, answer: httpx.Response) -> list[str]:
    """Return what the document has against an answer."""
    kind = answer.headers["content-type"].partition(";")[0]
    content = document["paths"][path]["get"]["responses"][str(answer.status_code)].get("content", {})
    if answer.status_code != 200 or kind not in content:
        return [f"{answer.status_code} {kind}: {answer.text[:200]}"]
    schema = {**content[kind]["schema"], "$defs": document["components"]["schemas"]}
    return complaints(answer.json() if kind == "application/json" else answer.text, schema)


def _read(daemon: Daemon, port: int, headers: dict[str, str], enough: Any) -> list[tuple[int, str]]:
    """Return numbers and kinds of events from the beginning, or from behind the last one that was seen."""
    token = (daemon.state_dir / "control.token").read_text().strip()
    found: list[tuple[int, str]] = []
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as asker:
        given = {"Authorization": f"Bearer {token}", **headers}
        with asker.stream("GET", "/v1/events?stream=1&after=0", headers=given) as answer:
            assert 200 == answer.status_code
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    found.append((event["seq"], event["kind"]))
                    if enough(found):
                        return found
    raise AssertionError(found)


def test_without_the_token_a_request_is_refused(tmp_path: Path) -> None:
    """And `handoffd token` prints what is in the file that only its owner can read."""
    port = free_port()
    with running(tmp_path, {"control": {"tcp": {"port": port}}}) as daemon:
        assert 401 == httpx.get(f"http://127.0.0.1:{port}/v1/status", timeout=60).status_code

    assert 0o600 == os.stat(daemon.state_dir / "control.token").st_mode & 0o777
    assert eventually_sync(lambda: not daemon.processes())
