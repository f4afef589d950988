"""A project in go, from `init` to its branch: with the real go, in the sandbox, under a real daemon."""

from __future__ import annotations

from pathlib import Path

from tests.support import golang
from tests.support.commands import typed
from tests.support.daemon import running
from tests.support.repositories import git

FILES = {
    "go.mod": "module example.com/pump\n\ngo 1.24\n",
    "pump.go": "package pump\n\nfunc Litres() int { return 1 }\n",
    "pump_test.go": """\
package pump

import "testing"

func TestLitres(t *testing.T) {
	if Litres() != 1 {
		t.Fatal("no water")
	}
}
""",
    "PROJECT_CONTEXT.md": "A pump.\n",
    ".gitignore": "/.ai\n",
}


def test_a_story_in_go_is_measured_from_init_to_done(tmp_path: Path) -> None:
    """`init` finds the tests, and tries them in a clone; red, green, and every count is go's."""
    project = tmp_path / "pump"
    project.mkdir()
    for name, text in FILES.items():
        (project / name).write_text(text)
    assert 0 == git(project, "init", "--quiet", "--initial-branch", "main")
    assert 0 == git(project, "add", "-A")
    assert 0 == git(project, "commit", "--quiet", "-m", "Begin")
    golang.tested(project)
    with running(tmp_path, {"sandbox": {"let_in": ["go"]}}, **golang.ENVIRONMENT) as daemon:
        found = typed(daemon, "init", str(project), "--yes", "--json").json
        assert ["go", "test", "-json", "-count=1", "./..."] == found["test_command"]
        assert ("clone", True) == (found["workspace"]["kind"], found["workspace"]["fits"])
        assert found["tried"]["what"].startswith(
            "go test works in the daemon's environment: 1 pass, 0 fail, 0 skipped"
        )

        daemon.to_review(project)
        assert 0 == typed(daemon, "approve", str(project)).code
        daemon.wait_at(project, "done", "pass")
        runs = {run["step"]: run for run in daemon.runs(project)}

    told = [(step, runs[step]["why"]) for step in ("scaffold", "impl", "verify")]
    assert [
        ("scaffold", "red: 1 new test fails"),
        ("impl", "3 tests pass"),
        ("verify", "3 tests pass"),
    ] == told
    red = runs["scaffold"]["tests"]
    assert (1, ["rehearsal_us_001/story_test.go"]) == (red["pass"], red["failing"])
    assert "rehearsal_us_001/story_test.go:14:5: undefined: IsStory" == red["line"]
