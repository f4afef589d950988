"""A night under a real daemon: four repositories, nine stories, two slots, a daemon killed in the middle.

Its report is held against the journal by SQL, which shares no code with handoffd.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.acceptance import test_report
from tests.acceptance.test_beside import green, tree_of
from tests.acceptance.test_clones import told
from tests.support import golang
from tests.support.agents import project_at, shell_agent
from tests.support.commands import assert_replayed, typed
from tests.support.daemon import PYTEST, Daemon, Json, running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
from tests.support.repositories import git

FAIL = HAND_OVER.replace("status: pass", "status: failing")
FALSE_CLAIM = HAND_OVER.replace("status: pass", r"status: pass\ntests_pass: 9\ntests_fail: 0")
AGENT = f"""\
prompt=$(cat)
wish={{base}}/wishes/$HANDOFFD_STORY
read -r file < "$wish/file"
merge=$(printf '%s' "$prompt" | grep -o 'git merge [0-9a-f]*' | tail -n 1)
if test -n "$merge" && ! $merge -q; then
  sed -i '/^[<=>]\\{{{{7\\}}}}/d' "$file"
  git add -A . && git commit -qm 'Take in main'
fi
case $HANDOFFD_STORY-$HANDOFFD_STEP-$HANDOFFD_ATTEMPT in
  US-101-impl-[12]) echo "try $HANDOFFD_ATTEMPT" >> tried.txt
{FAIL}    exit 0;;
  US-102-impl-*)
{FALSE_CLAIM}    exit 0;;
  US-202-impl-*) exit 7;;
  US-302-impl-1) sed 's/return 302/return 0/' "$wish/code" > "$file"
{FALSE_CLAIM}    exit 0;;
  US-302-impl-2) cp "$wish/code" "$file";;
  US-301-impl-*) touch {{base}}/hangs; sleep 600;;
esac
case $HANDOFFD_STEP in
  bdd) mkdir -p docs/bdd && echo "# $HANDOFFD_STORY" > "docs/bdd/$HANDOFFD_STORY.md";;
  scaffold) cp -R "$wish/tests/." .;;
  impl) grep -qsxFf "$wish/code" "$file" || cat "$wish/code" >> "$file";;
  update-memory) echo "- $HANDOFFD_STORY" >> PROJECT_MEMORY.md;;
esac
{HAND_OVER}"""
"""Does all stories; US-101 fails twice, US-102 claims too much, US-302 once, US-202 crashes, US-301 hangs."""


class Repository(NamedTuple):
    """A project: how it is tested, what is in it, and what its stories write; `{n}` is a story's number."""

    test: Json
    files: dict[str, str]
    test_file: tuple[str, str]
    code: tuple[str, str]
    stories: tuple[str, ...]
    land: str = "ask"
    table: str = ""


NODE = ["node", "--test", "--test-reporter=tap", "--test-reporter-destination={report}"]
NODE_TEST = "import test from 'node:test';\nimport assert from 'node:assert';\n"
GO_MOD, GO = "module example.com/pump\n\ngo 1.24\n", "package pump\n"
GO_TEST = 'package pump\n\nimport "testing"\n\nfunc Test%s(t *testing.T) {%s}\n'
REPOSITORIES = {
    "shop": Repository(
        {"command": PYTEST, "report": "junit"},
        {"basket.py": "", "tests/test_basket.py": "def test_it_is_there():\n    import basket\n"},
        ("tests/test_us_{n}.py", "import basket\n\n\ndef test_{n}():\n    assert basket.us_{n}() == {n}\n"),
        ("basket.py", "def us_{n}(): return {n}\n"),
        ("US-101", "US-102", "US-103"),
        land="auto",
    ),
    "lamp": Repository(
        {"command": NODE, "report": "tap"},
        {"test/first.test.mjs": NODE_TEST + "test('it is there', () => assert.ok(true));\n"},
        ("test/us-{n}.test.mjs", NODE_TEST + "test('US-{n}', () => import('../us-{n}.mjs'));\n"),
        ("us-{n}.mjs", "export const value = {n};\n"),
        ("US-201", "US-202"),
    ),
    "pump": Repository(
        {"command": ["go", "test", "-json", "-count=1", "./..."], "report": "gotest"},
        {"go.mod": GO_MOD, "pump.go": GO, "pump_test.go": GO_TEST % ("ItIsThere", "")},
        ("us_{n}_test.go", GO_TEST % ("{n}", " if Water{n}() != {n} { t.Fail() } ")),
        ("us_{n}.go", GO + "\nfunc Water{n}() int { return {n} }\n"),
        ("US-301", "US-302"),
        table="    timeout_min: 0.15\n",
    ),
    "notes": Repository(
        {}, {"notes.md": "# Notes\n"}, ("ideas/{n}.md", "An idea.\n"), ("notes.md", "- of {n}\n"),
        ("US-401", "US-402"),
    ),
}  # fmt: skip
TABLE = "steps:\n  bdd: {next_on_pass: scaffold}\n  impl:\n    max_attempts: 3\n"
HERE = [name for name in REPOSITORIES if name != "lamp" or shutil.which("node")]
SKIPPED = pytest.param("lamp", marks=pytest.mark.skip(reason="no node is installed here"))
EACH = pytest.mark.parametrize("name", HERE if "lamp" in HERE else [*HERE, SKIPPED])
FAILED = {
    "US-102": ("needs_human", "1 test fails: tests.test_us_102::test_102"),
    "US-202": ("needs_human", "exited with code 7"),
    "US-301": ("timeout", "no valid hand-off was there at the deadline"),
}
"""How the stories wait in the morning that came no further than impl, and why."""
TRIED_AGAIN = {"US-101": 2, "US-302": 1}
"""How often impl has failed of stories that came further."""
NO_MARKS = ["/bin/sh", "-c", "! grep -qE '^(<<<<<<<|>>>>>>>)' notes.md"]
"""In place of tests, where there are none."""


def made(base: Path, name: str) -> Path:
    """Return a repository with a person's work in it, and leave its agent what its stories write."""
    is_of = REPOSITORIES[name]
    settings = {
        "workspace": "clone", "gates": "after", "stories": {"parallel": 2, "land": is_of.land},
        "test": is_of.test, "sandbox": {"let_in": ["go"]},
    }  # fmt: skip
    project = project_at(base / name, TABLE + is_of.table, json.dumps(settings))
    _write(project, {**is_of.files, "draft.txt": "", ".gitignore": "__pycache__\n.pytest_cache\n"})
    for story in is_of.stories:
        number = story.removeprefix("US-")
        (tested, test), (file, code) = (
            [word.replace("{n}", number) for word in pair] for pair in (is_of.test_file, is_of.code)
        )
        _write(base / "wishes" / story, {"file": f"{file}\n", "code": code, f"tests/{tested}": test})
        text = f"---\nid: {story}\ntitle: Wish {number}\n---\nThe {name} shall have it.\n"
        _write(base / "stories" / name, {f"{story}.md": text})
    assert 0 == git(project, "init", "--quiet", "--initial-branch", "main")
    return project


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


class Night(test_report.Night):
    """A daemon, its repositories, and what a person had in them in the evening."""

    def __init__(self, daemon: Daemon, roots: dict[str, Path]) -> None:
        super().__init__(daemon, roots)
        self.before = {name: tree_of(root) for name, root in roots.items()}

    def said(self, verb: str, name: str, *words: str) -> Json:
        """Return what a command about a repository says to a program."""
        answer = typed(self.daemon, verb, str(self.roots[name]), *words, "--json")
        assert 0 == answer.code, answer
        found: Json = answer.json
        return found

    def stories(self) -> dict[str, tuple[str, str]]:
        """Return step and status of every story in flight."""
        tracks = [track for root in self.roots.values() for track in self.daemon.view(root)["tracks"]]
        return {track["story"]: (track["step"], track["status"]) for track in tracks}

    def wait(self, expected: dict[str, tuple[str, str]]) -> None:
        """Wait until stories are there."""
        try:
            eventually_sync(lambda: expected.items() <= self.stories().items(), within_s=150)
        except AssertionError as error:
            raise AssertionError(f"{self.stories()}\n{self.daemon.log()[-6000:]}") from error

    def told(self, story: str) -> list[Json]:
        """Return the notices that have asked a person about a story."""
        notices = [one for root in self.roots.values() for one in self.daemon.told(root)]
        return [one for one in notices if one["story"] == story and one["kind"] in {"needs_human", "timeout"}]

    def landed(self, name: str) -> set[str]:
        """Return the stories that are on the branch that a person has checked out."""
        return {*re.findall(r"(?m)^Story: (.+)$", told(self.roots[name], "log", "--format=%B", "main"))}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    """Set up as a person does, kill the daemon while agents work, and wait for the morning."""
    base = tmp_path_factory.mktemp("night")
    agent = shell_agent(base, AGENT.format(base=base))
    settings: Json = {
        "executor": "agent", "executors": {"agent": agent}, "auto_continue": True,
        "execute": {"slots": 2}, "caps": {"day_usd": 40},
    }  # fmt: skip
    roots = {name: made(base, name) for name in HERE}
    golang.tested(roots["pump"])
    with running(base, settings, **golang.ENVIRONMENT) as daemon:
        for root in roots.values():
            assert 0 == typed(daemon, "init", str(root), "--no-tests", "--yes").code
            assert 0 == git(root, "add", "-A")
            assert 0 == git(root, "commit", "--quiet", "-m", "Begin")
            _write(root, {"draft.txt": "what I am at\n", "new.txt": "not for git\n"})
        lived = Night(daemon, roots)
        for name, root in roots.items():
            folder = str(base / "stories" / name)
            assert 0 == typed(daemon, "backlog", "import", str(root), folder).code
            lived.said("start", name, REPOSITORIES[name].stories[0])
        eventually_sync((base / "hangs").exists, within_s=120)
        daemon.kill()
        daemon.start()
        lived.wait({
            story: ("impl", FAILED[story][0]) if story in FAILED else ("acceptance", "needs_human")
            for name in HERE for story in REPOSITORIES[name].stories
        })  # fmt: skip
        yield lived


@EACH
def test_each_story_waits_with_its_evidence(night: Night, name: str) -> None:
    """Its tests as measured, its files, and why each attempt but the last has failed."""
    is_of = REPOSITORIES[name]
    for story in {*is_of.stories} - FAILED.keys():
        gate = night.said("gate", name, "--story", story, "--no-keys")
        number = gate["title"].removeprefix("Wish ")
        assert ("acceptance", f"US-{number}") == (gate["step"], story)
        files = {one["path"] for one in gate["changes"]["files"]}
        assert {words[0].replace("{n}", number) for words in (is_of.test_file, is_of.code)} <= files
        measured = gate["tests"]["measured"]
        counted = (measured["fail"], measured["pass"] >= 2) if measured else None
        assert ((0, True) if name != "notes" else None) == counted
        by_step = Counter((one["step"], one["result"]) for one in gate["attempts"])
        assert {("bdd", "pass"), ("scaffold", "pass"), ("impl", "pass"), ("verify", "pass")} <= by_step.keys()
        assert TRIED_AGAIN.get(story, 0) == by_step["impl", "failing"]
        assert all(one["why"] for one in gate["attempts"] if one["result"] != "pass")


def test_a_test_of_go_is_counted_and_called_by_its_package(night: Night) -> None:
    """In the review, and in the report of what failed and what was claimed."""
    gate = night.said("gate", "pump", "--story", "US-302", "--no-keys")
    tests = gate["tests"]
    assert [(1, 0), (2, 0)] == [(tests[one]["pass"], tests[one]["fail"]) for one in ("before", "measured")]
    assert (True, ["us_302_test.go"], 1) == (tests["verified"], tests["files"], tests["new_collected"])
    assert ["example.com/pump::Test302"] == tests["new"]
    failed, false = (
        next(one for one in night.report()[part] if one["story"] == "US-302") for part in ("failed", "false")
    )
    assert "pass claimed, but 1 test fails: example.com/pump::Test302" == failed["why"]
    assert ("9 pass, 0 fail", "1 pass, 1 fail") == (false["claimed"], false["measured"])
    shown = typed(night.daemon, "show", false["run"], "--json").json
    assert (9, 1) == (shown["handoff"]["tests"]["pass"], shown["run"]["tests"]["fail"])
    assert (1, 0) == (shown["before"]["pass"], shown["before"]["fail"])
    ran = {one["what"]: (one["code"], one["argv"]) for one in shown["commands"]}
    assert (0, 1) == (ran["executor"][0], ran["tests"][0])
    assert ["test", "-json"] == [word for word in ran["tests"][1] if word in {"test", "-json"}]
    assert ("advanced", "checks_finished") == (shown["events"][0]["kind"], shown["events"][-1]["kind"])


@EACH
def test_who_has_failed_for_good_is_told_of_with_a_reason(night: Night, name: str) -> None:
    """And so is each story that waits: once, also where its daemon was killed."""
    night.daemon.wait_delivered()
    for story in REPOSITORIES[name].stories:
        (notice,) = night.told(story)
        gate, why = ("impl", FAILED[story][1]) if story in FAILED else ("acceptance", "")
        assert (gate, True) == (notice["step"], why in notice["why"]), notice
        assert notice["action"].endswith(f" --story {story}")


@EACH
def test_the_night_was_not_noticed_in_the_folder(night: Night, name: str) -> None:
    """Byte for byte: files, index and HEAD; nothing lands before a person accepts it."""
    assert night.before[name] == tree_of(night.roots[name])
    assert "Begin\n" == told(night.roots[name], "log", "--format=%s", "main")


def test_the_report_agrees_with_the_journal(night: Night) -> None:
    """On which stories need a person, what failed, and what was claimed and is not so."""
    report = night.report()
    assert 0 == sum(report["more"].values())
    waiting = night.daemon.rows(
        """SELECT json_extract(body, '$.state."$state".document.story'), step FROM tracks
        WHERE status IN ('needs_human', 'timeout')"""
    )
    assert sum(len(REPOSITORIES[name].stories) for name in HERE) == len(waiting)
    assert sorted(waiting) == sorted((one["story"], one["step"]) for one in report["waiting"])
    failures = test_report.failures_that_agree(night)
    failed = {**TRIED_AGAIN, "US-102": 3, "US-202": 3, "US-301": 1}
    assert {story: failed[story] for story, _ in waiting if story in failed} == {
        story: times for (_, story, step), times in failures.items() if step == "impl"
    }
    assert 4 == len(test_report.false_claims_that_agree(night))
    assert {"US-102", "US-302"} == {one["story"] for one in report["false"]}
    false = typed(night.daemon, "claims", "--since", "12h", "--json").json["total"]["false"]
    assert {"tests": 4} == Counter(one["about"] for one in report["false"])
    assert {"tests": 4, "outcome": 4, "files": 0} == false, "a report says what shows it best"
    test_report.screen(night, 60)


def test_what_a_person_accepts_lands_and_every_commit_is_green(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that changed one file, the second is merged by its agent, or waits with its conflict named."""
    night.said("approve", "shop", "--story", "US-101")
    eventually_sync(lambda: {"US-101"} == night.landed("shop"))
    night.said("approve", "shop", "--story", "US-103")
    eventually_sync(lambda: 2 == len(night.told("US-103")))
    assert {"US-101"} == night.landed("shop")
    (back,) = night.said("gate", "shop", "--story", "US-103", "--no-keys")["rejections"]
    assert ("done", "not landed", "the landing") == (back["step"], back["reason"], back["by"])
    assert "conflicts" in back["note"]
    night.said("approve", "shop", "--story", "US-103")
    eventually_sync(lambda: {"US-101", "US-103"} == night.landed("shop"))

    here = [("lamp", "US-201")] if "lamp" in HERE else []
    here += [("pump", "US-302"), ("notes", "US-401"), ("notes", "US-402")]
    for name, story in here:
        night.said("approve", name, "--story", story)
    night.wait({story: ("done", "pass") for _, story in here})
    assert not any(night.landed(name) for name, _ in here)
    landings = {
        one: typed(night.daemon, "land", str(night.roots[name]), "--story", one) for name, one in here
    }
    assert {"US-402"} == {story for story, said in landings.items() if said.code}, landings
    papers = "by hand also in PROJECT_MEMORY.md: keep both sides"
    assert f"handoffd/US-402 conflicts in notes.md; {papers}\n" in landings["US-402"].err
    assert {"US-401"} == night.landed("notes")
    assert "US-402" in {one["story"] for one in night.report()["waiting"]}

    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # of this project; they take seconds to load
    for variable, value in golang.ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    for name, root in night.roots.items():
        command = REPOSITORIES[name].test.get("command", NO_MARKS)
        tests = [word.replace("{report}", os.devnull) for word in command]
        checked = dict(green(night.daemon.base / "checked" / name, root, *tests))
        assert [True] * (1 + len(night.landed(name))) == [*checked.values()], (name, checked)
        assert " M draft.txt\n?? new.txt\n" == told(root, "status", "--porcelain")
        assert "what I am at\n" == (root / "draft.txt").read_text()
    assert_replayed(night.daemon)
