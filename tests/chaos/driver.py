"""One house taken through its stories while its daemon is killed again and again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random

from tests.chaos.checker import digest
from tests.chaos.house import House, Zygote
from tests.chaos.killer import Killer
from tests.chaos.kills import Plan, Toll
from tests.chaos.lives import Deed, Lives, Round
from tests.chaos.people import Person


class Campaign(Lives):
    """As many lives of one house's daemon as kills are wanted, and one more to bring all to its end."""

    def __init__(
        self, house: House, zygote: Zygote, chance: Random, tell: Callable[[Toll], None] = lambda _: None
    ) -> None:
        super().__init__(house, zygote)
        self._chance = chance
        self._tell = tell
        self._person = Person(house, chance)
        self.killer = Killer(house, self.toll, chance)

    def run(self, deaths: Iterable[Plan], enough: Callable[[Toll], bool]) -> None:
        """Kill until that is enough, then let every story end and the daemon with it."""
        try:
            for plan in deaths:
                self._look_at(self.live(plan))
                self._tell(self.toll)
                if enough(self.toll):
                    break
            self._person.wants_more = False
            self.drain()
        finally:
            self._person.close()
            self.faults += self._person.trouble

    # --- one life --------------------------------------------------------------------------------
    def attend(self) -> None:
        """Have the person and the killer do what is theirs."""
        self._person.attend()
        self.killer.attend()

    def is_over(self) -> bool:
        """Return whether every story has ended, and nothing is left to be done or told."""
        return self._person.all_over()

    def why_not_over(self) -> str:
        """Return which projects keep the house from its end."""
        return self._person.why_not_over()

    def more_deeds(self, plan: Plan) -> Iterator[Deed]:
        """Yield the kills of the launcher and of a shim."""
        yield plan.launcher_after_s, self.killer.launcher
        yield plan.shim_after_s, self.killer.some_shim

    def _look_at(self, ended: Round) -> None:
        if ended.killed:
            self.toll.idle += ended.last == ended.first
            self.toll.live += self._anything_in_flight()
            self._check_projections(ended)

    def _anything_in_flight(self) -> bool:
        with suppress(sqlite3.Error), closing(self.house.reader()) as db:
            (count,) = db.execute("SELECT count(*) FROM dispatches WHERE result IS NULL").fetchone()
            return bool(count)
        return False

    def _check_projections(self, ended: Round) -> None:
        """Look at every STATE.json as the crash has left it: whole, and a text that was committed."""
        with suppress(sqlite3.Error), closing(self.house.reader()) as db:
            for project in self.house.projects:
                told = _fault_of(db, project.root)
                if told and not (
                    project.stories and project.stories[-1].tampers and told.endswith("not ours")
                ):
                    self.faults.append(f"{told}, after {ended}")


def _fault_of(db: sqlite3.Connection, root: Path) -> str | None:
    """Return what is wrong with a STATE.json at any instant, if anything is."""
    try:
        text = (root / ".ai/STATE.json").read_bytes()
    except FileNotFoundError:
        return None
    try:
        json.loads(text)
    except ValueError as error:
        return f"{root}/.ai/STATE.json does not parse ({error}): {text[:80]!r}"
    known = db.execute(
        "SELECT 1 FROM projections WHERE project = ? AND digest = ?", (str(root), digest(text))
    )
    return None if known.fetchone() else f"{root}/.ai/STATE.json holds a text that is not ours"
