"""Whether stories can work in clones: what a trial finds in real repositories; nothing stays of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.house import House, at, house, make_project
from tests.support.repositories import git, said
from tests.unit.project.living import living

from handoffd.engine.events import Initialised
from handoffd.engine.views import WorkspaceTrial
from handoffd.errors import InvalidFile, Refused
from handoffd.git.clones import Clones, clones_in
from handoffd.inspection.own_files import settings_of
from handoffd.project.project import Project
from handoffd.project.trial import FOR_TRIAL, Trials, finish_landings, placed

RUN = 'echo run >> "$HOME/runs"; '


def in_git(base: Path, command: str, files: Mapping[str, str] | None = None, settings: str = "") -> str:
    """Return the root of a project whose tests are a shell command, with committed files."""
    told = json.dumps(["sh", "-c", RUN + command])
    root = make_project(base, rules=None, settings=f"test:\n  command: {told}\n{settings}")
    for name, text in {".gitignore": "/.ai\nnode_modules\n.venv\n.env\n", **(files or {})}.items():
        at(root, name).parent.mkdir(parents=True, exist_ok=True)
        at(root, name).write_text(text)
    git(Path(root), "init", "--quiet", "--initial-branch", "main")
    git(Path(root), "add", "--all")
    assert 0 == git(Path(root), "commit", "--quiet", "-m", "first")
    return root


@asynccontextmanager
async def tried(base: Path, root: str, **options: float) -> AsyncIterator[tuple[House, Project, Trials]]:
    """Lend a project in the way of a verb without a daemon, and its trials."""
    async with house(base) as here:
        project = Project(root, here.services, ())
        await project.files.trust()
        await project.look()
        await project.main.give(Initialised(project="shop"))
        yield here, project, Trials(project, here.services, **options)
        project.dismiss()


async def found(base: Path, root: str) -> WorkspaceTrial:
    """Return what a trial finds, after a look at what it must leave as it was."""
    before = traces(root)
    async with tried(base, root) as (here, _, trials):
        trial = await trials.find_out(None)
        assert before == traces(root)
        assert () == clones_in(here.services.settings.state_dir)
        assert [] == list(here.services.settings.runs_dir.glob("*.trial*"))
    return trial


def traces(root: str) -> dict[str, object]:
    """Return all files of a project but for STATE.json, with its refs, index and HEAD."""
    files = (path for path in Path(root).rglob("*") if path.is_file() and ".git/objects" not in str(path))
    kept = {str(path): path.read_bytes() for path in files if path.name != "STATE.json"}
    refs = said(Path(root), "for-each-ref") if at(root, ".git").exists() else ""
    return {**kept, "refs": refs}


def runs(base: Path) -> int:
    """Return how often the tests ran."""
    return len((base / "runs").read_text().split()) if (base / "runs").exists() else 0


async def test_tests_that_pass_in_a_clone_fit(tmp_path: Path) -> None:
    """The clone has what is committed, and is gone afterwards; nothing in the project has changed."""
    root = in_git(tmp_path, 'test "$(cat kept)" = kept && test ! -e draft', {"kept": "kept\n"})
    at(root, "draft").write_text("not committed\n")
    at(root, "kept").write_text("changed\n")
    trial = await found(tmp_path, root)

    assert (True, True, (), None) == (trial.fits, trial.possible, trial.link, trial.why)
    assert trial.tried is not None
    assert trial.tried.evidence is not None
    assert 1 == runs(tmp_path)


# No node is needed: the package's runner is a script, as its package manager would install one.
RUNNER = "#!/bin/sh\ntest -e node_modules/dependency\n"


def with_packages(root: str) -> None:
    """Install packages as a manager for node does."""
    at(root, "node_modules/.bin").mkdir(parents=True)
    at(root, "node_modules/dependency").touch()
    at(root, "node_modules/.bin/runner").write_text(RUNNER)
    at(root, "node_modules/.bin/runner").chmod(0o755)


async def test_packages_that_the_tests_need_are_shared(tmp_path: Path) -> None:
    """Once the tests have failed without; what they do not need is not shared."""
    root = in_git(tmp_path, "exec node_modules/.bin/runner")
    with_packages(root)
    trial = await found(tmp_path, root)

    assert (True, ("node_modules",), 2) == (trial.fits, trial.link, runs(tmp_path))


async def test_packages_that_the_tests_do_without_are_not_shared(tmp_path: Path) -> None:
    """A link is one more thing that stories have in common."""
    root = in_git(tmp_path, "true")
    with_packages(root)
    trial = await found(tmp_path, root)

    assert (True, (), 1) == (trial.fits, trial.link, runs(tmp_path))


async def test_the_folder_of_the_tests_program_is_shared_at_once(tmp_path: Path) -> None:
    """Without it they could not even begin."""
    root = in_git(tmp_path, "")
    at(root, ".ai/handoffd.yaml").write_text("test: {command: [node_modules/.bin/runner]}\n")
    with_packages(root)
    trial = await found(tmp_path, root)

    assert (True, ("node_modules",)) == (trial.fits, trial.link)


async def test_packages_that_lead_to_the_project_are_not_shared(tmp_path: Path) -> None:
    """The members of an npm workspace are links into the folder: a clone would test their code there."""
    root = in_git(tmp_path, "exec node_modules/.bin/runner", {"packages/till/index.js": "\n"})
    with_packages(root)
    at(root, "node_modules/till").symlink_to("../packages/till")
    trial = await found(tmp_path, root)

    assert (False, True, ()) == (trial.fits, trial.possible, trial.link)
    assert f"{root}/node_modules/till leads to this folder" in str(trial.why)
    assert 1 == runs(tmp_path)


# --- pip install -e -----------------------------------------------------------------------------------
BACKEND = """\
import zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "shop-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        info = {"METADATA": "Metadata-Version: 2.1\\nName: shop\\nVersion: 1.0\\n", "RECORD": ""}
        info["WHEEL"] = "Wheel-Version: 1.0\\nGenerator: shop\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        for file, text in info.items():
            wheel.writestr(f"shop-1.0.dist-info/{file}", text)
        for file, text in INSTALLED.items():
            wheel.writestr(file, text)
    return name
"""
"""A build backend in the project's own tree, so that pip needs no index, and nothing else is installed."""

PATH_FILE = '{"_shop.pth": SRC}'
LOADER = '{"_loader.pth": "import _loader", "_loader.py": f"import sys; sys.path.insert(0, {SRC!r})"}'
"""Both ways of an editable installation: a path that Python reads, and code that makes one."""

PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "shop"
version = "1.0"
"""


def installed(base: Path, ways: str, command: str) -> str:
    """Return the root of a project that was installed by `pip install -e .` into its own environment."""
    backend = f"import os\nSRC = os.path.abspath('src')\nINSTALLED = {ways}\n{BACKEND}"
    code = {"src/shop/__init__.py": "", "check.py": "import shop\nprint(shop.__file__)\n"}
    root = in_git(base, command, {"pyproject.toml": PROJECT, "backend.py": backend, **code})
    environment = {"PATH": os.defpath, "HOME": str(base), "PIP_NO_INDEX": "1"}
    install = ("install", "--quiet", "--no-build-isolation", "--disable-pip-version-check", "-e", ".")
    for words in (
        ("-m", "venv", "--without-pip", ".venv"),
        ("-m", "pip", "--python", ".venv/bin/python", *install),
    ):
        subprocess.run([sys.executable, *words], cwd=root, env=environment, check=True, capture_output=True)
    at(root, "__pycache__/backend.pyc").parent.mkdir(exist_ok=True)
    return root


def imported_in_a_clone(base: Path, root: str) -> str:
    """Return the file whose code the tests of a clone would run if it shared the environment."""
    clone = base / "by-hand"
    assert 0 == git(base, "clone", "--quiet", root, str(clone))
    (clone / ".venv").symlink_to(at(root, ".venv"))
    ran = subprocess.run(
        [".venv/bin/python", "check.py"], cwd=clone, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


@pytest.mark.parametrize("ways", [PATH_FILE, LOADER])
async def test_an_editable_installation_is_no_ground_for_clones(tmp_path: Path, ways: str) -> None:
    """The tests of a clone would import the code of the project's folder; it is found before they run."""
    root = installed(tmp_path, ways, "exec .venv/bin/python check.py")
    at(root, ".ai/handoffd.yaml").write_text("test: {command: [.venv/bin/python, check.py]}\n")
    assert f"{root}/src/shop/__init__.py" == imported_in_a_clone(tmp_path, root)
    trial = await found(tmp_path, root)

    assert (False, False, None) == (trial.fits, trial.possible, trial.tried)
    assert "its tests in a clone would run the code of this folder" in str(trial.why)
    assert "workspace.setup" in str(trial.remedy)
    assert f"&& handoffd trust {root} && handoffd init {root} --workspace auto" in str(trial.command)


async def test_an_environment_that_the_tests_need_is_not_shared_if_it_leads_back(tmp_path: Path) -> None:
    """Where only their script knows about it, too."""
    root = installed(tmp_path, PATH_FILE, "exec .venv/bin/python check.py")
    trial = await found(tmp_path, root)

    assert (False, (), 1) == (trial.fits, trial.link, runs(tmp_path))
    assert ".venv/lib" in str(trial.why)
    assert "leads to this folder" in str(trial.why)


async def test_a_set_up_that_installs_into_the_clone_fits(tmp_path: Path) -> None:
    """What the remedy says: each clone has an environment of its own then."""
    root = installed(tmp_path, PATH_FILE, "exec .venv/bin/python check.py")
    lines = '[sh, -c, "mkdir -p .venv/bin && ln -s $(command -v python3) .venv/bin/python"]'
    text = (
        at(root, ".ai/handoffd.yaml")
        .read_text()
        .replace(".venv/bin/python", "env PYTHONPATH=src .venv/bin/python")
    )
    at(root, ".ai/handoffd.yaml").write_text(f"{text}workspace: {{setup: {lines}}}\n")
    trial = await found(tmp_path, root)

    assert (True, ()) == (trial.fits, trial.link), trial.why


# --- what does not fit --------------------------------------------------------------------------------
async def test_what_is_missing_in_a_clone_is_named(tmp_path: Path) -> None:
    """A file with settings is not shared without a person's word."""
    root = in_git(tmp_path, 'test -e .env || { echo "no .env"; exit 1; }')
    at(root, ".env").write_text("KEY=1\n")
    trial = await found(tmp_path, root)

    assert (False, True, ()) == (trial.fits, trial.possible, trial.link)
    assert "exit code 1 (no .env); what git does not have is not there: .env" in str(trial.why)
    assert "workspace.link" in str(trial.remedy)


def without_git(root: str) -> None:
    """Have no repository."""
    subprocess.run(["rm", "-rf", f"{root}/.git"], check=True)


def without_commit(root: str) -> None:
    """Have no commit."""
    git(Path(root), "update-ref", "-d", "HEAD")


def with_submodule(root: str) -> None:
    """Have a submodule."""
    git(
        Path(root),
        "update-index",
        "--add",
        "--cacheinfo",
        f"160000,{said(Path(root), 'rev-parse', 'HEAD')},lib",
    )
    assert 0 == git(Path(root), "commit", "--quiet", "-m", "lib")


def with_lfs(root: str) -> None:
    """Have contents that a filter makes."""
    at(root, ".gitattributes").write_text("*.bin filter=lfs\n")
    at(root, "large.bin").write_text("pointer\n")
    git(Path(root), "add", ".gitattributes", "large.bin")
    assert 0 == git(Path(root), "commit", "--quiet", "-m", "lfs")


def without_tests(root: str) -> None:
    """Have no test command."""
    at(root, ".ai/handoffd.yaml").write_text("auto: false\n")


@pytest.mark.parametrize(
    ("breaking", "possible", "why", "command"),
    [
        (without_git, False, "is in no git repository", "init"),
        (without_commit, False, "has no commit to begin at", "commit --allow-empty -m 'Begin'"),
        (with_submodule, False, "a clone would be without its submodules (lib)", None),
        (with_lfs, False, "git-lfs or another filter makes the contents of large.bin", None),
        (without_tests, True, "it has no test command to try one with", "# test.command"),
    ],
)
async def test_where_no_clone_can_be_tried_the_reason_is_told(
    tmp_path: Path, breaking: Callable[[str], None], possible: bool, why: str, command: str | None
) -> None:
    """And the command for it, if there is one."""
    root = in_git(tmp_path, "true")
    breaking(root)
    trial = await found(tmp_path, root)

    assert (False, possible, None, 0) == (trial.fits, trial.possible, trial.tried, runs(tmp_path))
    assert why in str(trial.why)
    assert (command is None) == (trial.command is None)
    assert str(trial.command).endswith(command or "")


@pytest.mark.parametrize(("broken", "possible"), [(False, True), (True, False)])
async def test_clones_without_tests_are_a_persons_choice(
    tmp_path: Path, broken: bool, possible: bool
) -> None:
    """One is made all the same: there may be none."""
    root = in_git(tmp_path, "true")
    without_tests(root)
    if broken:
        with_submodule(root)
    async with tried(tmp_path, root) as (here, project, trials):
        trial = await trials.find_out(None, insist=True)
        assert () == clones_in(here.services.settings.state_dir)
        chosen = await placed(project, "clone", trial)

    assert (possible, "clone" if possible else "root") == (trial.possible, chosen.kind)


@pytest.mark.parametrize(
    ("path", "fits"),
    [
        ("{root}/src/till.py", False), ("{root}", False), ("file://{root}/src", False),
        ("{root}-two/src", True), ("{root}/node_modules/x.js", True), ("/elsewhere{root}", True),
    ],
)  # fmt: skip
async def test_tests_that_name_files_of_the_project_may_run_its_code(
    tmp_path: Path, path: str, fits: bool
) -> None:
    """However they found these; what is shared may be named."""
    root = in_git(tmp_path, f"echo from {path.format(root=tmp_path / 'shop')}:1")
    trial = await found(tmp_path, root)

    assert (fits, True) == (trial.fits, trial.possible)
    assert fits or "names files of this folder" in str(trial.why)


async def test_tests_without_an_end_are_ended(tmp_path: Path) -> None:
    """A person can have clones all the same."""
    root = in_git(tmp_path, "sleep 600")
    async with tried(tmp_path, root, tests_s=0.5) as (here, _, trials):
        trial = await trials.find_out(None)
        assert () == clones_in(here.services.settings.state_dir)

    assert (False, True) == (trial.fits, trial.possible)
    assert "in a clone the tests did not end within" in str(trial.why)
    assert f"handoffd init {root} --workspace clone" == trial.command


async def test_a_set_up_runs_first_and_may_fail(tmp_path: Path) -> None:
    """Then no tests are run."""
    root = in_git(tmp_path, "test -e ready", settings="workspace: {setup: [touch, ready]}\n")
    assert (await found(tmp_path, root)).fits
    at(root, ".ai/handoffd.yaml").write_text(
        at(root, ".ai/handoffd.yaml").read_text().replace("touch, ready", "sh, -c, 'echo no mirror; exit 3'")
    )
    trial = await found(tmp_path, root)

    assert (False, True, 1) == (trial.fits, trial.possible, runs(tmp_path))
    assert "ended with exit code 3: no mirror" in str(trial.why)
    assert str(trial.command).startswith("less ")


# --- how it ends --------------------------------------------------------------------------------------
LONG = 'touch "$HOME/began"; sleep 600'


async def test_a_daemon_says_what_goes_on_and_ends_it_on_demand(tmp_path: Path) -> None:
    """Nothing stays: no process, no clone, no branch; the next trial is a new one."""
    root = in_git(tmp_path, f'test -e "$HOME/go" || {{ {LONG}; }}')
    async with house(tmp_path) as here, living(here, root) as project:
        await project.main.give(Initialised(project="shop"))
        trials, heard = Trials(project, here.services), list[str]()
        going = await trials.find_out(0, tell=heard.append)
        await eventually((tmp_path / "began").exists)
        assert going.doing is not None
        still = await trials.find_out(0, again=True)
        assert "running sh -c" in str(still.doing)
        assert ["making a clone", still.doing] == heard

        trials.stop()
        with pytest.raises(Refused, match="was ended"):
            await trials.find_out(None, again=True)
        assert () == clones_in(here.services.settings.state_dir)
        assert [] == [path.name for path in here.services.settings.runs_dir.iterdir()]
        (tmp_path / "go").touch()
        assert (await trials.find_out(None)).fits


async def test_what_a_kill_has_left_goes(tmp_path: Path) -> None:
    """With the next trial, and when a daemon starts."""
    root = in_git(tmp_path, "true")
    async with tried(tmp_path, root) as (here, _, trials):
        state_dir = here.services.settings.state_dir
        clones = Clones(root, state_dir, here.services.environment)
        for clean in (lambda: trials.find_out(None), lambda: finish_landings(here.services)):
            clones.make(f"{FOR_TRIAL}1", (), None, here.clock.now())
            await clean()
            assert () == clones_in(state_dir)
            assert "" == said(Path(root), "for-each-ref", "refs/handoffd")


# --- what follows -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("wanted", "trial", "kind"),
    [
        ("auto", WorkspaceTrial(fits=True, possible=True, link=("node_modules",)), "clone"),
        ("auto", WorkspaceTrial(possible=True, why="red"), "root"),
        ("clone", WorkspaceTrial(possible=True, why="red"), "clone"),
        ("clone", WorkspaceTrial(why="no git"), "root"),
        ("root", WorkspaceTrial(), "root"),
    ],
)
async def test_the_settings_say_what_was_chosen(
    tmp_path: Path, wanted: str, trial: WorkspaceTrial, kind: str
) -> None:
    """Trusted at once, and nothing else in the file is changed."""
    root = in_git(tmp_path, "true", settings="# mine\nauto_continue: true\n")
    text = at(root, ".ai/handoffd.yaml").read_text()
    async with tried(tmp_path, root) as (_, project, _):
        chosen = await placed(project, wanted, trial)
        await project.look()

        place = project.files.settings.workspace
        assert (kind, kind, trial.link) == (chosen.kind, place.kind, place.link)
        assert ((), place) == (project.files.held, settings_of(root).workspace)
        written = at(root, ".ai/handoffd.yaml").read_text()
        assert written.startswith(text)
        assert (kind == "root") == (written == text)
        back = await placed(project, "root", WorkspaceTrial())
        assert ("root", "root") == (back.kind, project.files.settings.workspace.kind)


async def test_nothing_is_written_beside_an_edit_that_waits(tmp_path: Path) -> None:
    """It may be an agent's: with a person's choice it would be trusted, too."""
    root = in_git(tmp_path, "true")
    async with tried(tmp_path, root) as (_, project, _):
        text = at(root, ".ai/handoffd.yaml").read_text() + "commit: story\nenv: [TOKEN]\n"
        at(root, ".ai/handoffd.yaml").write_text(text)
        with pytest.raises(Refused) as refused:
            await placed(project, "clone", WorkspaceTrial(possible=True))

        assert ("HELD", f"handoffd trust {root}") == (refused.value.code, refused.value.hint)
        assert text == at(root, ".ai/handoffd.yaml").read_text()


async def test_settings_that_cannot_be_read_are_left_alone(tmp_path: Path) -> None:
    """The error is about these."""
    root = in_git(tmp_path, "true")
    async with tried(tmp_path, root) as (_, project, _):
        at(root, ".ai/handoffd.yaml").write_text("test: {comand: [make]}\n")
        with pytest.raises(InvalidFile, match="comand"):
            await placed(project, "clone", WorkspaceTrial(possible=True))


async def test_settings_of_another_form_are_left_to_a_person(tmp_path: Path) -> None:
    """As JSON, in which a line more would be an error."""
    root = in_git(tmp_path, "true")
    at(root, ".ai/handoffd.yaml").write_text('{"auto": false}\n')
    async with tried(tmp_path, root) as (_, project, _):
        with pytest.raises(Refused, match="write it there") as refused:
            await placed(project, "clone", WorkspaceTrial(possible=True))

    assert ("NOT_WRITTEN", '{"auto": false}\n') == (
        refused.value.code, at(root, ".ai/handoffd.yaml").read_text(),
    )  # fmt: skip
