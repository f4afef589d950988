"""Which stories were done before the project was taken in."""

from __future__ import annotations

from pathlib import Path

from tests.unit.inspection.making import write, write_state

from handoffd.inspection.framework import finished_before, named_in_history, named_in_memory
from handoffd.inspection.project_status import state_of

MEMORY = """\
## NOW
- US-009 is nearly done
## DONE
- US-001: prices
- [x] **US-002** returns
- [ ] US-003 receipts
- US-004: not finished
- the total of US-005
## NEXT
- US-006
"""


def test_the_done_section_of_the_memory_lists_them() -> None:
    """By items that begin with an id; one without a tick, or that says otherwise, is none."""
    assert ("US-001", "US-002") == named_in_memory(MEMORY)


def test_the_history_tells_of_stories_and_not_of_steps() -> None:
    """A step that is done, a plan and a denial are no end; a reopening takes the end back."""
    history = """\
# History
## DONE
- US-010: prices
## LOG
- US-001 done: 3 pass
- US-002 impl done
- US-003 is not done
- US-004 when US-001 is done
- US-005 已完成
### US-006 completed
### Reopen — US-006 → impl
- US-007 begun
"""
    assert {"US-010": True, "US-001": True, "US-005": True, "US-006": False} == named_in_history(history)


def test_all_that_is_there_counts_but_for_what_is_in_hand(tmp_path: Path) -> None:
    """STATE.json is believed more than what agents wrote beside it."""
    write(tmp_path, "PROJECT_MEMORY.md", "## DONE\n- US-001\n- US-005\n")
    write(tmp_path, ".ai/history.md", "- US-002 done\n- US-001 done\n")
    state = '{"project": "shop", "story": "US-003", "step": "done", "status": "pass"}'
    write(tmp_path, ".ai/states/US-003.json", state)
    write(tmp_path, ".ai/states/US-004.json", "{")
    write_state(tmp_path)

    found = finished_before(str(tmp_path), state_of(str(tmp_path)))

    assert {"US-001", "US-002", "US-003"} == set(found)
    assert () == finished_before(str(tmp_path / "gone"))
