"""What the settings call by a name that nobody has."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.errors import InvalidFile, Problem
from handoffd.fleet.name_checks import misfits
from handoffd.settings.loading import load


def problems(tmp_path: Path, text: str) -> list[Problem]:
    """Return what is wrong with settings."""
    file = tmp_path / "handoffd.yaml"
    file.write_text(text)
    try:
        load({"config": str(file)}, {"HOME": str(tmp_path)}, further=misfits)
    except InvalidFile as invalid:
        return list(invalid.problems)
    return []


@pytest.mark.parametrize(
    ("text", "key", "name", "allowed"),
    [
        ("executor: cluade\n", "executor", "executor 'cluade'", "auto"),
        ("executor: [claude, codexx]\n", "executor.1", "executor 'codexx'", "codex"),
        ("executor: command\n", "executor", "executor 'command'", "claude"),
        (
            "scheduling: {per_executor: {cluade: 2}}\n",
            "scheduling.per_executor.cluade", "executor 'cluade'", "claude",
        ),
        (
            "scheduling: {per_account: {wrok: 2}}\nexecutors: {own: {extends: claude, account: work}}\n",
            "scheduling.per_account.wrok", "account 'wrok'", "work",
        ),
        (
            "schedule: {starts: [{name: a, cron: '@daily', projects: ['*'], start: A,"
            " executor: 'claude, nobody'}]}\n",
            "schedule.starts.0.executor.1", "executor 'nobody'", "auto",
        ),
        (
            "schedule: {starts: [{name: a, cron: '@daily', projects: ['group:nihgt'], start: A}]}\n"
            "scheduling: {groups: {night: {slots: 1}}}\n",
            "schedule.starts.0.projects.0", "group 'nihgt'", "night",
        ),
    ],
)  # fmt: skip
def test_a_name_that_nobody_has_is_told_with_those_there_are(
    tmp_path: Path, text: str, key: str, name: str, allowed: str
) -> None:
    """A slip of a finger must not be found out in the night."""
    (problem,) = problems(tmp_path, text)

    assert (1, key, f"there is no {name}") == (problem.line, problem.key, problem.message)
    assert allowed in problem.allowed


def test_names_that_somebody_has_are_fine(tmp_path: Path) -> None:
    """Shipped ones and those of the settings' own, their accounts, and `auto`."""
    text = (
        "executor: [own, auto]\n"
        "executors: {own: {extends: claude, account: work}}\n"
        "scheduling: {per_executor: {own: 1}, per_account: {work: 1, codex: 2}, groups: {night: {}}}\n"
        "schedule: {starts: [{name: a, cron: '@daily', projects: ['group:night'], start: A, executor: auto},"
        " {name: b, cron: '@daily', projects: [shop], start: B, executor: 'own, claude'}]}\n"
    )

    assert [] == problems(tmp_path, text)


def test_executors_are_told_of_with_everything_else(tmp_path: Path) -> None:
    """Who mends one mistake is not told of the next one only then; and of none twice."""
    text = "executors:\n  own: {extends: nobody}\n  odd: 7\nexecute: {slots: 0}\nlanguage: de\n"

    found = [(problem.line, problem.key) for problem in problems(tmp_path, text)]

    assert [
        (2, "executors.own.extends"), (3, "executors.odd"), (4, "execute.slots"), (5, "language")
    ] == found  # fmt: skip


def test_names_are_told_beside_an_executor_that_is_wrong(tmp_path: Path) -> None:
    """An executor that cannot be used has its name all the same, and hides no other one's slip."""
    text = (
        "executors:\n  own: {extends: nobody, account: work}\n"
        "executor: [own, cluade]\n"
        "scheduling: {per_executor: {own: 1}, per_account: {work: 1}}\n"
        "schedule: {starts: [{name: a, cron: '@daily', projects: ['group:nihgt'], start: A}]}\n"
    )

    found = [(problem.line, problem.key) for problem in problems(tmp_path, text)]

    assert [(2, "executors.own.extends"), (3, "executor.1"), (5, "schedule.starts.0.projects.0")] == found


@pytest.mark.parametrize(
    "text",
    ["executors: 7\n", "scheduling: 7\n", "schedule: [7]\n", "schedule: {starts: [7]}\n", "executor: 7\n"],
)
def test_what_is_wrong_by_itself_is_for_others_to_tell(tmp_path: Path, text: str) -> None:
    """Once."""
    assert 1 == len(problems(tmp_path, text))
