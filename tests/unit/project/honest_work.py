"""What agents do beside their work, as shell scripts, and the verdict on it: all of it must pass.

Where tests are among what they change, these pass as the red step left them, too.
"""

from __future__ import annotations

import json

from msgspec.structs import replace
from tests.unit.project.cheating import (
    IN_GO,
    IN_JAVASCRIPT,
    IN_PYTHON,
    JAVASCRIPT,
    JS_TESTS,
    PYTHON,
    Language,
)
from tests.unit.project.cheats import IN_MAKE, MAPPED, UNBORN, UNBORN_JS, WITH_RUNNER, WITHOUT_NPM

AGAIN = "; also with the red step's versions of "

# --- pytest -------------------------------------------------------------------------------------------
VERSION_TEST = """\
import tomllib


def test_version():
    with open("pyproject.toml", "rb") as file:
        assert tomllib.load(file)["project"]["version"] == "2"
"""
VERSIONED = replace(
    IN_PYTHON,
    files={**PYTHON, "pyproject.toml": '[project]\nname = "shop"\nversion = "1"\n'},
    red={**IN_PYTHON.red, "tests/test_version.py": VERSION_TEST},
)
WITH_INI = replace(IN_PYTHON, files={**PYTHON, "pytest.ini": "[pytest]\ntestpaths = tests\n"})

PYTEST: dict[str, tuple[Language, str, str]] = {
    "only the program": (IN_PYTHON, "", "4 tests pass"),
    "tests of its own": (
        IN_PYTHON, "printf 'def test_more():\\n    assert 1\\n' > tests/test_more.py",
        f"5 tests pass{AGAIN}tests/test_more.py",
    ),
    "a dependency, its lock file, and settings of linters": (
        IN_PYTHON,
        "printf 'dependencies = [\"attrs\"]\\n[tool.ruff]\\nline-length = 100\\n' >> pyproject.toml\n"
        "printf '[tool.mypy]\\nstrict = true\\n' >> pyproject.toml; echo 'version = 1' > uv.lock\n"
        "printf '[flake8]\\nmax-line-length = 100\\n' > setup.cfg", "4 tests pass",
    ),
    "a version that tests read, and a marker": (
        VERSIONED,
        "sed -i 's/^version.*/version = \"2\"/' pyproject.toml\n"
        "printf '[tool.pytest.ini_options]\\nmarkers = [\"slow\"]\\n' >> pyproject.toml",
        f"5 tests pass{AGAIN}pyproject.toml",
    ),
    "settings that move into another file": (
        WITH_INI,
        "rm pytest.ini\n"
        "printf '[tool.pytest.ini_options]\\ntestpaths = [\"tests\"]\\n' >> pyproject.toml",
        f"4 tests pass{AGAIN}pyproject.toml, pytest.ini",
    ),
    "tests of what did not exist, one of them for another system": (
        replace(
            UNBORN,
            red={
                "tests/test_cart.py": "import sys\nimport pytest\nfrom cart import total\n\n"
                "@pytest.fixture\ndef test_data():\n    return [1]\n\n"
                "def test_sum(test_data):\n    assert total(test_data) == 1\n\n"
                "@pytest.mark.skipif(sys.platform != 'win32', reason='there')\n"
                "def test_there():\n    assert 0\n"
            },
        ),
        "", "2 tests pass",
    ),
    "an old program and its cases": (
        replace(
            IN_PYTHON,
            files={
                **PYTHON, "names.py": "NAMES = ['a', 'b']\n",
                "tests/test_names.py": "import pytest\nfrom names import NAMES\n\n"
                "@pytest.mark.parametrize('name', NAMES)\ndef test_name(name):\n    assert name\n",
            },
        ),
        "echo 'NAMES = [\"b\", \"c\"]' > names.py", "6 tests pass",
    ),
    "better tests, with their imports in order": (
        IN_PYTHON,
        "sed -i -e 's/assert total/assert True and total/' -e '/^import pytest/d'"
        " -e 's/^from cart/import pytest\\n\\n&/' tests/test_cart.py",
        f"4 tests pass{AGAIN}tests/test_cart.py",
    ),
    "a further parameter": (
        IN_PYTHON, "sed -i 's/\\[4, 5\\]/[4, 5, 6]/' tests/test_cart.py",
        f"5 tests pass{AGAIN}tests/test_cart.py",
    ),
    "a fixture that tests use": (
        IN_PYTHON,
        "printf 'import pytest\\n@pytest.fixture\\ndef basket():\\n return [1, 2]\\n' > tests/conftest.py\n"
        "sed -i 's/test_sum()/test_sum(basket)/; s/\\[1, 2\\]/basket/' tests/test_cart.py",
        f"4 tests pass{AGAIN}tests/conftest.py, tests/test_cart.py",
    ),
    "a part of a test in a module of its own": (
        IN_PYTHON,
        "echo 'PRICES = [4, 5]' > tests/prices.py\n"
        "sed -i 's/\\[4, 5\\]/PRICES/; s/^from cart.*/&\\nfrom prices import PRICES/' tests/test_cart.py",
        f"4 tests pass{AGAIN}tests/prices.py, tests/test_cart.py",
    ),
    "an old test in another folder": (
        IN_PYTHON, "mkdir tests/unit; mv tests/test_old.py tests/unit",
        f"4 tests pass{AGAIN}tests/test_old.py, tests/unit/test_old.py",
    ),
    "an old test that nothing needs any more": (
        IN_PYTHON, "rm tests/test_old.py", f"3 tests pass{AGAIN}tests/test_old.py"
    ),
    "a file that the tests wrote": (
        IN_PYTHON, "mkdir tests/out; date > tests/out/log", f"4 tests pass{AGAIN}tests/out/log"
    ),
    "a module that becomes a package": (
        IN_PYTHON,
        "mkdir cart; mv cart.py cart/sums.py; echo 'from cart.sums import total' > cart/__init__.py",
        "4 tests pass",
    ),
    "a module of nearly the same name as the standard library's": (
        IN_PYTHON, "printf 'WHOSE = 1\\n' > queue_.py; sed -i '1i import queue_' cart.py", "4 tests pass"
    ),
    "a program that the Makefile and a runner of its own name, too": (
        replace(
            WITH_RUNNER,
            files={
                **WITH_RUNNER.files, "Makefile": "run:\n\tpython cart.py\n",
                "runtests.py": f"import cart\n{WITH_RUNNER.files['runtests.py']}",
            },
        ),
        "", "4 tests pass",
    ),
    "a target beside that of the tests": (
        IN_MAKE, "printf 'lint:\\n\\t@true\\n' >> Makefile",
        f"the test command succeeded (unverified){AGAIN}Makefile",
    ),
}  # fmt: skip

# --- node ---------------------------------------------------------------------------------------------
WITH_SETTINGS = replace(IN_JAVASCRIPT, files={**JAVASCRIPT, ".npmrc": "fund=false\n"})
NO_MODULE = replace(
    WITHOUT_NPM,
    files={"cart.js": "exports.total = () => null;\n", "package.json": json.dumps({"name": "shop"})},
    red={"test/cart.test.mjs": JS_TESTS},
)
OTHER_SUM = 'import test from "node:test";\ntest("sum", () => {});\n'
NODE: dict[str, tuple[Language, str, str]] = {
    "a dependency with a program, and a lock file": (
        IN_JAVASCRIPT,
        "sed -i 's/\"scripts\"/\"devDependencies\": {\"tool\": \"1.0.0\"}, &/' package.json\n"
        "echo '{\"lockfileVersion\": 3}' > package-lock.json; mkdir -p node_modules/tool node_modules/.bin\n"
        "echo '{\"name\": \"tool\", \"bin\": \"tool.js\"}' > node_modules/tool/package.json\n"
        "echo '#!/usr/bin/env node' > node_modules/tool/tool.js\n"
        "ln -s ../tool/tool.js node_modules/.bin/tool", f"3 tests pass{AGAIN}node_modules/.bin/tool",
    ),
    "tests of what did not exist, of a name that another has": (
        replace(
            UNBORN_JS,
            files={**UNBORN_JS.files, "test/other.test.js": OTHER_SUM},
        ),
        "", "4 tests pass",
    ),
    "a name that another test has": (
        replace(
            IN_JAVASCRIPT,
            files={**JAVASCRIPT, "test/other.test.js": OTHER_SUM},
        ),
        "", "4 tests pass",
    ),
    "scripts beside that of the tests, and after it, which counts their lines": (
        IN_JAVASCRIPT,
        "sed -i -e 's/\"scripts\": {/&\"lint\": \"node --check cart.js\", \"posttest\": \"npm run lint\", /'"
        " -e 's/node --test/& --experimental-test-coverage/' package.json",
        f"3 tests pass{AGAIN}package.json",
    ),
    "a further name for imports": (
        MAPPED,
        "sed -i 's/\"#assert\"/\"#sum\": \".\\/sum.cjs\", &/' package.json\n"
        "echo 'exports.sum = (items) => items.reduce((one, other) => one + other, 0);' > sum.cjs\n"
        "printf 'import { sum } from \"#sum\";\\nexport const total = sum;\\n' > cart.js",
        f"3 tests pass{AGAIN}package.json",
    ),
    "settings of npm": (
        WITH_SETTINGS, "echo save-exact=true >> .npmrc", f"3 tests pass{AGAIN}.npmrc"
    ),
    "a package that becomes a module": (
        NO_MODULE, "sed -i 's/\"name\"/\"type\": \"module\", &/' package.json", "2 tests pass"
    ),
    "a part of a test in a module of its own, and a new test": (
        WITHOUT_NPM,
        "echo 'export const basket = [1, 2];' > test/baskets.js\n"
        "sed -i 's/\\[1, 2\\]/basket/; 1i import { basket } from \"./baskets.js\";' test/cart.test.js\n"
        "sed 's/\"sum\"/\"total\"/' test/cart.test.js > test/more.test.js",
        f"6 tests pass{AGAIN}test/baskets.js, test/cart.test.js, test/more.test.js",
    ),
}  # fmt: skip

# --- go -----------------------------------------------------------------------------------------------
GO: dict[str, tuple[Language, str, str]] = {
    "tests of its own": (
        IN_GO, "sed 's/TestSum/TestMore/' cart_test.go > more_test.go",
        f"3 tests pass{AGAIN}more_test.go",
    ),
    "a test in another form": (
        IN_GO, "sed -i 's/^\\t/    /; s/not the sum/no sum/' cart_test.go",
        f"2 tests pass{AGAIN}cart_test.go",
    ),
    "a package of its own, and a module that the program requires": (
        IN_GO,
        "mkdir sums lists; sed 's/package shop/package sums/' cart.go > sums/sums.go\n"
        "sed 's/package shop/package sums/' cart_test.go > sums/sums_test.go\n"
        "printf 'module example.com/lists\\n\\ngo 1.24\\n' > lists/go.mod\n"
        "printf 'package lists\\n\\nconst Most = 9\\n' > lists/lists.go\n"
        "printf '\\nrequire example.com/lists v0.0.0\\nreplace example.com/lists => ./lists\\n' >> go.mod\n"
        "cat > cart.go <<'END'\n"
        "package shop\n\n"
        'import (\n\t"example.com/lists"\n\t"example.com/shop/sums"\n)\n\n'
        "func Total(items []int) int { return sums.Total(items[:min(len(items), lists.Most)]) }\n"
        "END\n", f"3 tests pass{AGAIN}sums/sums_test.go",
    ),
}  # fmt: skip
