"""systemctl and loginctl, asked as programs.

They are found on the PATH that is handed in, get a limit in time, and a failure of theirs comes
back as a value: what it means is for the verb to say. Nothing here speaks D-Bus: the programs are
there wherever systemd is, and their `show` output is made for machines.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from shlex import join

from handoffd.errors import Refused

# A unit of Type=notify makes `systemctl start` wait; the units allow 120 s for that.
LIMIT_S = 150.0

_SHOWN = (
    "Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "StatusText", "NRestarts",
    "Result", "ExecMainCode", "ExecMainStatus", "FragmentPath", "DropInPaths", "TasksCurrent",
    "MemoryCurrent",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a program ended. `code` 127: it is not there, 124: it took too long."""

    argv: tuple[str, ...]
    code: int
    output: str = ""
    error: str = ""

    @property
    def why(self) -> str:
        """The last line of what it complained about, for people."""
        lines = (self.error.strip() or self.output.strip()).splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


class Commands:
    """Runs programs with the environment it was given, each for at most `limit_s` seconds."""

    def __init__(self, environment: Mapping[str, str], limit_s: float = LIMIT_S) -> None:
        self._environment = dict(environment)
        self._limit_s = limit_s

    def run(self, argv: tuple[str, ...]) -> Completed:
        """Return how `argv` ended."""
        try:
            done = subprocess.run(
                argv, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=self._limit_s, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            return Completed(argv=argv, code=127, error=f"{argv[0]}: not found")
        except subprocess.TimeoutExpired:
            return Completed(argv=argv, code=124, error=f"{argv[0]}: no answer in {self._limit_s:.0f} s")
        return Completed(argv=argv, code=done.returncode, output=done.stdout, error=done.stderr)


class Systemctl:
    """One service manager: the machine's, or (`user`) a person's own."""

    def __init__(self, commands: Commands, *, user: bool) -> None:
        self._commands = commands
        self._prefix = ("systemctl", "--user") if user else ("systemctl",)

    def argv(self, *words: str) -> tuple[str, ...]:
        """Return the whole command for `words`."""
        return (*self._prefix, *words)

    def show(self, units: tuple[str, ...]) -> dict[str, dict[str, str]]:
        """Return the properties of `units` by name; Refused when the manager does not answer."""
        done = self._commands.run(self.argv("show", f"--property={','.join(_SHOWN)}", *units))
        if done.code != 0:
            raise Refused(f"systemd does not answer: {done.why}", hint=self.hint(done))
        blocks = [dict(_pairs(block)) for block in done.output.strip().split("\n\n")]
        return {block["Id"]: block for block in blocks if "Id" in block}

    def hint(self, failed: Completed) -> str | None:
        """Return the next command to type after a failure of the manager itself."""
        if "connect to bus" in failed.error.lower():
            # Typical of `su` and `sudo -u`: a shell without a session of its own.
            return 'sudo loginctl enable-linger "$USER" && export XDG_RUNTIME_DIR=/run/user/$(id -u)'
        refused = "denied" in failed.error.lower() or "authentication" in failed.error.lower()
        if refused and "--user" not in failed.argv:  # root has another manager of that kind
            return f"sudo {join(failed.argv)}"
        return None


def lingers(commands: Commands, person: str) -> bool | None:
    """Return whether the units of a person (name or uid) outlive the last logout; None: nobody can tell."""
    done = commands.run(("loginctl", "show-user", person, "--property=Linger", "--value"))
    return done.output.strip() == "yes" if done.code == 0 else None


def _pairs(block: str) -> list[tuple[str, str]]:
    lines = (line.partition("=") for line in block.splitlines())
    return [(name, value) for name, equals, value in lines if equals]
