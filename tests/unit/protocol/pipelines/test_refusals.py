"""What is refused, each with the words, the line and the key that a person reads: `refusals.txt`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from handoffd.errors import InvalidFile
from handoffd.protocol.pipelines.loading import load_plan

HEAD: Final = "language: 1\npipeline: p\nroles: {w: {executor: claude}, v: {writes: [src/**]}}\ntasks:\n"
OTHERS: Final = {
    "plain": "language: 1\npipeline: plain\ntasks: {a: {run: x}}\n",
    "child": "language: 1\npipeline: child\nparams: {topic: {type: string}}\ntasks: {a: {run: x}}\n",
    "broken": "language: 1\npipeline: broken\ntasks: {a: {run: x, needs: [b]}}\n",
    "back": "language: 1\npipeline: back\ntasks: {a: {pipeline: p}}\n",
    "deep1": "language: 1\npipeline: deep1\ntasks: {a: {pipeline: deep2}}\n",
    "deep2": "language: 1\npipeline: deep2\ntasks: {a: {pipeline: deep3}}\n",
    "deep3": "language: 1\npipeline: deep3\ntasks: {a: {run: x}}\n",
}


def _cases() -> Mapping[str, tuple[str, list[str]]]:
    """Return the text and the problems of each case, by its title."""
    whole = Path(__file__).with_name("refusals.txt").read_text(encoding="utf-8")
    found: dict[str, tuple[str, list[str]]] = {}
    for case in re.split(r"^# ", whole, flags=re.MULTILINE)[1:]:
        title, *lines = case.splitlines()
        told = [line[2:] for line in lines if line.startswith("> ")]
        text = "".join(f"{line}\n" for line in lines if line and not line.startswith("> "))
        assert title not in found
        found[title] = (HEAD + text if text.startswith("  ") else text, told)
    return found


CASES: Final = _cases()


def _problems(text: str, file: str = "p.yaml") -> list[str]:
    with pytest.raises(InvalidFile) as error:
        load_plan(text, file, others=OTHERS)
    return [str(problem) for problem in error.value.problems]


@pytest.mark.parametrize("title", list(CASES))
def test_what_is_wrong_is_told_at_its_line_and_key(title: str) -> None:
    """It names the allowed words, or the likely one."""
    text, told = CASES[title]

    assert told == _problems(text)


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    """Whatever finds them."""
    told = _problems(
        f"{HEAD}  a: {{agent: none, when: c == 1}}\n  b: {{run: x, needs: [d]}}\n"
        "  c: {run: '{x}', tries: 2}\n"
    )

    assert [
        "p.yaml:5: tasks.a.agent", "p.yaml:5: tasks.a.when", "p.yaml:6: tasks.b.needs.0",
        "p.yaml:7: tasks.c.tries", "p.yaml:7: tasks.c.run",
    ] == [":".join(one.split(":")[:3]) for one in told]  # fmt: skip


def test_the_next_command_is_told() -> None:
    """With the name of the file as a shell takes it."""
    with pytest.raises(InvalidFile) as error:
        load_plan("{}", "my file.yaml")

    assert "handoffd pipeline check 'my file.yaml'" == error.value.hint


def test_a_problem_of_a_shape_is_told_once() -> None:
    """At the line of the shape, however many tasks take it."""
    tasks = "".join(f"  t{number}: {{like: s, run: x}}\n" for number in range(5))
    (told,) = _problems(f"{HEAD}{tasks}shapes:\n  s: {{hold: {{choices: [retry]}}}}\n")

    assert "p.yaml:11: shapes.s.hold.default: 'stop' is not among the choices (allowed: retry)" == told


def test_what_is_missing_because_of_another_problem_is_not_told() -> None:
    """A field that was left out makes no second problem where it is read."""
    told = _problems(
        f"{HEAD}  a:\n    agent: w\n    fields: {{f: {{type: count}}}}\n"
        "    verdict: [{if: fields.f == 'x', then: pass}, {else: pass}]\n"
        "  b: {run: x, needs: [a], when: a.f == 'x'}\n"
    )

    assert ["p.yaml:7: tasks.a.fields.f.type: unknown value 'count' (allowed: number, boolean, text)"] == told


def test_a_pipeline_has_at_most_500_tasks_in_all() -> None:
    """Also where they are in several groups."""
    inner = "".join(f"      t{number}: {{run: x}}\n" for number in range(260))

    assert ["p.yaml:507: tasks.h.tasks.t238: a pipeline has at most 500 tasks"] == (
        _problems(f"{HEAD}  g:\n    tasks:\n{inner}  h:\n    tasks:\n{inner}")
    )


def test_a_shape_cannot_multiply_expressions_without_end() -> None:
    """They count for each task."""
    tasks = "".join(f"  t{number}: {{like: s}}\n" for number in range(100))
    numbers = ", ".join(f"c{number}: {number} * 2" for number in range(40))

    assert ["p.yaml:4: tasks: a pipeline has at most 3,000 expressions"] == (
        _problems(f"{HEAD}{tasks}shapes: {{s: {{run: x, compute: {{{numbers}}}}}}}\n")
    )


def test_a_file_may_have_any_name_that_is_no_yaml_file() -> None:
    """Such as the standard input."""
    assert "p" == load_plan(f"{HEAD}  a: {{run: x}}\n", "-").plan.name


def test_not_more_problems_are_told_than_can_be_read() -> None:
    """The first of them are enough."""
    assert 200 == len(_problems(HEAD + "".join(f"  t{number}: {{rum: x}}\n" for number in range(400))))
