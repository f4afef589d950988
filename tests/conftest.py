"""What holds for the whole suite, however it was started."""

from __future__ import annotations

import signal

import pytest
import structlog
from hypothesis import settings
from tests.support.leaks import LeakCheck


def pytest_configure(config: pytest.Config) -> None:
    """Prepare what the tests start, and what they would wait for in vain."""
    _let_ctrl_c_through()
    _keep_tracebacks_plain()
    _time_no_example()
    config.pluginmanager.register(LeakCheck(config), "leaks")


def _let_ctrl_c_through() -> None:
    """Hear Ctrl-C again: a suite in the background of a script inherits it ignored."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def _keep_tracebacks_plain() -> None:
    """Log as usual, but without framed tracebacks: one takes the event loop for seconds."""
    *before, _ = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*before, plain])


def _time_no_example() -> None:
    """Let a machine at work take its time: 200 ms for one example is hypothesis' own idea of a fault."""
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")


_LONGEST = (
    "test_javascript_runners.py",
    "test_night.py",
    "test_coding.py",
    "test_widths.py",
    "test_clock.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests: at the end, one worker would be at them while the others are idle."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)
