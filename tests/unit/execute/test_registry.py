"""Executors as data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from handoffd.errors import InvalidFile, NotFound
from handoffd.execute.executor import InvocationContext, invocation
from handoffd.execute.registry import ExecutorBook, Layer, layer_from_yaml, load_book, shipped_layer

NAMES = ("aider", "claude", "codex", "gemini", "opencode", "rehearsal", "rehearsal-stream")
BASES = ", ".join(sorted([*NAMES, "command"]))
PLACEHOLDERS = "{model}, {prompt_file}, {python}, {session}"
HERE = InvocationContext(python=sys.executable, prompt_file="/state/runs/r1/prompt.md")


def book(text: str) -> ExecutorBook:
    """Return the book with a person's settings over what ships."""
    return load_book(shipped_layer(), layer_from_yaml(text, "settings.yaml"))


def problems(text: str) -> list[str]:
    """Return the problems of a person's settings."""
    with pytest.raises(InvalidFile) as caught:
        book(text)
    return [str(problem) for problem in caught.value.problems]


def test_shipped_executors_can_be_chosen() -> None:
    """The pattern for a person's own executors cannot."""
    assert NAMES == load_book(shipped_layer()).names


def test_how_claude_is_called() -> None:
    """The prompt comes on stdin, and the ladder begins with INT, which lets it end its tools."""
    start = invocation(load_book(shipped_layer()).get("claude"), HERE)

    assert ("claude", "-p", "--output-format", "stream-json", "--verbose") == start.argv[:5]
    assert "--model" not in start.argv
    assert "--dangerously-skip-permissions" not in start.argv
    assert ["INT", "TERM", "KILL"] == [rung.signal for rung in start.ladder]
    assert "stdin" == start.prompt
    assert {"ANTHROPIC_API_KEY", "CLAUDE_CONFIG_DIR"} <= set(start.env)


def test_the_rehearsal_needs_nothing_but_handoffd(tmp_path: Path) -> None:
    """Its interpreter can import it from any folder, whatever is in that folder."""
    start = invocation(load_book(shipped_layer()).get("rehearsal"), HERE)
    (tmp_path / "handoffd.py").write_text("raise SystemExit('the wrong handoffd')")
    found = [*start.argv[:-2], "-c", "import handoffd.rehearsal"]

    assert (sys.executable, "-I", "-m", "handoffd.rehearsal") == start.argv
    assert 0 == subprocess.run(found, cwd=tmp_path, env={}, check=False, timeout=60).returncode


def test_a_persons_own_executor() -> None:
    """It takes from the pattern what it does not define itself."""
    tool = book("executors:\n  mytool: {extends: command, argv: [mytool, --quiet]}\n").get("mytool")

    assert ("mytool", "--quiet") == invocation(tool, HERE).argv
    assert ("stdin", "text") == (tool.prompt, tool.output)
    assert ["INT", "TERM", "KILL"] == [rung.signal for rung in tool.ladder]


def test_single_keys_of_a_shipped_executor_can_be_changed() -> None:
    """The rest stays; `extends` may lead through several, in any order."""
    found = book(
        "executors:\n"
        "  best: {extends: better, model: opus}\n"
        "  better: {extends: claude, env: []}\n"
        "  claude: {model: sonnet}\n"
    )

    assert ("--model", "sonnet") == invocation(found.get("claude"), HERE).argv[6:8]
    assert ("--model", "opus") == invocation(found.get("best"), HERE).argv[6:8]
    assert ((), "stream-json") == (found.get("best").env, found.get("best").output)
    assert ("claude", "--version") == found.get("best").version


def test_an_executor_uses_the_account_of_the_one_it_extends() -> None:
    """Unless it names another; a pattern has none to share."""
    found = book(
        "executors:\n"
        "  best: {extends: claude, model: opus}\n"
        "  second: {extends: best, account: work}\n"
        "  one: {extends: command, argv: [one]}\n"
        "  two: {extends: command, argv: [two]}\n"
    )

    accounts = {name: found.get(name).account for name in ("claude", "best", "second", "one", "two")}
    assert {"claude": "claude", "best": "claude", "second": "work", "one": "one", "two": "two"} == accounts


def test_an_unknown_executor_names_the_known_ones() -> None:
    """The error for a typing slip lists the right names."""
    for name, part in (
        ("cluade", "there is no executor 'cluade';"),
        ("command", "(it is a pattern: extend it)"),
    ):
        with pytest.raises(NotFound) as caught:
            load_book(shipped_layer()).get(name)

        assert part in caught.value.message
        assert caught.value.message.endswith(f"allowed: {', '.join(NAMES)}")
        assert "UNKNOWN_EXECUTOR" == caught.value.code


LINE_KEYS = "each, error, match, parts, resets, result, usage, when"
KEYS = (
    "account, argv, ends, env, extends, idle, inside, install, ladder, limits, login, model, notes, output, "
    "own, permission, permissions, prompt, reads, session, stream, version, writes"
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("{argv: [a], prompt: argv}", ".prompt: must not be 'argv' (allowed: stdin, file)"),
        ("{argv: [a], promt: stdin}", f".promt: unknown key (allowed: {KEYS})"),
        ("{argv: a}", ".argv: must be a list"),
        ("{argv: [a, 1]}", ".argv.1: must be text, or a list of texts"),
        ("{argv: [[a]]}", ".argv.0: the program itself cannot be left out"),
        ("{argv: ['']}", ".argv.0: must be text that is not empty"),
        (
            "{argv: [a, '{prompt}']}",
            ".argv.1: the prompt is given on stdin or as {prompt_file}, never in "
            f"argv (allowed: {PLACEHOLDERS})",
        ),
        ("{argv: [a, '{modle}']}", f".argv.1: there is no placeholder {{modle}} (allowed: {PLACEHOLDERS})"),
        (
            "{argv: [a, '{model}']}",
            '.argv.1: model is optional: write it as a list, [--model, "{model}"]',
        ),
        ("{argv: [a], prompt: file}", ".argv: with `prompt: file` it must hold {prompt_file}"),
        (
            "{argv: [a], output: stream-json}",
            ".stream.lines: with `output: stream-json` one of them must have a "
            f"`result` (allowed: {LINE_KEYS})",
        ),
        (
            "{argv: [a], ladder: [{signal: HUP}]}",
            ".ladder.0.signal: must not be 'HUP' (allowed: INT, TERM, KILL)",
        ),
        (
            "{argv: [a], ladder: [{signal: INT, grace: 1}]}",
            ".ladder.0.grace: unknown key (allowed: grace_s, signal)",
        ),
        ("{argv: [a], env: [A=B]}", ".env.0: 'A=B' is not the name of an environment variable"),
        ("{extends: gone}", f".extends: extends an executor that is not there (allowed: {BASES})"),
        ("{extends: x}", f".extends: extends itself, in the end (allowed: {BASES})"),
        (
            "{argv: [a], stream: {lines: [{when: {type: x}, part: []}]}}",
            f".stream.lines.0.part: unknown key (allowed: {LINE_KEYS})",
        ),
        (
            "{argv: [a], stream: {lines: [{when: {type: {}}}]}}",
            ".stream.lines.0.when.type: must be a text, a whole number, true, false, or a list of them",
        ),
        ("{argv: [a], stream: {session: 7}}", ".stream.session: must be text"),
        (
            "{argv: [a], stream: {lines: [{match: '('}]}}",
            ".stream.lines.0.match: must be a regular expression",
        ),
        (
            "{argv: [a], ends: [{match: x, is: gone}]}",
            ".ends.0.is: must not be 'gone' (allowed: clean, failed, ",
        ),
        ("{argv: [a], ends: [{match: x}]}", ".ends.0.is: is missing"),
        ("[a]", ": must be a mapping"),
        ("{argv: [a], name: y}", ".name: unknown key"),
    ],
)
def test_a_mistake_is_named_with_its_place(body: str, expected: str) -> None:
    """File, line, key, and what would have been accepted."""
    (found,) = problems(f"executors:\n  x: {body}\n")

    assert found.startswith(f"settings.yaml:2: executors.x{expected}")


def test_every_mistake_is_reported_at_once() -> None:
    """A person need not start the daemon five times to find five of them."""
    text = "executors:\n  'a b': {argv: [a]}\n  x:\n    argv: [a]\n    prompt: no\n    output: no\n"

    assert [2, 5, 6] == [int(line.split(":")[1]) for line in problems(text)]


def test_other_yaml_is_refused() -> None:
    """The top level knows one key."""
    expected = "settings.yaml:1: executors: must be a mapping of names to executors"
    assert [expected] == problems("executors: 7\n")
    for text in ("[]", "executor: {}\n"):
        with pytest.raises(InvalidFile, match="executors"):
            layer_from_yaml(text, "settings.yaml")


def test_settings_that_were_parsed_elsewhere_are_a_layer_too() -> None:
    """The loader of the settings knows their lines."""
    definitions: dict[str, Any] = {"x": {"argv": ["a"], "prompt": "argv"}}
    layer = Layer(file="config.yaml", definitions=definitions, line_of=len)

    with pytest.raises(InvalidFile) as caught:
        load_book(shipped_layer(), layer)

    assert f"config.yaml:{len('executors.x.prompt')}: executors.x.prompt:" in caught.value.message


def test_the_example_of_the_manual_can_be_used() -> None:
    """A tenth agent in ten lines."""
    manual = (Path(__file__).parents[3] / "docs/reference/executors.md").read_text(encoding="utf-8")
    example = manual.split("```yaml\n")[1].split("```")[0]

    tenth = book(example).get("tenth")
    assert (True, "tenth") == (tenth.can_resume, tenth.account)
