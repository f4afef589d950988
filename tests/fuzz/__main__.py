"""Has schemathesis ask a daemon with a sample project everything that its description allows, and more.

`make fuzz-api` runs this; ARGS go to schemathesis. The daemon lives below a temporary folder and is asked
over TCP with its token; gates are open, so that every verb is reached; executors do nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.daemon import REPOSITORY, Daemon, Json, sample
from tests.support.loopback import free_port

EXCLUDED = ("stop",)
"""It would end the run. `test_routes.py` and `test_tcp.py` ask for it."""

JUDGING = Path(__file__).with_name("schemathesis.toml")

LIMIT_S = 3600


def settings(port: int) -> Json:
    """Return a daemon's settings: a port, open gates, and executors that cost nothing."""
    return {
        "control": {"tcp": {"port": port, "gates": True}},
        "executor": "nothing",
        "executors": {"nothing": {"extends": "command", "argv": ["true"]}},
        "execute": {"slots": 1, "min_free_mb": 0},
        "schedule": {"poll_s": 5},
        "log": {"level": "warning"},
    }


def command(daemon: Daemon, port: int, options: Sequence[str]) -> list[str]:
    """Return schemathesis' command line: all checks, bounded, the same cases each time."""
    token = (daemon.state_dir / "control.token").read_text().strip()
    url = f"http://127.0.0.1:{port}"
    return [
        str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(JUDGING),
        "run", f"{url}/v1/openapi.json",
        "--url", url, "--header", f"Authorization: Bearer {token}", "--checks", "all",
        *(word for name in EXCLUDED for word in ("--exclude-operation-id", name)),
        # Most texts cannot be sent as a segment of a path: schemathesis reports that, and goes on.
        "--suppress-health-check", "filter_too_much",
        "--request-timeout", "30", "--seed", "1", "--no-color", *options,
    ]  # fmt: skip


def run(options: Sequence[str], limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[bytes]:
    """Return how schemathesis ended; what it says goes where ours goes."""
    with tempfile.TemporaryDirectory(prefix="handoffd-fuzz-") as name:
        base = Path(name)
        port = free_port()
        daemon = Daemon(base, settings(port))
        try:
            daemon.start()
            project, other = sample(base, executor="nothing"), base / "other"
            other.mkdir()
            daemon.verb("init", project)
            environment = {
                **os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'daemon'}",
                "SCHEMATHESIS_HOOKS": "tests.fuzz.hooks", "HANDOFFD_FUZZ_PROJECT": str(project),
                "HANDOFFD_FUZZ_OTHER": str(other),
            }  # fmt: skip
            ended = subprocess.run(
                command(daemon, port, options), env=environment, cwd=base, timeout=limit_s, check=False
            )
            assert daemon.get("/v1/health")["pid"] == daemon.pid, "the daemon did not survive"
            return ended
        finally:
            daemon.close()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:] or ["--max-examples", "50"]).returncode)
