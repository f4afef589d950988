"""Checks as runs: their names, their specifications, and reading their reports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually_sync

from handoffd.errors import Refused, StoreError
from handoffd.execute import module_start
from handoffd.execute.base import ExitRecord, RunSpec
from handoffd.execute.checks import (
    ARGUMENTS,
    MAX_STAMPED,
    MAX_TRIES,
    CheckContext,
    asked_for,
    check_run,
    files_changed_since,
    files_untouched_since,
    fill_story,
    post_check_run,
    post_check_spec,
    read_bounded,
    read_test_output,
    ready_test_run,
    report_of,
    runs_of,
    stamps_below,
    test_run_spec,
    test_words,
    tried_again,
)
from handoffd.execute.evidence import TestOutput, baseline_of, evidence_of, files_to_exclude, measured, merge
from handoffd.execute.reports.report import TestReport
from handoffd.inspection.suites import find_suites
from handoffd.settings.model import TestSettings

SECOND = 1_000_000_000


@pytest.fixture
def context(tmp_path: Path) -> CheckContext:
    """A check of a project with its run directory beside it."""
    root, run_dir = tmp_path / "shop", tmp_path / "run"
    root.mkdir()
    run_dir.mkdir()
    return CheckContext(
        run_id="20261121T073312-4f9a1c.tests",
        run_dir=run_dir,
        root=root,
        project=root,
        environment={"PATH": "/usr/bin:/bin"},
        story="US-013",
        step="impl",
        attempt=2,
    )


def test_a_test_run_reports_into_the_run_directory(context: CheckContext) -> None:
    """Its report is outside the project; its environment has the allowed variables and the run's own."""
    settings = TestSettings(command=("go", "test", "-o={report}", "x"), report="junit")

    spec = test_run_spec(context, settings, 600)

    assert ("go", "test", f"-o={context.run_dir}/results/report", "x") == spec.argv
    assert {
        "PATH": "/usr/bin:/bin",
        "HANDOFFD_RUN": "20261121T073312-4f9a1c.tests",
        "HANDOFFD_STORY": "US-013",
        "HANDOFFD_STEP": "impl",
        "HANDOFFD_ATTEMPT": "2",
        "HANDOFFD_WORKSPACE": "0",
    } == spec.env
    assert (str(context.root), None, 600) == (spec.cwd, spec.stdin, spec.deadline_s)
    assert str(context.run_dir / "output.log") == spec.output
    assert spec == RunSpec.from_json(spec.to_json())


def test_the_projects_own_interpreter_is_found_from_its_root(context: CheckContext) -> None:
    """A relative program is the project's, in whatever folder the launcher is."""
    settings = TestSettings(command=(".venv/bin/python", "-m", "pytest"))

    assert f"{context.root}/.venv/bin/python" == test_run_spec(context, settings, 600).argv[0]


def test_files_are_excluded_one_by_one(context: CheckContext) -> None:
    """Each file is one argument, and none can pass for an option."""
    settings = TestSettings(command=("pytest",), report="junit", exclude_argument="{file}")

    spec = test_run_spec(context, settings, 600, ("tests/a b.py", "--rootdir=;rm"))

    assert ("pytest", "tests/a b.py", "./--rootdir=;rm") == spec.argv


def test_a_report_on_standard_output_is_kept_whole(context: CheckContext) -> None:
    """A log is shortened, a report is not."""
    printed = TestSettings(command=("go", "test", "-json"), report="gotest")
    written = TestSettings(command=("tests", "--to", "{report}"), report="tap")

    assert 64 * 1024 * 1024 == sum(_kept(test_run_spec(context, printed, 600)))
    assert 1024 * 1024 == sum(_kept(test_run_spec(context, written, 600)))


def _kept(spec: RunSpec) -> tuple[int, int]:
    return spec.head_bytes, spec.tail_bytes


@pytest.mark.parametrize("story", ["US-013", "013"])
def test_only_the_storys_tokens_are_replaced(story: str) -> None:
    """Variables and other braces are the shell's."""
    template = "check docs/US-{story}.md {story} ${story} ${HOME} {step} $US-{story} US-${story}"

    filled = f"check docs/US-013.md {story} ${{story}} ${{HOME}} {{step}} $US-013 US-${{story}}"
    assert filled == fill_story(template, story)
    assert template == fill_story(template, None)  # a task without a story


def test_an_id_that_a_shell_could_read_never_gets_there() -> None:
    """The id is validated here, too."""
    for story in ("US-1; rm -rf /", "$(id)", "a b", "../x", ""):
        with pytest.raises(Refused):
            fill_story("echo {story}", story)


def test_a_post_check_runs_as_written(context: CheckContext) -> None:
    """The shell sees the story, the variables of the run, and the project as its folder."""
    spec = post_check_spec(context, 'echo "US-{story} ${HANDOFFD_STEP} $HANDOFFD_ATTEMPT $PWD"', 60)

    done = subprocess.run(
        spec.argv, env=dict(spec.env), cwd=spec.cwd, capture_output=True, text=True, check=True
    )

    assert f"US-013 impl 2 {context.root}\n" == done.stdout
    assert 60 == spec.deadline_s


def test_a_report_is_read_from_where_the_runner_left_it(context: CheckContext) -> None:
    """From the file that its command names, else from its output; an exit code has no report."""
    context.results.mkdir(parents=True)
    (context.results / "report").write_bytes(b"<testsuite/>")
    (context.run_dir / "output.log").write_bytes(b"ok 1\n1..1\n")
    record = ExitRecord(run_id=context.run_id, code=0, output_bytes=10)
    long = ExitRecord(run_id=context.run_id, code=0, output_bytes=65 * 1024 * 1024)
    junit = TestSettings(command=("pytest", "{report}"), report="junit")
    tap = TestSettings(command=("node", "--test"), report="tap")
    bare = TestSettings(command=("make",), report="exit")

    assert TestOutput(report=b"<testsuite/>", printed="ok 1\n1..1\n") == read_test_output(
        context.run_dir, junit, record, context.root
    )
    assert TestOutput(report=b"ok 1\n1..1\n") == read_test_output(context.run_dir, tap, record, context.root)
    assert not read_test_output(context.run_dir, tap, long, context.root).complete
    assert TestOutput(report=None) == read_test_output(context.run_dir, bare, record, context.root)


MAVEN = TestSettings(command=("mvn",), report="junit", reports=("**/target/surefire-reports/TEST-*.xml",))


def left(root: Path, name: str, case: str) -> Path:
    """Leave a report of one test like a runner that takes no path."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<testsuite name="{0}"><testcase classname="{0}" name="one"/>'
    )
    path.write_text(f"{text.format(case)}</testsuite>\n")
    return path


def test_reports_that_a_runner_leaves_in_the_workspace_are_read_as_one(context: CheckContext) -> None:
    """Of all modules; what is there of an earlier run, or was written by hand, is removed before."""
    record = ExitRecord(run_id=context.run_id, code=0)
    forged = left(context.root, "target/surefire-reports/TEST-forged.xml", "forged")
    other = left(context.root, "target/other/TEST-kept.xml", "kept")
    ready_test_run(context, MAVEN, ())
    assert [False, True] == [forged.exists(), other.exists()]
    assert read_test_output(context.run_dir, MAVEN, record, context.root).report is None

    left(context.root, "target/surefire-reports/TEST-a.CartTest.xml", "a.CartTest")
    left(context.root, "web/target/surefire-reports/TEST-b.WebTest.xml", "b.WebTest")
    ready_test_run(context, MAVEN, ())  # the run was begun: a daemon that starts finds it again
    output = read_test_output(context.run_dir, MAVEN, record, context.root)
    found = measured(MAVEN, record, output, str(context.root))

    assert {"a.CartTest::one": "passed", "b.WebTest::one": "passed"} == found.results


def test_reports_behind_links_are_nobodys(context: CheckContext, tmp_path: Path) -> None:
    """They could lead anywhere, and files there would be removed."""
    outside = left(tmp_path / "outside", "target/surefire-reports/TEST-a.xml", "a")
    (context.root / "target").symlink_to(tmp_path / "outside/target")
    link = context.root / "web/target/surefire-reports/TEST-a.xml"
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)

    record = ExitRecord(run_id=context.run_id, code=0)
    assert read_test_output(context.run_dir, MAVEN, record, context.root).report is None
    ready_test_run(context, MAVEN, ())
    assert [False, True] == [link.is_symlink(), outside.exists()]


def test_too_many_reports_prove_nothing(context: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them all would hold the daemon up."""
    monkeypatch.setattr("handoffd.execute.checks.MAX_FILES", 1)
    for name in ("a", "b"):
        left(context.root, f"target/surefire-reports/TEST-{name}.xml", name)
    with pytest.raises(StoreError, match="more than 1 files"):
        ready_test_run(context, MAVEN, ())


def test_a_report_must_be_a_plain_file(tmp_path: Path) -> None:
    """A link could lead to a secret, a pipe could hold us up for ever."""
    (tmp_path / "secret").write_text("key")
    (tmp_path / "link").symlink_to("secret")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()

    assert [None] * 4 == [
        read_bounded(tmp_path / name, 100) for name in ("link", "pipe", "folder", "missing")
    ]
    assert b"ke" == read_bounded(tmp_path / "secret", 2)


def test_a_file_written_since_has_changed(tmp_path: Path) -> None:
    """The inode's own time decides: a program can set the other one back."""
    file = tmp_path / "test_a.py"
    file.write_text("x")
    written = file.stat().st_ctime_ns
    os.utime(file, (0, 0))

    assert frozenset({"test_a.py"}) == files_changed_since(tmp_path, ["test_a.py"], written)
    assert frozenset() == files_changed_since(tmp_path, ["test_a.py"], written + 3600 * SECOND)


def test_a_file_outside_the_root_never_counts_as_changed(tmp_path: Path) -> None:
    """Neither by its path nor through a link."""
    root = tmp_path / "shop"
    root.mkdir()
    (tmp_path / "outside.py").write_text("x")
    (root / "link.py").symlink_to("../outside.py")
    (root / "inner.py").symlink_to("real.py")
    (root / "real.py").write_text("x")
    names = ["../outside.py", str(tmp_path / "outside.py"), "link.py", "missing.py", "a\0b", "inner.py"]

    assert frozenset({"inner.py"}) == files_changed_since(root, names, 0)


def test_a_file_that_is_as_it_was_is_untouched(tmp_path: Path) -> None:
    """A folder says nothing, and what is missing may have been removed: neither is called untouched."""
    for name in ("kept.py", "src/inner.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    after = (tmp_path / "src/inner.py").stat().st_ctime_ns + SECOND
    names = ["kept.py", "src", "gone.py", "../outside.py", "src/inner.py"]

    assert ("kept.py", "src/inner.py") == files_untouched_since(tmp_path, names, after)
    assert () == files_untouched_since(tmp_path, names, after - 2 * SECOND)


def measure(
    context: CheckContext, name: str, settings: TestSettings, exclude: tuple[str, ...] = ()
) -> tuple[TestReport, ExitRecord]:
    """Run the tests as a check does, and return their report."""
    run_dir = context.run_dir / name
    at = ready_test_run(replace(context, run_dir=run_dir), settings, exclude)
    at.results.mkdir(parents=True)
    spec = test_run_spec(at, settings, 60, exclude)
    with open(spec.output, "wb") as output, open(spec.stdin or os.devnull, "rb") as given:
        done = subprocess.run(
            spec.argv, env=dict(spec.env), cwd=spec.cwd, stdin=given, stdout=output, stderr=output,
            check=False,
        )  # fmt: skip
    record = ExitRecord(run_id=name, code=done.returncode, output_bytes=Path(spec.output).stat().st_size)
    return measured(
        settings, record, read_test_output(run_dir, settings, record, context.root), spec.cwd
    ), record


def test_a_red_step_measured_with_a_real_runner(context: CheckContext) -> None:
    """A new test imports a missing module; the old ones are proved to pass without it."""
    context = replace(
        context, environment={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    )
    (context.root / "test_old.py").write_text("def test_old(): pass\n")
    settings = TestSettings(
        command=(sys.executable, "-m", "pytest", "-q", "--rootdir=.", "--junitxml={report}"),
        report="junit",
        exclude_argument="--ignore={file}",
    )
    before, _ = measure(context, "baseline", settings)
    since = (context.root / "test_old.py").stat().st_ctime_ns + SECOND // 10
    new = context.root / "test_new.py"

    def written() -> bool:
        new.write_text("import wallet\n")
        return new.stat().st_ctime_ns >= since

    eventually_sync(written)
    first, _ = measure(context, "tests", settings)
    changed = files_changed_since(context.root, [error.file for error in first.load_errors], since)
    exclude = files_to_exclude(settings, first, baseline_of(before), changed)
    second, record = measure(context, "again", settings, exclude)
    evidence = evidence_of(merge(first, second, exclude), record, baseline_of(before), changed)

    assert ({"test_old::test_old": "passed"}, {}) == (before.results, first.results)
    assert ("test_new.py",) == exclude
    assert (1, ("test_new.py",), ()) == (evidence.new_failing, evidence.failing, evidence.regressed)
    assert (2, 1, None) == (evidence.collected, evidence.counts.passed, evidence.fault)


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_cargo_itself_is_measured(context: CheckContext) -> None:
    """The proposed command and its real output, for a failing test and for one that does not compile."""
    environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME") if name in os.environ
    }
    context = replace(context, environment=environment)
    (context.root / "src").mkdir()
    (context.root / "Cargo.toml").write_text(
        '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n'
    )
    library = context.root / "src/lib.rs"
    chosen = find_suites(context.root).chosen
    assert chosen is not None

    library.write_text("#[test] fn good() {}\n#[test] fn bad() { panic!() }\n")
    report, _ = measure(context, "tests", chosen.settings)
    library.write_text("#[test] fn good( {}\n")
    broken, _ = measure(context, "broken", chosen.settings)

    assert {"shop src/lib.rs::good": "passed", "shop src/lib.rs::bad": "failed"} == report.results
    assert (None, None) == (report.problem, report.unnamed_failure)
    assert ["src/lib.rs"] == [error.file for error in broken.load_errors]


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_has_node_write_a_report(context: CheckContext) -> None:
    """The proposed arguments reach node's own runner through npm."""
    context = replace(context, environment={"PATH": os.environ["PATH"], "HOME": str(context.run_dir)})
    (context.root / "package.json").write_text('{"name": "shop", "scripts": {"test": "node --test"}}')
    (context.root / "a.test.js").write_text("const {test} = require('node:test'); test('adds', () => {})")
    chosen = find_suites(context.root).chosen
    assert chosen is not None

    report, record = measure(context, "tests", chosen.settings)

    assert ({"adds": "passed"}, None, 0) == (report.results, report.problem, record.code)


# --- the runner ---------------------------------------------------------------------------------------
START = module_start.__file__


@pytest.mark.parametrize(
    ("command", "argv", "given"),
    [
        (("python3", "-m", "pytest", "-q"), ["python3", START], ["pytest", "-q"]),
        (
            ("/x/python3", "-W", "error", "-m", "pytest"),
            ["/x/python3", "-W", "error", START],
            ["pytest"],
        ),
        (("uv", "run", "python", "-m", "pytest"), ["uv", "run", "python", START], ["pytest"]),
        (("env", "A=1", "python", "-m", "unittest"), ["env", "A=1", "python", START], ["unittest"]),
        (("coverage", "run", "-m", "pytest"), ["coverage", "run", START], ["pytest"]),
        (("pytest", "-m", "fast"), ["pytest", "-m", "fast"], None),
        (("python", "tests.py", "-m", "x"), ["python", "tests.py", "-m", "x"], None),
        (("docker", "exec", "a", "python", "-m", "pytest"), None, None),
        (("uv", "run", "--with", "x", "python", "-m", "pytest"), None, None),
        (("sh", "-c", "python -m pytest"), None, None),
    ],
)
def test_a_python_module_is_started_by_a_program_of_ours(
    context: CheckContext, command: tuple[str, ...], argv: list[str] | None, given: list[str] | None
) -> None:
    """Where a Python of this machine is asked for one; its arguments are on standard input then."""
    nowhere = replace(context, environment={"PATH": "/nonexistent"})
    words, arguments = test_words(nowhere, TestSettings(command=command))
    assert list(argv or command) == list(words)
    assert given == (None if arguments is None else json.loads(arguments))
    context.run_dir.mkdir(parents=True, exist_ok=True)
    if arguments is not None:
        (context.run_dir / ARGUMENTS).write_bytes(arguments)
    assert tuple(command) == asked_for(words, context.run_dir), "as people know it"


def test_a_program_is_looked_for_outside_the_workspace(context: CheckContext, tmp_path: Path) -> None:
    """By whole paths: an agent can write what is in the workspace."""
    for folder in (context.root / "bin", tmp_path / "tools"):
        folder.mkdir(parents=True)
        (folder / "pytest").touch(0o755)
    path = f".:bin:{context.root}/bin:{tmp_path}/tools"
    context = replace(context, environment={"PATH": path})
    assert (f"{tmp_path}/tools/pytest",) == test_words(context, TestSettings(command=("pytest",)))[0]
    assert ("nosuch",) == test_words(context, TestSettings(command=("nosuch",)))[0]


def test_the_name_of_a_report_is_of_one_run(context: CheckContext, tmp_path: Path) -> None:
    """It cannot be worked out, and stays the same; the runs of earlier releases have the old one."""
    settings = TestSettings(command=("runner", "{report}"), report="junit")
    folders = [tmp_path / name for name in "abba"]
    names = [ready_test_run(replace(context, run_dir=one), settings, ()).report for one in folders]
    assert (names[0], names[1]) == (names[3], names[2])
    assert 3 == len({*names, "report"})
    assert "report" == report_of(tmp_path / "old")


# --- names --------------------------------------------------------------------------------------------
def test_a_check_is_named_after_its_dispatch() -> None:
    """The first try by the check alone."""
    assert "d1.tests" == check_run("d1", "tests") == tried_again(check_run("d1", "tests"), 1)
    assert "d1.post.3" == tried_again(check_run("d1", "post"), 3)


def test_a_dispatch_has_its_executor_and_all_tries_of_all_checks() -> None:
    """Each once; with the names of several checks, where these are known."""
    names = runs_of("d1")

    assert "d1" == names[0]
    assert {"d1.baseline", "d1.tests", "d1.rest", "d1.second", "d1.post", f"d1.rest.{MAX_TRIES}"} <= {*names}
    assert 1 + 5 * MAX_TRIES == len({*names}) == len(names)
    more = runs_of("d1", ["lint", "types"])[len(names) :]
    assert tuple(tried_again(f"d1.post.{one}", n) for one in ("lint", "types") for n in (1, 2, 3)) == more
    assert "d1.post.lint" == post_check_run("d1", "lint")


# --- what files are ---------------------------------------------------------------------------------
def test_a_stamp_tells_whether_a_file_has_changed(tmp_path: Path) -> None:
    """By what it holds, its mode and where it leads; a file that was only touched is the same."""
    for name in ("same", "changed", "program", "gone"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("same")
    before = stamps_below(tmp_path, {})
    os.utime(tmp_path / "same", (0, 0))
    (tmp_path / "changed").write_text("CHANGED")
    (tmp_path / "program").chmod(0o755)
    (tmp_path / "gone").unlink()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("changed")
    now = stamps_below(tmp_path, before)

    assert {"changed", "program", "link"} == {
        name for name, stamp in now.items() if stamp.digest != before[name].digest
    }
    assert {"gone"} == {*before} - {*now}
    assert now == stamps_below(tmp_path, now)


def test_what_tools_keep_and_what_is_ignored_has_no_stamp(tmp_path: Path) -> None:
    """The list of ignored files is the one of the root; a folder of too many files has none at all."""
    for name in ("src/a.py", "build/a.o", "node_modules/b.js", ".ai/STATE.json", "c.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("/build\n*.log\n")
    assert {".gitignore", "src/a.py"} == {*stamps_below(tmp_path, {})}

    for number in range(MAX_STAMPED):
        (tmp_path / "src" / f"{number}").touch()
    with pytest.raises(StoreError, match="too much"):
        stamps_below(tmp_path, {})
