"""The library as programs get it: installed from a wheel, typed, and as its manual says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.support.installing import REPOSITORY, TOOLS, Home, by_pip

from handoffd import library

CLIENT = Path(__file__).with_name("library_client.py")
PAGE = (REPOSITORY / "docs/reference/library.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
BEFORE = """\
from pathlib import Path

def run_my_agent(prompt):
    assert "US-001" in prompt
    Path("shop/.ai/HANDOFF.md").write_text("---\\nstatus: pass\\n---\\nDone.\\n")

"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The Python of an environment in which the package is installed."""
    return by_pip(Home(folder=tmp_path_factory.mktemp("installed")), wheel).with_name("python")


def test_everything_can_be_called_from_an_installation(home: Home, python: Path) -> None:
    """By a star import; and each name that there is, is used, so that none is promised in vain."""
    used = {node.id for node in ast.walk(ast.parse(CLIENT.read_text("utf-8"))) if isinstance(node, ast.Name)}
    assert set() == set(library.__all__) - used

    home.run(python, CLIENT, home.folder / "work")


def test_type_checkers_see_what_is_there(home: Home, python: Path) -> None:
    """From the stub and the marker of the installed package; a wrong type would be an error."""
    wrong = home.folder / "wrong.py"
    wrong.write_text("from handoffd import get_rule\n\nnumber: int = get_rule('impl').next_on_pass\n")

    said = home.run(
        TOOLS / "mypy", "--strict", "--config-file=", "--python-executable", python, CLIENT, wrong, code=1
    )

    assert ["wrong.py:3: error: Incompatible types in assignment"] == [
        line.split(" (")[0] for line in said.splitlines() if ": error:" in line
    ]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_examples_of_the_manual_run(home: Home, python: Path, example: str) -> None:
    """As they are there, beside a project called shop."""
    (home.folder / "shop").mkdir()
    (home.folder / "shop/PROJECT_CONTEXT.md").write_text("A shop.\n")
    script = home.folder / "example.py"
    script.write_text(BEFORE + example, "utf-8")

    said = home.run(python, script)

    assert any(word in said for word in ("needs_human", "bdd → sdd-delta")), said
