"""What is checked of what a step has written: in files of every kind, and as the program that runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from handoffd.inspection.outputs import (
    MAX_BYTES,
    MOST_PROBLEMS,
    MOST_SCENARIOS,
    Scenario,
    problems,
    scenarios_in,
)

STORY = "docs/bdd/US-001.md"
CONTRACT = """\
openapi: 3.1.0
info: {title: Shop, version: "1"}
paths:
  /cart:
    get:
      responses:
        "200":
          description: The cart
          content: {application/json: {schema: {$ref: "#/components/schemas/Cart"}}}
components:
  schemas:
    Cart: {type: object}
"""
EVENTS = """\
asyncapi: 3.0.0
info: {title: Shop, version: "1"}
channels:
  paid: {address: paid, messages: {paid: {$ref: "#/components/messages/a~1b"}}}
operations:
  pay: {action: send, channel: {$ref: "#/channels/paid"}}
  asked: {$ref: "#/operations/pay"}
components:
  messages: {a/b: {}}
"""


def lay(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files below a folder."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def of_contract(root: Path, name: str, content: str | bytes) -> tuple[str, ...]:
    """Return what is wrong with one file of a contract."""
    lay(root, {f"docs/api/{name}": content})
    return problems(root, {"parse": ["docs/api/**"]})


# --- the scenarios of a text ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("## Scenario: a sum\n@unit\n\n", Scenario(title="a sum", line=1, levels=("@unit",))),
        ("## Scenario: a sum for bob@unit.example", Scenario(title="a sum for bob@unit.example", line=1)),
        ("### Scenario: S1 a sum @unit [P]", Scenario(title="a sum", line=1, id="S1", levels=("@unit",))),
        ("- **Scenario: U-1-2: a sum** @E2E", Scenario(title="a sum", line=1, id="U-1-2", levels=("@e2e",))),
        ("Scenario Outline: [AC-3] none", Scenario(title="none", line=1, id="AC-3")),
        ("### Scenario S4: none", Scenario(title="none", line=1, id="S4")),
        ("### Scenario 4: none", Scenario(title="none", line=1)),
        ("### Scenario: Empty cart", Scenario(title="Empty cart", line=1)),
        ("\n@component\n  @slow\nScenario: none", Scenario(title="none", line=4, levels=("@component",))),
        ("## 情境：購物車是空的 @unit", Scenario(title="購物車是空的", line=1, levels=("@unit",))),
        ("場景大綱: 空的\n測試層級：@integration", Scenario(title="空的", line=1, levels=("@integration",))),
        ("@unit\nFeature: x\n\nScenario: none", Scenario(title="none", line=4, levels=("@unit",))),
        ("### Scenario: none\n\n## Non-Goals\n@unit", Scenario(title="none", line=1)),
        (
            "### Scenario: fast @perf( NFR-3 ) @perf",
            Scenario(title="fast", line=1, levels=("@perf",), measures=("NFR-3", "")),
        ),
        (
            "### Scenario: S1 paid\n```gherkin\n@unit\nScenario: S1 paid\n```",
            Scenario(title="paid", line=1, id="S1", levels=("@unit",)),
        ),
        ("### Scenario: S1", Scenario(title="S1", line=1, id="S1")),
    ],
)  # fmt: skip
def test_scenarios_are_found_as_people_and_agents_write_them(text: str, found: Scenario) -> None:
    """With their ids and levels, wherever these stand."""
    assert (found,) == scenarios_in(text)


def test_the_tags_of_the_next_scenario_are_not_those_of_this_one() -> None:
    """Neither are the tags of the next feature."""
    text = "Scenario: one\n\n@unit\nScenario: two\n@e2e\nFeature: x\nScenario: three"
    assert [(), ("@unit",), ("@e2e",)] == [one.levels for one in scenarios_in(text)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No scenario: here",
        "# Scenarios",
        "Scenarios:",
        "The scenario: is not one",
        "Background: x\nGiven y",
    ],
)
def test_other_lines_are_passed_over(text: str) -> None:
    """Also where they speak of scenarios."""
    assert () == scenarios_in(text)


@pytest.mark.parametrize(
    "text", ["a" * 50_000, "@perf(" + " " * 50_000, "* " * 20_000, "@" * 50_000, "a-" * 20_000]
)
def test_a_hostile_title_costs_nothing(text: str) -> None:
    """Nor do very many scenarios."""
    assert 1 == len(scenarios_in(f"### Scenario: {text}"))
    assert MOST_SCENARIOS == len(scenarios_in("".join(f"Scenario: {n}\n" for n in range(2 * MOST_SCENARIOS))))


# --- that files are there -------------------------------------------------------------------------------
def test_a_file_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    """A folder is not a file, and what is not text cannot be read."""
    lay(tmp_path, {"empty.md": " \n", "good.md": "x", "folder.md/x": "", "image.md": b"\xff\xfe\x00"})
    names = ["empty.md", "good.md", "folder.md", "image.md", "gone.md"]
    assert (
        "empty.md: it is empty",
        "folder.md: it is missing, and this step writes it",
        f"image.md: it cannot be read as UTF-8 text of at most {MAX_BYTES // 1024 // 1024} MiB",
        "gone.md: it is missing, and this step writes it",
    ) == problems(tmp_path, {"exist": names})


# --- that documents can be read -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("openapi.yaml", CONTRACT),
        ("openapi.yaml", CONTRACT.replace('"#/components/schemas/Cart"', '"https://example.invalid/x.yaml"')),
        ("asyncapi.yml", EVENTS),
        ("any.json", '{"a": [1, null]}'),
        ("any.yaml", "a: &x 1\nb: *x\n---\nc: 2\n"),
        ("any.md", "{"),
        ("any.json", json.dumps({"a": "\U0001f600", "k" * 2000: "\x7f"})),
        ("any.yaml", "a: !Ref Shop\nb: !Sub [x, y]\nc: 2026-13-45\nd: !!python/name:os.system\n"),
        ("openapi.json", json.dumps(yaml.safe_load(CONTRACT.replace("title: Shop", 'title: "\U0001f600"')))),
    ],
)
def test_what_can_be_read_passes(tmp_path: Path, name: str, content: str) -> None:
    """Whatever is in it; what is on other machines is not fetched."""
    assert () == of_contract(tmp_path, name, content)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.json", '{"a": 1,}', "x.json:1: no JSON: "),
        ("x.yaml", "a: 1\nb: [1\n", "x.yaml:3: no YAML: "),
        ("x.yaml", "a: *gone", "x.yaml:1: no YAML: found undefined alias"),
        ("x.yaml", b"\xff", "x.yaml: it cannot be read as UTF-8"),
        ("x.yaml", "[" * 5000, "x.yaml:1: no YAML: "),
        ("openapi.yaml", "a: 1", ":1: no openapi document: it does not begin with `openapi: VERSION`"),
        ("openapi.yaml", "openapi: 3.1", "openapi.yaml:1: no version of OpenAPI that is known"),
        ("openapi.yaml", 'openapi: "9"', "openapi.yaml:1: no version of OpenAPI that is known"),
        ("openapi.yaml", CONTRACT.replace("get:", "get: 3\n    put:"), ":5: paths./cart.get: 3 is not"),
        ("openapi.yaml", CONTRACT.replace(', version: "1"', ""), ':2: info: "version" is a required'),
        ("openapi.yaml", CONTRACT.replace(" Cart:", " Card:"), "#/components/schemas/Cart leads nowhere"),
        ("openapi.yaml", CONTRACT.replace('"#/', '"gone.yaml#/'), "schemas/Cart cannot be read"),
        ("asyncapi.yml", EVENTS.replace("3.0.0", "three"), "asyncapi: 'three' is not a version"),
        ("asyncapi.yml", EVENTS.replace("send", "sent"), ":6: operations.pay: has no action"),
        ("asyncapi.yml", EVENTS.replace("title: Shop, ", ""), "asyncapi.yml:2: info: has no title"),
        ("asyncapi.yml", EVENTS.replace("a/b:", "b:"), "asyncapi.yml:4: channels.paid.messages.paid.$ref: "),
        ("asyncapi.yml", "asyncapi: 2.6.0\ninfo: {title: x, version: x}", "asyncapi.yml:1: has no channels"),
        ("asyncapi.yml", EVENTS + "servers: {$ref: '#/channels/paid/address/x'}\n", "leads nowhere"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_with_its_line(
    tmp_path: Path, name: str, content: str | bytes, said: str
) -> None:
    """Whatever an agent has written there."""
    assert said in of_contract(tmp_path, name, content)[0]


def test_a_contract_may_have_several_files(tmp_path: Path) -> None:
    """Its other files are read beside it."""
    lay(tmp_path, {"docs/api/cart.yaml": "Cart: {type: object}\n"})
    text = CONTRACT.replace("#/components/schemas/Cart", "cart.yaml#/Cart")
    assert () == of_contract(tmp_path, "openapi.yaml", text)


# --- that scenarios say their level, and have tests -----------------------------------------------------
def test_a_scenario_without_its_level_is_named(tmp_path: Path) -> None:
    """A measured one names a row of the requirements, if there are some."""
    lay(tmp_path, {STORY: "### Scenario: S1 one @unit\n### Scenario: S2 two\n### Scenario: S3 three @perf\n"})
    assert (
        f"{STORY}:2: scenario 'two' has no test level: @unit, @integration, @component, @e2e or @perf(ID)",
        f"{STORY}:3: scenario 'three' says @perf without the id of a row of docs/nfr.md: @perf(ID)",
    ) == problems(tmp_path, {"levels": [STORY]})
    lay(tmp_path, {STORY: "### Scenario: one @perf(NFR-3)\n", "docs/nfr.md": "| NFR-31 | x |"})
    assert (f"{STORY}:1: scenario 'one' measures NFR-3, which docs/nfr.md does not have",) == problems(
        tmp_path, {"levels": [STORY]}
    )
    lay(tmp_path, {"docs/nfr.md": "| NFR-3 | x |", "docs/bdd/none.md": "# Nothing\n"})
    assert (
        "docs/bdd/none.md: it has no scenario, such as `### Scenario: S1 a guest pays @unit`",
    ) == problems(tmp_path, {"levels": ["docs/bdd/**"]})


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tests/test_cart.py", "def test_s1_a_guest_pays(): ..."),
        ("tests/test_cart.py", "# S1\ndef test_it(): ..."),
        ("cart_test.go", "func TestS1Guest(t *testing.T) {}"),
        ("src/cart.rs", "#[test]\nfn s1_pays() {}"),
        ("src/test/java/CartTest.java", "void s1() {}"),
        ("web/cart.spec.ts", "it('S1: a guest pays', () => {})"),
        ("e2e/cart.feature", "Scenario: S1 a guest pays"),
    ],
)
def test_a_scenario_is_tested_where_a_test_bears_its_id(tmp_path: Path, file: str, text: str) -> None:
    """In the languages' own spelling."""
    lay(tmp_path, {STORY: "### Scenario: S1 a guest pays @unit\n", file: text})
    assert () == problems(tmp_path, {"tested": [STORY, "docs/sdd.md"]})


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tests/test_cart.py", "def test_s10(): ..."),
        ("tests/test_cart.py", "def test_class1(): ..."),
        ("shop/cart.py", "# S1"),
        ("node_modules/x/test/s1.test.js", "S1"),
        ("docs/bdd/US-002.md", "S1"),
    ],
)
def test_what_is_not_the_id_or_not_a_test_is_none(tmp_path: Path, file: str, text: str) -> None:
    """The file of the scenarios itself is none, wherever it is."""
    lay(tmp_path, {STORY: "### Scenario: S1 a guest pays @unit\n", file: text})
    assert (
        f"{STORY}:1: scenario 'a guest pays' has no test: no test file has S1 in its name or description",
    ) == problems(tmp_path, {"tested": [STORY]})


def test_a_scenario_without_an_id_is_found_by_its_title(tmp_path: Path) -> None:
    """Whatever is between its words; in Chinese, too."""
    lay(tmp_path, {STORY: "### Scenario: A guest pays!\n### 情境：購物車是空的\n### Scenario: Never\n"})
    lay(tmp_path, {"tests/test_a.py": "def test_a_guest_pays(): '購物車是空的'"})
    (only,) = problems(tmp_path, {"tested": [STORY]})
    assert "scenario 'Never' has no test: no test file has its whole title" in only


def test_what_is_still_unclear_is_named(tmp_path: Path) -> None:
    """With its line."""
    lay(tmp_path, {STORY: "x\n- [NEEDS CLARIFICATION] cents?\n"})
    assert (f"{STORY}:2: still unclear: - [NEEDS CLARIFICATION] cents?",) == problems(
        tmp_path, {"clear": [STORY]}
    )


def test_a_mark_counts_in_any_case_and_a_contract_under_any_of_its_names(tmp_path: Path) -> None:
    """As a person would read both."""
    lay(tmp_path, {STORY: "[Needs Clarification: how many?]\n", "docs/api/openapi-v1.yaml": "hello\n"})
    asked = {"clear": [STORY], "parse": ["docs/api/*.yaml"]}
    unclear, unlike = problems(tmp_path, dict(sorted(asked.items())))
    assert f"{STORY}:1: still unclear: [Needs Clarification: how many?]" == unclear
    assert unlike.startswith("docs/api/openapi-v1.yaml:1: no openapi document")


def test_of_very_many_problems_some_are_named(tmp_path: Path) -> None:
    """The others come with the next attempt."""
    lay(tmp_path, {STORY: "".join(f"### Scenario: s{n} x\n" for n in range(200))})
    assert MOST_PROBLEMS == len(problems(tmp_path, {"levels": [STORY]}))


# --- the program ----------------------------------------------------------------------------------------
def test_the_program_ends_with_what_it_found(tmp_path: Path) -> None:
    """0 where nothing is wrong; 1, and the first problem last; 126 where it cannot find out."""

    def run(*words: str) -> tuple[int, list[str]]:
        command = [sys.executable, "-I", "-m", "handoffd.inspection.outputs", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    lay(tmp_path, {STORY: "### Scenario: S1 one @unit\n"})
    assert (0, []) == run(f"--exist={STORY}", f"--levels={STORY}")
    wrong = f"{STORY}:1: scenario 'one' has no test: no test file has S1 in its name or description"
    assert (1, [wrong]) == run(f"--tested={STORY}")
    missing = "gone.md: it is missing, and this step writes it"
    assert (1, [missing, wrong, f"{missing} (and 1 more)"]) == run("--exist=gone.md", f"--tested={STORY}")
    code, lines = run(f"--tested={STORY}", "--exist=" + 2000 * "x")
    assert (126, "the outputs could not be checked: OSError: ") == (code, lines[0][:43])
