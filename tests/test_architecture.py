"""What holds for the tree as a whole: every part has its test, its place in the docs, and its limits."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from tests.red_team.__main__ import threats
from tests.support.generate import ROOT, drifted
from tests.support.jsonschemas import complaints
from tests.support.phrases import differences
from tests.support.schemas import schemas

from handoffd.api.verbs import VERBS
from handoffd.engine.decision import Effect, Result
from handoffd.engine.events import Event
from handoffd.errors import HandoffdError, InvalidFile
from handoffd.execute import registry
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.inspection.own_files import shipped_layers
from handoffd.protocol import yamltext
from handoffd.protocol.handoff import FileMark, Found, HandoffMark
from handoffd.protocol.handoff_text import handoff_pieces
from handoffd.protocol.reading import Expected, HandoffTexts, read_handoff
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import DONE, Gates, RuleBook
from handoffd.protocol.state import Reason, State, Status
from handoffd.settings.model import ProjectSettings, Settings

PACKAGE = ROOT / "daemon" / "handoffd"
UNIT = ROOT / "tests" / "unit"
DOCS = ROOT / "docs"
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
PRESETS = sorted(path.stem for path in (ROOT / "config" / "presets").glob("*.yaml"))

# --- lists that may only get shorter ------------------------------------------------------------------

EXCEPTIONS: Mapping[str, list[str]] = json.loads((ROOT / "tests/data/tree.json").read_text("utf-8"))
"""Files below the floor, files that could live in their only importer, packages without unit tests."""

FLOOR, CEILING, FUSED, FUNCTION_LINES = 60, 600, 500, 60
"""Lines of the shortest file and the longest, of two that should be one, of the longest function."""
PACKAGE_FILES = range(3, 21)
MOST_FILES = 390
"""Beside the `__init__` of the packages. A new subject gets a file, and an old one gives one up."""
FLOORS, ARROWS = 7, 70
WORDS = 2500
"""Inside a package: modules that lead down behind one another, and imports."""
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "common", "core", "manager", "misc"}


# --- the tree -----------------------------------------------------------------------------------------
@cache
def source(module: Path) -> str:
    """Return the text of a module of the package."""
    return (PACKAGE / module).read_text(encoding="utf-8")


@cache
def nodes(module: Path) -> tuple[ast.AST, ...]:
    """Return everything in the syntax tree of a module, the tree itself first."""
    return tuple(ast.walk(ast.parse(source(module))))


def lines_of(module: Path) -> int:
    """Return how long a module is."""
    return len(source(module).splitlines())


def imports_of(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports, or may import: a name may be a function's, too."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


@cache
def imported(module: Path) -> set[Path]:
    """Return the modules of the package that a module imports, wherever in its text."""
    names = {name for node in nodes(module) for name in imports_of(node)}
    paths = {Path(*name.split(".")[1:]).with_suffix(".py") for name in names if name.startswith("handoffd.")}
    return paths & set(MODULES) - {module}


def stands_alone(module: Path) -> bool:
    """Return whether a module is a file for a reason of its own: a verb, a port, or a program."""
    tree, *_ = nodes(module)
    assert isinstance(tree, ast.Module)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    port = bool(classes) and all("Protocol" in map(ast.unparse, node.bases) for node in classes)
    program = any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in tree.body)
    verb = module.parts[0] == "cli" and "@click." in source(module)
    return module.stem == "__init__" or verb or port or program


def test_no_file_is_a_sliver_or_too_long_to_find_anything_in() -> None:
    """What is shorter is known, and the list may only shrink."""
    lengths = {module: lines_of(module) for module in MODULES}
    short = {module for module, lines in lengths.items() if lines < FLOOR and module.stem != "__init__"}

    assert [] == [str(module) for module, lines in lengths.items() if lines > CEILING]
    assert set(map(str, short)) == set(EXCEPTIONS["short"])
    assert len([module for module in MODULES if module.stem != "__init__"]) <= MOST_FILES


def test_a_file_with_one_importer_lives_in_that_importer() -> None:
    """Unless both together are too long, or it is a file for a reason of its own."""
    importers: dict[Path, set[Path]] = {module: set() for module in MODULES}
    for module in MODULES:
        for other in imported(module):
            importers[other].add(module)
    single = {
        str(module)
        for module, users in importers.items()
        if [module.parent] == [user.parent for user in users]
        and not stands_alone(module)
        and lines_of(module) + sum(map(lines_of, users)) <= FUSED
    }

    assert single == set(EXCEPTIONS["one importer"])


def test_a_package_is_a_room_and_no_cupboard_or_hall() -> None:
    """Between 3 and 20 files, beside its `__init__`."""
    files = Counter(module.parent for module in MODULES if module.stem != "__init__")

    assert {str(package) for package, count in files.items() if count not in PACKAGE_FILES} == set()


def test_inside_a_package_imports_are_few_and_shallow() -> None:
    """At most `FLOORS` levels, and `ARROWS` imports."""
    rooms: dict[Path, set[Path]] = {}
    for module in MODULES:
        if module.parent != Path() and module.stem != "__init__":
            rooms.setdefault(module.parent, set()).add(module)

    assert [] == [room for room, modules in rooms.items() if _floors(modules) > FLOORS]
    assert [] == [room for room, modules in rooms.items() if _arrows(modules) > ARROWS]


def _arrows(modules: set[Path]) -> int:
    return sum(len(imported(module) & modules) for module in modules)


def _floors(modules: set[Path]) -> int:
    floors: dict[Path, int] = {}
    for module in TopologicalSorter(
        {module: imported(module) & modules for module in modules}
    ).static_order():
        floors[module] = 1 + max((floors[below] for below in imported(module) & modules), default=0)
    return max(floors.values())


def test_tests_mirror_the_packages() -> None:
    """The tests of a package are in the folder of its name, and nowhere else."""
    packages = {module.parent for module in MODULES}
    folders = {path.relative_to(UNIT).parent for path in UNIT.rglob("test_*.py")}

    assert folders <= packages
    assert packages <= folders | {Path()} | {Path(name) for name in EXCEPTIONS["without unit tests"]}


def test_no_function_is_longer_than_can_be_read_at_once() -> None:
    """None has more than `FUNCTION_LINES` lines."""
    assert [] == [
        f"{module}:{node.name}"
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES
    ]


COUNTED = re.compile(
    r" (?:more )?(?:accounts|agents|attempts|changes|days|decisions|events|executors|files|folders|notices"
    r"|places|processes|projects|restarts|slots|stories|tasks|tests|times|tracks|warnings)\b"
)


def test_reports_say_one_project_and_not_one_projects() -> None:
    """`counted` says how many; the pure packages say it as decisions were recorded, rehearsals start fast."""
    plural = [
        f"{module}:{text.lineno}"
        for module in MODULES
        if module.parts[0] not in {"engine", "protocol", "rehearsal"}
        and module.parts[:2] != ("execute", "reports")
        for text in nodes(module)
        if isinstance(text, ast.JoinedStr)
        for value, words in pairwise(text.values)
        if isinstance(value, ast.FormattedValue) and isinstance(words, ast.Constant)
        if COUNTED.match(str(words.value)) and not ast.unparse(value.value).isupper()
    ]

    assert [] == plural


def test_every_module_says_what_it_is_about() -> None:
    """By its name already."""
    assert [] == [module for module in MODULES if {module.stem, *module.parts[:-1]} & NAMES_THAT_SAY_NOTHING]


def test_the_top_level_holds_the_layout_and_nothing_else() -> None:
    """Source below daemon/, what ships as data below config/ and systemd/."""
    names = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    layout = {"pyproject.toml", "README.md", "daemon", "config", "systemd", "tests"}
    small_files = {"LICENSE", "CHANGELOG.md", "Makefile", "docs"}

    assert set() == names - layout - small_files - {"dist", "build", "htmlcov"}


# --- the documentation --------------------------------------------------------------------------------
def text_of(name: str) -> str:
    """Return the text of a page below docs/, or of all pages of a folder there."""
    pages = [DOCS / name] if name.endswith(".md") else sorted((DOCS / name).rglob("*.md"))
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def not_named(names: Iterator[str] | list[str], text: str) -> list[str]:
    """Return the `names` that `text` does not have between backticks, alone or as a word."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    quoted = set(re.findall(r"[A-Za-z0-9_.-]+", " ".join(re.findall(r"`([^`\n]+)`", prose))))
    return [name for name in names if name not in quoted]


def flat(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings of a model."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        inner = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
        yield from flat(inner, f"{prefix}{name}.") if inner else (f"{prefix}{name}",)


def kinds(union: Any) -> list[str]:
    """Return the tags of the members of a union."""
    return [member.__struct_config__.tag for member in get_args(union)]


@pytest.mark.parametrize(("model", "page"), [(Settings, "settings"), (ProjectSettings, "project-settings")])
def test_every_setting_has_a_place_in_the_docs(model: type[BaseModel], page: str) -> None:
    """With its default and what it means."""
    assert [] == not_named(flat(model), text_of(f"reference/{page}.md"))


def test_everything_of_the_protocol_has_a_place_in_the_docs() -> None:
    """Fields, statuses, reasons, steps, verbs, events, orders and results."""
    steps = build_rulebook(shipped_layers(None)).steps
    names = [
        *State.model_fields, *Status, *Reason, *steps, *VERBS, *kinds(Event), *kinds(Effect),
        *kinds(Result),
    ]  # fmt: skip

    assert [] == not_named(names, text_of("reference"))


def test_every_threat_names_the_test_that_plays_it() -> None:
    """`make red-team` plays the page; a renamed test would be an attack that nothing plays."""
    rows = threats()
    places = [row.test.partition("::") for row in rows]

    assert len(rows) > 25
    assert [] == [
        name or file for file, _, name in places if f"def {name}" not in (ROOT / file).read_text("utf-8")
    ]


def test_every_rule_of_a_flow_names_tests_that_exist() -> None:
    """And texts that the loader refuses; each rule has one at least."""
    page = text_of("explanation/flow-rules.md")
    rules = [line for line in page.splitlines() if line.startswith("| ") and "Shown by" not in line]
    texts = "".join(path.read_text("utf-8") for path in (UNIT / "engine" / "flow").glob("test_*.py"))
    refused = (UNIT / "protocol" / "pipelines" / "refusals.txt").read_text("utf-8")

    assert len(rules) > 50
    assert [] == [rule for rule in rules if not re.search(r"`|\"", rule.split("|")[2])]
    assert [] == [name for name in re.findall(r"`(test_\w+)`", page) if f"def {name}(" not in texts]
    assert [] == [name for name in re.findall(r"\"([^\"]+)\"", page) if f"# {name}\n" not in refused]


def test_every_verb_has_a_place_in_the_manual_of_the_command_line() -> None:
    """As it is typed."""
    manual = text_of("reference")

    assert [] == [verb for verb in VERBS if f"handoffd {VERBS[verb].typed}" not in manual]


def families(error: type[HandoffdError] = HandoffdError) -> Iterator[type[HandoffdError]]:
    """Yield every family of errors for people."""
    yield error
    for family in error.__subclasses__():
        yield from families(family)


def test_every_exit_code_has_a_place_in_the_docs() -> None:
    """0 and 2 are the convention's, the others the families' own."""
    codes = {0, 2, *(family.exit_code for family in families())}
    rows = {row.strip() for row in re.findall(r"^\|([^|]*)\|", text_of("reference"), re.MULTILINE)}

    assert set() == {str(code) for code in codes} - rows


def error_codes() -> set[str]:
    """Return every code with which the package refuses something, from its source."""
    found = {text for module in MODULES for node in nodes(module) for text in _codes(node)}
    return {text for text in found if re.fullmatch(r"[A-Z][A-Z_]+", text)}


def _codes(node: ast.AST) -> set[str]:
    match node:
        case ast.Call(func=ast.Name(id="refuse" | "_undo"), args=[_, code, *_]):
            return _texts(code)
        case (
            ast.keyword(arg="code", value=value)
            | ast.Assign(targets=[ast.Name(id="default_code")], value=value)
        ):
            return _texts(value)
    return set()


def _texts(node: ast.expr) -> set[str]:
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def test_every_error_code_has_a_place_in_the_docs() -> None:
    """Scripts depend on them."""
    assert len(error_codes()) > 20
    assert [] == not_named(sorted(error_codes()), text_of("reference"))


def test_generated_parts_are_up_to_date() -> None:
    """`make schema` updates them."""
    assert [] == drifted()


def test_every_dependency_is_explained_and_used() -> None:
    """What users have to install has a written reason, and the package imports it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[<>=!\[ ;]", requirement)[0] for requirement in project["dependencies"]]
    modules = {"pyyaml": "yaml"}
    imports = {
        name.split(".")[0] for module in MODULES for node in nodes(module) for name in imports_of(node)
    }

    assert [] == [name for name in names if f"`{name}`" not in text_of("decisions.md")]
    assert [] == [name for name in names if modules.get(name, name.replace("-", "_")) not in imports]


def test_each_package_has_one_row_in_the_architecture() -> None:
    """A package that is described twice is soon described in two ways."""
    packages = {str(module.parent) for module in MODULES if module.name == "__init__.py"} - {
        ".",
        "rehearsal/sample",
    }
    rows = re.findall(r"^\| `([a-z/]+)/` \|", text_of("architecture.md"), re.MULTILINE)

    assert sorted(packages) == sorted(rows)


def test_the_architecture_names_files_and_functions_that_exist() -> None:
    """It leads a reader through the code, who would look for them."""
    quoted = re.findall(r"`([^`\n]+)`", text_of("architecture.md"))
    files = [name for name in quoted if name.endswith(".py")]
    called = [
        name.rpartition(".")[2]
        for name in quoted
        if re.fullmatch(r"[A-Z][a-z]\w+\.\w+|[a-z]+\.[a-z]+_\w+", name)
    ]
    names = {
        node.name
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert [] == [name for name in files if not (PACKAGE / name).exists()]
    assert [] == [name for name in called if name not in names]


def test_the_readme_names_the_two_commands() -> None:
    """A reader with a minute needs no others."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert [] == [command for command in ("make demo", "make test") if command not in readme]


DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    """To a file that is there, and to a heading that it has."""
    broken = []
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", document.read_text(encoding="utf-8")):
        name, _, heading = target.partition("#")
        file = (document.parent / name).resolve() if name else document
        if not file.exists() or (heading and heading not in anchors(file)):
            broken.append(target)

    assert [] == broken


def test_a_page_is_read_in_one_sitting() -> None:
    """At most `WORDS` words; the changelog grows with every release."""
    words = {path: len(path.read_text("utf-8").split()) for path in DOCUMENTS if path.stem != "CHANGELOG"}

    assert {} == {path: count for path, count in words.items() if count > WORDS}


def test_files_of_tests_that_the_docs_name_exist() -> None:
    """Below `tests/unit/` if the name has no `tests/`: a test that moves takes its mention along."""
    named = {
        (path, name)
        for path in DOCUMENTS
        for name in re.findall(r"`([\w/]*test_\w+\.py)`", path.read_text("utf-8"))
    }

    assert [] == [
        f"{path.relative_to(ROOT)}: {name}"
        for path, name in sorted(named)
        if not (ROOT / name).exists() and not (ROOT / "tests/unit" / name).exists()
    ]


def anchors(document: Path) -> set[str]:
    """Return the names under which a document's headings can be linked to."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def fenced(document: str, language: str) -> list[str]:
    """Return the examples of one language in a document."""
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(document), re.MULTILINE | re.DOTALL)


def test_the_examples_in_the_docs_are_valid() -> None:
    """The table, the hand-off and the executor give no error when they are copied."""
    (table,), (handoff,) = fenced("reference/protocol", "yaml"), fenced("reference/protocol", "markdown")
    (executor,) = fenced("reference/settings.md", "yaml")

    rules = build_rulebook((*shipped_layers(None), Layer("example", table)))
    seen = HandoffTexts(
        handoff=handoff.encode(), mark=HandoffMark(handoff=FileMark(digest="d", inode=1, mtime_ns=1))
    )
    found = read_handoff(seen, Expected(story="US-005", step="impl", attempt=2))
    settings = plain("example", executor)
    book = load_book(shipped_layer(), registry.Layer(file="example", definitions=settings["executors"]))

    assert "security" in rules.path("story")
    assert isinstance(found, Found)
    assert (Status.PASS, ()) == (found.handoff.status, found.warnings)
    assert settings["executor"] in book.names


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_log_is_read_on_past_what_systemd_says() -> None:
    """In the log of a unit are lines of plain text, too; none of them ends the pipes of the docs."""
    ours = [json.dumps({"event": "decided", "project": "/srv/shop", "run": "..."}, separators=(",", ":"))]
    lines = "\n".join(["Started handoffd.service - handoffd.", '{"event": "cut', *ours, '{"event":"ready"}'])
    programs = re.findall(r"journalctl [^|`]*\| jq ([^']*) '([^']*)'", text_of("how-to"))

    assert 2 == len(programs)
    for options, program in programs:
        command = ["jq", *options.split(), program]
        found = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
        assert (0, ours) == (found.returncode, found.stdout.splitlines()), found.stderr


def test_prose_is_plain_english() -> None:
    """Each banned phrase occurs exactly as often as `tests/data/phrases.json` records, and never more."""
    assert [] == list(differences())


# --- schemas and the data they describe ---------------------------------------------------------------
def plain(name: str, text: str) -> Any:
    """Return what a YAML text holds."""
    return yamltext.load(text, file=name).data


def configuration() -> Iterator[tuple[str, Path]]:
    """Yield each shipped configuration file with the schema that describes it."""
    config = ROOT / "config"
    yield "settings.schema.json", config / "handoffd.example.yaml"
    for path in (config / "step-rules.yaml", *(config / "presets").glob("*.yaml")):
        yield "step-rules.schema.json", path


@pytest.mark.parametrize(("schema", "path"), list(configuration()), ids=lambda value: Path(value).name)
def test_shipped_configuration_satisfies_its_schema(schema: str, path: Path) -> None:
    """What an editor marks as wrong is wrong."""
    assert [] == complaints(plain(path.name, path.read_text(encoding="utf-8")), schemas()[schema])


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests/data/states").glob("*.json")), ids=lambda path: path.name
)
def test_states_of_released_versions_satisfy_their_schema(path: Path) -> None:
    """Other tools check with it what they write."""
    assert [] == complaints(json.loads(path.read_text(encoding="utf-8")), schemas()["state.schema.json"])


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests/data/handoffs").glob("*.md")), ids=lambda path: path.name
)
def test_front_matters_satisfy_their_schema(path: Path) -> None:
    """Those that can be read: what is begun and broken, no schema can describe."""
    schema = schemas()["handoff.schema.json"]
    try:
        pieces = handoff_pieces(path.read_bytes())
    except InvalidFile:
        assert path.stem in {"bomb", "unclosed", "unparsable"}
    else:
        assert [] == complaints(typed(pieces.fields.values if pieces.fields else {}, schema), schema)


def typed(values: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a front matter, which are read as text, as the types that they stand for."""
    whole = {name for name, part in schema["properties"].items() if _type(part) == "integer"}
    found: dict[str, Any] = {key: None if value == "null" else value for key, value in values.items()}
    return {key: int(value) if key in whole and value is not None else value for key, value in found.items()}


def _type(part: Mapping[str, Any]) -> object:
    return part.get("anyOf", [part])[0].get("type")


def test_a_schema_refuses_what_its_reader_refuses() -> None:
    """The judge used here can refuse."""
    rules = schemas()["step-rules.schema.json"]
    wrong = {"steps": {"bdd": {"max_attempts": 0, "tests": "blue", "speed": 9}}}

    assert 3 <= len(complaints(wrong, rules))
    assert [] != complaints({"project": "", "step": "bdd", "status": "done"}, schemas()["state.schema.json"])


# --- the shipped step tables --------------------------------------------------------------------------
def reachable(rules: RuleBook) -> set[str]:
    """Return the steps that some pipeline can come to, by passes and failures."""
    pending = [
        step for pipeline in rules.pipelines.values() for step in (pipeline.first, pipeline.bootstrap) if step
    ]
    found: set[str] = set()
    while pending:
        step = pending.pop()
        if step == DONE or step in found:
            continue
        found.add(step)
        pending += [rules.steps[step].next_on_pass, *rules.steps[step].on_fail.values()]
    return found


@pytest.mark.parametrize("gates", get_args(Gates))
@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_every_preset_is_a_valid_table_in_which_each_step_passes_to_done(
    preset: str | None, gates: Gates
) -> None:
    """Every target exists; nothing goes round in a circle of passes; circles of failures are counted."""
    rules = build_rulebook(shipped_layers(preset), gates=gates)

    for step, rule in rules.steps.items():
        walk = [step]
        while walk[-1] != DONE:
            assert len(walk) <= len(rules.steps), walk
            walk.append(rules.steps[walk[-1]].next_on_pass)
        assert 1 <= rule.max_visits < 100
        assert set(rule.on_fail.values()) <= set(rules.steps)


def test_no_shipped_step_is_out_of_reach() -> None:
    """A preset leads to `commit`, `gates` to `acceptance`, the table as it ships to every other step."""
    plain_table = build_rulebook(shipped_layers(None))

    assert {"commit", "acceptance"} == set(plain_table.steps) - reachable(plain_table)
    whole = build_rulebook(shipped_layers("with-commit"), gates="both")
    assert set() == set(whole.steps) - reachable(whole)


def test_every_shipped_step_has_an_instruction_in_every_language() -> None:
    """A step that an executor does, that is; a person needs no prompt."""
    steps = build_rulebook(shipped_layers(None)).steps
    for language in ("en", "zh-TW"):
        folder = ROOT / "config" / "prompts" / language / "steps"
        assert set(steps) == {path.stem for path in folder.glob("*.j2")}
