"""The copy that a rehearsal works on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoffd.cli.story.copies import copy_project, own_settings, sandbox_here, skip_tests
from handoffd.doctor.machine import SandboxFacts
from handoffd.errors import HandoffdError, StoreError
from handoffd.rehearsal.sample import create
from handoffd.settings.loading import load_project
from handoffd.settings.model import ProjectSettings, SandboxSettings, Settings


def settings_of(project: Path) -> ProjectSettings:
    """Return the settings of a project."""
    return load_project((project / ".ai/handoffd.yaml").read_text(), "handoffd.yaml")


def test_a_copy_has_the_settings_but_no_story_in_flight(tmp_path: Path) -> None:
    """What belongs to a run is left out; of the settings only the executor changes."""
    project = create(tmp_path / "shop")
    (project / ".ai/handoffd.yaml").write_text("# ours\nexecutor: claude\nlanguage: zh-TW\n")
    (project / ".ai/STATE.json").write_text("{}")
    (project / ".ai/runs").mkdir()
    copy = tmp_path / "copy"

    copy_project(project, copy, '{"impl": "crash"}')

    assert (False, False) == ((copy / ".ai/STATE.json").exists(), (copy / ".ai/runs").exists())
    assert "executor: rehearsal\nlanguage: zh-TW\n" == (copy / ".ai/handoffd.yaml").read_text()
    assert '{"impl": "crash"}' == (copy / ".ai/rehearsal.json").read_text()


def test_a_project_that_was_never_initialised_is_measured_too(tmp_path: Path) -> None:
    """The copy is initialised first, so its tests are found; the project itself gets no settings."""
    project = create(tmp_path / "shop", settings=False)

    copy_project(project, tmp_path / "copy", None)

    found = settings_of(tmp_path / "copy")
    assert ("rehearsal", "junit") == (found.executor, found.test.report)
    assert "pytest" in (found.test.command or ())
    assert not (project / ".ai").exists()


def test_tests_that_the_rehearsal_cannot_add_to_are_not_measured(tmp_path: Path) -> None:
    """Else no step that must add failing ones would pass; the other settings stay."""
    for name, text in {
        "java": "test: {command: [mvn, test]}\nlanguage: zh-TW\n",
        "notes": "language: en\n",
        "shop": "test: {command: [python3, -m, pytest]}\n",
    }.items():
        (tmp_path / name / ".ai").mkdir(parents=True)
        (tmp_path / name / ".ai/handoffd.yaml").write_text(text)
        copy_project(tmp_path / name, tmp_path / f"copy of {name}", None)

    why = {name: skip_tests(tmp_path / f"copy of {name}", "US-001") for name in ("java", "notes", "shop")}

    assert why["java"] is not None
    assert "this project's are run with mvn" in why["java"]
    assert (None, None) == (why["notes"], why["shop"])
    assert (None, "zh-TW") == (
        settings_of(tmp_path / "copy of java").test.command, settings_of(tmp_path / "copy of java").language
    )  # fmt: skip
    assert settings_of(tmp_path / "copy of shop").test.command


def test_pipes_and_sockets_are_left_out(tmp_path: Path) -> None:
    """Reading one would wait for ever; links are copied as links."""
    project = create(tmp_path / "shop")
    os.mkfifo(project / "pipe")
    os.mkfifo(project / "docs/pipe")
    (project / "link").symlink_to("nowhere")

    copy_project(project, tmp_path / "copy", None)

    copy = tmp_path / "copy"
    assert (False, False) == ((copy / "pipe").exists(), (copy / "docs/pipe").exists())
    assert (copy / "link").is_symlink()


def test_a_copy_inside_the_project_is_not_copied_itself(tmp_path: Path) -> None:
    """`rehearse /tmp` would never end."""
    (tmp_path / "file").touch()
    (tmp_path / "base").mkdir()

    copy_project(tmp_path, tmp_path / "base/copy", None)

    assert (tmp_path / "base/copy/file").exists()
    assert not (tmp_path / "base/copy/base").exists()


def test_what_cannot_be_copied_is_named(tmp_path: Path) -> None:
    """The next command shows it. Here the copy's paths are too long."""
    project = tmp_path / "shop"
    folder = project
    while len(str(folder)) < 3500:
        folder /= "d" * 200
    folder.mkdir(parents=True)
    (folder / "file").touch()

    with pytest.raises(HandoffdError) as caught:
        copy_project(project, tmp_path / ("c" * 255) / ("c" * 255) / ("c" * 255), None)

    assert "NOT_COPIED" == caught.value.code
    assert caught.value.message.startswith(f"{project} cannot be copied: {project}/ddd")
    assert (caught.value.hint or "").startswith(f"ls -ld {project}/ddd")


def test_a_copy_that_cannot_begin_is_an_error_too(tmp_path: Path) -> None:
    """With the system's reason, before any single file."""
    (tmp_path / "file").touch()

    with pytest.raises(HandoffdError) as caught:
        copy_project(create(tmp_path / "shop"), tmp_path / "file/copy", None)

    assert "Not a directory" in caught.value.message


def test_a_link_that_leads_back_is_not_written_through(tmp_path: Path) -> None:
    """The copy of a link is a link: writing settings would change the project itself."""
    project = create(tmp_path / "shop", settings=False)
    (tmp_path / "elsewhere").mkdir()
    (project / ".ai").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StoreError):
        copy_project(project, tmp_path / "copy", None)

    assert [] == list((tmp_path / "elsewhere").iterdir())


def test_a_rehearsal_takes_over_the_routes_of_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the groups that they name."""
    file = tmp_path / "handoffd/handoffd.yaml"
    file.parent.mkdir()
    file.write_text(
        "scheduling: {groups: {night: {priority: -5, projects: [/srv/big]}}}\n"
        'notify: {routes: [{projects: ["group:night"], to: []}]}\n',
        encoding="utf-8",
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("HANDOFFD_CONFIG", raising=False)

    taken = Settings.model_validate(own_settings() | {"state_dir": tmp_path, "runtime_dir": tmp_path})

    assert ["night"] == list(taken.scheduling.groups)
    assert [("group:night",)] == [route.projects for route in taken.notify.routes]


def test_the_script_works_without_a_sandbox_where_none_can_be_made(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An agent would not start there; what plays it here is ours."""
    wanted = SandboxSettings(network="none", visible=("/srv/tools",))

    made = sandbox_here(wanted, lambda settings: SandboxFacts(settings=settings, holds="strict"))
    forbidden = sandbox_here(wanted, lambda settings: SandboxFacts(settings=settings, why="EPERM"))

    assert wanted == SandboxSettings.model_validate(made)
    assert {"level": "off"} == forbidden
    assert 1 == capsys.readouterr().err.count("This system forbids the sandbox")
