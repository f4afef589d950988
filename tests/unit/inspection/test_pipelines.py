"""Where pipelines are found, and which of several with one name counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoffd.errors import InvalidFile
from handoffd.inspection.pipelines import MOST_FILES, MOST_TOLD, all_loaded, file_at, loaded, pipelines_of
from handoffd.settings.paths import shared

TEXT = "language: 1\npipeline: {name}\ntasks:\n  build: {{run: make}}\n"
SHIPPED = sorted(path.stem for path in shared("config", "pipelines").glob("*.yaml"))


def add(folder: Path, name: str, text: str = TEXT) -> Path:
    """Write a pipeline into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(text.format(name=name), encoding="utf-8")
    return path


def test_the_shipped_ones_are_there_without_any_folder(tmp_path: Path) -> None:
    """In the order of their names."""
    found = pipelines_of(tmp_path / "none", None).found

    assert SHIPPED == list(found)
    assert {"shipped"} == {one.origin for one in found.values()}


def test_the_nearest_file_counts_and_knows_what_it_hides(tmp_path: Path) -> None:
    """Shipped, then the person's, then the project's."""
    mine, theirs = add(tmp_path / "own", "clean"), add(tmp_path / "shop/.ai/pipelines", "clean")

    found = pipelines_of(tmp_path / "own", tmp_path / "shop").found["clean"]

    assert ("project", ".ai/pipelines/clean.yaml", theirs.read_text()) == (
        found.origin,
        found.file,
        found.text,
    )
    assert [("shipped", ()), ("own", ())] == [(one.origin, one.hides) for one in found.hides]
    assert str(mine) == found.hides[1].file


def test_a_pipeline_may_start_one_from_another_folder(tmp_path: Path) -> None:
    """By the name that counts here."""
    add(tmp_path / "own", "nightly", TEXT + "  tidy: {{pipeline: clean}}\n")

    found = pipelines_of(tmp_path / "own", None).found

    assert {"clean"} == loaded(found["nightly"], found).others.keys()


def test_links_in_a_project_are_not_followed(tmp_path: Path) -> None:
    """Neither one in place of a file, nor one in place of the folder; a person's own may be links."""
    elsewhere, folder = add(tmp_path / "elsewhere", "secret"), tmp_path / "shop/.ai/pipelines"
    folder.mkdir(parents=True)
    (folder / "secret.yaml").symlink_to(elsewhere)

    found = pipelines_of(tmp_path / "none", tmp_path / "shop").found["secret"]

    assert "" == found.text
    with pytest.raises(InvalidFile, match=r"\.ai/pipelines/secret\.yaml: .*symbolic link"):
        loaded(found, {})
    (tmp_path / "other/.ai").mkdir(parents=True)
    (tmp_path / "other/.ai/pipelines").symlink_to(tmp_path / "elsewhere")
    other = pipelines_of(tmp_path / "none", tmp_path / "other")
    assert (SHIPPED, [".ai/pipelines"]) == (list(other.found), [one.file for one in other.passed_over])
    assert "symbolic link" in other.passed_over[0].message
    assert elsewhere.read_text() == pipelines_of(tmp_path / "elsewhere", None).found["secret"].text
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/secret.yaml").symlink_to(elsewhere)
    assert elsewhere.read_text() == pipelines_of(tmp_path / "mine", None).found["secret"].text


def test_a_folder_is_read_up_to_a_number_of_files(tmp_path: Path) -> None:
    """An agent may have written any number; only names that end in .yaml are read."""
    for number in range(MOST_FILES + 5):
        add(tmp_path / "shop/.ai/pipelines", f"p{number:04}")
    (tmp_path / "shop/.ai/pipelines/README.md").write_text("no pipeline", encoding="utf-8")
    os.mkfifo(tmp_path / "shop/.ai/pipelines/a-pipe.yaml")

    found = pipelines_of(tmp_path / "none", tmp_path / "shop").found

    ours = [one for one in found.values() if one.origin == "project"]
    mine = pipelines_of(tmp_path / "shop/.ai/pipelines", None).found.values()
    assert MOST_FILES - 1 == sum(one.origin == "own" for one in mine)  # the pipe is passed over
    assert MOST_FILES == len(ours)
    assert ("a-pipe", "") == (ours[0].name, ours[0].text)


def test_a_pipe_in_a_folder_of_the_person_is_passed_over(tmp_path: Path) -> None:
    """To read it would wait for ever."""
    os.mkfifo(tmp_path / "mine.yaml")

    assert SHIPPED == list(pipelines_of(tmp_path, None).found)


def test_a_file_that_is_named_is_read_or_refused(tmp_path: Path) -> None:
    """With the reason."""
    assert "docs" == file_at(str(add(tmp_path, "docs"))).name
    with pytest.raises(InvalidFile, match="cannot be read: Is a directory"):
        file_at(str(tmp_path))


def test_all_are_loaded_together(tmp_path: Path) -> None:
    """Each is as when it is loaded alone, and what cannot be read has that as its problem."""
    add(tmp_path / "own", "nightly", TEXT + "  tidy: {{pipeline: clean}}\n")
    add(tmp_path / "own", "broken", "{{}}")
    (tmp_path / "own/wrong.yaml").write_bytes(b"language: 1\n\xff")
    found = pipelines_of(tmp_path / "own", None).found
    plans = all_loaded(found)

    assert plans["nightly"] == loaded(found["nightly"], found)
    assert f"{tmp_path}/own/broken.yaml" in str(plans["broken"])
    assert f"{tmp_path}/own/wrong.yaml:2: is not UTF-8" == str(plans["wrong"])


def test_a_file_that_no_command_can_name_is_passed_over(tmp_path: Path) -> None:
    """With the reason, and only the first few of them: an agent may have written any number."""
    folder = tmp_path / "shop/.ai/pipelines"
    for name in ("a; touch OWNED.yaml", "--json.yaml", "night.yml", "NIGHT.YAML", "notes.md"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(TEXT.format(name="night"), encoding="utf-8")

    gathered = pipelines_of(tmp_path / "none", tmp_path / "shop")

    assert SHIPPED == list(gathered.found)
    told = {Path(one.file).name: one.message for one in gathered.passed_over}
    assert {"a; touch OWNED.yaml", "--json.yaml", "night.yml", "NIGHT.YAML"} == told.keys()
    assert "is not read: call it night.yaml" == told["night.yml"]
    assert told["--json.yaml"].startswith("is not read: pipelines have names of small letters")
    for number in range(MOST_TOLD):
        (folder / f"odd {number}.yaml").touch()
    assert "4 more files are not read either" == (
        pipelines_of(tmp_path / "none", tmp_path / "shop").passed_over[-1].message
    )


def test_a_pipe_or_a_device_that_is_named_is_refused(tmp_path: Path) -> None:
    """To open it could wait for ever, or never end."""
    os.mkfifo(tmp_path / "pipe.yaml")

    for path in (str(tmp_path / "pipe.yaml"), "/dev/zero"):
        with pytest.raises(InvalidFile, match="is a pipe or a device, no file"):
            file_at(path)


def test_trusted_files_are_read_before_all_others(tmp_path: Path) -> None:
    """An agent that adds many puts none out of reach; the folder is reported as too full."""
    folder = tmp_path / "shop/.ai/pipelines"
    trusted = add(folder, "zebra").read_text()
    for number in range(MOST_FILES):
        add(folder, f"a{number:03}")

    known = pipelines_of(tmp_path / "none", tmp_path / "shop", {".ai/pipelines/zebra.yaml": trusted})
    unknown = pipelines_of(tmp_path / "none", tmp_path / "shop")

    assert (True, False) == ("zebra" in known.found, "zebra" in unknown.found)
    assert known.found["zebra"].trusted
    told = ".ai/pipelines: has 201 pipelines, of which only 200 count, the trusted ones first: remove some"
    assert [told] == [str(one) for one in known.passed_over]
