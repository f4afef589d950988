"""The Debian that a box boots: made once by mmdebstrap, kept below `.cache/systemd`, then only read."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / ".cache" / "systemd"

SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "polkitd", "sudo", "procps",
    "ca-certificates", "python3", "python3-venv", "pipx", "git", "make",
)  # fmt: skip
"""What is there when the operations page begins; polkitd lets an account switch on its own lingering."""

CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"

# Before the journal, which keeps the boot id that it found.
_NOT_MOUNTED = """\
[Unit]
Description=Take away two mounts that only a container has
DefaultDependencies=no
Before=sysinit.target systemd-journald.service
ConditionPathExists=/etc/like-a-machine
[Service]
Type=oneshot
StandardOutput=null
StandardError=null
ExecStart=-umount /proc/kmsg
ExecStart=-umount /proc/sys/kernel/random/boot_id
"""


class NoBox(Exception):
    """This machine cannot run a box; the message has the reason and a remedy."""


def _require_tools() -> None:
    if os.geteuid() != 0:
        raise NoBox("a box is booted as root: sudo make test-systemd")
    missing = [
        package
        for program, package in {"systemd-nspawn": "systemd-container", "mmdebstrap": "mmdebstrap"}.items()
        if shutil.which(program) is None
    ]
    if missing:
        raise NoBox(f"not everything that makes a box is here: apt-get install {' '.join(missing)}")


def root() -> Path:
    """Return the folder of the system, which is made if it is not there. Raises NoBox."""
    _require_tools()
    key = hashlib.sha256("\n".join((SUITE, *PACKAGES, _NOT_MOUNTED)).encode()).hexdigest()[:12]
    made = CACHE / f"root-{key}"
    if not made.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob("root-*"):
            shutil.rmtree(old)
        unfinished = CACHE / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        _bootstrap(unfinished)
        _prepare(unfinished)
        unfinished.rename(made)
    return made


def _bootstrap(folder: Path) -> None:
    done = subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}",
         SUITE, folder, MIRROR],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        log = CACHE / "mmdebstrap.log"
        log.write_text(done.stdout, encoding="utf-8")
        raise NoBox(f"mmdebstrap could not make Debian {SUITE} from {MIRROR}: {log} says why")


def _prepare(folder: Path) -> None:
    if os.path.exists(f"/{CERTIFICATES}"):  # it may hold the one of a proxy
        shutil.copyfile(f"/{CERTIFICATES}", folder / CERTIFICATES)
    (folder / "etc/hostname").write_text("box\n", encoding="utf-8")
    (folder / "etc/machine-id").write_text("", encoding="utf-8")
    unit = folder / "etc/systemd/system/like-a-machine.service"
    unit.write_text(_NOT_MOUNTED, encoding="utf-8")
    wants = unit.parent / "sysinit.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / unit.name).symlink_to(f"../{unit.name}")
