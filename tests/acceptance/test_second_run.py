"""An agent that weakens its tests, under a real daemon that is killed while the tests run the second time."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.agents import project_at, shell_agent
from tests.support.daemon import Daemon, Json, running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
from tests.support.repositories import git

TABLE = """\
pipelines: {story: {first: scaffold}}
steps:
  scaffold: {next_on_pass: impl, tests: red, timeout_min: 5}
  impl: {next_on_pass: update-memory, tests: green, timeout_min: 5, max_attempts: 1}
"""

TESTS = """\
echo "$HANDOFFD_STEP" >> {base}/ran
cp tests/report.xml "$1"
if grep -q "<failure" tests/report.xml; then release=go; else release=first; fi
while test "$HANDOFFD_STEP" = impl && ! test -e {base}/$release; do sleep 0.05; done
test $release = first
"""
"""Tests whose report is one of their own files; at impl each run waits until it is released."""

AGENT = f"""\
cat > /dev/null
mkdir -p tests
if test "$HANDOFFD_STEP" = scaffold; then result="<failure/>"; else result=""; fi
echo '<testsuite><testcase classname="t" name="x">'"$result"'</testcase></testsuite>' > tests/report.xml
{HAND_OVER}"""


def test_a_second_run_outlives_the_daemon_and_decides(tmp_path: Path) -> None:
    """Its copy is made beside the first run; the verdict is in STATE.json, and nothing is run twice."""
    test = {"command": ["/bin/sh", "-c", TESTS.format(base=tmp_path), "tests", "{report}"], "report": "junit"}
    project = project_at(tmp_path / "shop", TABLE, json.dumps({"test": test}))
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "Begin")):
        assert 0 == git(project, *words)
    (project / "tests").mkdir()
    (project / "tests/report.xml").write_text('<testsuite><testcase classname="t" name="old"/></testsuite>')
    ran = tmp_path / "ran"

    def settings(daemon: Daemon) -> Json:
        agents = {"agent": shell_agent(tmp_path, AGENT)}
        return {"executor": "agent", "executors": agents, "sandbox": {"writable": [str(tmp_path)]}}

    with running(tmp_path, settings) as daemon:
        daemon.verb("start", project, story="US-001")
        copies = (daemon.state_dir / "runs").glob
        kept = "*.second/tree/tests/report.xml"
        eventually_sync(lambda: [True] == ["<failure/>" in file.read_text() for file in copies(kept)])
        eventually_sync(lambda: ["baseline", "scaffold", "impl"] == ran.read_text().split())
        (tmp_path / "first").touch()
        eventually_sync(lambda: 4 == len(ran.read_text().split()))
        daemon.kill()
        (tmp_path / "go").touch()
        daemon.start()
        daemon.wait_at(project, "impl", "needs_human")

        state = json.loads((project / ".ai/STATE.json").read_text())
        said = "tests_changed: with the red step's versions of tests/report.xml, 1 test fails: t::x"
        assert (said, None, ["t::x"]) == (state["last_error"], state["reason"], state["failing_tests"])
        assert ["baseline", "scaffold", "impl", "impl"] == ran.read_text().split()
        assert not any(copies("*.second/tree"))
