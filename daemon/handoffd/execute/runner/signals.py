"""What launcher and shims do about signals.

TERM asks them to stop, and is only noted: it may come at any instant. What a terminal or a reader
that has gone would end a process with is ignored. A signal that comes makes `wake` readable, so one
poll waits for everything.
"""

from __future__ import annotations

import os
import signal

_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK


class Signals:
    """The signals of this process. A child that is forked takes the settings over with `renew`."""

    def __init__(self) -> None:
        self.stop_asked = False
        self.wake = -1
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._ask_to_stop)
        # A handler that does nothing, because an ignored SIGCHLD would reap children unseen.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.renew()

    def renew(self) -> None:
        """Be woken through a pipe of our own, and forget what the parent was asked."""
        self.wake, waker = os.pipe2(_FLAGS)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self.stop_asked = False

    def settle(self) -> None:
        """Make `wake` unreadable until the next signal."""
        os.read(self.wake, 512)

    def _ask_to_stop(self, *_: object) -> None:
        self.stop_asked = True
