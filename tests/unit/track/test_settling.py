"""An executor that has handed over and rests is over, even if its process stays."""

from __future__ import annotations

from pathlib import Path

import anyio
from tests.support.eventually import eventually
from tests.support.house import at, dispatch_of, house, make_project
from tests.support.runs import run_spec

from handoffd.engine.track import Dispatch
from handoffd.execute.executor import Idle
from handoffd.execute.witness import ALONE
from handoffd.protocol.handoff import HandoffMark, Reading
from handoffd.track.ai_folder import HandoffFiles
from handoffd.track.attempts import until_settled

PASS = "---\nstep: bdd\nstatus: pass\n---\n"


class Looks(HandoffFiles):
    """Counts how often somebody looked."""

    looks = 0

    def read(self, dispatch: Dispatch) -> tuple[Reading, HandoffMark]:
        """Look."""
        self.looks += 1
        return super().read(dispatch)

    async def two_more_looks(self) -> None:
        """Return when what lies there now has been looked at, and its outcome acted on."""
        enough = self.looks + 2
        await eventually(lambda: self.looks >= enough)


async def test_it_settles_once_a_valid_handoff_lies_there(tmp_path: Path) -> None:
    """Rest alone is not enough: an agent may wait for its model."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        run = await here.services.launcher.start(tmp_path / "d1", run_spec(tmp_path, "d1", "sleep", "600"))
        handoffs, settled = Looks(root), anyio.Event()

        async def wait() -> None:
            await until_settled(run, dispatch_of(), handoffs, here.clock, 0.2, witness=ALONE, idle=Idle())
            settled.set()

        tasks.start_soon(wait)
        for text in ("---\nstep: bdd\nstat", "no front matter, which only an exit can judge"):
            at(root, ".ai/HANDOFF.md").write_text(text)
            here.clock.ahead_s += 100
            await handoffs.two_more_looks()
        assert not settled.is_set()

        at(root, ".ai/HANDOFF.md").write_text(PASS)
        await eventually(settled.is_set)
        run.stop()
