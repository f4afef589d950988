"""Programs that a step table starts after a step are looked up where the daemon would look."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.doctor.executors import check_post_checks, programs_of
from handoffd.protocol.yamltext import load
from handoffd.settings.paths import shared


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("eslint . && tsc --noEmit && npx playwright test --project=ct", ("eslint", "tsc", "npx")),
        ("go vet ./... && golangci-lint run", ("go", "golangci-lint")),
        ("CI=1 npm test; npm run lint | tee out.txt 2>&1 >all", ("npm", "tee")),
        ("cd web && ./gradlew check || exit 1", ()),
        ("if ! ruff check; then mypy; fi", ("ruff", "mypy")),
        ("(ruff check &)\nmypy .", ("ruff", "mypy")),
        ("echo 'a && b' \"; c\"", ("echo",)),
        (". .venv/bin/activate && pytest", ()),
        ("ruff check && PATH=node_modules/.bin:$PATH eslint", ("ruff",)),
        ("ruff check && export PATH=/x && eslint", ("ruff",)),
        ("$TOOL run && `which x`", ()),
        ("echo 'never ends", ()),
        ("", ()),
    ],
)
def test_the_programs_of_a_command_are_those_that_a_shell_looks_up(
    command: str, programs: tuple[str, ...]
) -> None:
    """Where the text does not tell, none is named."""
    assert programs == programs_of(command)


def test_each_of_several_checks_is_looked_at(tmp_path: Path) -> None:
    """It is named as in `status`: by its step, and its own name."""
    (found,) = check_post_checks(
        {str(tmp_path): {"impl.lint": "gone-linter .", "impl.fine": "cd ."}}, "/nowhere"
    )

    assert "gone-linter is not in the daemon's PATH" == found.what
    assert f"the post_check of impl.lint in {tmp_path} starts it" in (found.why or "")


def test_each_shipped_preset_is_understood() -> None:
    """Each of their checks starts something."""
    files = sorted(shared("config", "presets").glob("*.yaml"))
    steps = [
        step for file in files for step in (load(file.read_text(), str(file)).data or {})["steps"].values()
    ]
    commands = [step["post_check"] for step in steps if "post_check" in step]

    assert commands
    assert all(programs_of(command) for command in commands)


def test_what_is_missing_is_a_fault_with_its_steps_and_the_file_to_edit(tmp_path: Path) -> None:
    """A program of node_modules is not on the PATH: npx starts it."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tsc").write_text("#!/bin/sh\n")
    (tmp_path / "bin/tsc").chmod(0o755)
    (tmp_path / "node_modules/.bin").mkdir(parents=True)
    (tmp_path / "node_modules/.bin/eslint").touch()
    root, path = str(tmp_path), str(tmp_path / "bin")
    steps = {"impl": "eslint . && tsc --noEmit", "verify": "eslint . && golangci-lint run"}

    eslint, golangci = check_post_checks({root: steps}, path)

    assert ("fault", "eslint is not in the daemon's PATH") == (eslint.severity, eslint.what)
    why = f"the post_check of impl and verify in {root} starts it, so each attempt fails"
    assert f"{why}; it gets the PATH {path}" == eslint.why
    edit = f"${{EDITOR:-vi}} {root}/.ai/step-rules.yaml && handoffd trust {root}  # post_check: "
    assert f"{edit}npx eslint, as node_modules has it" == eslint.action
    assert f"{edit}another command, or install golangci-lint" == golangci.action
    assert () == check_post_checks({root: {"impl": "tsc --noEmit"}}, path)
