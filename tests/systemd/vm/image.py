"""The disk and the kernel that the virtual machine boots, made once and kept below `.cache/systemd-vm`.

`obstacle` says what keeps a machine from running it at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
CACHE = CHECKOUT / ".cache" / "systemd-vm"

SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
KERNEL = "linux-image-cloud-amd64"
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "polkitd",
    "sudo", "ca-certificates", "python3", "python3-venv", "git", "procps", KERNEL,
)  # fmt: skip
PROGRAM = "/opt/handoffd/bin/handoffd"
DISK_MIB = 2000

_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"

_LISTENER = """\
#!/bin/bash
# Runs each line of the second serial port (base64) as a script; answers with its end and what it printed.
stty -F /dev/ttyS1 raw -echo
exec 3<> /dev/ttyS1
echo ready >&3
while read -r line <&3; do
    printed=$(base64 -d <<< "$line" | setsid bash 2>&1 3>&-)
    printf '%s %s\\n' "$?" "$(base64 -w0 <<< "$printed")" >&3
done
"""
_UNIT = """\
[Unit]
After=multi-user.target
[Service]
ExecStart=/usr/local/sbin/listener
KillMode=process
[Install]
WantedBy=multi-user.target
"""


_INSTALLER = """\
install="/opt/handoffd/bin/pip install --quiet --disable-pip-version-check"
[ -e /opt/handoffd ] || { python3 -m venv /opt/handoffd; $install /tmp/wheels/*.whl; }
$install --force-reinstall --no-deps /tmp/wheels/*.whl
python3 -m compileall -q /opt/handoffd /usr/lib/python3 /usr/lib/python3.11 > /dev/null || true
"""


class NoMachine(Exception):
    """This machine cannot run a virtual machine; the message has the reason and a remedy."""


def obstacle() -> str | None:
    """Return why the virtual machine cannot be made or run here, in one line, or None."""
    if os.geteuid() != 0:
        return "its disk is made as root: sudo make test-systemd-vm"
    if os.uname().machine != "x86_64":
        return f"its kernel is one for x86_64, and this machine is {os.uname().machine}"
    programs = {"qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs"}
    if missing := [package for program, package in programs.items() if shutil.which(program) is None]:
        how = f"apt-get install --no-install-recommends {' '.join(missing)}"
        return f"{' and '.join(missing)} not installed: {how}"
    return None


def disk() -> Path:
    """Return a disk with this checkout's handoffd on it, beside its `kernel`. Raises NoMachine."""
    system = _system()
    folder, image = CACHE / "unfinished", CACHE / "disk.img"
    try:
        subprocess.run(["cp", "-a", "--reflink=auto", system, folder], check=True)
        _install(folder)
        (CACHE / "kernel").write_bytes(next((folder / "boot").glob("vmlinuz-*")).read_bytes())
        image.unlink(missing_ok=True)
        subprocess.run(
            ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", folder, image, f"{DISK_MIB}M"],
            check=True,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return image


def _system() -> Path:
    """Return the folder of a Debian with handoffd's dependencies, made on the first call."""
    needs = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    key = hashlib.sha256("\n".join((SUITE, *PACKAGES, _LISTENER, _UNIT, needs)).encode()).hexdigest()[:12]
    made = CACHE / f"root-{key}"
    if not made.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob("root-*"):
            shutil.rmtree(old)
        unfinished = CACHE / "bootstrap"
        shutil.rmtree(unfinished, ignore_errors=True)
        included = f"--include={','.join(PACKAGES)}"
        _said("mmdebstrap", "--quiet", "--variant=minbase", included, SUITE, str(unfinished), MIRROR)
        _prepare(unfinished)
        _install(unfinished)  # including all dependencies, which is slow
        unfinished.rename(made)
    return made


def _prepare(folder: Path) -> None:
    if os.path.exists(f"/{_CERTIFICATES}"):  # it may hold the one of a proxy
        shutil.copyfile(f"/{_CERTIFICATES}", folder / _CERTIFICATES)
    (folder / "etc/hostname").write_text("vm\n", encoding="utf-8")
    (folder / "etc/hosts").write_text("127.0.0.1 localhost vm\n", encoding="utf-8")
    listener = folder / "usr/local/sbin/listener"
    listener.write_text(_LISTENER, encoding="utf-8")
    listener.chmod(0o755)
    unit = folder / "etc/systemd/system/listener.service"
    unit.write_text(_UNIT, encoding="utf-8")
    wants = unit.parent / "multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / unit.name).symlink_to(f"../{unit.name}")


def _install(folder: Path) -> None:
    """Install this checkout, compiled: the virtual machine takes minutes for that."""
    wheels = folder / "tmp/wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(wheels), str(CHECKOUT))
    _said(*build)
    _said("chroot", str(folder), "sh", "-euc", _INSTALLER)


def _said(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise NoMachine(f"{command[0]} ended with {done.returncode}: {done.stdout.strip()[-1000:]}")
