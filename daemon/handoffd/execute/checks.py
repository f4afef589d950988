"""Checks as runs: which command measures a claim, how its runs are named, and where their results are.

Checks run under the launcher like executors, so a restart of the daemon neither loses nor repeats one.
Nothing here starts a process, and `evidence` judges what a finished run proves. An agent wrote the code
under test: its report files, and the paths in them, are treated as hostile.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec
from msgspec import Struct

from handoffd.errors import StoreError
from handoffd.execute import module_start
from handoffd.execute.base import ExitRecord, Rung, RunSpec
from handoffd.execute.environment import run_variables
from handoffd.execute.evidence import TestOutput
from handoffd.execute.reports.report import MAX_REPORT_BYTES
from handoffd.execute.sandbox.plan import Plan
from handoffd.files.atomic import digest_of, replace_text
from handoffd.protocol.rules import OUTPUTS_PROGRAM, dotted
from handoffd.protocol.story import check_story_id, qualified
from handoffd.settings.model import TestSettings

RESULTS = "results"
"""The folder of a run that a check may write."""
REPORT = "report"
NAMED = "report-name"
"""Holds the name of a run's report, which the code under test need not know."""
ARGUMENTS = "arguments"
_MOST_ARGUMENTS = 1024 * 1024
"""Holds the arguments of a Python module that is the runner, on its standard input."""
OUTPUT = "output.log"
MAX_FILES = 2000
MAX_LOOKS = 20_000
MAX_STAMPED = 20_000
_MOST_STAMPED = 256 * 1024 * 1024
_MOST_OF_ONE = 32 * 1024 * 1024

_KEPT = 512 * 1024  # of the beginning of an output, and as much of its end
_LADDER = (Rung(signal="TERM", grace_s=5.0), Rung(signal="KILL", grace_s=5.0))
# Not `protocol.story.expand`: in a shell command `${story}` is a variable, and stays.
_STORY = re.compile(r"(?P<prefix>US-)?(?<!\$)\{story\}")
_LENDS_PYTHON = frozenset({"hatch", "pdm", "pipenv", "poetry", "rye", "uv"})
_STARTS_MODULES = re.compile(r"(?:python|pypy)[\d.]*|coverage(?:-?3)?")
# File times come from the kernel's tick, which lags behind the clock by up to 10 ms.
_TICK_NS = 20_000_000
_OWN = ".ai"
_KEPT_BY_TOOLS = frozenset({_OWN, ".git", ".hg", ".venv", "__pycache__", "node_modules", "venv"})


class CheckContext(Struct, frozen=True, kw_only=True):
    """Where one check runs and for what: `root` is the folder of the work, `project` that of its project.

    `environment` is already allow-listed.
    """

    run_id: str
    run_dir: Path
    root: Path
    project: Path
    shown: Path | None = None
    """A copy of the workspace that the check sees in its place."""
    report: str = REPORT
    """The name of the report, in the folder of its results."""
    environment: Mapping[str, str]
    story: str | None
    step: str
    attempt: int
    workspace: int = 0
    """The number of its clone in the project."""
    memory_max: int | None = None
    """Bytes; None: no limit."""
    tasks_max: int | None = None
    sandbox: Callable[[CheckContext, tuple[str, ...]], Plan | None] = lambda *_: None
    """Returns the sandbox of a check with this argv; None: there is none."""

    @property
    def folder(self) -> Path:
        """Where what it writes in the workspace is."""
        return self.shown or self.root

    @property
    def results(self) -> Path:
        """The folder that the check may write besides the work."""
        return self.run_dir / RESULTS

    @property
    def variables(self) -> dict[str, str]:
        """The complete environment of the check."""
        own = run_variables(
            run_id=self.run_id, story=self.story, step=self.step, attempt=self.attempt,
            workspace=self.workspace,
        )  # fmt: skip
        return {**self.environment, **own}


def test_run_spec(
    context: CheckContext,
    settings: TestSettings,
    timeout_s: float,
    exclude: tuple[str, ...] = (),  # noqa: PT028
) -> RunSpec:
    """Return the run that tests the project; `exclude` holds relative paths of test files to leave out."""
    argv, arguments = test_words(context, settings, exclude)
    # A report on standard output may be as large as one in a file, so nothing of it is cut out.
    kept = MAX_REPORT_BYTES // 2 if _reports_on_output(settings) else _KEPT
    spec = _spec(context, argv, timeout_s, kept)
    return spec if arguments is None else replace(spec, stdin=str(context.run_dir / ARGUMENTS))


def test_words(
    context: CheckContext,
    settings: TestSettings,
    exclude: tuple[str, ...] = (),  # noqa: PT028
) -> tuple[tuple[str, ...], bytes | None]:
    """Return the argv of a test run, and what its standard input holds; None: nothing.

    A program without a path is looked for outside the workspace first, and so is a Python module.
    """
    assert settings.command, "a project without a test command is not measured"
    report = str(context.results / context.report)
    argv = [word.replace("{report}", report) for word in settings.command]
    argv[0] = str(context.root / argv[0]) if "/" in argv[0] else _outside(argv[0], context)
    if settings.exclude_argument is not None:
        argv += [settings.exclude_argument.replace("{file}", _as_operand(file)) for file in exclude]
    at = _module_at(argv)
    if at is None:
        return tuple(argv), None
    return (*argv[:at], str(Path(module_start.__file__))), json.dumps(argv[at + 1 :]).encode()


def asked_for(argv: Sequence[str], run_dir: Path) -> tuple[str, ...]:
    """Return the command of a check as it was asked for: one that starts a module has its words in a file."""
    if not argv or argv[-1] != str(Path(module_start.__file__)):
        return tuple(argv)
    with suppress(ValueError):
        words = json.loads(read_bounded(run_dir / ARGUMENTS, _MOST_ARGUMENTS) or b"[]")
        return (*argv[:-1], "-m", *map(str, words))
    return tuple(argv)


test_run_spec.__test__ = test_words.__test__ = False  # type: ignore[attr-defined]  # by their names


def _module_at(argv: Sequence[str]) -> int | None:
    """Return where a Python is asked to start a module; None where the command is another.

    A Python that something else starts may be in a container, where this file is not.
    """
    at = 0
    if argv[0] == "env" or (os.path.basename(argv[0]) in _LENDS_PYTHON and argv[1:2] == ["run"]):
        at = next((place for place in range(1, len(argv)) if _STARTS_MODULES.fullmatch(argv[place])), 0)
        if any("=" not in word for word in argv[1 if argv[0] == "env" else 2 : at]):
            return None
    if not _STARTS_MODULES.fullmatch(os.path.basename(argv[at])):
        return None
    for place in range(at + 1, len(argv) - 1):
        if argv[place] == "-m":
            return place
        if not argv[place].startswith("-") and argv[place] != "run" and argv[place - 1] not in {"-W", "-X"}:
            return None
    return None


def _outside(program: str, context: CheckContext) -> str:
    """Return the path of a program on PATH that is not in the workspace; the name where there is none."""
    own = (f"{os.path.normpath(folder)}/" for folder in (context.root, context.project))
    inside = tuple(own)
    folders = context.environment.get("PATH", "").split(":")
    whole = (os.path.normpath(folder) for folder in folders if folder.startswith("/"))
    paths = (os.path.join(one, program) for one in whole if not f"{one}/".startswith(inside))
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), program)


def post_check_spec(context: CheckContext, command: str, timeout_s: float) -> RunSpec:
    """Return the run of a rule's post_check, the only command that goes through a shell; our own does not.

    Only the tokens `{story}` and `US-{story}` are replaced, by the story's id, which has no character that
    is special to a shell. Raises Refused for an invalid id.
    """
    text = fill_story(command, context.story)
    if text.startswith(f"{OUTPUTS_PROGRAM} "):
        argv = (sys.executable, "-I", "-m", "handoffd.inspection.outputs", *shlex.split(text)[1:])
        return _spec(context, argv, timeout_s, _KEPT)
    return _spec(context, ("/bin/sh", "-c", text), timeout_s, _KEPT)


def command_spec(context: CheckContext, command: tuple[str, ...], timeout_s: float) -> RunSpec:
    """Return the run of a command: of a flow, or what makes a workspace ready.

    A path that begins in the workspace is a program of the project.
    """
    program = str(context.root / command[0]) if "/" in command[0] else command[0]
    return _spec(context, (program, *command[1:]), timeout_s, _KEPT)


def fill_story(template: str, story: str | None) -> str:
    """Return `template` with the story's id: `US-{story}` is `US-013` for story `013` and `US-013`."""
    if story is None:
        return template
    story = check_story_id(story)
    return _STORY.sub(lambda token: qualified(story) if token["prefix"] else story, template)


def read_test_output(
    run_dir: Path, settings: TestSettings, exit_record: ExitRecord, folder: Path
) -> TestOutput:
    """Return the report of a test run in `folder`, and its output. Reads up to 64 MiB: not in a loop."""
    if settings.report == "exit":
        return TestOutput(report=None)
    if _reports_on_output(settings):
        report = read_bounded(run_dir / OUTPUT, MAX_REPORT_BYTES + 1)
        return TestOutput(report=report, complete=exit_record.output_bytes <= MAX_REPORT_BYTES)
    printed = read_bounded(run_dir / OUTPUT, 2 * _KEPT) or b""
    report = read_bounded(run_dir / RESULTS / report_of(run_dir), MAX_REPORT_BYTES + 1)
    if report is None and settings.reports:
        report = _united(report_files(folder, settings.reports))
    if report is None:  # begun by a daemon of an older version
        report = read_bounded(run_dir / REPORT, MAX_REPORT_BYTES + 1)
    return TestOutput(report=report, printed=printed.decode("utf-8", "replace"))


def ready_test_run(context: CheckContext, settings: TestSettings, exclude: tuple[str, ...]) -> CheckContext:
    """Write what a test run needs in its folder; return it with the name of its report. Blocks."""
    named = context.run_dir / NAMED
    if not named.exists():  # else the run was begun
        context.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_reports(context.folder, settings.reports)
        replace_text(named, f"{REPORT}-{secrets.token_hex(8)}")
    context = msgspec.structs.replace(context, report=report_of(context.run_dir))
    _, arguments = test_words(context, settings, exclude)
    if arguments is not None:
        replace_text(context.run_dir / ARGUMENTS, arguments)
    return context


def _remove_reports(folder: Path, patterns: Sequence[str]) -> None:
    """Remove the reports of an earlier run. Raises StoreError where one stays: it would count for this."""
    for path in report_files(folder, patterns):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            why = f"the report of an earlier run cannot be removed: {path}: {error.strerror}"
            raise StoreError(why, hint=f"rm -rf {shlex.quote(str(path.parent))}") from error


def report_files(folder: Path, patterns: Sequence[str]) -> tuple[Path, ...]:
    """Return the files below a workspace that globs name, in order; blocks. Links are not followed.

    Raises StoreError where there are too many.
    """
    if not patterns:
        return ()
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  (only few projects need it)

    is_named, found = GitIgnoreSpec.from_lines(patterns).match_file, list[Path]()
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _KEPT_BY_TOOLS)
        paths = (os.path.join(place, name) for name in sorted(files) if name.endswith(".xml"))
        found += [Path(path) for path in paths if is_named(os.path.relpath(path, folder))]
        if len(found) > MAX_FILES:
            raise StoreError(f"test.reports names more than {MAX_FILES} files in {folder}")
    return tuple(found)


def _united(paths: Sequence[Path]) -> bytes | None:
    """Return several reports as one; None where there is none."""
    bodies, size = list[bytes](), 0
    for path in paths:
        body = read_bounded(path, MAX_REPORT_BYTES + 1 - size)
        if body is not None:
            bodies.append(body)
            size += len(body)
    from handoffd.execute.reports import junit  # noqa: PLC0415  (as above)

    return junit.united(bodies) if bodies else None


def report_of(run_dir: Path) -> str:
    """Return the name of a run's report; that of earlier releases where none was chosen; blocks."""
    try:
        return (run_dir / NAMED).read_text("ascii")
    except (OSError, ValueError):
        return REPORT


def read_bounded(path: Path, limit: int) -> bytes | None:
    """Return at most `limit` bytes of a regular file; None if it is missing, a link, a pipe or a folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            # Not `limit` alone: Python allocates the whole size before it reads.
            return file.read(min(limit, status.st_size))
    finally:
        os.close(descriptor)


def files_changed_since(root: Path, files: Iterable[str], since_ns: int) -> frozenset[str]:
    """Return the `files` that were written (or moved, or relinked) at or after `since_ns`.

    Times are nanoseconds of the wall clock. The inode's change time decides, because a program cannot set
    it. A missing file counts as unchanged, and so does one whose real path is outside `root`.
    """
    return frozenset(file for file, at in _last_changes(root, files) if at >= since_ns - _TICK_NS)


def files_untouched_since(root: Path, files: Iterable[str], since_ns: int) -> tuple[str, ...]:
    """Return the `files` below `root` that are there and were not changed since then; by the same clock.

    A folder says nothing about the files in it, and a file that is missing may have been removed.
    """
    seen = ((file, at) for file, at in _last_changes(root, files) if os.path.isfile(os.path.join(root, file)))
    return tuple(file for file, at in seen if at < since_ns - _TICK_NS)


def _last_changes(root: Path, files: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the files that are there, below `root`, each with the time of its last change."""
    top = os.path.realpath(root)
    for file in islice(files, MAX_FILES):
        if "\0" in file:
            continue
        path = os.path.join(top, file)
        real = os.path.realpath(path)
        if os.path.commonpath((top, real)) != top:
            continue
        moments = [at for at in (_changed_at(path), _changed_at(real)) if at is not None]
        if moments:
            yield file, max(moments)


class Stamp(Struct, frozen=True, array_like=True):
    """What a file is: as long as the figures of its inode are the same, so is the digest."""

    inode: tuple[int, ...]
    digest: str


class Stamps(Struct, frozen=True, kw_only=True):
    """What the files are where a step begins; with a `problem` that is not known."""

    entry: str
    """How often its story has come to the step."""
    files: dict[str, Stamp] = {}
    problem: str | None = None
    left: dict[str, Stamp] | None = None
    """What they were where the last attempt of the step ended, before its checks."""

    def changed(self, now: Mapping[str, Stamp]) -> list[str]:
        """Return the files that have changed since, sorted."""
        return sorted(
            name for name in {**self.files, **now} if _digest(self.files, name) != _digest(now, name)
        )

    def without(self, now: dict[str, Stamp]) -> Stamps:
        """Return these as if what no attempt, but its checks or others have changed had been so before."""
        left = self.left or {}
        theirs = {
            name
            for name in left | now
            if _digest(left, name) == _digest(self.files, name) != _digest(now, name)
        }
        kept = {name: stamp for name, stamp in self.files.items() if name not in theirs}
        return msgspec.structs.replace(
            self, files=kept | {name: now[name] for name in theirs & now.keys()}, left=None
        )


def _digest(files: Mapping[str, Stamp], name: str) -> str | None:
    return files[name].digest if name in files else None


def stamps_below(root: Path, known: Mapping[str, Stamp]) -> dict[str, Stamp]:
    """Return what each file below a folder is; of the ones that are as in `known`, nothing is read.

    Skips what `.gitignore` in that folder names, its `.ai`, and the folders of version control and package
    managers. Raises StoreError where there is too much of it.
    """
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  (only a project without a repository needs it)

    rules = (read_bounded(root / ".gitignore", MAX_REPORT_BYTES) or b"").decode(errors="replace")
    ignored = GitIgnoreSpec.from_lines(rules.splitlines()).match_file
    found: dict[str, Stamp] = {}
    folders, left = [""], _MOST_STAMPED
    while folders:
        for one in _entries(root, folders.pop()):
            path = os.path.relpath(one.path, root)
            if path == _OWN or (one.name in _KEPT_BY_TOOLS and one.name != _OWN) or ignored(path):
                continue
            if one.is_dir(follow_symlinks=False):
                folders.append(path)
                continue
            name = os.fsencode(path).decode("utf-8", "backslashreplace")
            found[name], size = _stamp(one.path, known.get(name))
            left -= size
            if left < 0 or len(found) > MAX_STAMPED:
                raise StoreError(f"{root} holds too much to be compared without git")
    return found


def _entries(root: Path, folder: str) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(root / folder) as entries:
        return list(islice(entries, MAX_STAMPED + 1))
    return []


def _stamp(path: str, known: Stamp | None) -> tuple[Stamp, int]:
    """Return what a file is, and how many bytes of it were read."""
    try:
        status = os.lstat(path)
        target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None
    except OSError:
        return Stamp((), "gone"), 0
    inode = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if known is not None and known.inode == inode:
        return known, 0
    if target is not None:
        return Stamp(inode, f"link {digest_of(os.fsencode(target))}"), 0
    body = read_bounded(Path(path), _MOST_OF_ONE) if status.st_size <= _MOST_OF_ONE else None
    said = f"{status.st_size} bytes" if body is None else digest_of(body)
    return Stamp(inode, f"x {said}" if status.st_mode & stat.S_IXUSR else said), len(body or b"")


def any_changed_since(root: Path, since_ns: int) -> bool:
    """Return whether anything in a project was written, made or removed at or after `since_ns`.

    Skips the folders of handoffd, version control and package managers, and stops after `MAX_LOOKS` entries.
    """
    left, folders = MAX_LOOKS, [str(root)]
    while folders:
        try:
            with os.scandir(folders.pop()) as found:
                entries = [one for one in islice(found, left) if one.name not in _KEPT_BY_TOOLS]
        except OSError:
            continue
        left -= len(entries)
        if any((_changed_at(one.path) or 0) >= since_ns - _TICK_NS for one in entries):
            return True
        folders += [one.path for one in entries if one.is_dir(follow_symlinks=False)]
    return False


def _spec(context: CheckContext, argv: tuple[str, ...], timeout_s: float, kept: int) -> RunSpec:
    return RunSpec(
        run_id=context.run_id,
        argv=argv,
        env=context.variables,
        cwd=str(context.root),
        project=str(context.project),
        stdin=None,
        output=str(context.run_dir / OUTPUT),
        deadline_s=timeout_s,
        ladder=_LADDER,
        head_bytes=kept,
        tail_bytes=kept,
        memory_max=context.memory_max,
        tasks_max=context.tasks_max,
        sandbox=context.sandbox(context, argv),
    )


def _reports_on_output(settings: TestSettings) -> bool:
    return settings.report in ("gotest", "tap", "cargo") and not any(
        "{report}" in word for word in settings.command or ()
    )


def _as_operand(file: str) -> str:
    """Return `file` in a form that no program can mistake for an option."""
    return f"./{file}" if file.startswith("-") else file


def _changed_at(path: str) -> int | None:
    try:
        return os.lstat(path).st_ctime_ns
    except (OSError, ValueError):
        return None


# --- names of runs -----------------------------------------------------------------------------------
Check = Literal["baseline", "tests", "rest", "second", "post"]

MAX_TRIES: Final = 3
"""How often one check is run before its missing result counts as a fault of the environment."""


def check_run(dispatch: str, check: Check) -> str:
    """Return the name of a check's run."""
    return f"{dispatch}.{check}"


def post_check_run(dispatch: str, name: str | None) -> str:
    """Return the name of the run of a step's post_check, or of the one called `name` of several."""
    return dotted(check_run(dispatch, "post"), name)


def tried_again(name: str, number: int) -> str:
    """Return the name of a check's run at its `number`-th try, from 1."""
    return name if number == 1 else f"{name}.{number}"


def runs_of(dispatch: str, post_checks: Iterable[str] = ()) -> tuple[str, ...]:
    """Return every name that a run of a dispatch may have, whether or not such a run exists.

    `post_checks` are the names of its step's, if it has several. Looking up each name costs the same
    however many runs there are; listing the folder of all runs does not.
    """
    named = (post_check_run(dispatch, name) for name in post_checks)
    checks = (*(check_run(dispatch, check) for check in get_args(Check)), *named)
    return (dispatch, *(tried_again(name, 1 + tries) for name in checks for tries in range(MAX_TRIES)))
