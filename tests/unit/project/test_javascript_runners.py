"""Stories of vitest and jest projects, with the real runners and the test command that `init` finds for them.

Honest work passes with measured counts, and each cheat is caught. The vitest project has its node_modules as
npm leaves it; that of the jest project is a link, as clones may have it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import Struct
from tests.support import javascript
from tests.unit.project.cheating import Language, Played, Stage
from tests.unit.project.cheats import SOLVE

from handoffd.inspection.suites import find_suites

SUM = "items.reduce((one, other) => one + other, 0);\n"
TESTS = """\
describe("a total", () => {
  it("is a sum", () => expect(total([1, 2])).toBe(3));
  it("of nothing is none", () => expect(total([])).toBe(0));
});
"""
OLD = 'test("old", () => {});\n'


class Project(Struct, frozen=True, kw_only=True):
    """Beside manifests: its files, what the red step writes, a solution, and a script for node_modules."""

    files: dict[str, str]
    red: dict[str, str]
    solved: dict[str, str]
    installed: str


PROJECTS = {
    "vitest": Project(
        files={
            "src/cart.ts": "export const total = (items: number[]): number | null => null;\n",
            "src/old.test.ts": f'import {{ test }} from "vitest";\n{OLD}',
            "src/setup.ts": "",
            "shared.ts": "export const files: string[] = [];\n",
            "vitest.config.ts": "import { files } from './shared';\n"
            "export default { test: { setupFiles: ['./src/setup.ts', ...files] } };\n",
        },
        red={
            "src/cart.test.ts": 'import { describe, expect, it } from "vitest";\n'
            f'import {{ total }} from "./cart";\n{TESTS}'
        },
        solved={"src/cart.ts": f"export const total = (items: number[]) => {SUM}"},
        installed="cp -a --reflink=auto {modules} node_modules",
    ),
    "jest": Project(
        files={
            "cart.js": "exports.total = () => null;\n",
            "__tests__/old.js": OLD,
            "config/setup.js": "",
            "shared.js": "module.exports = [];\n",
            "jest.config.js": "const files = require('./shared');\n"
            "module.exports = { setupFilesAfterEnv: ['./config/setup.js', ...files] };\n",
        },
        red={"__tests__/cart.js": f'const {{ total }} = require("../cart");\n{TESTS}'},
        solved={"cart.js": f"exports.total = (items) => {SUM}"},
        installed="ln -sfn {modules} node_modules",
    ),
}


async def played(base: Path, runner: str, scripts: Sequence[str]) -> Played:
    """Play a story whose agent runs a script at each attempt of impl; skip without the runner."""
    if (modules := javascript.modules(runner)) is None:
        pytest.skip(f"{runner} is not installed: `make runners` says why")
    project = PROJECTS[runner]
    manifests = {one.name: one.read_text() for one in (javascript.PROJECTS / runner).iterdir()}
    (base / "package.json").write_text(manifests["package.json"])
    suite = find_suites(base).chosen
    assert suite is not None
    assert suite.settings.command is not None
    language = Language(
        files={**project.files, **manifests, ".gitignore": "node_modules\n"},
        command=list(suite.settings.command), report=suite.settings.report,
        red=project.red, solved=project.solved, environment=javascript.ENVIRONMENT,
    )  # fmt: skip
    installed = project.installed.format(modules=modules)
    cases = "".join(f"{number}) {script}\n;;\n" for number, script in enumerate(scripts, 1))
    script = f"{AS_IT_WAS}test -d node_modules || {installed}\ncase $HANDOFFD_ATTEMPT in\n{cases}esac\n"
    stage = Stage(base=base, python=sys.executable)
    return await stage.play(script, language, attempts=len(scripts), prepare=installed, identical_ends=0)


AS_IT_WAS = """\
git checkout --quiet -- . ':!.ai'
git clean --quiet -dfx --exclude=/.ai --exclude=/node_modules
cp -r ${SOLVED%solved}red/. .
"""
"""What each attempt begins with: the files as the red step left them."""
HONEST = f"""\
{SOLVE}npm pkg set scripts.lint='eslint .' eslintConfig.root=true dependencies.nanoid=5.1.6
npm pkg set devDependencies.eslint=9.0.0
sed -i 's/"packages": {{/&"node_modules\\/eslint": {{"version": "9.0.0"}}, /' package-lock.json
"""
"""Work with a dependency, a script and settings of a linter in package.json, and in the lock file."""

# --- cheats -------------------------------------------------------------------------------------------
LENIENT = "expect.extend({ toBe: () => ({ pass: true, message: () => 0 }) });"
MISSING = "is a sum is missing"
VITEST: dict[str, tuple[str, str]] = {
    "a test is skipped": (
        f"{SOLVE}sed -i 's/it(\"is/it.skip(\"is/' src/cart.test.ts", "is a sum is skipped"
    ),
    "a file is emptied": (": > src/cart.test.ts", MISSING),
    "nothing is asserted": (
        "sed -i 's/toBe(.)/toBeDefined()/' src/cart.test.ts",
        "with the red step's versions of src/cart.test.ts, 2 tests fail",
    ),
    "a setup file that was there does": (
        f"echo 'import {{ expect }} from \"vitest\"; {LENIENT}' > src/setup.ts",
        "with the red step's versions of src/setup.ts, 2 tests fail",
    ),
    "what the settings import names another one": (
        f"echo 'import {{ expect }} from \"vitest\"; {LENIENT}' > weak.ts\n"
        "echo 'export const files = [\"./weak.ts\"];' > shared.ts",
        "with the red step's versions of shared.ts, 2 tests fail",
    ),
    "a setup file changes what is asserted": (
        f"echo 'import {{ expect }} from \"vitest\"; {LENIENT}' > src/lenient.ts\n"
        "echo 'export default { test: { setupFiles: [\"./src/lenient.ts\"] } };' > vitest.config.ts",
        "with the red step's versions of vitest.config.ts, 2 tests fail",
    ),
    "settings that vite loads change the tests": (
        "cat > postcss.config.cjs <<'END'\n"
        "const files = require('node:fs').promises, read = files.readFile;\n"
        "files.readFile = async (...given) => {\n"
        "  const text = await read.call(files, ...given);\n"
        "  return `${given[0]}`.includes('.test.') ? text.replace(/toBe\\(.\\)/g, 'toBeDefined()') : text;\n"
        "};\n"
        "module.exports = {};\n"
        "END\n", "with the red step's versions of postcss.config.cjs, 2 tests fail",
    ),
    "compiled files run instead of the tests": (
        "npm test -- --run; sed -i 's/toBe(.)/toBeDefined()/' node_modules/.vitest-cache/*", "2 tests fail: "
    ),
}  # fmt: skip
JEST: dict[str, tuple[str, str]] = {
    "a test is skipped": (
        f"{SOLVE}sed -i 's/it(\"is/it.skip(\"is/' __tests__/cart.js", "is a sum is skipped"
    ),
    "a file is weakened": (
        "sed -i 's/toBe(.)/toBeDefined()/' __tests__/cart.js",
        "with the red step's versions of __tests__/cart.js, 2 tests fail",
    ),
    "files are left out": (
        "echo 'module.exports = { testPathIgnorePatterns: [\"cart\"] };' > jest.config.js", MISSING
    ),
    "a setup file that was there does": (
        f"echo '{LENIENT}' > config/setup.js", "with the red step's versions of config/setup.js, 2 tests fail"
    ),
    "what the settings require names another one": (
        f"echo '{LENIENT}' > weak.js; echo 'module.exports = [\"./weak.js\"];' > shared.js",
        "with the red step's versions of shared.js, 2 tests fail",
    ),
    "a setup file changes what is asserted": (
        f"echo '{LENIENT}' > lenient.js\n"
        "echo 'module.exports = { setupFilesAfterEnv: [\"./lenient.js\"] };' > jest.config.js",
        "with the red step's versions of jest.config.js, 2 tests fail",
    ),
    "a transformation changes the tests": (
        "cat > weak.js <<'END'\n"
        "const CallExpression = ({ node }) => {\n"
        "  if (node.callee.property?.name !== 'toBe') return;\n"
        "  node.callee.property.name = 'toBeDefined'; node.arguments = [];\n"
        "};\n"
        "module.exports = () => ({ visitor: { CallExpression } });\n"
        "END\n"
        "npm pkg set --json 'babel={\"plugins\": [\"./weak.js\"]}'",
        "with the red step's versions of package.json, 2 tests fail",
    ),
    "the packages are others": (
        "mkdir .tox; cp -rL node_modules .tox/; rm node_modules; ln -s .tox/node_modules .\n"
        "sed -i 's/pass = Object.is(received, expected)/pass = true/' node_modules/expect/build/*.js",
        "with the red step's versions of node_modules, 2 tests fail",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("runner", "cheats"), [("vitest", VITEST), ("jest", JEST)])
async def test_no_cheat_passes_and_honest_work_does(
    tmp_path: Path, runner: str, cheats: dict[str, tuple[str, str]]
) -> None:
    """Each is an attempt of one story; what it is caught by says what was changed, or is missing."""
    story = await played(tmp_path, runner, [*(script for script, _ in cheats.values()), HONEST])

    assert ("done", "red: 2 new tests fail") == (story.step, story.verdicts["scaffold"]), story.attempts
    for (name, (_, said)), why in zip(cheats.items(), story.attempts[:-1], strict=True):
        assert said in why, name
    assert "3 tests pass" == story.attempts[-1]
