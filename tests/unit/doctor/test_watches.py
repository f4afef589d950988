"""Whether all projects can be watched."""

from __future__ import annotations

from typing import Any

import pytest

from handoffd.doctor.machine import Holder, Limit, Limits, WatchFacts, check_watches
from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import LIMIT_REACHED, demand

EDITOR = Holder(pid=4711, command="code", watches=7000, instances=8)
SMALL = Holder(pid=12, command="tail", watches=1, instances=1)


def limits(watches: int | None = 65_536, instances: int | None = 128, events: int | None = 16_384) -> Limits:
    """Return limits with their usual names."""
    return Limits(
        watches=None if watches is None else Limit(key="fs.inotify.max_user_watches", value=watches),
        instances=None if instances is None else Limit(key="fs.inotify.max_user_instances", value=instances),
        events=None if events is None else Limit(key="fs.inotify.max_queued_events", value=events),
    )


def facts(projects: int = 3, **changes: Any) -> WatchFacts:
    """Return facts in which all is well, with `changes`."""
    asked = demand(projects, WatchSettings(backend="watchfiles"))
    values: dict[str, Any] = {
        "projects": projects, "demand": asked, "limits": limits(),
        "others": (EDITOR, SMALL), "swept": {}, "sweep_s": 30.0,
    }  # fmt: skip
    return WatchFacts(**values | changes)


def test_enough() -> None:
    """In one line, with the figures."""
    (found,) = check_watches(facts())
    assert ("ok", "3 projects need 6 of 65536 watches, 2 of 128 instances") == (found.severity, found.what)
    (one,) = check_watches(facts(1))
    assert one.what.startswith("1 project needs 2 of")


def test_projects_that_are_swept_for_the_limit_are_named_with_the_command() -> None:
    """Now and for good, for the limit that is short; who holds the watches is said."""
    (found,) = check_watches(
        facts(limits=limits(watches=7004), swept={"/srv/b": LIMIT_REACHED, "/srv/a": LIMIT_REACHED})
    )

    assert "warning" == found.severity
    assert "2 of 3 projects are only looked at every 30 s: /srv/a, /srv/b" == found.what
    assert found.why is not None
    assert found.why.startswith(LIMIT_REACHED)
    assert "hold 7001 watches and 9 instances, the most of them code (process 4711) with 7000" in found.why
    raised = "fs.inotify.max_user_watches=1048576"
    lasting = f"printf '%s\\n' {raised} | sudo tee /etc/sysctl.d/60-handoffd.conf"
    assert f"sudo sysctl {raised} && {lasting}" == found.action


def test_where_no_limit_is_seen_to_be_short_both_are_raised() -> None:
    """The daemon knows better: it may live in a namespace of its own. What is high already is doubled."""
    swept = {"/srv/a": LIMIT_REACHED}
    (found,) = check_watches(facts(limits=limits(watches=2_000_000), others=None, swept=swept))

    assert "1 of 3 projects is only looked at every 30 s: /srv/a" == found.what
    assert found.action is not None
    raised = "fs.inotify.max_user_watches=4000000 fs.inotify.max_user_instances=1024"
    assert found.action.startswith(f"sudo sysctl {raised} && ")
    (blind,) = check_watches(facts(limits=limits(None, None, None), swept=swept))
    assert "sysctl fs.inotify" == blind.action


def test_of_many_projects_five_are_named() -> None:
    """The others are counted."""
    (found,) = check_watches(facts(9, swept={f"/srv/{number}": LIMIT_REACHED for number in range(7)}))
    assert found.what.endswith(": /srv/0, /srv/1, /srv/2, /srv/3, /srv/4 and 2 more")


@pytest.mark.parametrize(
    ("given", "needs", "raised"),
    [
        ({"watches": 7001 + 1250 - 1}, "1250 watches of at most 8250", "fs.inotify.max_user_watches=1048576"),
        ({"instances": 9 + 5 - 1}, "5 instances of at most 13", "fs.inotify.max_user_instances=1024"),
        (
            {"watches": 10, "instances": 1},
            "1250 watches of at most 10 and 5 instances of at most 1",
            "fs.inotify.max_user_watches=1048576 fs.inotify.max_user_instances=1024",
        ),
    ],
)
def test_a_limit_that_will_be_reached_is_told_before(given: dict[str, int], needs: str, raised: str) -> None:
    """Also without a daemon; one watch less than is needed is too few, what others hold counted."""
    (found,) = check_watches(facts(1000, limits=limits(**given)))

    assert ("warning", "the limit of file watches is too low for 1000 projects") == (
        found.severity,
        found.what,
    )
    assert needs in (found.why or "")
    assert f"sudo sysctl {raised} && printf" in (found.action or "")


def test_exactly_enough_is_enough() -> None:
    """With what others hold."""
    (found,) = check_watches(facts(1000, limits=limits(watches=7001 + 1250, instances=9 + 5)))
    assert "ok" == found.severity


def test_a_raised_limit_leaves_room_to_grow() -> None:
    """Twice what is needed at least."""
    huge = Holder(pid=1, command="code", watches=900_000, instances=1)
    (found,) = check_watches(facts(limits=limits(watches=900_000), others=(huge,)))
    assert "fs.inotify.max_user_watches=2097152 " in (found.action or "")


def test_other_reasons_are_told_each_once() -> None:
    """Beside the limit, and with a look at the first project."""
    odd = ".ai is not a folder"
    found = check_watches(facts(swept={"/srv/a b": odd, "/srv/c": odd, "/srv/d": LIMIT_REACHED}))

    assert [LIMIT_REACHED, odd] == [(one.why or "").split(";")[0] for one in found]
    assert "2 of 3 projects are only looked at every 30 s: /srv/a b, /srv/c" == found[1].what
    assert "ls -la '/srv/a b'" == found[1].action


def test_a_short_queue_is_told() -> None:
    """What is lost is found by a sweep."""
    (found,) = check_watches(facts(1000, limits=limits(events=3999)))

    assert ("warning", "a burst of changes may be more than the kernel keeps") == (found.severity, found.what)
    assert "sudo sysctl fs.inotify.max_queued_events=65536 && printf" in (found.action or "")
    assert ["ok"] == [one.severity for one in check_watches(facts(1000, limits=limits(events=4000)))]


def test_a_kernel_without_limits() -> None:
    """Nothing is claimed."""
    (found,) = check_watches(facts(limits=limits(None, None, None)))
    assert ("ok", "the kernel names no limit") == (found.severity, found.what)


def test_read_directly_there_is_one_instance_and_the_queue_may_be_short() -> None:
    """An overflow is told then, and costs a second."""
    asked = demand(1000, WatchSettings(backend="inotify"))
    (found,) = check_watches(facts(1000, demand=asked, limits=limits(events=100)))

    assert ("ok", "1000 projects need 1000 of 65536 watches, 1 of 128 instances") == (
        found.severity,
        found.what,
    )
