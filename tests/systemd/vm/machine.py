"""A virtual machine with a kernel and a systemd of its own, emulated by qemu: without KVM, and slow for that.

Scripts go over a serial line to a listener in it (image.py), and their ends come back on it.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import subprocess
from pathlib import Path

from tests.support.eventually import eventually_sync
from tests.systemd.vm.image import NoMachine

BOOT_S = 600
_MEMORY_MIB = 1536
_COMMAND_LINE = "root=/dev/nvme0n1 rw console=ttyS0 quiet mitigations=off nokaslr systemd.show_status=no"


class Machine:
    """A booted virtual machine; `close` it in the end."""

    def __init__(self, disk: Path, kernel: Path, folder: Path) -> None:
        """Boot `disk`, and keep its output in `folder`. Raises NoMachine."""
        self._console = folder / "console.log"
        line = folder / "line.sock"
        self._qemu = subprocess.Popen(
            [
                "setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-accel", "tcg,thread=multi",
                "-cpu", "max", "-smp", "2", "-m", str(_MEMORY_MIB), "-nodefaults", "-display", "none",
                "-no-reboot", "-snapshot", "-kernel", kernel, "-append", _COMMAND_LINE,
                # This kernel has a driver for it built in, and so needs no initial disk.
                "-drive", f"file={disk},if=none,id=disk,format=raw,cache=unsafe",
                "-device", "nvme,drive=disk,serial=disk",
                "-serial", f"file:{self._console}",
                "-serial", f"unix:{line},server=on,wait=off",
            ],
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self._line = socket.socket(socket.AF_UNIX)
        eventually_sync(line.exists)
        self._line.connect(str(line))
        self._read = self._line.makefile("rb")
        try:
            self._line.settimeout(BOOT_S)
            while self._read.readline().strip() != b"ready":
                if self._qemu.poll() is not None:
                    raise NoMachine(self.console)
        except TimeoutError as error:
            self.close()
            raise NoMachine(f"it has not booted in {BOOT_S} s: {self.console}") from error

    @property
    def console(self) -> str:
        """The end of what its kernel printed."""
        return self._console.read_text("utf-8", "replace")[-2000:]

    def run(self, script: str, *, user: str | None = None, timeout_s: float = 600) -> tuple[int, str]:
        """Return how a shell script ended and what it printed: root's, or in a login session of `user`."""
        if user is not None:
            inner = base64.b64encode(script.encode()).decode()
            script = (
                f"exec systemd-run --quiet --pipe --wait --collect --property=User={user}"
                " --property=PAMName=login --property=WorkingDirectory=~"
                f" -- bash -c 'bash <(base64 -d <<< {inner})'"
            )
        self._line.settimeout(timeout_s)
        self._line.sendall(base64.b64encode(script.encode()) + b"\n")
        code, _, printed = self._read.readline().partition(b" ")
        return int(code), base64.b64decode(printed).decode("utf-8", "replace")

    def must(self, script: str, *, user: str | None = None) -> str:
        """Return what a script that has to succeed printed."""
        code, printed = self.run(script, user=user)
        assert code == 0, f"{script}\nended with {code}:\n{printed}"
        return printed

    def close(self) -> None:
        """End it at once; nothing of it is kept."""
        self._qemu.kill()
        self._qemu.wait()
        with contextlib.suppress(OSError):
            self._line.close()
