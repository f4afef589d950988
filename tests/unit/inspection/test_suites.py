"""Which tests a project has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoffd.inspection.suites import MOST_FOLDERS, Suites, command_for_all, find_suites


def laid_out(root: Path, files: dict[str, str]) -> Suites:
    """Return what is found in a project with these files; a name that ends in / is a folder."""
    for name, text in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return find_suites(root)


def typed(found: Suites) -> str | None:
    """Return what a person would type for the tests that are proposed."""
    return None if found.chosen is None else " ".join(found.chosen.typed)


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"pyproject.toml": "", "tests/": ""}, "python3 -m pytest"),
        ({"pytest.ini": "", ".venv/": ""}, ".venv/bin/python -m pytest"),
        ({"setup.py": "", "test/": "", "venv/": ""}, "venv/bin/python -m pytest"),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest"),
        ({"tests/test_a.py": ""}, "python3 -m pytest"),
        ({"shop_test.py": ""}, "python3 -m pytest"),
        ({"go.mod": "", "pyproject.toml": "", "tests/": ""}, "go test ./..."),
        ({"go.mod": "", "test_a.py": ""}, "go test ./..."),
        (
            {"go.work": "go 1.22\nuse (\n\t./api // the server\n\tcmd/tool\n)\n"},
            "go test ./api/... ./cmd/tool/...",
        ),
        ({"go.work": 'use "./one"\nuse ./two\nuse ../out\nuse /etc\n'}, "go test ./one/... ./two/..."),
        ({"Cargo.toml": "[package]\nname = 'x'\n"}, "cargo test"),
        ({"Cargo.toml": "[workspace]\nmembers = ['a']\n"}, "cargo test --workspace"),
        ({"pom.xml": "<project/>"}, "mvn --batch-mode test"),
        ({"build.gradle.kts": ""}, "gradle --no-daemon --console=plain test"),
        ({"Makefile": "all:\n\ttrue\n\nlint test: all\n\ttrue\n"}, "make test"),
        ({"makefile": "check::\n\ttrue\n"}, "make check"),
        ({"Makefile": "check:\ntest: a \\\n b\n"}, "make test"),
        ({"package.json": '{"scripts": {"test": "jest"}}', "Makefile": "test:\n"}, "npm test"),
    ],
)
def test_the_root_says_how_it_is_tested(tmp_path: Path, files: dict[str, str], command: str) -> None:
    """By its manifests, and by what they say."""
    assert command == typed(laid_out(tmp_path, files))


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"pyproject.toml": "[tool.ruff]\n", "contest_a.py": "", "test.txt": ""},
        {"pyproject.toml": "[tool.pytest\n"},
        {"pyproject.toml": "tool = 5\n"},
        {"go.work": "use (\n"},
        {"Cargo.toml": "package"},
        {"Cargo.toml": "[dependencies]\n"},
        {"Makefile": ".PHONY: test\nall:\n\tmake test: x\n"},
        {"Makefile": "test := 1\ntest ?= 2\ntest ::= 3\n# test:\nlatest:\ntests:\n"},
        {"package.json": "{}"},
    ],
)
def test_what_says_nothing_of_tests_proposes_none(tmp_path: Path, files: dict[str, str]) -> None:
    """A wrong command is worse than none; a manifest that is broken is its owner's business."""
    assert Suites() == laid_out(tmp_path, files)


@pytest.mark.parametrize(("wrapper", "manifest"), [("mvnw", "pom.xml"), ("gradlew", "settings.gradle")])
def test_a_wrapper_is_preferred_if_it_can_be_run(tmp_path: Path, wrapper: str, manifest: str) -> None:
    """It brings the version that the project wants."""
    found = laid_out(tmp_path, {manifest: "", wrapper: "#!/bin/sh\n"})
    assert not (typed(found) or "").startswith("./")

    (tmp_path / wrapper).chmod(0o755)

    assert (typed(find_suites(tmp_path)) or "").startswith(f"./{wrapper} ")


def test_pytest_is_run_so_that_files_can_be_left_out(tmp_path: Path) -> None:
    """What a red step needs is in it: the report, going on after load errors, exclusion."""
    found = laid_out(tmp_path, {"conftest.py": ""}).chosen

    assert found is not None
    assert {"--junitxml={report}", "--continue-on-collection-errors"} <= set(found.settings.command or ())
    assert ("junit", "--ignore={file}") == (found.settings.report, found.settings.exclude_argument)


@pytest.mark.parametrize(
    ("files", "report"),
    [
        ({"go.mod": ""}, "gotest"),
        ({"Cargo.toml": "[package]"}, "cargo"),
        ({"pom.xml": ""}, "exit"),
        ({"build.gradle": ""}, "exit"),
        ({"Makefile": "test:"}, "exit"),
    ],
)
def test_counts_are_read_where_the_runner_tells_them(
    tmp_path: Path, files: dict[str, str], report: str
) -> None:
    """Elsewhere the exit code alone."""
    found = laid_out(tmp_path, files).chosen

    assert found is not None
    assert report == found.settings.report


def test_several_languages_are_all_found(tmp_path: Path) -> None:
    """One is proposed, the others are named; the Makefile mostly runs what was found."""
    found = laid_out(
        tmp_path,
        {"Cargo.toml": "[package]", "package.json": '{"scripts": {"test": "jest"}}', "Makefile": "test:"},
    )

    assert ("npm test", [("cargo", "test")]) == (typed(found), [one.typed for one in found.others])


def test_tests_below_the_root_are_named_by_their_folders(tmp_path: Path) -> None:
    """Two levels deep, none inside of another, and not in what a tool has put there."""
    found = laid_out(
        tmp_path,
        {
            "web/package.json": '{"scripts": {"test": "vitest"}}',
            "web/inner/conftest.py": "",
            "services/a b/go.mod": "",
            "services/deep/er/go.mod": "",
            "node_modules/x/package.json": '{"scripts": {"test": "jest"}}',
            ".hidden/go.mod": "",
        },
    )

    assert found.chosen is None
    assert ["web", "services/a b"] == [one.folder for one in found.others]
    command = command_for_all(found.others)
    assert ("sh", "-c", "(cd web && npm test) && (cd 'services/a b' && go test ./...)") == command


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """Pipes, links and folders in place of manifests; a folder that links back; one without end."""
    os.mkfifo(tmp_path / "package.json")
    os.mkfifo(tmp_path / "Makefile")
    (tmp_path / "Cargo.toml").symlink_to("/dev/zero")
    (tmp_path / "go.work").mkdir()
    (tmp_path / "pyproject.toml").write_bytes(b"[" * 500_000)
    (tmp_path / "round").symlink_to(".")

    assert Suites() == find_suites(tmp_path)


def test_a_manifest_that_is_too_long_is_passed_over(tmp_path: Path) -> None:
    """Nobody writes a megabyte of them by hand."""
    long = '{"scripts": {"test": "jest"}, "x": "' + "x" * 1024 * 1024 + '"}'

    assert Suites() == laid_out(tmp_path, {"package.json": long, "Makefile": "test:\n" + "#" * 1024 * 1024})


def test_a_look_below_the_root_ends(tmp_path: Path) -> None:
    """Of thousands of folders the first by name are looked at."""
    for number in range(MOST_FOLDERS + 5):
        (tmp_path / f"d{number:04}").mkdir()
    (tmp_path / f"d{MOST_FOLDERS + 4:04}/go.mod").touch()

    assert Suites() == find_suites(tmp_path)


def test_a_root_that_cannot_be_listed_has_none(tmp_path: Path) -> None:
    """What else is wrong with it is told elsewhere."""
    assert Suites() == find_suites(tmp_path / "gone")
