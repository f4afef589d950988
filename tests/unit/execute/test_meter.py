"""A run's output is read once, while it grows, and a successor goes on where its predecessor was."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from handoffd.engine.run import Usage
from handoffd.execute.executor import Executor
from handoffd.execute.meter import METER, Live, Meter, Note, PriceTable, Source, noted
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.runner import capture
from handoffd.execute.stream.reader import Seen, StreamReader
from handoffd.settings.model import Price

HEAD, TAIL = 1000, 8000
RECORDINGS = Path(__file__).parents[2] / "data" / "streams"


class Agent:
    """What an agent has printed, as its shim keeps it."""

    def __init__(self, root: Path) -> None:
        self.executor: Executor = load_book(shipped_layer()).get("claude")
        self.run_dir = root / "run"
        self.output = str(root / "output.log")
        self.run_dir.mkdir()
        position = os.open(self.run_dir / "output.pos", os.O_WRONLY | os.O_CREAT, 0o600)
        self._ring = capture.Ring(
            capture.open_output(self.output, str(root)), position, HEAD, TAIL, remember=10
        )

    def prints(self, *lines: str) -> None:
        """Print lines."""
        self._ring.write(memoryview("".join(f"{line}\n" for line in lines).encode()))

    def begins(self, text: str) -> None:
        """Print what is no whole line yet."""
        self._ring.write(memoryview(text.encode()))

    def ends(self) -> None:
        """Print nothing more."""
        self._ring.close()

    def meter(self) -> Meter:
        """Return somebody who reads along."""
        return Meter(Source(executor=self.executor, run_dir=self.run_dir, output=self.output))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """Lend an agent that has printed nothing."""
    lent = Agent(tmp_path)
    yield lent
    lent.ends()


def turn(number: int, text: str = "Tea.") -> str:
    """Return the line of one turn, which costs 30 tokens."""
    usage = {"input_tokens": 10, "output_tokens": 20}
    content = [{"type": "text", "text": text}]
    message = {"id": f"msg_{number}", "role": "assistant", "content": content, "usage": usage}
    return json.dumps({"type": "assistant", "message": message, "session_id": "s-1"})


def test_what_comes_is_known_at_the_next_look(agent: Agent) -> None:
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


def test_a_line_of_which_only_the_beginning_is_there_waits(agent: Agent) -> None:
    """Nothing of it counts before it is whole, and nothing twice."""
    meter, line = agent.meter(), turn(1)
    agent.begins(line[:40])
    meter.look()
    assert Usage() == meter.live.seen.usage

    agent.begins(line[40:] + "\n")
    meter.look()
    assert (30, 0) == (meter.live.seen.usage.tokens, meter.live.seen.malformed)


def test_what_was_gone_before_it_could_be_read_is_counted(agent: Agent) -> None:
    """An agent that prints faster than it is looked at loses the middle of its output, never its end."""
    meter = agent.meter()
    agent.prints(*(turn(number) for number in range(500)))
    meter.look()

    seen = meter.live.seen
    assert seen.left_out > 0
    assert 0 < seen.usage.tokens < 500 * 30
    assert 0 == seen.malformed


def test_a_successor_goes_on_counting(agent: Agent) -> None:
    """What the ring has dropped meanwhile was noted, also of a line that had only begun."""
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


def test_a_note_that_is_not_whole_is_none(agent: Agent) -> None:
    """It was not synced to the disk; what is kept is then read from its beginning."""
    agent.prints(turn(1), turn(2))
    (agent.run_dir / METER).write_text('{"position": 12')

    meter = agent.meter()
    meter.look()
    assert 60 == meter.live.seen.usage.tokens


def test_whoever_only_looks_sees_what_was_noted(agent: Agent) -> None:
    """Without a daemon nobody reads along; when something was printed last is known all the same."""
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


def test_one_that_hangs_is_passed_over(tmp_path: Path) -> None:
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
def test_whoever_takes_over_knows_what_the_first_would_have_known(tmp_path: Path, name: str) -> None:
    """Wherever in a recorded output that is: at each line of it, by way of the note on the disk."""
    executor = load_book(shipped_layer()).get(name)
    (recording,) = (RECORDINGS / name).glob("success.[jt]*")
    lines = recording.read_bytes().splitlines(keepends=True)
    whole, notes = StreamReader(executor), TypeAdapter(Note)
    whole.feed(b"".join(lines))
    whole.end()

    for count in range(len(lines)):
        first = StreamReader(executor)
        first.feed(b"".join(lines[:count]))
        text = notes.dump_json(Note(position=0, standing=first.standing))
        successor = StreamReader.resumed(executor, notes.validate_json(text).standing)
        successor.feed(b"".join(lines[count:]))
        successor.end()
        assert whole.seen == successor.seen


def test_what_is_read_has_its_cost_where_the_agent_does_not_tell_it(agent: Agent) -> None:
    """By the model that the stream names; while it runs and at the end."""
    agent.prints(
        '{"type": "system", "subtype": "init", "session_id": "s1", "model": "m-1"}',
        '{"type": "assistant", "message": {"id": "m1", "content": [], "usage": {"output_tokens": 500000}}}',
    )
    prices = PriceTable(({"m-*": Price(input=1, output=4)},))
    meter = Meter(Source(executor=agent.executor, run_dir=agent.run_dir, output=agent.output, prices=prices))

    meter.look()

    for usage in (meter.live.seen.usage, meter.finish().usage):
        assert (2.0, "table") == (usage.cost_usd, usage.priced)


def test_what_is_not_kept_is_heard(agent: Agent) -> None:
    """Its shim notes the position for that, too: `status` tells when the agent said something last."""
    meter = agent.meter()
    agent.prints(turn(1, "Hello."))
    meter.look()
    os.utime(agent.run_dir / "output.pos", (1_800_000_000, 1_800_000_000))
    meter.look()

    assert datetime.fromtimestamp(1_800_000_000, UTC) == meter.live.heard_at
    assert "says Hello." == meter.live.seen.activity
