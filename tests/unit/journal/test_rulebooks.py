"""Step tables kept by content."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.playbook import shipped_rules, with_rule

import handoffd
from handoffd.files.atomic import digest_of
from handoffd.journal.codec import decode_rules
from handoffd.journal.commit import RuleTexts, keep_rules
from handoffd.journal.database import open_database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A new journal."""
    with closing(open_database(tmp_path / "journal.db")) as connection:
        yield connection


def test_a_table_comes_back_as_it_was() -> None:
    """Else nothing could be decided again."""
    rules = with_rule("impl", step_instruction={"zh-TW": "寫最少的程式"}, post_check="go vet ./... && true")

    assert rules == decode_rules(RuleTexts().written(rules).body)


def test_a_table_is_written_once_and_named_by_its_content() -> None:
    """The same table in the hands of many projects is one text."""
    texts, rules = RuleTexts(), shipped_rules()

    first = texts.written(rules)

    assert first is texts.written(rules)
    assert first == RuleTexts().written(rules.model_copy())
    assert (digest_of(first.body), handoffd.__version__) == (first.digest, first.engine)


def test_many_tables_do_not_fill_the_memory() -> None:
    """Those not seen for long are written anew, with the same digest."""
    texts, first = RuleTexts(), shipped_rules()
    before = texts.written(first)

    for number in range(1, 100):
        texts.written(with_rule("impl", max_attempts=number))

    assert before is not texts.written(first)
    assert before == texts.written(first)


def test_a_table_has_one_row_for_each_release_that_decides_by_it(db: sqlite3.Connection) -> None:
    """A change of the engine is as good as one of the table."""
    text = RuleTexts().written(shipped_rules())

    numbers = [keep_rules(db, one) for one in (text, replace(text, engine="9.9"), text)]

    assert numbers[0] == numbers[2] != numbers[1]
    assert 2 == db.execute("SELECT count(*) FROM rulebooks").fetchone()[0]
