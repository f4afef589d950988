"""What holds for the whole suite, however it was started."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start: a suite in the background of a script inherits it ignored."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
