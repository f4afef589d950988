"""Agents that would rather change the proof than the program: each is caught, and its error names the change.

Every cheat is played by a real agent in a whole story with real runners, and would have passed if nothing but
the exit code and the number of failures counted. docs/security.md lists them. `make test` plays a third of
them, `make whole` the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support import javascript
from tests.support.sandboxes import is_possible
from tests.unit.project import honest_work
from tests.unit.project.cheating import (
    IN_GO,
    IN_JAVASCRIPT,
    IN_PYTHON,
    Language,
    Stage,
    plain_python,
    prepare_go,
)
from tests.unit.project.cheats import (
    ENVIRONMENT,
    FAIL,
    FORGE,
    GO,
    HOOK,
    IN_MAKE,
    IN_THE_WORKSPACE,
    INSTALLED,
    LEAVING,
    MAKE,
    MISSING,
    NODE,
    NODE_ITSELF,
    PLANTED,
    PROJECTS,
    RUNNER,
    SOLVE,
    TESTS,
    WITHOUT_NPM,
)
from tests.unit.project.hidden_cheats import HIDDEN, IN_ENVIRONMENT, PATCHED, PIP, WITH_TARGET


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with pytest and without its plugins."""
    return plain_python(tmp_path_factory.mktemp("python") / "env")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What go's tests need of the standard library."""
    prepare_go(tmp_path_factory.mktemp("go"))


@pytest.fixture
def go_stage(stage: Stage, compiled: None) -> Stage:
    """Where a story is played in go."""
    return stage


@pytest.fixture
def node_stage(stage: Stage) -> Stage:
    """Where a story is played in JavaScript."""
    javascript.laid_out()
    return stage


@pytest.fixture
def stage(tmp_path: Path, python: str) -> Stage:
    """Where a story is played."""
    return Stage(base=tmp_path, python=python)


async def is_caught(stage: Stage, language: Language, cheat: tuple[str, str], prepare: str = "") -> None:
    """See that an attempt fails, and that its error says what was changed or what is missing."""
    script, said = cheat

    played = await stage.play(script, language, prepare=prepare)

    assert ("impl", "needs_human") == (played.step, played.status)
    assert said in played.error


def some(names: Iterable[str]) -> list[Any]:
    """Return the names, all but the first of each three for `make whole` only."""
    return [pytest.param(name, marks=[pytest.mark.whole] * (at % 3 > 0)) for at, name in enumerate(names)]


@pytest.mark.parametrize("name", some([*TESTS, *RUNNER, *PLANTED]))
async def test_a_cheat_does_not_pass(stage: Stage, name: str) -> None:
    """Whatever of pytest's it turns to."""
    await is_caught(stage, IN_PYTHON, (TESTS | RUNNER | PLANTED)[name])


# --- a virtual environment in the workspace -----------------------------------------------------------
@pytest.mark.parametrize("name", some(INSTALLED))
async def test_what_is_planted_in_an_environment_of_the_workspace_is_found(stage: Stage, name: str) -> None:
    """It is the agent's to write, and not in git."""
    await is_caught(stage, IN_THE_WORKSPACE, INSTALLED[name], ENVIRONMENT)


@pytest.mark.parametrize("name", IN_ENVIRONMENT)
async def test_what_hides_beside_the_runner_is_found(stage: Stage, name: str) -> None:
    """New packages may come; new files inside of the runner's may not."""
    language, script, said = IN_ENVIRONMENT[name]
    await is_caught(stage, language, (script, said), ENVIRONMENT)


async def test_a_runner_in_a_folder_of_packages_is_compared(stage: Stage) -> None:
    """As `pip install --target` leaves it."""
    said = "tests_changed: the test runner itself: .deps/_pytest/reports.py"
    await is_caught(stage, WITH_TARGET, (PATCHED, said), PIP)


# --- node, go, make -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", some(NODE))
async def test_a_cheat_of_npm_test_does_not_pass(node_stage: Stage, name: str) -> None:
    """The same families, under npm."""
    await is_caught(node_stage, IN_JAVASCRIPT, NODE[name])


@pytest.mark.parametrize("name", NODE_ITSELF)
async def test_a_cheat_of_node_does_not_pass(node_stage: Stage, name: str) -> None:
    """Without npm, and with a folder of the workspace on PATH."""
    await is_caught(node_stage, WITHOUT_NPM, NODE_ITSELF[name])


@pytest.mark.parametrize("name", some(GO))
async def test_a_cheat_of_go_test_does_not_pass(go_stage: Stage, name: str) -> None:
    """Its tests are beside the program."""
    await is_caught(go_stage, IN_GO, GO[name])


@pytest.mark.parametrize("name", MAKE)
async def test_a_cheat_of_make_does_not_pass(stage: Stage, name: str) -> None:
    """Only an exit code is known of these tests."""
    await is_caught(stage, IN_MAKE, MAKE[name])


@pytest.mark.parametrize("name", some([*PROJECTS, *HIDDEN]))
async def test_a_cheat_does_not_pass_in_other_projects(
    stage: Stage, request: pytest.FixtureRequest, name: str
) -> None:
    """Where tests had no ids when they were red, or an old program is broken."""
    language, script, said = (PROJECTS | HIDDEN)[name]
    beside = {"tap": "node_stage", "gotest": "go_stage"}
    if language.report in beside:
        request.getfixturevalue(beside[language.report])
    await is_caught(stage, language, (script, said))


async def test_tests_in_a_folder_beside_the_code_are_the_red_steps_too(stage: Stage) -> None:
    """With all that is there: what the tests call may assert nothing any more."""
    checks = "def same(one, other):\n    assert one == other\n"
    tests = "from shop.tests.checks import same\nfrom cart import total\ndef test(): same(total([1]), 1)\n"
    language = replace(
        IN_PYTHON,
        files={**IN_PYTHON.files, "shop/__init__.py": "", "shop/tests/__init__.py": ""},
        red={"shop/tests/test_cart.py": tests, "shop/tests/checks.py": checks},
    )
    said = "with the red step's versions of shop/tests/checks.py, 1 test fails"
    await is_caught(stage, language, ("sed -i 's/assert.*/pass/' shop/tests/checks.py", said))


# --- honest work --------------------------------------------------------------------------------------
async def passes(stage: Stage, work: tuple[Language, str, str]) -> None:
    """See that a story ends, with the verdict that is given."""
    language, script, said = work

    played = await stage.play(SOLVE + script, language)

    assert ("done", "pass") == (played.step, played.status), played.error
    assert said == played.verdicts["impl"]


@pytest.mark.parametrize("name", some(honest_work.PYTEST))
async def test_honest_work_passes(stage: Stage, name: str) -> None:
    """Whatever else it changes; where tests are among that, the second run shows the same."""
    await passes(stage, honest_work.PYTEST[name])


@pytest.mark.parametrize("name", some(honest_work.NODE))
async def test_honest_work_with_node_passes(node_stage: Stage, name: str) -> None:
    """A package.json may change in all but what it says about its tests."""
    await passes(node_stage, honest_work.NODE[name])


@pytest.mark.parametrize("name", some(honest_work.GO))
async def test_honest_work_with_go_passes(go_stage: Stage, name: str) -> None:
    """Also where its tests have other packages."""
    await passes(go_stage, honest_work.GO[name])


@pytest.mark.parametrize(
    ("cheat", "said"),
    [
        (f"{SOLVE}touch conftest.py", "done: 4 tests pass; also with the red step's"),
        (FORGE, "impl: 3 tests fail"),
        (
            f"rm tests/test_cart.py\n{FORGE}",
            "impl: tests_changed: 3 tests that were red did not run and pass: tests.test_cart::test_sum",
        ),
    ],
)
async def test_reports_that_a_runner_leaves_are_of_its_last_run(stage: Stage, cheat: str, said: str) -> None:
    """As maven and gradle leave them: what an agent has written there is removed before."""
    played = await stage.play(cheat, LEAVING)
    told = played.error or played.verdicts["impl"]
    assert f"{played.step}: {told}".startswith(said)


async def test_a_red_step_may_not_make_more_test_files_than_can_be_compared(stage: Stage) -> None:
    """No green step could be held to them."""
    played = await stage.play(
        SOLVE, red="mkdir tests/many; cd tests/many; seq -f %g.py 1 20001 | xargs touch\ncd ../..\n"
    )
    assert ("scaffold", "needs_human") == (played.step, played.status)
    assert "there are more than 20,000 test files, which are not compared; before this story" in played.error


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
