"""A run's output is read once, while it grows; its cost by a table of prices."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec
import pytest
from tests.unit.execute.test_output import Writing

from handoffd.engine.run import Usage
from handoffd.execute.executor import Executor
from handoffd.execute.meter import (
    METER,
    Live,
    Meter,
    Note,
    PriceTable,
    Source,
    cost_of,
    load_prices,
    noted,
    shipped_families,
)
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.reader import Seen, StreamReader
from handoffd.settings.model import Price

RECORDINGS = Path(__file__).parents[2] / "data" / "streams"


class Agent(Writing):
    """What an agent has printed, as its shim keeps it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, head=1000, tail=8000)
        self.executor: Executor = load_book(shipped_layer()).get("claude")

    def prints(self, *lines: str) -> None:
        """Print lines."""
        self.begins("".join(f"{line}\n" for line in lines))

    def begins(self, text: str) -> None:
        """Print the beginning of a line."""
        self.write(text.encode())

    def meter(self, *families: Mapping[str, Price]) -> Meter:
        """Return a reader of its output, with the prices of these families."""
        prices = PriceTable(families)
        source = Source(executor=self.executor, run_dir=self.run_dir, output=str(self.path), prices=prices)
        return Meter(source)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """Lend an agent that has printed nothing."""
    lent = Agent(tmp_path)
    yield lent
    lent.ring.close()


def turn(number: int, text: str = "Tea.") -> str:
    """Return the line of one turn, which costs 30 tokens."""
    usage = {"input_tokens": 10, "output_tokens": 20}
    content = [{"type": "text", "text": text}]
    message = {"id": f"msg_{number}", "role": "assistant", "content": content, "usage": usage}
    return json.dumps({"type": "assistant", "message": message, "session_id": "s-1"})


def test_new_lines_are_known_at_the_next_look(agent: Agent) -> None:
    """And nothing before the first one."""
    meter = agent.meter()
    assert Live() == meter.live
    meter.look()
    assert Live() == meter.live

    agent.prints(turn(1), turn(2, "Milk."))
    meter.look()

    seen = meter.live.seen
    assert ("s-1", "says Milk.", 60) == (seen.session, seen.activity, seen.usage.tokens)
    assert meter.live.heard_at is not None


def test_the_rest_is_read_at_the_end(agent: Agent) -> None:
    """With a last line that has no break."""
    meter = agent.meter()
    agent.prints(turn(1))
    meter.look()
    agent.begins(turn(2))

    assert 60 == meter.finish().usage.tokens


def test_half_a_line_waits_for_its_end(agent: Agent) -> None:
    """It counts when it is whole, and once."""
    meter, line = agent.meter(), turn(1)
    agent.begins(line[:40])
    meter.look()
    assert Usage() == meter.live.seen.usage

    agent.begins(line[40:] + "\n")
    meter.look()
    assert (30, 0) == (meter.live.seen.usage.tokens, meter.live.seen.malformed)


def test_output_that_was_dropped_unread_is_counted(agent: Agent) -> None:
    """An agent that prints faster than the meter reads loses the middle of its output, never its end."""
    meter = agent.meter()
    agent.prints(*(turn(number) for number in range(500)))
    meter.look()

    seen = meter.live.seen
    assert seen.left_out > 0
    assert 0 < seen.usage.tokens < 500 * 30
    assert 0 == seen.malformed


def test_a_successor_goes_on_counting(agent: Agent) -> None:
    """The note has all that the ring has dropped meanwhile, also half a line."""
    first = agent.meter()
    for number in range(0, 300, 10):
        agent.prints(*(turn(one) for one in range(number, number + 10)))
        first.look()
    agent.begins(turn(300)[:50])
    first.look()
    first.note()

    agent.begins(turn(300)[50:] + "\n")
    successor = agent.meter()
    successor.look()

    assert (301 * 30, 0) == (successor.live.seen.usage.tokens, successor.live.seen.left_out)
    assert 301 * 30 == first.finish().usage.tokens == successor.finish().usage.tokens


def test_half_a_note_is_ignored(agent: Agent) -> None:
    """It was not synced to the disk; the output is then read from its beginning."""
    agent.prints(turn(1), turn(2))
    (agent.run_dir / METER).write_text('{"position": 12')

    meter = agent.meter()
    meter.look()
    assert 60 == meter.live.seen.usage.tokens


def test_without_a_daemon_the_last_note_is_shown(agent: Agent) -> None:
    """With the time of the last output, which is known even without a note."""
    assert Live() == noted(agent.run_dir)
    agent.prints(turn(1))
    assert (Seen(), True) == (noted(agent.run_dir).seen, noted(agent.run_dir).heard_at is not None)

    meter = agent.meter()
    meter.look()
    meter.note()
    assert meter.live == noted(agent.run_dir)


def test_a_note_is_written_only_when_there_is_news(agent: Agent) -> None:
    """A thousand silent agents cost the disk nothing."""
    meter = agent.meter()
    agent.prints(turn(1))
    meter.look()
    meter.note()
    (agent.run_dir / METER).unlink()

    meter.look()
    meter.note()
    assert not (agent.run_dir / METER).exists()


def test_a_meter_that_hangs_is_passed_over(tmp_path: Path) -> None:
    """A disk that does not answer holds one thread, not one more at each look."""
    disk = tmp_path / "output.pos"
    os.mkfifo(disk)
    claude = load_book(shipped_layer()).get("claude")
    meter = Meter(Source(executor=claude, run_dir=tmp_path, output=str(tmp_path / "output.log")))
    hanging = threading.Thread(target=meter.look)
    hanging.start()
    with disk.open("wb"):  # it waits for what is written now
        meter.look()
        meter.note()
        disk.unlink()
    hanging.join()
    assert Live() == meter.live


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode", "aider"])
def test_a_successor_knows_what_the_first_would_have_known(name: str) -> None:
    """At each line of a recorded output, by way of the note on the disk."""
    executor = load_book(shipped_layer()).get(name)
    (recording,) = (RECORDINGS / name).glob("success.[jt]*")
    lines = recording.read_bytes().splitlines(keepends=True)
    whole = StreamReader(executor)
    whole.feed(b"".join(lines))
    whole.end()

    for count in range(len(lines)):
        first = StreamReader(executor)
        first.feed(b"".join(lines[:count]))
        text = msgspec.json.encode(Note(position=0, standing=first.standing))
        successor = StreamReader.resumed(executor, msgspec.json.decode(text, type=Note).standing)
        successor.feed(b"".join(lines[count:]))
        successor.end()
        assert whole.seen == successor.seen


def test_usage_has_its_cost_where_the_agent_does_not_report_it(agent: Agent) -> None:
    """By the model that the stream names; while it runs and at the end."""
    agent.prints(
        '{"type": "system", "subtype": "init", "session_id": "s1", "model": "m-1"}',
        '{"type": "assistant", "message": {"id": "m1", "content": [], "usage": {"output_tokens": 500000}}}',
    )
    meter = agent.meter({"m-*": Price(input=1, output=4)})

    meter.look()

    for usage in (meter.live.seen.usage, meter.finish().usage):
        assert (2.0, "table") == (usage.cost_usd, usage.priced)


def test_lines_that_are_not_kept_are_signs_of_life(agent: Agent) -> None:
    """The shim touches the position for these, too: `status` shows the time of the last output."""
    meter = agent.meter()
    agent.prints(turn(1, "Hello."))
    meter.look()
    os.utime(agent.run_dir / "output.pos", (1_800_000_000, 1_800_000_000))
    meter.look()

    assert datetime.fromtimestamp(1_800_000_000, UTC) == meter.live.heard_at
    assert "says Hello." == meter.live.seen.activity


# --- prices -------------------------------------------------------------------------------------------
CHEAP, DEAR = Price(input=1, output=2), Price(input=10, output=20)
USED = Usage(
    input_tokens=1_000_000, output_tokens=2_000_000, cache_read_tokens=3_000_000, cache_write_tokens=4_000_000
)


def test_every_kind_of_token_has_its_price() -> None:
    """Dollars for a million; a cache without a price costs as much as input, so that caps hold."""
    price = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
    assert pytest.approx(3 + 30 + 0.9 + 15) == cost_of(USED, price)
    assert 8 + 4 == cost_of(USED, CHEAP)


def test_the_longest_pattern_counts() -> None:
    """It fits the model most exactly."""
    table = PriceTable(({"gpt-*": DEAR, "gpt-5-mini*": CHEAP},))
    assert (CHEAP, DEAR) == (table.price_of("gpt-5-mini-2025-08-07"), table.price_of("gpt-5"))


def test_a_price_of_the_settings_goes_before_a_shipped_one() -> None:
    """Also by a shorter pattern: a person may have a contract."""
    table = load_prices({"claude-*": CHEAP})
    assert CHEAP == table.price_of("claude-opus-4-5")
    assert DEAR != table.price_of("gpt-5")


def test_only_a_missing_cost_of_a_known_model_is_computed() -> None:
    """The result is marked, as it is less sure than a reported one: the provider knows its discounts."""
    table = PriceTable(({"m": CHEAP},))
    reported = Usage(input_tokens=1_000_000, cost_usd=0.01, priced="provider")

    priced = table.priced(Usage(output_tokens=500_000), "m")
    assert (1.0, "table") == (priced.cost_usd, priced.priced)
    for used, model in ((USED, "my-own-llama"), (USED, None), (reported, "m"), (Usage(), "m")):
        assert used == table.priced(used, model)


@pytest.mark.parametrize(
    ("model", "dollars"),
    [
        ("claude-opus-5-5", 4), ("claude-opus-5-5[1m]", 4), ("claude-opus-5", 5),
        ("claude-opus-4-5-20251101", 5),
        ("claude-opus-4-1-20250805", 15), ("claude-sonnet-4-5-20250929", 3), ("anthropic/claude-opus-4.5", 5),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 1), ("openai/gpt-5.5", 5), ("gpt-5-codex", 1.25),
        ("gpt-5.4-mini", 0.75), ("models/gemini-2.5-pro", 1.25), ("gemini-2.5-flash-lite", 0.1),
        ("gemini-3.5-flash-lite", 0.3), ("Claude-Opus-4-5", 5), ("gpt-5.5-pro", None), ("gpt-4.1", None),
    ],
)  # fmt: skip
def test_models_are_found_by_the_names_that_agents_use(model: str, dollars: float | None) -> None:
    """With a provider before the name, a date or a variant after it; no price is guessed."""
    price = load_prices({}).price_of(model)
    assert dollars == (None if price is None else price.input)


def test_every_shipped_price_has_a_source_and_is_plausible() -> None:
    """A slip of a decimal point would be a wrong bill."""
    for family in shipped_families():
        assert family.source.startswith("https://")
        assert family.seen > date(2026, 1, 1)
        for pattern, price in family.prices.items():
            assert 0.05 <= price.input <= 20, pattern
            assert 4 <= price.output / price.input <= 10, pattern
            assert price.cache_read is None or price.cache_read <= price.input / 5, pattern
            assert price.cache_write is None or 1 <= price.cache_write / price.input <= 1.3, pattern


def test_no_pattern_is_there_twice() -> None:
    """The later one would win unnoticed."""
    patterns = [pattern for family in shipped_families() for pattern in family.prices]
    assert len(patterns) == len(set(patterns))
