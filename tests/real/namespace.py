"""A network that holds nothing but loopback, for this process and everything it starts.

Whatever the CLIs try to reach beside the scripted model, they do not: no dummy key ever leaves the machine.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
from typing import NoReturn

_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_UP = 1


class NoNamespace(Exception):
    """This machine allows no network namespace; the message has the reason and a remedy."""


def enter(argv: list[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process by `argv` in a network namespace of its own. Raises NoNamespace."""
    # An ordinary user needs a user namespace around it, in which they are root.
    flags = "-n" if os.geteuid() == 0 else "-Urn"
    if shutil.which("unshare") is None:
        raise NoNamespace("there is no unshare: apt-get install util-linux")
    tried = subprocess.run(
        ["unshare", flags, "true"], capture_output=True, text=True, check=False, timeout=30
    )
    if tried.returncode != 0:
        raise NoNamespace(
            f"`unshare {flags}` is refused here ({tried.stderr.strip()}). Run it as root, or let users make "
            "namespaces: sysctl kernel.unprivileged_userns_clone=1 (on Ubuntu also "
            "kernel.apparmor_restrict_unprivileged_userns=0)"
        )
    os.execvpe("unshare", ["unshare", flags, *argv], environment)


def raise_loopback() -> None:
    """Switch loopback on, which is down in a new namespace. Raises NoNamespace when this is not one."""
    others = [name for _, name in socket.if_nameindex() if name != "lo"]
    if others:
        raise NoNamespace(f"there are more networks here than loopback: {', '.join(others)}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(handle, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(handle, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _UP))
