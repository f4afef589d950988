"""Modules that are started as `python -m` does, where a file of the current folder would take their place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from handoffd.execute import module_start

EVIL = "raise SystemExit('planted')\n"


def start(
    folder: Path, *words: str, options: tuple[str, ...] = (), plugins: bool = False
) -> subprocess.CompletedProcess[str]:
    """Start a module in a folder, with these arguments; `plugins`: pytest may load installed ones."""
    env = {"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
    if not plugins:
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # loading this project's takes a second
    return subprocess.run(
        [sys.executable, *options, module_start.__file__], input=json.dumps(words), cwd=folder, env=env,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("planted", ["pytest.py", "_pytest/__init__.py", "pluggy.py", "json.py", "runpy.py"])
def test_the_runner_is_not_one_of_the_current_folder(tmp_path: Path, planted: str) -> None:
    """Nor is what it is made of."""
    (tmp_path / planted).parent.mkdir(exist_ok=True)
    (tmp_path / planted).write_text(EVIL)
    (tmp_path / "test_a.py").write_text("def test_a():\n    assert False\n")

    done = start(tmp_path, "pytest", "-q", "-p", "no:cacheprovider")

    assert (1, True) == (done.returncode, "1 failed" in done.stdout)


def test_a_plugin_is_not_planted_by_its_metadata(tmp_path: Path) -> None:
    """Which pytest would find in the current folder."""
    (tmp_path / "evil.py").write_text(EVIL)
    (tmp_path / "evil-1.dist-info").mkdir()
    (tmp_path / "evil-1.dist-info/METADATA").write_text("Name: evil\nVersion: 1\n")
    (tmp_path / "evil-1.dist-info/entry_points.txt").write_text("[pytest11]\nevil = evil\n")
    (tmp_path / "test_a.py").write_text("def test_a():\n    pass\n")

    done = start(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", plugins=True)

    assert (0, True) == (done.returncode, "1 passed" in done.stdout)


def test_the_current_folder_is_where_python_has_it(tmp_path: Path) -> None:
    """Conftests and tests import from it first, and a plugin that the project names is found there."""
    (tmp_path / "ours.py").write_text("def pytest_report_header():\n    return 'ours is here'\n")
    (tmp_path / "packaging.py").write_text("WHOSE = 'mine'\n")
    (tmp_path / "conftest.py").write_text("import packaging\nassert packaging.WHOSE == 'mine'\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(
        "import os, sys\n"
        "def test_a(pytestconfig):\n"
        f"    assert {str(tmp_path)!r} in sys.path[:2]\n"
        "    assert sys.path.count(os.getcwd()) == 1\n"
        "    assert not sys.stdin.read()\n"
        "    assert not any('report' in word for word in sys.argv)\n"
        "    assert 'tests' in sys.argv\n"
    )
    report = tmp_path / "report.xml"

    done = start(
        tmp_path, "pytest", "-p", "ours", "-p", "no:cacheprovider", "-s", f"--junitxml={report}", "tests"
    )

    assert "ours is here" in done.stdout, done.stdout + done.stderr
    assert (0, True) == (done.returncode, report.exists()), done.stdout


def test_nothing_of_the_program_runs_after_the_report_is_written(tmp_path: Path) -> None:
    """At its exit it could rewrite the report, and choose the exit code."""
    (tmp_path / "test_a.py").write_text(
        "import atexit, os\natexit.register(os._exit, 0)\ndef test_a():\n    assert False\n"
    )
    done = start(tmp_path, "pytest", "-q", "-p", "no:cacheprovider")
    assert (1, True) == (done.returncode, "1 failed" in done.stdout), done.stdout


def test_a_run_that_tests_end_has_not_succeeded(tmp_path: Path) -> None:
    """`pytest.exit` names the exit code."""
    (tmp_path / "test_a.py").write_text("import pytest\ndef test_a():\n    pytest.exit('done', 0)\n")
    assert 2 == start(tmp_path, "pytest", "-q", "-p", "no:cacheprovider").returncode


def test_a_report_named_apart_from_its_option_is_not_shown_either(tmp_path: Path) -> None:
    """As `--junit-xml FILE`."""
    (tmp_path / "test_a.py").write_text(
        "import sys\ndef test_a():\n    assert sys.argv == ['pytest', '-q']\n"
    )
    done = start(tmp_path, "pytest", "--junit-xml", str(tmp_path / "x.xml"), "-q")
    assert (0, True) == (done.returncode, (tmp_path / "x.xml").exists()), done.stdout


@pytest.mark.parametrize("planted", ["unittest.py", "runpy.py"])
def test_other_runners_are_found_first_too(tmp_path: Path, planted: str) -> None:
    """Their tests are in the current folder."""
    (tmp_path / planted).write_text(EVIL)
    (tmp_path / "test_a.py").write_text(
        "import unittest\nclass A(unittest.TestCase):\n    def test_a(self):\n        assert False\n"
    )
    done = start(tmp_path, "unittest", "-q", "test_a")
    assert (1, True) == (done.returncode, "FAILED (failures=1)" in done.stderr), done.stderr


def test_a_module_of_the_project_is_started_from_it(tmp_path: Path) -> None:
    """A runner of its own is what a person has named."""
    (tmp_path / "check.py").write_text("import sys\nprint(__name__, sys.argv[1:], sys.path[0])\n")
    assert f"__main__ ['a'] {tmp_path}\n" == start(tmp_path, "check", "a").stdout


@pytest.mark.parametrize("option", ["-I", *(["-P"] if sys.version_info >= (3, 11) else [])])
def test_an_isolated_python_stays_isolated(tmp_path: Path, option: str) -> None:
    """The current folder is not on its path with `-m` either."""
    (tmp_path / "check.py").touch()
    (tmp_path / "test_a.py").write_text(
        "import os, sys\ndef test_a():\n    assert os.getcwd() not in sys.path[1:]\n"
    )
    assert "No module named check" in start(tmp_path, "check", options=(option,)).stderr
    assert 0 == start(tmp_path, "pytest", "-q", "--import-mode=importlib", options=(option,)).returncode
