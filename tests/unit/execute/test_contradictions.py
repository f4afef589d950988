"""What is wrong with an executor although each of its values has the right form."""

from __future__ import annotations

from typing import Any

import pytest

from handoffd.execute.executor import EndRule, Executor, LadderRung, contradictions, keys_of
from handoffd.execute.registry import load_book, shipped_layer

STREAM = {"session": "id", "lines": [{"when": {"type": "end"}, "result": {"is_error": False}}]}


def wrong(**given: Any) -> list[tuple[str, str]]:
    """Return what is wrong with an executor, each with its key."""
    executor = Executor.model_validate({"name": "x", "argv": ["x"], **given})
    return [(found.key, found.message) for found in contradictions(executor)]


@pytest.mark.parametrize("name", sorted(load_book(shipped_layer()).executors))
def test_nothing_is_wrong_with_what_ships(name: str) -> None:
    """Patterns included."""
    assert [] == list(contradictions(load_book(shipped_layer()).executors[name]))


@pytest.mark.parametrize(
    ("given", "key", "message"),
    [
        ({"argv": ["{permissions}"]}, "argv.0", "{permissions} must be a word by itself, after the program"),
        (
            {"argv": ["x", ["-p", "{permissions}"]], "permissions": {"a": []}, "permission": "a"},
            "argv.1",
            "{permissions} must be a word by itself, after the program",
        ),
        ({"argv": ["x", "{permissions}"]}, "permission", "is required with {permissions} in argv"),
        ({"permissions": {"all": ["-y"]}, "permission": "al"}, "permission", "there is no permission 'al'"),
        (
            {"permissions": {"all@a": ["-y"]}, "permission": "all@a"},
            "permission",
            "there is no permission 'all@a'",
        ),
        (
            {"permissions": {"all": [], "al@commit": ["-y"]}, "permission": "all"},
            "permissions.al@commit",
            "replaces a permission that does not exist: 'al'",
        ),
        (
            {"argv": ["x", "{session}"]},
            "argv.1",
            'session is optional: write it as a list, [--session, "{session}"]',
        ),
        (
            {"session": "resume", "stream": STREAM},
            "session",
            "needs a place for {session} in argv, and `stream.session`, the id's path in the stream",
        ),
        (
            {"session": "resume", "argv": ["x", ["-r", "{session}"]]},
            "session",
            "needs a place for {session} in argv, and `stream.session`, the id's path in the stream",
        ),
        (
            {"stream": {"lines": [{"error": "x"}]}},
            "stream.lines.0",
            "must have either `when`, for a JSON object, or `match`, for a plain line",
        ),
        (
            {"stream": {"lines": [{"when": {}, "match": "x"}]}},
            "stream.lines.0",
            "must have either `when`, for a JSON object, or `match`, for a plain line",
        ),
        ({"limits": ["(?P<reset>.)(?P<rest>.)"]}, "limits.0", "unknown group 'rest'"),
        ({"ends": [{"is": "crash"}]}, "ends.0", "must have `match`, `cause` or `code`"),
        (
            {"ends": [{"match": "a", "cause": "b", "is": "limit"}]},
            "ends.0",
            "`cause` excludes `match` and `code`",
        ),
        (
            {"ends": [{"code": 3, "is": "refused"}]},
            "ends.0",
            "an exit code alone does not show that a provider refused",
        ),
        ({"ends": [{"code": 0, "is": "clean"}]}, "ends.0.is", "an error never means a clean end"),
        ({"login": {"env": ["A B"]}}, "login.env.0", "'A B' is not the name of an environment variable"),
    ],
)
def test_a_contradiction_is_named_with_its_key(given: dict[str, Any], key: str, message: str) -> None:
    """One for each."""
    assert (key, message) in wrong(**given)


def test_what_fits_together_is_left_alone() -> None:
    """A session that can be continued, and permissions of which one is used."""
    assert [] == wrong(
        argv=["x", "{permissions}", ["-r", "{session}"]],
        permissions={"all": ["-y"]},
        permission="all",
        session="resume",
        output="stream-json",
        stream=STREAM,
        limits=["again at (?P<reset>.+)", "again in (?P<wait>.+)"],
    )


def test_the_keys_are_those_that_a_person_writes() -> None:
    """Not those of the program."""
    assert ("cause", "code", "is", "match") == keys_of(EndRule)
    assert ("grace_s", "signal") == keys_of(LadderRung)
    assert {"extends", "stream"} <= set(keys_of(Executor))
    assert "name" not in keys_of(Executor)
