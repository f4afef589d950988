"""The text of the unit files: the shipped templates, filled in for one installation.

A unit must name programs by lasting paths: the console script where pip, pipx or uv put it (not the link on
PATH, not a cache that is swept), and the interpreter itself for the
launcher, which needs no virtual environment. An account that can replace one of these files runs code as
the account the unit is for, so for a system unit their owners are checked, too.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import stat
import sys
import sysconfig
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

from msgspec import Struct

import handoffd
from handoffd.errors import NotFound, Refused
from handoffd.settings.paths import shared

MARK = "# Written by `handoffd service install`; `handoffd service uninstall` removes it."

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Where the daemon looks for its own files; a unit does not see them unless they are written into it.
_KEPT = ("HANDOFFD_STATE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


class Installation(Struct, frozen=True, kw_only=True):
    """Where this handoffd is: its console script, its interpreter, its package's folder."""

    program: Path
    python: Path
    package: Path


class UnitFile(Struct, frozen=True, kw_only=True):
    """One unit: its name, where its file belongs, and what is in it."""

    name: str
    path: Path
    text: str


def this_installation(argv0: str) -> Installation:
    """Return the installation that is running; NotFound when it has no console script."""
    beside = [Path(argv0).absolute().with_name("handoffd")] if "/" in argv0 else []
    schemes = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", "posix_user")]
    return Installation(
        program=find_program([*beside, *(Path(folder, "handoffd") for folder in schemes)]),
        python=Path(sys.executable).resolve(),
        package=Path(handoffd.__file__).resolve().parent,
    )


def find_program(candidates: list[Path]) -> Path:
    """Return the first candidate that can be run, free of links."""
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate.resolve()
    raise NotFound(
        "the program `handoffd` was not found beside this Python",
        hint="pipx install .  # in a checkout; or: uv tool install .",
    )


def user_units(
    folder: Path, installation: Installation, environment: Mapping[str, str]
) -> tuple[UnitFile, ...]:
    """Return the launcher's and the daemon's unit of a person, to be put into `folder`."""
    lines = _environment({"PATH": environment["PATH"], **_kept(environment)})
    return tuple(
        UnitFile(name=name, path=folder / name, text=fill(_template(name), installation, lines))
        for name in ("handoffd-launcher.service", "handoffd.service")
    )


def system_units(
    folder: Path, installation: Installation, account: pwd.struct_passwd, path: str
) -> tuple[UnitFile, ...]:
    """Return the launcher's and the daemon's unit of an account, to be put into `folder`.

    They are instances written out, not templates: systemd prefers `handoffd@alice.service` to
    `handoffd@.service`, and so two accounts may run two installations.
    """
    lines = _environment({"PATH": path})
    units = []
    for stem in ("handoffd-launcher", "handoffd"):
        name = f"{stem}@{account.pw_name}.service"
        text = fill(_template(f"{stem}@.service"), installation, lines)
        units.append(UnitFile(name=name, path=folder / name, text=text))
    return tuple(units)


def fill(template: str, installation: Installation, environment: str = "") -> str:
    """Return `template` with the mark on top and every @PLACEHOLDER@ outside comments filled in."""
    values = {
        "@HANDOFFD@": exec_word(str(installation.program)),
        "@PYTHON@": exec_word(str(installation.python)),
        "@PACKAGE@/execute/runner/launcher.py": exec_word(
            str(installation.package / "execute/runner/launcher.py")
        ),
        "@ENVIRONMENT@": environment,
    }
    lines = [MARK]
    for line in template.splitlines():
        if not line.startswith("#"):
            for name, value in values.items():
                line = line.replace(name, value)  # noqa: PLW2901  (each placeholder in turn)
        lines.append(line)
    return "\n".join(lines) + "\n"


def exec_word(text: str) -> str:
    """Return `text` as one word of an ExecStart line: systemd must not expand or split it."""
    _one_line(text)
    escaped = text.replace("%", "%%").replace("$", "$$")
    return escaped if re.fullmatch(r"[\w%$@/.,:+=~-]+", escaped, re.ASCII) else _quoted(escaped)


def search_path(path: str, program: Path) -> str:
    """Return the absolute folders of `path`, without the virtual environment of handoffd itself.

    Agents get this PATH; in an activated environment `python` would be ours instead of theirs.
    """
    ours = program.parent if (program.parent.parent / "pyvenv.cfg").is_file() else None
    folders = [folder for folder in path.split(":") if folder.startswith("/")]
    return ":".join(dict.fromkeys(folder for folder in folders if ours is None or Path(folder) != ours))


def account_path(account: pwd.struct_passwd) -> str:
    """Return the default PATH of an account."""
    return f"{account.pw_dir.rstrip('/')}/.local/bin:{_SYSTEM_PATH}"


def find_account(name: str) -> pwd.struct_passwd:
    """Return the account called `name`; agents are not run as root."""
    if not _ACCOUNT.fullmatch(name):
        raise Refused(f"{name!r} is not the name of an account", hint="getent passwd")
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        raise NotFound(f"there is no account {name}", hint=f"sudo useradd --create-home {name}") from None
    if account.pw_uid == 0:
        raise Refused(
            "agents would run as root, and could do anything to this machine",
            hint="sudo useradd --create-home agents && sudo handoffd service install --system --user agents",
        )
    return account


def require_usable_by(account: pwd.struct_passwd, installation: Installation) -> None:
    """Refuse an installation that `account` cannot run, or that a third party could replace."""
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    for end in (installation.program, installation.python, installation.package):
        for path in (end, *end.parents):
            status = path.stat()
            why = _obstacle(status, account.pw_uid, groups)
            if why is not None:
                raise Refused(
                    f"a daemon of {account.pw_name} cannot be run from {end}: {path} {why}",
                    hint="sudo pipx install --global .  # in a checkout; then use that one",
                )


def _obstacle(status: os.stat_result, uid: int, groups: list[int]) -> str | None:
    if status.st_uid not in (0, uid):
        return "belongs to another account"
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        return "can be changed by any account"
    if status.st_uid == uid:
        allowed = status.st_mode & stat.S_IXUSR
    elif status.st_gid in groups:
        allowed = status.st_mode & stat.S_IXGRP
    else:
        allowed = status.st_mode & stat.S_IXOTH
    return None if allowed else "is closed to that account"


def _template(name: str) -> str:
    return shared("systemd", name).read_text(encoding="utf-8")


def _kept(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in _KEPT if environment.get(name)}


def _environment(values: Mapping[str, str]) -> str:
    return "\n".join(f"Environment={_quoted(_percent(f'{name}={value}'))}" for name, value in values.items())


def _percent(text: str) -> str:
    _one_line(text)
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _one_line(text: str) -> None:
    """A line break would start another setting."""
    if not text.isprintable():
        raise Refused(f"{text!r} cannot be written into a unit file")


# --- will it be there tomorrow ------------------------------------------------------------------------
# pip, pipx and uv put a program into a place of its own. A run without an installation (`uvx`, `pipx run`)
# has it in a cache that is swept: refused. What may change or vanish for another reason gets a caution.
_SWEPT = (Path("/tmp"), Path("/var/tmp"), Path("/run"), Path("/dev/shm"))  # noqa: S108  (only read)
_CACHE_TAG = "CACHEDIR.TAG"


def require_permanent(installation: Installation) -> None:
    """Refuse an installation in a cache."""
    program = installation.program
    # uv tags each environment that it makes as something that backups need not have, lasting ones, too.
    above = program.parents[2:]
    if ".cache" in program.parts or any((folder / _CACHE_TAG).is_file() for folder in above):
        raise Refused(
            f"{program} is in a cache and will be swept away",
            hint="pipx install .  # in a checkout; or: uv tool install .",
        )


def cautions(installation: Installation) -> list[str]:
    """Return warnings about the place that a service will run from."""
    program = installation.program
    found = [
        f"{program} is in {folder}, which is emptied: the service ends with it"
        for folder in _SWEPT
        if program.is_relative_to(folder)
    ]
    source = editable_source(installation.package)
    if source is not None:
        found.append(f"an editable installation: the service runs whatever {source} holds when it starts")
    return found


def editable_source(package: Path) -> str | None:
    """Return which checkout the distribution of `package` runs from; None when it has files of its own."""
    try:
        recorded = Distribution.from_name("handoffd").read_text("direct_url.json")
        origin = json.loads(recorded or "{}")
        editable = bool(origin.get("dir_info", {}).get("editable"))
    except (PackageNotFoundError, ValueError, AttributeError):
        return None
    url = str(origin.get("url", "")).removeprefix("file://")
    return url if editable and url and package.is_relative_to(url) else None
