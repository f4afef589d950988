"""`make test-executors`: the real agent CLIs through the real daemon, in a network of loopback only.

python -m tests.real [PYTEST ARGUMENTS...]      install, then test
python -m tests.real record AGENT [SCENARIO...]  write tests/data/streams anew
"""

from __future__ import annotations

import os
import re
import sys
import tempfile

from tests.real.installing import TOOLS, NotInstalled, installed
from tests.real.namespace import NoNamespace, enter, raise_loopback

_SECRET = re.compile(
    r"ANTHROPIC|CLAUDE|CODEX|OPENAI|GEMINI|GOOGLE|AIDER|OPENCODE|API_KEY|TOKEN|PROXY", re.IGNORECASE
)


def main(arguments: list[str]) -> int:
    """Install outside, then do the work inside."""
    try:
        if TOOLS not in os.environ:
            # No real key, account or proxy may get into a test.
            clean = {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
            clean[TOOLS] = str(installed())
            enter([sys.executable, "-m", "tests.real", *arguments], clean)
        raise_loopback()
    except (NotInstalled, NoNamespace) as error:
        sys.stderr.write(f"test-executors: {error}\n")
        return 2
    if arguments[:1] == ["record"]:
        from tests.real.record import record

        record(*arguments[1:])
        return 0
    import pytest

    # Not below /tmp, where codex does without part of itself.
    with tempfile.TemporaryDirectory(
        prefix="handoffd-executors-", dir="/var/tmp", ignore_cleanup_errors=True
    ) as base:
        # A whole story is slow on a loaded machine, and waits with limits of its own.
        options = ["-p", "no:cacheprovider", f"--basetemp={base}/tests"]
        options += ["--timeout=1800", "-o", "faulthandler_timeout=1860"]
        return int(pytest.main([*options, "tests/real", *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
