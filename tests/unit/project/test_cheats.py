"""Agents that would rather change the proof than the program: each is caught, and its error names the change.

Every cheat is played by a real agent in a whole story with real runners, and would have passed if nothing but
the exit code and the number of failures counted. docs/security.md lists them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.sandboxes import is_possible
from tests.unit.project.cheating import IN_JAVASCRIPT, IN_PYTHON, Stage, plain_python
from tests.unit.project.cheats import (
    ENVIRONMENT,
    FAIL,
    HONEST,
    HOOK,
    IN_THE_WORKSPACE,
    INSTALLED,
    MISSING,
    NODE,
    PLANTED,
    RUNNER,
    SOLVE,
    TESTS,
)


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with pytest and without its plugins."""
    return plain_python(tmp_path_factory.mktemp("python") / "env")


@pytest.fixture
def stage(tmp_path: Path, python: str) -> Stage:
    """Where a story is played."""
    return Stage(base=tmp_path, python=python)


@pytest.mark.parametrize("name", [*TESTS, *RUNNER, *PLANTED])
async def test_a_cheat_does_not_pass(stage: Stage, name: str) -> None:
    """The attempt fails, and the error says what was changed or what is missing."""
    script, said = (TESTS | RUNNER | PLANTED)[name]

    played = await stage.play(script)

    assert ("impl", "needs_human") == (played.step, played.status)
    assert said in played.error


# --- a virtual environment in the workspace -----------------------------------------------------------
@pytest.mark.parametrize("name", INSTALLED)
async def test_what_is_planted_in_an_environment_of_the_workspace_is_found(stage: Stage, name: str) -> None:
    """It is the agent's to write, and not in git."""
    script, said = INSTALLED[name]

    played = await stage.play(script, IN_THE_WORKSPACE, prepare=ENVIRONMENT)

    assert ("impl", "needs_human") == (played.step, played.status)
    assert said in played.error


# --- node ---------------------------------------------------------------------------------------------
needs_node = pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="node is not here")


@needs_node
@pytest.mark.parametrize("name", NODE)
async def test_a_cheat_of_node_tests_does_not_pass(stage: Stage, name: str) -> None:
    """The same families, under npm."""
    script, said = NODE[name]

    played = await stage.play(script, IN_JAVASCRIPT)

    assert ("impl", "needs_human") == (played.step, played.status)
    assert said in played.error


# --- honest work --------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", HONEST)
async def test_honest_work_passes(stage: Stage, name: str) -> None:
    """Whatever else it changes; where tests are among that, the second run shows the same."""
    script, said = HONEST[name]

    played = await stage.play(SOLVE + script)

    assert ("done", "pass") == (played.step, played.status), played.error
    assert said == played.verdicts["impl"]


async def test_a_person_may_allow_a_change_of_tests(stage: Stage) -> None:
    """Whose files are left out of what is compared."""
    played = await stage.play(
        f"{SOLVE}printf 'import cart\ncart.total = sum\n' > conftest.py", allow_test_changes=["conftest.py"]
    )
    assert ("done", "4 tests pass") == (played.step, played.verdicts["impl"])


BROKEN = replace(IN_PYTHON, files={**IN_PYTHON.files, "cart.py": "", "other.py": ""})
"""Its tests cannot be loaded when they are red: no id of them is known then."""


@pytest.mark.parametrize(
    ("script", "end", "said"),
    [
        (SOLVE, "done", "4 tests pass"),
        ("rm tests/test_cart.py", "impl", "tests/test_cart.py has no test that ran"),
        (f"{SOLVE}sed -i 's/\\[4, 5\\]/[5]/' tests/test_cart.py", "impl", "test_one[4] is missing"),
        (
            f"{SOLVE}sed -i 's/^def test_sum/@pytest.mark.skip\\n&/' tests/test_cart.py", "impl",
            "tests.test_cart::test_sum is skipped",
        ),
        ("sed -i 's/from cart.*/total = sum/' tests/test_cart.py", "impl", "fails: tests/test_cart.py"),
    ],
)  # fmt: skip
async def test_tests_that_could_not_be_loaded_are_held_by_their_file(
    stage: Stage, script: str, end: str, said: str
) -> None:
    """What is collected from it as the red step left it must run and pass in both runs."""
    played = await stage.play(script, BROKEN)

    assert end == played.step
    assert said in (played.error or played.verdicts["impl"])


@pytest.mark.parametrize("level", ["off", "landlock"])
async def test_without_a_view_of_its_own_the_second_run_is_elsewhere(stage: Stage, level: str) -> None:
    """And shows the same."""
    if level == "landlock" and not is_possible():
        pytest.skip("no sandbox here")
    cheat = "sed -i 's/assert total.*/assert True/' tests/test_cart.py"
    played = await stage.play(cheat, sandbox={"level": level})
    assert f"with the red step's versions of tests/test_cart.py, {FAIL}" in played.error


async def test_in_a_clone_the_same_is_held(stage: Stage) -> None:
    """The whole clone is the workspace then."""
    played = await stage.play(HOOK, workspace="clone")
    assert f"with the red step's versions of conftest.py, {FAIL}" in played.error


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (f"{SOLVE}touch conftest.py", "4 tests pass; not with the red step's test files: "),
        ("rm tests/test_cart.py", f"tests_changed: 3 {MISSING}"),
        ("sed -i 's/^def test/@pytest.mark.skip\\n&/' tests/test_cart.py", "test_sum is skipped"),
    ],
)
async def test_without_git_the_tests_that_were_red_must_pass(stage: Stage, script: str, said: str) -> None:
    """There is no second run, and the verdict says that."""
    played = await stage.play(script, repository=False)
    assert said in (played.error or played.verdicts["impl"])
