"""Finding the verb, and writing its output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import handoffd
from handoffd.orchestrator.console import Said
from handoffd.orchestrator.main import SPEAKS, VERBS, main, run, usage


def test_the_version_is_that_of_the_interface() -> None:
    """Scripts compare it; ours is on stderr."""
    said = run(["--version"], {})

    assert ((SPEAKS,), 0) == (said.out, said.code)
    assert handoffd.__version__ in said.err[0]
    assert said == run(["-v"], {})


@pytest.mark.parametrize("word", [None, "polish", "--help", "-h"])
def test_without_a_known_verb_the_usage_is_shown(word: str | None) -> None:
    """On stderr, with the exit code 1 and the unknown verb; `--help` counts as one."""
    named = () if word is None else (f"Unknown command: {word}",)

    assert Said(err=(*named, *usage()), code=1) == run([] if word is None else [word, "."], {})
    told = "\n".join(usage())
    assert [] == [name for name, (_, words, _) in VERBS.items() if f"  {name} {words}" not in told]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_asks_for_its_project(verb: str) -> None:
    """A missing root is one line and the exit code 1."""
    assert Said(err=("Error: <project-root> is required",), code=1) == run([verb], {})


def test_the_output_is_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """stdout for programs, stderr for people, and the exit code."""
    with pytest.raises(SystemExit) as exited:
        main(["detect", str(tmp_path)])

    out, err = capfd.readouterr()
    assert (0, True, True) == (exited.value.code, out.startswith("{\n"), err.startswith("Framework"))


def test_a_reader_may_close_the_pipe(tmp_path: Path) -> None:
    """`orchestrator review | head -0` prints no error."""
    code = f"import sys; sys.argv[1:] = ['detect', {str(tmp_path)!r}]\n"
    code += "from handoffd.orchestrator.main import main; main()"
    ends = os.pipe()
    os.close(ends[0])
    ended = subprocess.run([sys.executable, "-c", code], stdout=ends[1], stderr=subprocess.PIPE, check=False)
    os.close(ends[1])

    assert (1, b"") == (ended.returncode, ended.stderr)
