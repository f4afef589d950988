"""The entry point: answers hooks and `status` before it imports anything else.

Claude Code waits for a hook at the end of every turn, people and scripts ask for the status all day, and
importing click alone takes as long as all the rest.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line and exit."""
    words = sys.argv[1:]
    config = os.environ.get("HANDOFFD_CONFIG")
    if words[:1] == ["--config"] and len(words) > 2:
        config, words = words[1], words[2:]
    if words == ["hook"]:
        from handoffd.entrance.hook import answer_hook

        sys.exit(answer_hook(config or None, os.environ))
    if words[:1] == ["status"]:
        from handoffd.api.unix_socket import NoAnswerError
        from handoffd.cli.status_report import glance, show, tell

        try:
            text = glance(words[1:], config or None, os.environ)
        except NoAnswerError as error:
            sys.exit(tell(error, as_json="--json" in words))
        if text is not None:
            sys.exit(show(text))
    # What a command imports lives as long as it does: looking for garbage among that takes 30 ms.
    if words[:1] == ["run"]:
        gc.disable()  # the daemon enables it once it has started
    else:
        gc.set_threshold(50_000)
    from handoffd.cli.main import main as whole

    whole()
