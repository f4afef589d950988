"""Files that a runner's settings name: they decide what tests prove, and the program does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoffd.execute.proof import Sealed
from handoffd.inspection.test_files import TEST_FILES, differences, survey
from handoffd.track.second_run import Named, named_before

PYTEST = ("python3", "-m", "pytest")
NPM = ("npm", "test")
PROGRAM = {
    "cart.py": "", "cart.js": "", "shop/__init__.py": "", "shop/sums.py": "",
    "tests/test_cart.py": "import cart\nfrom shop import sums\n",
    "test/cart.test.js": "import { total } from '../cart.js';\n",
}  # fmt: skip
"""What no setting makes a file of the runner."""


def found(root: Path, files: dict[str, str], command: tuple[str, ...], within: str = "") -> set[str]:
    """Return the files that settings name beside PROGRAM, and that are there."""
    return {path for path, one in named_by(root, files, command, within).items() if one.content}


def named_by(
    root: Path, files: dict[str, str], command: tuple[str, ...], within: str = ""
) -> dict[str, Sealed]:
    """Return what settings name, whether it is there or not."""
    for name, text in {**PROGRAM, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Named(root, within, survey(root, TEST_FILES, command, within).files, command).files()


@pytest.mark.parametrize(
    ("command", "files", "named"),
    [
        (PYTEST, {"pytest.ini": "[pytest]\naddopts = -p lib.plug\n", "lib/plug.py": ""}, {"lib/plug.py"}),
        ((*PYTEST, "-p", "plug"), {"plug.py": ""}, {"plug.py"}),
        (
            PYTEST,
            {"pyproject.toml": '[tool.pytest]\naddopts = ["-p", "shop.plug"]\n', "shop/plug.py": ""},
            {"shop/plug.py"},
        ),
        (
            PYTEST,
            {"conftest.py": "import cart\npytest_plugins = ('a.b',)\n", "a/__init__.py": "", "a/b.py": ""},
            {"a/__init__.py", "a/b.py"},
        ),
        (
            ("python3", "run.py"),
            {"run.py": "import cart, shop.cli\nfrom dev import opts\n", "dev/opts.py": "", "shop/cli.py": ""},
            {"dev/opts.py"},
        ),
        (
            ("python3", "-m", "dev.check"),
            {"dev/__init__.py": "", "dev/check.py": "from . import opts\n", "dev/opts.py": ""},
            {"dev/__init__.py", "dev/check.py", "dev/opts.py"},
        ),
        (
            NPM,
            {
                "package.json": '{"scripts": {"test": "node --import ./set.mjs bin/run", "dev": "dev.js"}}',
                "set.mjs": "import './cart.js';", "bin/run.js": "import '../lib/a.js'; import '../cart.js';",
                "lib/a.js": "", "dev.js": "",
            },
            {"set.mjs", "bin/run.js", "lib/a.js"},
        ),
        (
            NPM,
            {
                "vitest.config.ts": "import a from './a';\nexport default { alias: { '@': './cart.js' },"
                " test: { globalSetup: './global.ts', setupFiles: [\n'src/set.ts'] } };\n",
                "a.ts": "import './b';", "b.ts": "", "global.ts": "import './c';", "c.ts": "",
                "src/set.ts": "",
            },
            {"a.ts", "b.ts", "global.ts", "src/set.ts"},
        ),
        (
            NPM,
            {"package.json": '{"jest": {"preset": "<rootDir>/base/jest.js"}}', "base/jest.js": ""},
            {"base/jest.js"},
        ),
        (
            ("make", "-s", "test"),
            {
                "Makefile": "include mk/*.mk mk/a.mk\ntest: unit\nunit: cart.py\n\t@sh ./bin/unit -x\n"
                "run:\n\t./bin/run\n",
                "mk/a.mk": "", "bin/unit": '. "$(dirname "$0")/lib.sh"\n$HERE/more.sh; python3 cart.py\n',
                "bin/lib.sh": "", "bin/more.sh": "", "bin/run": "",
            },
            {"mk/a.mk", "bin/unit", "bin/lib.sh", "bin/more.sh"},
        ),
        (("just", "test"), {"justfile": "test:\n    ./check.sh\n", "check.sh": ""}, {"check.sh"}),
    ],
)  # fmt: skip
def test_settings_name_files(
    tmp_path: Path, command: tuple[str, ...], files: dict[str, str], named: set[str]
) -> None:
    """And these name others; tests and preloaded files import the program."""
    assert named == found(tmp_path, files, command)


@pytest.mark.parametrize(
    ("made", "appears"),
    [
        ("-include .env\ntest:\n\tpytest\n", ".env"),
        ("test: check\ncheck:\n\tpytest\n", "check"),
        ("test: .tested\n.tested: cart.py\n\tpytest; touch .tested\n", ".tested"),
        ("export PATH := $(CURDIR)/bin:$(PATH)\ntest:\n\tpytest -q\n", "bin/pytest"),
    ],
)
def test_what_make_would_read_or_take_for_made_is_known_to_be_absent(
    tmp_path: Path, made: str, appears: str
) -> None:
    """A file or a folder, or one that was made since."""
    make = ("make", "test")
    before = named_by(tmp_path, {"Makefile": made}, make)
    assert not named_before(tmp_path, before).keys() & {appears}
    assert () == differences(before, named_before(tmp_path, before), ())
    for way in (Path.mkdir, Path.touch):
        (tmp_path / appears).parent.mkdir(exist_ok=True)
        way(tmp_path / appears)
        assert (appears,) == differences(before, named_before(tmp_path, before), ())
        (tmp_path / appears).rmdir() if way is Path.mkdir else None
    os.utime(tmp_path / appears, (1, 1))
    later = named_by(tmp_path, {"Makefile": made}, make)
    assert () == differences(later, named_before(tmp_path, later), ())
    os.utime(tmp_path / appears, (2, 2))
    if appears != ".env":  # which counts by its content by then
        assert (appears,) == differences(later, named_before(tmp_path, later), ())


@pytest.mark.parametrize(
    "made",
    [
        "CHECK := tools/check.sh\ntest:\n\tsh $(CHECK)\n",
        "A = tools\nCHECK = ${A}/check.sh\ntest:\n\t@sh $(CHECK) -q\n",
        "test:\n\t$(MAKE) -C tools all\n",
        "test:\n\tmake --directory tools\n",
    ],
)
def test_a_makefile_is_followed_through_variables_and_into_folders(tmp_path: Path, made: str) -> None:
    """And from a script of npm."""
    files = {"Makefile": made, "tools/check.sh": "", "tools/Makefile": "all:\n\tsh check.sh\n"}
    wanted = {"tools/check.sh"} if "CHECK" in made else {"tools/check.sh", "tools/Makefile"}
    assert wanted == found(tmp_path, files, ("make", "test"))
    scripts = {**files, "package.json": '{"scripts": {"test": "make -s test"}}'}
    assert {"Makefile"} | wanted == found(tmp_path, scripts, NPM)


def test_a_project_may_be_in_a_folder_of_its_workspace(tmp_path: Path) -> None:
    """From which names are looked up; nothing outside the workspace counts, nor what is installed."""
    files = {
        "sub/pytest.ini": "[pytest]\naddopts = -p plug -p evil\n", "sub/plug.py": "", "plug.py": "",
        "sub/package.json": '{"scripts": {"test": "node ../../x.js node_modules/a.js /etc/passwd"}}',
        "sub/node_modules/a.js": "",
    }  # fmt: skip
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/evil.py").symlink_to("/dev/zero")
    assert {"sub/plug.py", "sub/evil.py"} == found(tmp_path, files, PYTEST, "sub/")


@pytest.mark.parametrize(
    "text", ["import(" * 200_000, "runner: [" * 100_000, "'\\" * 500_000, "/*\n" * 300_000]
)
def test_no_text_takes_long(tmp_path: Path, text: str) -> None:
    """Whatever is in a file of settings."""
    assert set() == found(
        tmp_path, {"vitest.config.ts": text, "conftest.py": text, "Makefile": text}, ("make",)
    )


def test_what_is_imported_in_place_of_a_module_is_seen(tmp_path: Path) -> None:
    """Only of modules: a package beside a script is the program's."""
    files = {"pytest.ini": "[pytest]\naddopts = -p plug\n", "plug.py": "", "jest.config.js": "import './a';"}
    found(tmp_path, {**files, "a.ts": ""}, PYTEST)
    before = Named(tmp_path, "", survey(tmp_path, TEST_FILES, PYTEST).files, PYTEST).files()
    for name in ("plug/__init__.py", "plug.abi3.so", "a.js", "plug/other.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert {"plug.py", "a.ts", "plug/__init__.py", "plug.abi3.so", "a.js"} == set(
        named_before(tmp_path, before)
    )
