"""The MCP server as clients start it: a process of its own, over its standard input and output."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mcp import Client, StdioServerParameters
from tests.support.agents import add_asking
from tests.support.daemon import REPOSITORY, Daemon, running, sample
from tests.support.eventually import eventually

Json = dict[str, Any]
ODD = "店 & 100% “shop”?"


@asynccontextmanager
async def session(
    daemon: Daemon, *options: str, mode: str = "auto", **variables: str
) -> AsyncIterator[Client]:
    """Lend a client whose server is a process of ours. `legacy` begins as clients before 2026 do."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "handoffd", "--config", str(daemon.base / "handoffd.yaml"), "mcp", *options],
        env={"PYTHONPATH": str(REPOSITORY / "daemon"), **variables},
    )
    async with Client(parameters, mode=mode) as client:
        yield client


async def told(client: Client, tool: str, **given: Any) -> Json:
    """Return the structured answer of a tool that did not fail."""
    answer = await client.call_tool(tool, given)
    assert not answer.is_error, answer.content
    found: Json = answer.structured_content
    return found


async def refused(client: Client, tool: str, **given: Any) -> Json:
    """Return the structured answer of a tool that is an error."""
    answer = await client.call_tool(tool, given)
    assert answer.is_error, answer.content
    found: Json = answer.structured_content
    return found


async def waits_at(client: Client, project: str, step: str, status: str) -> Json:
    """Return the status of a project's story once it is there."""

    async def reached() -> Json | None:
        (view,) = (await told(client, "status", project=project))["projects"]
        track: Json = view["tracks"][0]
        return track if (track["step"], track["status"]) == (step, status) else None

    look: Callable[[], Any] = reached
    found: Json = await eventually(look, within_s=120)
    return found


async def test_a_story_is_started_and_followed_to_its_gate(daemon: Daemon, tmp_path: Path) -> None:
    """By a client that was not allowed to open it; one that was does, and the story is done."""
    project = sample(tmp_path)
    add_asking(project)
    daemon.verb("init", project)
    name = daemon.view(project)["called"]

    async with session(daemon) as client:
        assert "accepted" == (await told(client, "start", project=name, story="US-001"))["type"]
        assert "note" in (await told(client, "note", project=name, text="be brief"))["message"]
        track = await waits_at(client, name, "review", "needs_human")
        assert f"handoffd approve {project}" in track["next_command"]
        assert "PEOPLE_ONLY" == (await refused(client, "approve", project=name))["code"]
        assert "query" == (await told(client, "message", text=f"{name} 的進度如何？"))["action"]
        words = await refused(client, "message", text="approve", project=name)
        assert ("PEOPLE_ONLY", f"handoffd auto {name} approve") == (words["code"], words["hint"])
        assert "noted" == (await told(client, "message", text="looks great", project=name))["action"]
        await every_read(client, name)
        await every_resource(client, name)

    async with session(daemon, "--allow-approvals") as client:
        assert "accepted" == (await told(client, "approve", project=name, note="go"))["type"]
        await waits_at(client, name, "done", "pass")
        (approval,) = [
            event
            for event in (await told(client, "events", project=name, limit=500))["events"]
            if event["kind"] == "approved"
        ]
        assert " via mcp" in approval["what"]


async def every_read(client: Client, name: str) -> None:
    """Call each tool that changes nothing, and see that it tells something."""
    reads = [
        tool.name
        for tool in (await client.list_tools()).tools
        if tool.annotations is not None and tool.annotations.read_only_hint
    ]
    run = (await told(client, "runs", project=name))["runs"][0]["run"]
    flow = (await told(client, "flow_start", project=name, pipeline="asks"))["flow"]
    asked = await refused(client, "flow_answer", project=name, flow=flow, choice="yes")
    assert "PEOPLE_ONLY" == asked["code"]
    for tool in reads:
        of_none = {
            "run": {"run": run},
            "flow_show": {"flow": flow},
            "flow_explain": {"flow": flow},
            "projects": {},
            "gates": {},
            "limits": {},
            "slots": {},
            "tonight": {"projects": name},
            "list_projects": {"folder": "/tmp"},
        }
        given = of_none.get(tool, {"project": name})
        answer = await client.call_tool(tool, given)
        assert not answer.is_error, (tool, answer.content)
    assert ("review", "scaffold") == itemgetter("step", "next_step")(
        await told(client, "query", project=name)
    )
    tail = await told(client, "log_tail", project=name, lines=5)
    assert tail["lines"]
    assert tail["run"] in {run["run"] for run in (await told(client, "runs", project=name))["runs"]}


async def every_resource(client: Client, name: str) -> None:
    """Read each resource of a project."""
    base = f"handoffd://project/{quote(name, safe='')}"
    for part, word in (("state", '"step": "review"'), ("handoff", "step:")):
        (content,) = (await client.read_resource(f"{base}/{part}")).contents
        assert word in content.text  # type: ignore[union-attr]
    listed = {resource.uri for resource in (await client.list_resources()).resources}
    assert {f"{base}/{part}" for part in ("state", "handoff", "history")} <= listed


async def test_a_project_with_an_odd_name_is_reached_by_it(daemon: Daemon, tmp_path: Path) -> None:
    """In tools and in addresses."""
    folder = tmp_path / "odd"
    folder.mkdir()
    project = sample(folder)
    (project / "pyproject.toml").write_text(f'[project]\nname = "{ODD}"\n')
    daemon.verb("init", project)
    assert ODD == daemon.view(project)["name"]

    async with session(daemon, "--language", "zh-TW") as client:
        (view,) = (await told(client, "status", project=ODD))["projects"]
        report, _ = (await client.call_tool("query", {"project": ODD})).content
        assert re.search("[一-龥]", report.text)  # type: ignore[union-attr]
        uri = f"handoffd://project/{quote(ODD, safe='')}/state"
        (content,) = (await client.read_resource(uri)).contents

        assert str(project) == view["project"]
        assert uri in {resource.uri for resource in (await client.list_resources()).resources}
        assert ODD in content.text  # type: ignore[union-attr]
        assert "NOT_FOUND" == (await refused(client, "status", project=f"{ODD}\n\x1b["))["code"]


async def test_inside_a_run_no_gate_is_opened(daemon: Daemon, tmp_path: Path) -> None:
    """An agent may start the server with whatever options it likes."""
    project = sample(tmp_path)
    daemon.verb("init", project)

    async with session(daemon, "--allow-approvals", HANDOFFD_RUN="r1") as client:
        for verb, given in (("approve", {}), ("retry", {}), ("start", {"story": "US-1", "force": True})):
            answer = await refused(client, verb, project=str(project), **given)
            assert "INSIDE_EXECUTOR" == answer["code"]


async def test_a_daemon_that_dies_in_between_is_done_without(tmp_path: Path) -> None:
    """Questions are answered from the journal, verbs are recorded; and the next daemon is asked again."""
    project = sample(tmp_path)
    with running(tmp_path) as daemon:
        daemon.verb("init", project)
        async with session(daemon, "--allow-approvals", mode="legacy") as client:
            assert (await told(client, "status"))["daemon"]

            daemon.kill()
            assert not (await told(client, "status", project=str(project)))["daemon"]
            without = await client.call_tool("start", {"project": str(project), "story": "US-001"})
            assert not without.is_error, without.content
            assert "No daemon runs" in without.content[0].text  # type: ignore[union-attr]

            daemon.start()
            assert (await told(client, "status", project=str(project)))["daemon"]
            await waits_at(client, str(project), "review", "needs_human")


async def test_without_a_daemon_an_executor_is_refused_too(tmp_path: Path) -> None:
    """The same code looks at who asks."""
    project = sample(tmp_path)
    daemon = Daemon(tmp_path)
    try:
        async with session(daemon, "--allow-approvals", HANDOFFD_RUN="r1") as client:
            assert "INSIDE_EXECUTOR" == (await refused(client, "add", project=str(project)))["code"]
    finally:
        daemon.close()
