"""What a red step leaves, and whether a green one has made just that pass."""

from __future__ import annotations

import pytest

from handoffd.execute.proof import (
    MAX_RED,
    Choice,
    Declared,
    Files,
    Red,
    choice_of,
    declared_in,
    held_of,
    lost,
    names_in,
    nothing_passes,
    red_of,
    said_of,
    unmet,
)
from handoffd.execute.reports.report import LoadError, Outcome, TestReport

NOTHING = Red()


def report(*files: str, **results: Outcome) -> TestReport:
    """Return a report of tests `t::name`; `files` could not be loaded."""
    return TestReport(
        results={f"t::{name}": outcome for name, outcome in results.items()},
        load_errors=tuple(LoadError(file=file) for file in files),
    )


def test_a_red_step_leaves_its_new_failures() -> None:
    """Not what failed or passed before the story, nor a file that could not be loaded then."""
    found = report("new.py", "old.py", a="failed", b="error", c="passed", d="skipped", old="failed")
    assert Red(ids=("t::a", "t::b"), files=("new.py",)) == red_of(
        found, {"t::old": "failed"}, {"old.py"}, NOTHING
    )


def test_of_a_hostile_report_not_every_id_is_kept() -> None:
    """The number of the others is."""
    many = TestReport(results={f"t::{number}": "failed" for number in range(MAX_RED + 7)})
    red = red_of(many, {}, (), NOTHING)
    assert (MAX_RED, 7) == (len(red.ids), red.more)


def test_what_an_earlier_red_step_left_counts_while_it_is_there() -> None:
    """Also the tests of a file that could not be loaded then, though they pass by now."""
    before = Red(ids=("t::a", "t::gone", "t::idle"), files=("tests/test_new.py",))
    found = TestReport(
        results={
            "t::a": "passed", "t::idle": "skipped", "tests.test_new.TestIt::b": "passed",
            "tests.test_old::c": "passed",
        }
    )  # fmt: skip
    assert ("t::a", "tests.test_new.TestIt::b") == red_of(found, {}, (), before).ids


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        (report(a="passed", b="passed"), []),
        (report(a="passed", b="failed"), []),  # a failing test has words of its own
        (report(a="passed"), ["t::b is missing"]),
        (report(a="skipped", b="passed"), ["t::a is skipped"]),
        (report(), ["t::a is missing", "t::b is missing"]),
    ],
)
def test_every_red_test_must_run_and_pass(found: TestReport, missed: list[str]) -> None:
    """Others in their place do not count."""
    assert missed == [str(one) for one in unmet(Red(ids=("t::a", "t::b")), found, {})]


@pytest.mark.parametrize(
    ("results", "missed"),
    [
        ({"tests.test_new::a": "passed"}, []),
        ({"tests.test_new.TestIt::a": "failed"}, []),
        ({"test_new::a": "passed"}, []),  # a runner that begins in the folder of the tests
        ({}, ["tests/test_new.py has no test that ran"]),
        ({"tests.test_newer::a": "passed"}, []),  # no id says its file: it may be one of it
        ({"old::a": "passed"}, ["tests/test_new.py has no test that ran"]),
        (
            {"tests.test_new::a": "skipped"},
            ["tests.test_new::a is skipped", "tests/test_new.py has no test that ran"],
        ),
        ({"tests.test_new::a": "skipped", "tests.test_new::b": "passed"}, ["tests.test_new::a is skipped"]),
        ({"tests.test_new::own": "skipped", "tests.test_new::b": "passed"}, []),
    ],
)
def test_of_a_file_that_could_not_be_loaded_a_test_must_run(
    results: dict[str, Outcome], missed: list[str]
) -> None:
    """None may be skipped but what the red step's own files skip."""
    red, own = Red(files=("tests/test_new.py",)), {"tests.test_new::own"}
    found = unmet(red, TestReport(results=results), {"old::a": "passed"}, own)
    assert missed == [str(one) for one in found]


def test_a_test_that_passes_only_with_the_red_steps_files_is_lost() -> None:
    """One from before the story may go: it passed there, too."""
    first, second = report(a="passed", b="skipped"), report(a="passed", b="passed", c="passed", old="passed")
    found = lost(first, second, {"t::old": "passed"})
    assert ["t::b is skipped", "t::c is missing"] == [str(one) for one in found]
    said = "tests_changed: 2 tests that were red did not run and pass: t::b is skipped, t::c is missing"
    assert said == said_of(found)


@pytest.mark.parametrize(
    ("found", "excused", "said"),
    [
        (report(a="passed", b="skipped"), 0, None),
        (report(), 0, None),
        (report(a="skipped", b="failed"), 1, "no test passes: 1 skipped, 1 failed before this story"),
        (TestReport(verified=False), 0, None),
    ],
)
def test_some_test_must_pass(found: TestReport, excused: int, said: str | None) -> None:
    """An exit code alone does not tell; a run that collects nothing has words of its own."""
    assert said == nothing_passes(found, excused)


def test_ids_say_their_file_by_path_or_module() -> None:
    """As pytest, vitest, jest, maven and gradle write them; node's ids say none."""
    files = Files(("tests/test_a.py", "src/cart.test.ts", "src/test/java/shop/CartTest.java", "web/A.class"))
    assert "tests/test_a.py" == files.of("tests.test_a.TestX::test_1")
    assert "src/cart.test.ts" == files.of("src/cart.test.ts::adds > twice")
    assert files.of("adds::twice") is None
    java = "src/test/java/shop/CartTest.java"
    assert [java, java] == [
        files.of("shop.CartTest::sums()"),
        files.of("shop.CartTest$Empty$Deep::each(int)[1]"),
    ]
    assert ["web/A.class", None] == [files.of("web.A::one"), files.of("web.B::one")]


# --- what is written in test files --------------------------------------------------------------------
PYTHON = """\
import sys
import pytest
from tests.marks import docker
slow = pytest.mark.slow
here = pytest.mark.skipif(sys.platform != "linux", reason="here")

@pytest.fixture
def test_data(): ...
def test_plain(): ...
@slow
@pytest.mark.parametrize("a", [1])
async def test_slow(a): ...
@here
def test_here(): ...
@docker
def test_docker(): ...
def test_sometimes():
    pytest.skip("no")
def helper(): ...
if sys.platform == "win32":
    def test_there(): ...
class TestCart(Base):
    def test_sum(self): ...
    def rest(self): ...
class CartCase(unittest.TestCase):
    def test_case(self): ...
class Mixin:
    def test_mixed(self): ...
class TestMade:
    def __init__(self): ...
    def test_made(self): ...
"""
JAVASCRIPT = """\
// test("no test", () => {});
/* test("nor this", () => {}); */
describe("cart", () => {
  test("it's \\"the\\" sum", () => {});
  it(`empty`, async () => {});
});
test(`of ${name}`, () => {});
test.each([1])("each %i", () => {});
if (windows) {
  test("there", () => {});
}
test("empty", () => {});
"""
GO = "func TestA(t *testing.T) {}\nfunc TestMain(m *testing.M) {}\nfunc testB(t *testing.T) {}\n"


def written(file: str, text: str, choice: Choice) -> dict[str, bool]:
    """Return the tests of a file by name, and whether they may be skipped."""
    return {f"{one.group}.{one.name}".lstrip("."): one.may_skip for one in declared_in(file, text, choice)}


def test_the_tests_of_a_module_are_what_pytest_certainly_collects() -> None:
    """Only what has a mark or a call that skips may be skipped."""
    assert written("tests/test_a.py", PYTHON, Choice()) == {
        "test_plain": False, "test_slow": False, "test_here": True, "test_docker": True,
        "test_sometimes": True, "TestCart.test_sum": False, "CartCase.test_case": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "hooks", "tests"),
    [
        ("", "def pytest_runtest_setup(item): pytest.skip('x')", {"test_a": True, "test_b": True}),
        ("addopts = -m 'not slow'", "", {"test_a": False}),
        ("addopts = -k fast", "", {}),
        ("python_functions = check", "", {}),
        ("", "collect_ignore = ['x']", {}),
        ("--max-k -km --no-m", "", {"test_a": False, "test_b": False}),
    ],
)
def test_where_tests_are_chosen_fewer_are_known(settings: str, hooks: str, tests: dict[str, bool]) -> None:
    """A test that is written may honestly never run then."""
    text = "def test_a(): ...\n@pytest.mark.slow\ndef test_b(): ...\n"
    assert tests == written("test_a.py", text, choice_of(settings, hooks))


@pytest.mark.parametrize("text", ["def (", "(" * 100_000, "test_a.__test__ = False\ndef test_a(): ..."])
def test_of_a_module_that_cannot_be_understood_nothing_is_known(text: str) -> None:
    """Whatever is in it."""
    assert () == declared_in("test_a.py", text, Choice())


def test_titles_of_javascript_are_tests() -> None:
    """If they are written out, and are not in a condition."""
    found = declared_in("a.test.js", JAVASCRIPT, Choice())
    assert found == (
        Declared(file="a.test.js", name='it\'s "the" sum'),
        Declared(file="a.test.js", name="empty", times=2),
    )
    assert {"a": True} == written("a.test.js", "test('a', { skip: true }, f);\n", Choice())
    assert {} == written("a.test.js", "test.only('a', f);\ntest('b', f);\n", Choice())


def test_functions_of_go_are_tests() -> None:
    """Unless they are for another system, or a build of its own."""
    assert {"TestA": False} == written("a_test.go", GO, Choice())
    assert {} == written("a_windows_test.go", GO, Choice())
    assert {} == written("a_test.go", f"//go:build integration\n{GO}", Choice())


def test_of_a_file_that_could_not_be_loaded_each_written_test_must_run() -> None:
    """At least one case of it."""
    file = "tests/test_new.py"
    one, other = Declared(file=file, name="test_sum"), Declared(file=file, name="test_one", group="TestIt")
    red = Red(files=(file,), declared=(one, other))
    results: dict[str, Outcome] = {"tests.test_new::test_sum[1]": "passed"}
    missed = ["tests/test_new.py::TestIt::test_one is missing"]
    assert missed == [str(one) for one in unmet(red, TestReport(results=results), {})]
    results["tests.test_new.TestIt::test_one"] = "failed"
    assert () == unmet(red, TestReport(results=results), {})


def test_of_nodes_tests_another_may_have_the_same_name() -> None:
    """Their ids do not say the file, and a file in which no test ran passes under its own name."""
    declared = (Declared(file="test/new.test.js", name="sum"),)
    red = Red(files=("test/new.test.js",), declared=declared, held={"test/old.test.js": ("sum",)})
    known: dict[str, Outcome] = {"sum": "passed"}
    results: dict[str, Outcome] = {"sum": "passed", "test/new.test.js": "passed"}
    missed = ["test/new.test.js has no test that ran", "test/new.test.js::sum is missing"]
    assert missed == [str(one) for one in unmet(red, TestReport(results=results), known)]
    assert () == unmet(red, TestReport(results={"sum": "passed", "sum (2)": "passed"}), known)


def test_what_passed_before_the_story_must_still_run() -> None:
    """Where it is written in a file that is there, and not in one that may have changed."""
    names = {
        "tests/test_a.py": names_in("tests/test_a.py", "def test_1(): ...\ndef test_2(): ...\n"),
        "tests/test_b.py": names_in("tests/test_b.py", "def test_2(): ...\n"),
        "new.go": names_in("new.go", "func TestA(t *testing.T) {}"),
    }
    results: dict[str, Outcome] = {
        "tests.test_a::test_1[x]": "passed", "tests.test_a::test_1[y]": "passed",
        "tests.test_b::test_2": "passed", "tests.test_b::test_gone": "passed",
        "tests.test_b::test_bad": "failed", "tests.test_a::test_2": "passed", "p::TestA": "passed",
    }  # fmt: skip
    now: dict[str, Outcome] = {**results, "tests.test_a::test_2": "skipped"}
    held = held_of(TestReport(results=now), results, names, Red())
    assert held == {
        "tests/test_a.py": ("tests.test_a::test_1[x]", "tests.test_a::test_1[y]"),
        "tests/test_b.py": ("tests.test_b::test_2",), "new.go": ("p::TestA",),
    }  # fmt: skip

    red = Red(held=held)
    later: dict[str, Outcome] = {"tests.test_a::test_1[x]": "passed", "tests.test_b::test_2": "skipped"}
    missed = unmet(red, TestReport(results=later), results)
    assert ["tests.test_b::test_2 is skipped", "p::TestA is missing"] == [str(one) for one in missed]
    changed = unmet(red, TestReport(results=later), results, changed=("tests/test_b.py", "new.go"))
    assert () == changed
    said = "tests_changed: 2 tests that passed before this story did not run: "
    assert f"{said}tests.test_b::test_2 is skipped, p::TestA is missing" == said_of(missed)


def test_what_a_file_keeps_from_running_is_held_where_another_has_it() -> None:
    """As in go, where all tests of a package are built together."""
    names = {"new_test.go": frozenset({"TestNew", "TestMoved"}), "old_test.go": frozenset({"TestOld"})}
    known: dict[str, Outcome] = {"p::TestOld": "passed", "p::TestMoved": "passed", "p::TestGone": "passed"}
    report_of_red = TestReport(load_errors=(LoadError(file="new_test.go"),))
    held = held_of(report_of_red, known, names, Red(files=("new_test.go",)))
    assert {"old_test.go": ("p::TestOld",)} == held
