"""Decides what a run may see and write: settings, project and executor in, a `Plan` out. Pure.

The tree is shown read-only, but for folders that are hidden: homes, what runs on the machine (`/run`),
temporary files, devices, other projects, and all that is the daemon's. An account with every right (root)
sees instead only the folders of programs and a few files of /etc. Inside hidden folders are shown again:
programs, what the run's command names, and what the settings let in.
"""

from __future__ import annotations

import os
import pwd
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from handoffd.execute.environment import expanded
from handoffd.execute.sandbox.plan import LANDLOCK, NAMESPACES, OFF, STRICT, Plan, strength
from handoffd.settings.model import ProjectSandbox, SandboxSettings

# --- what can be let in by name -----------------------------------------------------------------------


class Pass(Struct, frozen=True, kw_only=True):
    """Something outside the sandbox that a name in `sandbox.let_in` lets in."""

    variables: tuple[str, ...] = ()
    """Environment variables that the run gets."""
    sockets: tuple[str, ...] = ()
    """Variables that hold the path of a socket."""
    writable: tuple[str, ...] = ()


PASSES: Final[Mapping[str, Pass]] = {
    "cargo": Pass(writable=("${CARGO_HOME:-~/.cargo}/registry", "${CARGO_HOME:-~/.cargo}/git")),
    "go": Pass(
        variables=("GOCACHE", "GOFLAGS", "GOMODCACHE", "GOPRIVATE", "GOPROXY", "GOSUMDB", "GOTOOLCHAIN"),
        writable=(
            "${GOPATH:-~/go}/pkg/mod", "$GOMODCACHE", "${XDG_CACHE_HOME:-~/.cache}/go-build", "$GOCACHE",
        ),
    ),
    "gradle": Pass(writable=("~/.gradle/caches", "~/.gradle/wrapper")),
    "maven": Pass(writable=("~/.m2/repository",)),
    "npm": Pass(writable=("~/.npm",)),
    "pip": Pass(writable=("${XDG_CACHE_HOME:-~/.cache}/pip",)),
    "pnpm": Pass(writable=("${XDG_DATA_HOME:-~/.local/share}/pnpm/store",)),
    "proxy": Pass(
        variables=(
            "ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "all_proxy", "https_proxy", "http_proxy",
            "no_proxy",
        )
    ),
    "ssh-agent": Pass(variables=("SSH_AUTH_SOCK",), sockets=("SSH_AUTH_SOCK",)),
    "uv": Pass(writable=("${XDG_CACHE_HOME:-~/.cache}/uv",)),
    "yarn": Pass(writable=("${XDG_CACHE_HOME:-~/.cache}/yarn",)),
}  # fmt: skip

_TOOLS = (
    ".asdf", ".bun", ".cache/ms-playwright", ".cache/puppeteer", ".cargo/bin", ".config/git",
    ".config/mise", ".deno", ".fnm", ".gitconfig", ".gitignore_global", ".local/bin", ".local/lib",
    ".local/pipx", ".local/share/claude", ".local/share/fnm", ".local/share/mise", ".local/share/pipx",
    ".local/share/pnpm", ".local/share/uv", ".nix-profile", ".nodenv", ".npm-global", ".nvm", ".pyenv",
    ".rbenv", ".rustup", ".sdkman", ".tool-versions", ".volta", "bin", "go/bin",
)  # fmt: skip
"""Programs in a home, and git's settings. None of them holds a secret."""

_RUN = (
    "/run/NetworkManager/resolv.conf", "/run/current-system", "/run/nscd", "/run/opengl-driver",
    "/run/resolvconf", "/run/systemd/resolve",
)  # fmt: skip
"""What programs need of /run: names of hosts, and where NixOS has its programs."""

_KERNEL = (
    "/sys/firmware", "/sys/fs/bpf", "/sys/fs/pstore", "/sys/kernel/debug", "/sys/kernel/security",
    "/sys/kernel/tracing",
)  # fmt: skip

_OF_ROOT = frozenset(
    {
        "bin", "dev", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "sbin", "snap", "sys",
        "usr",
    }
)  # fmt: skip
"""All that an account with every right sees of `/`, besides what is shown again."""
_ETC = (
    "alternatives", "ca-certificates", "crypto-policies", "fonts", "gitconfig", "group", "hosts",
    "java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "ld.so.cache", "localtime", "maven",
    "mime.types", "nsswitch.conf", "os-release", "passwd", "php", "pki", "profile", "protocols",
    "resolv.conf", "services", "ssl/certs", "ssl/openssl.cnf", "static", "terminfo",
)  # fmt: skip
_VAR = ("/var/cache/fontconfig", "/var/lib/dpkg", "/var/lib/gems", "/var/lib/texmf")

_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108
_NO_HOME = frozenset(
    {
        "/", "/bin", "/boot", "/dev", "/etc", "/lib", "/nonexistent", "/opt", "/proc", "/sbin", "/sys",
        "/usr", "/var",
    }
)  # fmt: skip
"""Homes of accounts that have none; hiding them would hide the machine."""


# --- what a plan is made of ---------------------------------------------------------------------------
class Machine(Struct, frozen=True, kw_only=True):
    """The account and the machine; `top` are the names in `/`, `homes` the account's homes."""

    is_root: bool
    homes: tuple[str, ...]
    top: tuple[str, ...]


class Subject(Struct, frozen=True, kw_only=True):
    """One run. `environment` is its complete one; paths are absolute."""

    workspace: str
    project: str
    """The root of the project; `workspace` may be a clone elsewhere."""
    lent: tuple[str, ...] = ()
    """What a clone may read of the project, which is out of its sight otherwise."""
    environment: Mapping[str, str]
    others: tuple[str, ...] = ()
    """Roots of other projects, or folders of several; see `folded`."""
    own: tuple[str, ...] = ()
    """The daemon's files and folders."""
    programs: tuple[str, ...] = ()
    """Folders and files that its command needs; see `programs`."""
    writes: tuple[str, ...] = ()
    """The executor's `writes`."""
    keeps: tuple[str, ...] = ()
    """The executor's `own`."""
    reads: tuple[str, ...] = ()
    """The executor's `reads`."""
    logins: tuple[str, ...] = ()
    """Files and folders with the executor's login; see `logins`."""
    room: str = ""
    """The folder for what each executor keeps for this project alone."""
    run_folder: str | None = None
    """A folder for its results."""
    shown: str | None = None
    """A folder that the run sees in place of its workspace."""
    repository: str | None = None
    """See `repository_of`."""


def plan(settings: SandboxSettings, subject: Subject, machine: Machine) -> Plan | None:
    """Return the sandbox of a run; None if the settings say `off`."""
    if settings.level == OFF:
        return None
    let_in = [PASSES[name] for name in settings.let_in]
    caches = (folder for each in let_in for folder in each.writable)
    sockets = (f"${name}" for each in let_in for name in each.sockets)
    given = _expanded((*subject.writes, *settings.writable, *caches), subject)
    kept = _kept(settings, subject, [path for path in given if not path.endswith("*")])
    writable = [*kept.writable, *([subject.run_folder] if subject.run_folder else [])]
    opened = [subject.workspace, *writable, *([subject.repository] if subject.repository else [])]
    readable = (
        *(os.path.join(home, tool) for home in machine.homes for tool in _TOOLS),
        *_RUN,
        *(_root_only() if machine.is_root else ()),
        *subject.programs,
        *_expanded((*settings.visible, *sockets), subject),
        *subject.lent,
        *kept.readable,
    )
    hidden = _outside([subject.workspace], _hidden(machine, subject))
    private = _outside(opened, (*machine.homes, *_TEMPORARY, *_expanded(["$TMPDIR"], subject)))
    return Plan(
        level=settings.level,
        network=settings.network,
        workspace=subject.workspace,
        shown=subject.shown,
        repository=subject.repository,
        hidden=hidden,
        private=private,
        readable=_outermost(_out_of_sight(opened, readable, (*hidden, *private)), (*hidden, *private)),
        writable=_outside([subject.workspace], writable),
        own={place: f"{subject.room}{place}" for place in kept.own},
        read_only=kept.read_only,
        copied=_unique(path for path in given if path.endswith("*")),
    )


class _Kept(NamedTuple):
    """Where an agent's program keeps things: all as absolute paths."""

    writable: Sequence[str]
    readable: Sequence[str]
    own: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()


def _kept(settings: SandboxSettings, subject: Subject, given: Sequence[str]) -> _Kept:
    """Return what is open besides `given`, and where the project has folders of its own.

    Not in what is open anyway, nor where a login is shared, but below that. Landlock alone cannot show
    another folder there.
    """
    own, reads = _expanded(subject.keeps, subject), _reads(subject)
    logins = [path for path in subject.logins if path not in reads and not _below(path, given)]
    if settings.level == LANDLOCK:
        return _Kept([*given, *logins, *own], [*reads])
    places = [path for path in own if path not in logins]
    places = [path for path in places if not _below(os.path.dirname(path), places)]
    own_places = _outside([subject.workspace, *given], places)
    held = {path for path in reads if _below(os.path.dirname(path), (*own_places, *logins))}
    read_only = tuple(f"{path}{slash}" for path, slash in reads.items() if path in held)
    return _Kept([*given, *logins], [path for path in reads if path not in held], own_places, read_only)


def _reads(subject: Subject) -> Mapping[str, str]:
    """Return the absolute paths of its `reads`, each with the slash of a folder, or an empty text."""
    found = ((path, expanded(path, subject.environment)) for path in subject.reads)
    return {os.path.normpath(at): "/" if path.endswith("/") else "" for path, at in found if at is not None}


def _hidden(machine: Machine, subject: Subject) -> Iterable[str]:
    yield from ("/home", "/root", "/run")
    if machine.is_root:
        yield from (f"/{name}" for name in machine.top if name not in _OF_ROOT)
        yield from _KERNEL
    yield from subject.own
    yield from subject.others
    if subject.project != subject.workspace:
        yield subject.project


def _root_only() -> Iterable[str]:
    yield from (f"/etc/{name}" for name in _ETC)
    yield from _VAR


def _expanded(paths: Iterable[str], subject: Subject) -> list[str]:
    found = (expanded(path, subject.environment) for path in paths)
    return [os.path.normpath(path) for path in found if path is not None and path != "/"]


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _outside(folders: Sequence[str], paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that are not in one of the folders already."""
    return _unique(path for path in paths if not _below(path, folders))


def _out_of_sight(opened: Sequence[str], paths: Iterable[str], covers: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that are in no open folder, or in a cover that is within it."""
    seen, covered = set(opened), set(covers)
    return _unique(path for path in paths if not _is_open(path, seen, covered))


def _is_open(path: str, opened: set[str], covers: set[str]) -> bool:
    while path != "/":
        if path in opened:
            return True
        if path in covers:
            return False
        path = os.path.dirname(path)
    return False


def _outermost(paths: Sequence[str], covers: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that are not shown already by another one of them: each costs a mount."""
    shown, covered = set(paths), set(covers)
    return tuple(path for path in paths if not _is_shown_above(path, shown, covered))


def _is_shown_above(path: str, shown: set[str], covered: set[str]) -> bool:
    above = os.path.dirname(path)
    while above != "/" and above not in covered:
        if above in shown:
            return True
        above = os.path.dirname(above)
    return False


def _unique(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


# --- the settings of the daemon and of a project ------------------------------------------------------
def combined(daemon: SandboxSettings, project: ProjectSandbox) -> SandboxSettings:
    """Return what holds in a project: its own values, as far as they are set, and both lists of paths."""
    level = project.level or daemon.level
    network = project.network or daemon.network
    return SandboxSettings(
        level=level if network == "on" or level != LANDLOCK else NAMESPACES,
        network=network,
        writable=(*daemon.writable, *project.writable),
        visible=(*daemon.visible, *project.visible),
        let_in=(*daemon.let_in, *project.let_in),
    )


HOLDS: Final = {
    STRICT: "namespaces and Landlock (strict)", NAMESPACES: "namespaces", LANDLOCK: "Landlock alone",
}  # fmt: skip


def in_words(settings: SandboxSettings, version: int) -> str:
    """Return what holds agents on a kernel with this version of Landlock, and what is let in."""
    holds = strength(settings.level, version)
    if holds == OFF:
        return "none; agents may do all that their account may"
    more = (("may also write", settings.writable), ("read", settings.visible), ("let in", settings.let_in))
    told = (f"{word} {', '.join(names)}" for word, names in more if names)
    return "; ".join([HOLDS[holds], f"network: {settings.network}", *told])


def variables_of(settings: SandboxSettings) -> tuple[str, ...]:
    """Return the environment variables that its `let_in` lets in."""
    if settings.level == OFF:
        return ()
    return tuple(variable for name in settings.let_in for variable in PASSES[name].variables)


# --- other projects -----------------------------------------------------------------------------------
MOST_HIDDEN = 32
"""At most this many other projects are hidden one by one; of more, the folders that they are in."""


@lru_cache(maxsize=4)
def folded(roots: tuple[str, ...]) -> tuple[str, ...]:
    """Return few folders that hold all of `roots`: each mount takes a start some microseconds.

    Never a folder at the top of the machine: there a root is named itself.
    """
    if len(roots) <= MOST_HIDDEN:
        return roots
    parents = Counter(os.path.dirname(root) for root in roots)
    return _unique(
        parent if parents[parent] > 1 and parent.count("/") > 1 else root
        for root in roots
        for parent in [os.path.dirname(root)]
    )


# --- linked worktrees ---------------------------------------------------------------------------------
_MOST_POINTER = 4096


def repository_of(workspace: str) -> str | None:
    """Return the git folder that a linked worktree shares; None for any other workspace. Reads two files.

    An agent can write the pointer in the workspace. So it counts only where the other end points back, which
    only the repository's owner can have written: `REPOSITORY/worktrees/NAME/gitdir`.
    """
    pointer = os.path.join(workspace, ".git")
    word, _, named = _line(pointer).partition(" ")
    own = os.path.normpath(os.path.join(workspace, named))
    worktrees, _ = os.path.split(own)
    if word != "gitdir:" or os.path.basename(worktrees) != "worktrees":
        return None
    return os.path.dirname(worktrees) if _line(os.path.join(own, "gitdir")) == pointer else None


def _line(path: str) -> str:
    """Return the first line of a small regular file; empty for anything else."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.read(opened, _MOST_POINTER)
    except OSError:
        return ""
    finally:
        os.close(opened)
    return os.fsdecode(text).partition("\n")[0]


# --- logins -------------------------------------------------------------------------------------------
def logins(
    files: Iterable[str], variables: Iterable[str], environment: Mapping[str, str], *, with_folder: bool
) -> tuple[str, ...]:
    """Return what must be shared for a login: the files that are there. Looks at the disk.

    `with_folder`: the folder of the first of them, because the program replaces the file, or locks it by
    others beside it; none where one of the variables logs it in.
    """
    found = (expanded(path, environment) for path in files)
    there = [os.path.normpath(path) for path in found if path is not None and os.path.isfile(path)]
    if not with_folder:
        return tuple(there)
    if any(environment.get(name) for name in variables):
        return ()
    return tuple(os.path.dirname(path) for path in there[:1])


# --- what a command needs -----------------------------------------------------------------------------
_BIN = ("bin", "sbin", "shims")
_SHARED_FOLDERS = frozenset({".cargo", ".local"})
"""Folders above a `bin` in which there is more than programs."""
_NEVER_HIDDEN = ("/bin", "/dev", "/lib", "/sbin", "/usr")
"""What a run sees anyway, or, as devices, is made anew: `/dev/stdin` would be the shim's."""
_MOST_LINKS = 16


def programs(argv: Sequence[str], environment: Mapping[str, str], homes: Sequence[str]) -> tuple[str, ...]:
    """Return the folders and files that a command needs to be shown: PATH, the program, what argv names.

    Of a program the folder that it is installed in, `/x/tool` for `/x/tool/bin/run`, also at the end of its
    links. Reads links from the disk, and nothing else.
    """
    folders = [folder for folder in environment.get("PATH", "").split(":") if folder.startswith("/")]
    found = [*folders, *_above(folders, homes)]
    program = argv[0] if argv and "/" in argv[0] else _on_path(argv[0] if argv else "", folders)
    steps = tuple(_links(program)) if program.startswith("/") else ()
    named = (word for word in argv[1:] if word.startswith("/"))
    found += [*steps, *_above(map(os.path.dirname, steps), homes), *_packages(steps), *named]
    return _unique(
        path for one in found if not _below(path := os.path.normpath(one), _NEVER_HIDDEN) and path != "/"
    )


def _above(folders: Iterable[str], homes: Sequence[str]) -> Iterable[str]:
    """Yield the folder above each `bin`, unless that is a home, or one in which there is more."""
    for folder in folders:
        above, name = os.path.split(folder.rstrip("/"))
        if name in _BIN and above not in homes and os.path.basename(above) not in _SHARED_FOLDERS:
            yield above


def _packages(steps: Iterable[str]) -> Iterable[str]:
    """Yield the folder of all packages that a program of npm's is in: it needs others of them."""
    for step in steps:
        above, found, _ = step.partition("/node_modules/")
        if found:
            yield f"{above}/node_modules"


def _on_path(name: str, folders: Sequence[str]) -> str:
    places = (os.path.join(folder, name) for folder in folders)
    return next((place for place in places if os.access(place, os.X_OK)), "")


def _links(path: str) -> Iterable[str]:
    """Yield a path, and each path that its links lead to."""
    for _ in range(_MOST_LINKS):
        yield path
        try:
            path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
        except OSError:
            return


# --- the account and the machine ----------------------------------------------------------------------
def machine_of(environment: Mapping[str, str]) -> Machine:
    """Return the account that this process runs as, and its homes: by the variable, and by the account."""
    homes = (environment.get("HOME", ""), _account_home())
    known = (os.path.normpath(home) for home in homes if home.startswith("/"))
    return Machine(
        is_root=os.geteuid() == 0,
        homes=_unique(home for home in known if home not in _NO_HOME),
        top=tuple(os.listdir("/")),
    )


@lru_cache(maxsize=1)
def _account_home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""
