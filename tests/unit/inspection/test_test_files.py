"""Which files decide what tests prove, what counts of them, and how a copy gets them back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from handoffd.execute.proof import Sealed
from handoffd.inspection import test_files
from handoffd.inspection.test_files import (
    TEST_FILES,
    differences,
    forget_compiled,
    keepable,
    lay_back,
    secret,
    sections_of,
    survey,
)

COMMAND = ("npm", "test")


def write(root: Path, **files: str) -> None:
    """Write files by names in which `__` is a slash and `_dot_` a dot."""
    for name, text in files.items():
        put(root, name.replace("__", "/").replace("_dot_", "."), text)


def put(root: Path, path: str, text: str) -> None:
    """Write a file with its folders."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def seen(root: Path, command: tuple[str, ...] = COMMAND) -> dict[str, Sealed]:
    """Return what decides in a project."""
    found = survey(root, TEST_FILES, command)
    assert found.problem is None
    return dict(found.files)


# --- what decides -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("tests/test_cart.py", "test"),
        ("tests/fixtures/data.json", "test"),
        ("src/cart.test.ts", "test"),
        ("__mocks__/supertest.js", "test"),
        ("shop/tests/checks.py", "test"),
        ("shop/src/test/java/build/Cart.java", "test"),
        ("shop/build/classes/java/test/Cart.class", None),
        ("vendor/list/tests/all.php", None),
        ("tests/build/data.json", "test"),
        ("conftest.py", "test"),
        ("pkg/conftest.py", "test"),
        ("pytest.ini", "setting"),
        ("backend/tox.ini", "setting"),
        ("jest.config.mjs", "setting"),
        ("postcss.config.cjs", "setting"),
        (".npmrc", "setting"),
        ("sitecustomize.py", "hook"),
        ("lib/sitecustomize/__init__.py", "hook"),
        ("cart.py", None),
        ("README.md", None),
        (".git/hooks/conftest.py", None),
        ("tests/__pycache__/test_cart.cpython-311.pyc", None),
        ("node_modules/left-pad/test/a.test.js", None),
    ],
)
def test_a_file_decides_by_its_place_and_name(tmp_path: Path, path: str, kind: str | None) -> None:
    """The runner's caches and other people's packages do not."""
    put(tmp_path, path, "x\n")
    found = seen(tmp_path)
    assert kind == (found[path].kind if path in found else None)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("./run-tests.sh", "{report}"), "run-tests.sh"),
        (("sh", "-c", "cd . && scripts/check --all"), "scripts/check"),
        (("make", "test"), "Makefile"),
    ],
)
def test_a_file_decides_that_the_command_names(tmp_path: Path, command: tuple[str, ...], named: str) -> None:
    """Also in a line for a shell, and the Makefile of make."""
    put(tmp_path, named, "true\n")
    assert {named: "setting"} == {path: one.kind for path, one in seen(tmp_path, command).items()}
    assert {} == seen(tmp_path, ("cargo", "test"))


@pytest.mark.parametrize(
    ("name", "before", "honest", "cheat"),
    [
        (
            "package.json",
            '{"scripts": {"test": "run unit", "unit": "jest", "build": "tsc"}}',
            '{"version": "2", "dependencies": {"a": "1"}, "scripts": {"build": "vite", "unit": "jest",'
            ' "test": "run unit"}}',
            '{"scripts": {"test": "run unit", "unit": "true", "build": "tsc"}}',
        ),
        ("package.json", "{}", '{"version": "2"}', '{"jest": {"testMatch": ["x"]}}'),
        ("package.json", "{}", '{"license": "MIT"}', '{"babel": {"plugins": ["./weak.js"]}}'),
        (
            "pyproject.toml",
            '[tool.pytest.ini_options]\ntestpaths = ["tests"]\n',
            '[project]\ndependencies = ["x"]\n[tool.pytest.ini_options]\ntestpaths = ["tests"] # all\n',
            '[tool.pytest.ini_options]\naddopts = "-k old"\n',
        ),
        ("pyproject.toml", "", "[tool.ruff]\n", '[project.entry-points.pytest11]\nx = "x"\n'),
        ("setup.cfg", "[metadata]\n", "[metadata]\nname = a\n", "[tool:pytest]\naddopts = -x\n"),
        ("setup.cfg", "", "[flake8]\nx = 1\n", "[flake8]\nx = 1\f[tool:pytest]\faddopts = -x\n"),
        ("setup.cfg", "", "# [tool:pytest]\n", "[tool:pytest] #]\naddopts = -x\n"),
        (
            "setup.cfg",
            "[tool:pytest]\naddopts = -q\n",
            "[metadata]\n[tool:pytest]\naddopts = -q\n",
            "[tool:pytest]\naddopts = -x\nADDOPTS = -q\n",
        ),
        (
            "setup.cfg",
            "",
            "[options.entry_points]\nconsole_scripts =\n  x = x:y\n",
            "[options.entry_points]\npytest11 =\n  x = x\n",
        ),
    ],
)
def test_of_a_manifest_only_what_it_says_about_tests_counts(
    tmp_path: Path, name: str, before: str, honest: str, cheat: str
) -> None:
    """A new dependency is not a cheat."""
    put(tmp_path, name, before)
    kept = seen(tmp_path)
    put(tmp_path, name, honest)
    assert () == differences(kept, seen(tmp_path), ())
    put(tmp_path, name, cheat)
    assert (name,) == differences(kept, seen(tmp_path), ())


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"[1]", b'{"scripts": 3}', b"\xff", b'{"scripts": {"test": 3}}']
)
def test_a_manifest_that_cannot_be_read_counts_as_a_whole(tmp_path: Path, body: bytes) -> None:
    """It is one of the project's own, and hostile."""
    (tmp_path / "package.json").write_bytes(b'{"jest": {}}')
    kept = seen(tmp_path)
    (tmp_path / "package.json").write_bytes(body)
    assert ("package.json",) == differences(kept, seen(tmp_path), ())


def test_scripts_that_a_test_script_runs_count_with_it() -> None:
    """Also what the command names, and what goes before and after them."""
    scripts = {"test": "npm run unit && x", "preunit": "y", "unit": "jest", "ci": "z", "build": "w"}
    body = json.dumps({"scripts": scripts}).encode()
    found = sections_of("package.json", body, ("npm", "run", "ci"))
    assert found is not None
    assert ["ci", "preunit", "test", "unit"] == sorted(found["scripts"])


def test_in_a_virtual_environment_what_starts_with_python_counts(tmp_path: Path) -> None:
    """With the modules that a .pth imports; not other packages."""
    site = ".venv/lib/python3.11/site-packages"
    write(tmp_path, _dot_venv__pyvenv_dot_cfg="home = /usr\n", _dot_venv__bin__pytest="#!")
    put(tmp_path, f"{site}/_pytest/runner.py", "pass\n")
    put(tmp_path, f"{site}/shop.pth", "/srv/shop\n")
    put(tmp_path, f"{site}/evil.pth", "import os, evil; from evil_too import x\n")
    put(tmp_path, f"{site}/evil.py", "pass\n")
    put(tmp_path, f"{site}/evil_too/__init__.py", "pass\n")
    put(tmp_path, f"{site}/sitecustomize.pyc", "pass\n")
    put(tmp_path, f"{site}/usercustomize/__init__.py", "pass\n")
    put(tmp_path, f"{site}/evil-1.dist-info/entry_points.txt", "[pytest11]\ne = evil\n")
    put(tmp_path, f"{site}/tool-1.dist-info/entry_points.txt", "[console_scripts]\nt = tool:main\n")
    put(tmp_path, f"{site}/tool/test_it.py", "pass\n")
    found = {path: one.kind for path, one in seen(tmp_path).items()}
    assert {
        ".venv/pyvenv.cfg": "runner", ".venv/bin/pytest": "runner", f"{site}/_pytest/runner.py": "runner",
        f"{site}/evil.pth": "hook", f"{site}/evil.py": "hook", f"{site}/evil_too/__init__.py": "hook",
        f"{site}/evil-1.dist-info/entry_points.txt": "hook", f"{site}/shop.pth": "hook",
        f"{site}/sitecustomize.pyc": "hook", f"{site}/usercustomize/__init__.py": "hook",
    } == found  # fmt: skip


def test_in_node_modules_the_runners_count_and_what_npm_would_run(tmp_path: Path) -> None:
    """A program there comes before the machine's."""
    (tmp_path / "node_modules/.bin").mkdir(parents=True)
    (tmp_path / "node_modules/.bin/node").symlink_to("../evil/node.js")
    put(tmp_path, "node_modules/vitest/dist/run.js", "1\n")
    put(tmp_path, "node_modules/react/index.js", "1\n")
    put(tmp_path, "node_modules/.pnpm/jest@30/node_modules/jest/index.js", "1\n")
    (tmp_path / "node_modules/jest").symlink_to(".pnpm/jest@30/node_modules/jest")
    found = {path: one.kind for path, one in seen(tmp_path).items()}
    runners = (".pnpm/jest@30/node_modules/jest/index.js", "jest", "vitest/dist/run.js")
    expected = {"node_modules/.bin/node": "hook", **{f"node_modules/{one}": "runner" for one in runners}}
    assert expected == found


@pytest.mark.parametrize(
    ("path", "command"),
    [("node_modules", ("npm", "test")), (".venv", ("pytest",)), ("env/bin", ("./env/bin/python", "-m", "x"))],
)
def test_a_link_to_what_is_installed_elsewhere_counts(
    tmp_path: Path, path: str, command: tuple[str, ...]
) -> None:
    """Another place has other runners."""
    place = tmp_path / path
    place.parent.mkdir(exist_ok=True)
    place.symlink_to("/opt/packages")
    before = seen(tmp_path, command)
    place.unlink()
    place.symlink_to("elsewhere")
    assert "hook" == before[path].kind
    assert (path,) == differences(before, seen(tmp_path, command), ())


def test_a_plugin_beside_the_code_counts(tmp_path: Path) -> None:
    """Its metadata is enough: the current folder is on the path of pytest."""
    put(tmp_path, "evil-1.dist-info/entry_points.txt", "[pytest11]\nevil = evil\n")
    assert ["evil-1.dist-info/entry_points.txt"] == list(seen(tmp_path))


def test_links_are_not_followed(tmp_path: Path) -> None:
    """They are what they lead to; a folder that is one has nothing in it."""
    (tmp_path / "weak").mkdir()
    put(tmp_path, "weak/test_a.txt", "x")
    (tmp_path / "tests").symlink_to("weak")
    (tmp_path / "conftest.py").symlink_to("/dev/zero")
    found = seen(tmp_path)
    assert {"conftest.py", "weak/test_a.txt"} == set(found)
    assert ("link", "/dev/zero") == (found["conftest.py"].mode, found["conftest.py"].content)


def test_there_is_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent can make files faster than they are read."""
    monkeypatch.setattr(test_files, "MOST_FILES", 2)
    for number in range(4):
        put(tmp_path, f"tests/{number}.py", "")
    found = survey(tmp_path, TEST_FILES, COMMAND)
    assert ({}, "there are more than 2 test files, which are not compared") == (found.files, found.problem)


def test_of_too_many_test_files_the_code_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If all of them were known before, too many are a problem."""
    monkeypatch.setattr(test_files, "MOST_FILES", 2)
    for name in ("tests/a.json", "tests/b.json", "tests/test_a.py", "pytest.ini"):
        put(tmp_path, name, "")
    found = survey(tmp_path, TEST_FILES, COMMAND)
    assert ({"tests/test_a.py", "pytest.ini"}, True) == (set(found.files), found.only_code)
    assert survey(tmp_path, TEST_FILES, COMMAND, only_code=False).problem is not None


@pytest.mark.parametrize("names", [("zzz/1", "zzz/2", "zzz/3"), ("1", "2", "3")])
def test_no_folder_is_left_out_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """Files of any kind could hide the ones of tests."""
    monkeypatch.setattr(test_files, "MOST_LOOKS", 3)
    for name in (*names, "tests/conftest.py"):
        put(tmp_path, name, "")
    assert "there are more than 3 files, which are not compared" == survey(tmp_path, TEST_FILES, ()).problem


@pytest.mark.parametrize(
    "name",
    [
        "test_cart/__init__.py", "test_cart/__init__.abi3.so", "conftest/__init__.py", "test_cart.abi3.so",
        "conftest.so",
    ],
)  # fmt: skip
def test_what_python_imports_in_place_of_a_test_is_one(tmp_path: Path, name: str) -> None:
    """A package and a library come before a module; a folder of another name is the program's."""
    put(tmp_path, "test_cart.py", "")
    put(tmp_path, name, "")
    put(tmp_path, "test_bench/__init__.py", "")
    assert {"test_cart.py", name} == set(seen(tmp_path))


def test_contents_are_kept_but_of_secrets_links_and_the_runner(tmp_path: Path) -> None:
    """What is kept can be read by all who can read the repository."""
    put(tmp_path, "tests/.env", "TOKEN=1")
    put(tmp_path, ".npmrc", "_authToken=1")
    put(tmp_path, "tests/test_a.py", "1")
    (tmp_path / "tests/link").symlink_to("x")
    put(tmp_path, "node_modules/vitest/a.js", "1")
    assert ("tests/test_a.py",) == keepable(seen(tmp_path))
    assert (".npmrc", "tests/.env") == tuple(sorted(secret(seen(tmp_path))))


SITE = ".venv/lib/python3.11/site-packages"
PLUGIN = f"{SITE}/new-1.DIST-INFO/entry_points.txt"


def put_two(root: Path, one: str, other: str) -> None:
    """Write two empty files."""
    put(root, one, "")
    put(root, other, "")


# --- what differs -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (lambda root: put(root, "tests/test_a.py", "assert 2\n"), "tests/test_a.py"),
        (lambda root: (root / "tests/test_a.py").unlink(), "tests/test_a.py"),
        (lambda root: put(root, "conftest.py", "x"), "conftest.py"),
        (lambda root: (root / "tests/run").chmod(0o755), "tests/run"),
        (lambda root: put(root, "cart.py", "2\n"), None),
        (lambda root: os.utime(root / "tests/test_a.py", (1, 1)), None),
        (lambda root: put(root, "node_modules/jest/new.js", "1"), None),
        (lambda root: put(root, "node_modules/vitest/new.js", "1"), "node_modules/vitest/new.js"),
        (
            lambda root: put(root, "node_modules/vitest/node_modules/chai/x", "1"),
            "node_modules/vitest/node_modules/chai/x",
        ),
        (lambda root: put(root, f"{SITE}/pytest_old/__init__.py", "1"), f"{SITE}/pytest_old/__init__.py"),
        (lambda root: put(root, f"{SITE}/pytest_old.so", "1"), None),
        (lambda root: put(root, f"{SITE}/pytest_new/__init__.py", "1"), None),
        (lambda root: put(root, f"{SITE}/new-1.DIST-INFO/entry_points.txt", "[pytest11]\nn = new\n"), PLUGIN),
        (lambda root: put(root, "test/node_modules/chai/index.js", "1"), "test/node_modules/chai"),
        (lambda root: put(root, "pyvenv.cfg", ""), None),
        (lambda root: put_two(root, "pyvenv.cfg", "sub/conftest.py"), "sub/conftest.py"),
        (lambda root: put_two(root, "sub/pyvenv.cfg", "sub/pytest.ini"), "sub/pytest.ini"),
        (lambda root: put(root, "node_modules/vitest/a.js", "2"), "node_modules/vitest/a.js"),
    ],
)
def test_a_file_differs_by_its_content(
    tmp_path: Path, change: Callable[[Path], object], differs: str | None
) -> None:
    """New files do, too, but for new packages of the runner; its times do not matter.

    A file that makes a folder an environment of Python hides nothing.
    """
    write(tmp_path, tests__test_a_dot_py="assert 1\n", tests__run="", cart_dot_py="1\n")
    put(tmp_path, "node_modules/vitest/a.js", "1")
    put(tmp_path, ".venv/pyvenv.cfg", "")
    put(tmp_path, f"{SITE}/pytest_old.py", "1")
    before = seen(tmp_path)
    change(tmp_path)
    assert ((differs,) if differs else ()) == differences(before, seen(tmp_path), ())


def test_a_person_may_let_files_change(tmp_path: Path) -> None:
    """By patterns as in .gitignore."""
    before = seen(tmp_path)
    write(tmp_path, tests__fixtures__a_dot_json="{}", tests__test_a_dot_py="1")
    assert ("tests/test_a.py",) == differences(before, seen(tmp_path), ("tests/fixtures/**",))
    assert () == differences(before, seen(tmp_path), ("tests/**",))


# --- laying back --------------------------------------------------------------------------------------
def laid_back(root: Path, change: Callable[[], object]) -> tuple[str, ...]:
    """Change a project, lay everything back, and return what cannot be."""
    before = seen(root)
    contents = {path: (root / path).read_bytes() for path in keepable(before)}
    change()
    return lay_back(root, differences(before, now := seen(root), ()), before, now, contents, COMMAND)


def test_files_are_as_they_were_and_new_ones_are_gone(tmp_path: Path) -> None:
    """With their modes; the rest stays as it is."""
    write(tmp_path, tests__test_a_dot_py="1", tests__deep__data="2", cart_dot_py="1")
    (tmp_path / "tests/deep/data").chmod(0o755)
    (tmp_path / "tests/to").symlink_to("deep")

    def change() -> None:
        put(tmp_path, "tests/test_a.py", "weak")
        (tmp_path / "tests/deep/data").unlink()
        (tmp_path / "tests/deep").rmdir()
        (tmp_path / "tests/to").unlink()
        put(tmp_path, "conftest.py", "evil")
        put(tmp_path, "cart.py", "2")

    assert () == laid_back(tmp_path, change)
    assert ("1", "2") == tuple((tmp_path / name).read_text() for name in ("tests/test_a.py", "tests/to/data"))
    assert (tmp_path / "tests/deep/data").stat().st_mode & 0o100
    assert (False, "2") == ((tmp_path / "conftest.py").exists(), (tmp_path / "cart.py").read_text())


def test_what_was_put_in_the_way_is_replaced(tmp_path: Path) -> None:
    """A link is not written through, a folder not into."""
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "copy"
    write(root, tests__unit__test_a_dot_py="1", conftest_dot_py="1")

    def change() -> None:
        (root / "conftest.py").unlink()
        put(root, "conftest.py/x", "")
        (root / "tests/unit/test_a.py").unlink()
        (root / "tests/unit").rmdir()
        (root / "tests").rmdir()
        (root / "tests").symlink_to(outside)

    assert () == laid_back(root, change)
    assert ("1", "1") == ((root / "tests/unit/test_a.py").read_text(), (root / "conftest.py").read_text())
    assert ([], False) == (list(outside.iterdir()), (root / "tests").is_symlink())


def test_a_package_gets_back_what_it_said_about_its_tests(tmp_path: Path) -> None:
    """It keeps the rest: what the story depends on."""
    put(tmp_path, "package.json", '{"jest": {"a": 1}, "scripts": {"test": "jest", "pretest": "tsc"}}')
    says = '{"dependencies": {"x": "1"}, "vitest": {}, "scripts": {"test": "true", "dev": "vite"}}'
    assert () == laid_back(tmp_path, lambda: put(tmp_path, "package.json", says))
    assert {
        "dependencies": {"x": "1"}, "jest": {"a": 1},
        "scripts": {"dev": "vite", "test": "jest", "pretest": "tsc"},
    } == json.loads((tmp_path / "package.json").read_text())  # fmt: skip


@pytest.mark.parametrize(
    ("name", "before", "now", "then"),
    [
        (
            "pyproject.toml",
            '[project]\nversion = "1"\n[tool.pytest.ini_options]\naddopts = "-q"',
            '[tool.pytest.ini_options]\naddopts = [\n["x"]]\n[project]\nkeywords = [\n  "a",\n]\n',
            '[project]\nkeywords = [\n  "a",\n]\n[tool.pytest.ini_options]\naddopts = "-q"\n',
        ),
        ("pyproject.toml", "", '[tool]\nx = 1\n[tool.pytest]\naddopts = ["-x"]\n', "[tool]\nx = 1\n"),
        ("pyproject.toml", "", '[tool]\npytest.addopts = ["-x"]\n', None),
        (
            "pyproject.toml", '[tool.pytest]\nx = "1"\n', '[project]\nd = """\n[tool.pytest]\n"""\n',
            '[tool.pytest]\nx = "1"\n',
        ),
        ("pyproject.toml", '[tool.pytest]\nx = "1"\n', "[", '[tool.pytest]\nx = "1"\n'),
        (
            "setup.cfg", "[metadata]\nversion = 1\n[tool:pytest]\naddopts = -q\n",
            "[metadata]\nversion = 2\n[tool:pytest] #]\naddopts = -x\n",
            "[metadata]\nversion = 2\n[tool:pytest]\naddopts = -q\n",
        ),
        ("setup.cfg", "", "[flake8]\nx = 1\r[tool:pytest]\raddopts = -x\n", None),
        ("tests/pyproject.toml", "[project]\n", "[tool.pytest]\n", "[project]\n"),
        ("tests/package.json", None, '{"scripts": {"test": "x"}}', None),
    ],
)  # fmt: skip
def test_other_manifests_get_back_their_tables_about_tests(
    tmp_path: Path, name: str, before: str | None, now: str, then: str | None
) -> None:
    """What cannot be kept apart is laid back as a whole, or removed; so is what a folder of tests has."""
    if before is not None:
        put(tmp_path, name, before)
    assert () == laid_back(tmp_path, lambda: put(tmp_path, name, now))
    assert then == ((tmp_path / name).read_text() if (tmp_path / name).exists() else None)


def test_what_is_not_there_as_it_was_cannot_be_laid_back(tmp_path: Path) -> None:
    """Git has lost it, or an agent has written another object in its place."""
    write(tmp_path, tests__a="1", tests__b="2")
    before = seen(tmp_path)
    write(tmp_path, tests__a="", tests__b="")
    lost = lay_back(tmp_path, ("tests/a", "tests/b"), before, seen(tmp_path), {"tests/b": b"forged"}, COMMAND)
    assert ("tests/a", "tests/b") == lost


def test_what_python_compiled_is_forgotten_beside_tests_only(tmp_path: Path) -> None:
    """It would be run instead of a test, if its dates are right. Links lead nowhere."""
    elsewhere = tmp_path / "elsewhere"
    put(elsewhere, "__pycache__/x.pyc", "")
    root = tmp_path / "shop"
    write(root, tests__test_a_dot_py="1", cart_dot_py="1")
    for folder in ("tests", "src"):
        put(root, f"{folder}/__pycache__/x.pyc", "")
    forget_compiled(root, {**seen(root), "led/test_b.py": seen(root)["tests/test_a.py"]}, ())
    (root / "led").symlink_to(elsewhere)
    forget_compiled(root, {"led/test_b.py": seen(root)["tests/test_a.py"]}, ())
    assert (False, True) == ((root / "tests/__pycache__").exists(), (root / "src/__pycache__").exists())
    assert (elsewhere / "__pycache__/x.pyc").exists()


def test_what_vitest_compiled_is_forgotten(tmp_path: Path) -> None:
    """Also in a package of a workspace; a link in its place goes, and what it leads to stays."""
    root = tmp_path / "shop"
    put(tmp_path, "elsewhere/x", "")
    put(root, "node_modules/.vitest-cache/x", "forged")
    put(root, "packages/cart/node_modules/react/index.js", "")
    (root / "packages/cart/node_modules/.vite").symlink_to(tmp_path / "elsewhere")
    found = survey(root, TEST_FILES, COMMAND)
    assert ({}, 2) == (found.files, len(found.caches))
    forget_compiled(root, found.files, found.caches)
    assert ["react"] == [one.name for one in root.glob("**/node_modules/*")]
    assert (tmp_path / "elsewhere/x").exists()


def test_what_a_link_leads_to_is_not_touched_when_it_is_laid_back(tmp_path: Path) -> None:
    """Where a step has put a folder in its place, new files of that are gone, and those elsewhere stay."""
    root, elsewhere = tmp_path / "shop", tmp_path / "elsewhere"
    put(elsewhere, "data", "kept")
    write(root, tests__test_a_dot_py="1")
    (root / "tests/fixtures").symlink_to(elsewhere)

    def change() -> None:
        (root / "tests/fixtures").unlink()
        put(root, "tests/fixtures/data", "another")

    assert () == laid_back(root, change)
    assert (elsewhere, "kept") == ((root / "tests/fixtures").readlink(), (elsewhere / "data").read_text())
