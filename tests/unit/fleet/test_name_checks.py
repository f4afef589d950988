"""Unknown names in the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.errors import InvalidFile, Problem
from handoffd.fleet.name_checks import misfits
from handoffd.settings.loading import load


def problems(tmp_path: Path, text: str) -> list[Problem]:
    """Return the problems of settings."""
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
            " executor: 'claude, clod'}]}\n",
            "schedule.starts.0.executor.1", "executor 'clod'", "auto",
        ),
        (
            "schedule: {starts: [{name: a, cron: '@daily', projects: ['group:nihgt'], start: A}]}\n"
            "scheduling: {groups: {night: {slots: 1}}}\n",
            "schedule.starts.0.projects.0", "group 'nihgt'", "night",
        ),
    ],
)  # fmt: skip
def test_an_unknown_name_is_reported_with_the_known_names(
    tmp_path: Path, text: str, key: str, name: str, allowed: str
) -> None:
    """So that a typing error does not show only at night."""
    (problem,) = problems(tmp_path, text)

    assert (1, key, f"there is no {name}") == (problem.line, problem.key, problem.message)
    assert allowed in problem.allowed


def test_known_names_are_accepted(tmp_path: Path) -> None:
    """Shipped and own executors, their accounts, groups, and `auto`."""
    text = (
        "executor: [own, auto]\n"
        "executors: {own: {extends: claude, account: work}}\n"
        "scheduling: {per_executor: {own: 1}, per_account: {work: 1, codex: 2}, groups: {night: {}}}\n"
        "schedule: {starts: [{name: a, cron: '@daily', projects: ['group:night'], start: A, executor: auto},"
        " {name: b, cron: '@daily', projects: [shop], start: B, executor: 'own, claude'}]}\n"
    )

    assert [] == problems(tmp_path, text)


def test_executors_are_reported_with_all_other_problems(tmp_path: Path) -> None:
    """Once each, so that a person can fix all of them together."""
    text = "executors:\n  own: {extends: clod}\n  odd: 7\nexecute: {slots: 0}\nlanguage: de\n"

    found = [(problem.line, problem.key) for problem in problems(tmp_path, text)]

    assert [
        (2, "executors.own.extends"), (3, "executors.odd"), (4, "execute.slots"), (5, "language")
    ] == found  # fmt: skip


def test_names_are_checked_beside_an_invalid_executor(tmp_path: Path) -> None:
    """Its own name is known, and other names are checked."""
    text = (
        "executors:\n  own: {extends: clod, account: work}\n"
        "executor: [own, cluade]\n"
        "scheduling: {per_executor: {own: 1}, per_account: {work: 1}}\n"
        "schedule: {starts: [{name: a, cron: '@daily', projects: ['group:nihgt'], start: A}]}\n"
    )

    found = [(problem.line, problem.key) for problem in problems(tmp_path, text)]

    assert [(2, "executors.own.extends"), (3, "executor.1"), (5, "schedule.starts.0.projects.0")] == found


def test_a_value_of_the_wrong_type_is_reported_once(tmp_path: Path) -> None:
    """By the check of types."""
    for text in ("executors: 7", "scheduling: 7", "schedule: [7]", "schedule: {starts: [7]}", "executor: 7"):
        assert 1 == len(problems(tmp_path, f"{text}\n")), text
