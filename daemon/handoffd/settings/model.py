"""Every setting there is, as frozen values with units in their names; nothing here reads a file.

`loading` fills these from files, the environment and flags. No other component reads the
environment: each gets its own section.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from handoffd.protocol.rules import IDENTICAL_ENDS, Gates
from handoffd.settings.notify import NotifySettings, ReportSettings
from handoffd.settings.schedule import ScheduledStart, SharedStart, must_differ
from handoffd.settings.section import LONGEST_S, AbsolutePath, Interval, Minutes, Seconds, Secret, Size
from handoffd.settings.section import Section as _Section

VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
"""The name of an environment variable."""


_TOKEN = re.compile(r"[!-~]{20,512}")

_MOST_DAYS = 100 * 366
"""Write null for ever."""
_MOST_MIB = 1 << 40
_LEAST_MEMORY = 64 << 20
"""A limit that is reached before the program starts could kill the process that supervises it."""
_MOST_MEMORY = 1 << 60
_LEAST_TASKS = 8
_MOST_TASKS = 1 << 22
"""The kernel's maximum."""
_MOST_DOLLARS = 1e12
_MOST_TOKENS = 10**15


def _enough_memory(size: int) -> int:
    if not _LEAST_MEMORY <= size <= _MOST_MEMORY:
        raise ValueError("must be 64M or more, as no agent begins with less, and less than 1048576T")
    return size


def _are_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  (every verb reads the settings)

    for pattern in patterns:
        try:
            GitIgnoreSpec.from_lines([pattern])
        except ValueError as error:
            raise ValueError(f"must be patterns as in .gitignore, which {pattern!r} is not") from error
    return patterns


Patterns = Annotated[tuple[str, ...], AfterValidator(_are_patterns)]
"""Patterns of paths, as in .gitignore."""


def _spelled_out(value: object) -> object:
    return {"path": value} if isinstance(value, str | Path) else value


class WorkspaceSettings(_Section):
    """A folder of projects: the daemon supervises all below it, present and future."""

    path: AbsolutePath
    depth: int = Field(2, ge=1, le=8)
    """How many levels below `path` projects are searched."""
    exclude: Patterns = ()
    """Patterns as in .gitignore, relative to `path`, of folders to leave out."""
    add: Literal["auto", "ask"] = "auto"
    """`ask`: new projects are only listed, and a person adds them."""


Workspace = Annotated[
    WorkspaceSettings, BeforeValidator(_spelled_out, json_schema_input_type=WorkspaceSettings | Path)
]
"""A path alone means a workspace with the defaults."""


class RosterSettings(_Section):
    """How projects are found by the patterns and workspaces of the settings."""

    scan_s: Interval = 60


class WatchSettings(_Section):
    """How `.ai/` folders are watched. With watchfiles a change is noticed after about 1.5 times `step_ms`."""

    backend: Literal["auto", "inotify", "watchfiles"] = "auto"
    """`auto`: the kernel's inotify on Linux, watchfiles elsewhere."""
    step_ms: int = Field(10, ge=1, le=1000)
    debounce_ms: int = Field(20, ge=1, le=5000)
    shards: int = Field(4, ge=1, le=10)
    sweep_s: Interval = 30


class ScheduleSettings(_Section):
    """How often the poller checks for timed-out and dead executors, and what starts at fixed times."""

    poll_s: Interval = 30
    starts: Annotated[tuple[SharedStart, ...], AfterValidator(must_differ)] = ()


def _names_executors(value: object) -> object:
    names = value if isinstance(value, list | tuple) else (value,)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("must be the name of an executor, or a list of names")
    return value


ExecutorChoice = Annotated[
    str | Annotated[tuple[str, ...], Field(min_length=1)], BeforeValidator(_names_executors)
]
"""An executor's name, `auto`, or several names with the best first."""


SlotCount = Annotated[int, Field(ge=1, le=100_000)]


class ExecuteSettings(_Section):
    """How executors are run."""

    slots: SlotCount = 4
    min_free_mb: int = Field(512, ge=0, le=_MOST_MIB)
    """MiB; 0: not checked."""
    handoff_grace_s: Seconds = 20
    meter_s: Interval = 1
    memory_max: Annotated[Size, AfterValidator(_enough_memory)] | None = None
    """Bytes that all processes of one run may use together; None: no limit."""
    tasks_max: int | None = Field(None, ge=_LEAST_TASKS, le=_MOST_TASKS)
    """Processes and threads that one run may have; None: no limit."""
    stall_min: float = Field(10, ge=0, le=LONGEST_S / 60)
    """0: a silent executor may use all its time."""
    settle_s: float = Field(1, ge=0, le=LONGEST_S)
    env_allow: tuple[VariableName, ...] = (
        "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
        "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    )  # fmt: skip
    """Names of the environment variables that an executor gets, and no others."""
    keys: Mapping[VariableName, Secret] = Field(default_factory=dict)
    """Secret values of variables; they win over the daemon's own environment."""


def _is_a_place(path: str) -> str:
    if not path.startswith(("/", "~/", "$")) or "\0" in path or path.rstrip("/") == "":
        raise ValueError("must be a whole path; it may begin with ~/ or with a $VARIABLE")
    return path


SandboxPath = Annotated[str, AfterValidator(_is_a_place)]
SandboxLevel = Literal["auto", "strict", "namespaces", "landlock", "off"]
SandboxNetwork = Literal["on", "loopback", "none"]
SandboxPass = Literal[
    "cargo", "go", "gradle", "maven", "npm", "pip", "pnpm", "proxy", "ssh-agent", "uv", "yarn"
]
"""What can be let in by name: caches of package managers, the SSH agent, the variables of a proxy."""


class SandboxSettings(_Section):
    """What a run may touch besides its project; docs/security.md explains it."""

    level: SandboxLevel = "auto"
    network: SandboxNetwork = "on"
    writable: tuple[SandboxPath, ...] = ()
    """Folders and files that agents and checks may write."""
    visible: tuple[SandboxPath, ...] = ()
    """Paths that they may read, though they are hidden otherwise."""
    let_in: tuple[SandboxPass, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know who looks at the status."""
        if self.level == "off":
            return ("agents may do all that their account may: sandbox.level is off (handoffd config show)",)
        if self.level == "landlock":
            return ("agents are held by Landlock alone: sandbox.level is landlock (handoffd config show)",)
        return ()

    @field_validator("network")
    @classmethod
    def _must_be_possible(cls, network: SandboxNetwork, info: ValidationInfo) -> SandboxNetwork:
        if network != "on" and info.data.get("level") == "landlock":
            raise ValueError("needs namespaces, which level: landlock does without")
        return network


class ProjectSandbox(_Section):
    """The same in a project's own settings: None and () leave it to the daemon's."""

    level: SandboxLevel | None = None
    network: SandboxNetwork | None = None
    writable: tuple[SandboxPath, ...] = ()
    visible: tuple[SandboxPath, ...] = ()
    let_in: tuple[SandboxPass, ...] = ()


def _from_the_root(pattern: str) -> str:
    if not pattern.startswith("/") or "\0" in pattern:
        raise ValueError("must be a whole path, from the root; * in it matches anything")
    return pattern


Priority = Annotated[int, Field(ge=-100, le=100)]
"""Higher goes first; 0 is the default."""
GroupName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""The name of a group of projects."""


class GroupSettings(_Section):
    """Projects that share slots and a priority."""

    slots: SlotCount | None = None
    priority: Priority = 0
    projects: tuple[Annotated[str, AfterValidator(_from_the_root)], ...] = ()
    """Roots, or patterns of roots, in which * matches anything, also several folders."""

    def names(self, root: str) -> bool:
        """Return whether the project at `root` belongs to the group."""
        return any(pattern == root or fnmatchcase(root, pattern) for pattern in self.projects)


class SchedulingSettings(_Section):
    """How many executors run at once, which is next, and when the machine has room for another."""

    per_executor: Mapping[str, SlotCount] = Field(default_factory=dict)
    per_account: Mapping[str, SlotCount] = Field(default_factory=dict)
    per_project: SlotCount | None = None
    groups: Annotated[Mapping[str, GroupSettings], AfterValidator(OrderedDict)] = Field(
        default_factory=OrderedDict
    )
    """By name; a project belongs to the first that names it, unless its own settings name one.

    Their order counts when two are compared.
    """
    head_start_min: Minutes = 30
    """Minutes of waiting that one point of priority is worth."""
    min_free_memory_mb: int = Field(512, ge=0, le=_MOST_MIB)
    """MiB; 0: memory is not checked."""
    memory_per_agent_mb: int = Field(512, ge=0, le=_MOST_MIB)
    """MiB that a working executor needs; reserved while it starts."""
    max_load_per_core: float | None = Field(None, gt=0)
    """None: load is not checked."""
    stagger_s: float = Field(0, ge=0, le=LONGEST_S)

    def group_of(self, root: str) -> str | None:
        """Return the first group that names the project at `root`."""
        return next((name for name, group in self.groups.items() if group.names(root)), None)


class LimitSettings(_Section):
    """Whether an attempt waits when its account is at its usage limit or its provider is overloaded."""

    wait: bool = True
    """False: it counts as a failed attempt."""


class RetentionSettings(_Section):
    """How long finished runs, notices and stories are kept; None: for ever."""

    runs_days: float | None = Field(30, ge=1, le=_MOST_DAYS)
    runs_keep: int = Field(20, ge=0, le=1_000_000)
    """The newest runs of each project are kept regardless of age."""
    notices_days: float | None = Field(30, ge=1, le=_MOST_DAYS)
    journal_days: float | None = Field(365, ge=7, le=_MOST_DAYS)
    """Days since a story ended; only whole stories are deleted."""
    snapshots_days: float | None = Field(30, ge=1, le=_MOST_DAYS)
    """Days since a snapshot was made; a story in flight keeps its own."""
    workspaces_days: float | None = Field(30, ge=1, le=_MOST_DAYS)
    """Days since a clone was made whose branch is not merged; a story in flight keeps its own."""
    workspaces_gb: float | None = Field(None, gt=0, le=_MOST_MIB)
    """GiB that all clones may take together before a story waits for its own; None: no limit."""
    daily: bool = True


class LogSettings(_Section):
    """How the daemon logs; `auto` is text on a terminal and JSON under systemd."""

    format: Literal["auto", "text", "json"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


Dollars = Annotated[float, Field(gt=0, le=_MOST_DOLLARS)]
Tokens = Annotated[int, Field(gt=0, le=_MOST_TOKENS)]


class ProjectCaps(_Section):
    """How much may be spent before the daemon starts nothing more; None: no limit."""

    attempt_usd: Dollars | None = None
    attempt_tokens: Tokens | None = None
    story_usd: Dollars | None = None
    story_tokens: Tokens | None = None
    project_usd: Dollars | None = None
    project_tokens: Tokens | None = None


class CapSettings(ProjectCaps):
    """The caps of each project, and the caps on all projects together."""

    day_usd: Dollars | None = None
    day_tokens: Tokens | None = None
    daemon_usd: Dollars | None = None
    daemon_tokens: Tokens | None = None
    on_cap: Literal["finish", "stop"] = "finish"
    """Whether a run may finish or is stopped when its story, project, day or daemon reaches its cap."""


Rate = Annotated[float, Field(ge=0, le=_MOST_DOLLARS)]


class Price(_Section):
    """US dollars for a million tokens; cached tokens without a price cost as much as input."""

    input: Rate
    output: Rate
    cache_read: Rate | None = None
    cache_write: Rate | None = None


class TcpSettings(_Section):
    """A port on the loopback interface, for clients with the token that `handoffd token` prints."""

    host: Literal["127.0.0.1", "::1"] = "127.0.0.1"
    port: int = Field(ge=1, le=65535)
    token: Secret | None = None
    """None: the daemon creates one and keeps it in the state directory."""

    @field_validator("token")
    @classmethod
    def _must_be_long(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and not _TOKEN.fullmatch(token.get_secret_value()):
            raise ValueError("must be 20 to 512 characters of ASCII without blanks")
        return token

    gates: bool = False
    """True: the port accepts verbs for people, too."""


class ControlSettings(_Section):
    """How programs reach the daemon, besides its socket."""

    tcp: TcpSettings | None = None


class Settings(_Section):
    """The daemon's settings."""

    state_dir: AbsolutePath
    runtime_dir: AbsolutePath
    projects: tuple[AbsolutePath, ...] = ()
    """Roots, and patterns (`*`, `?`, `[...]`, `**`) of roots."""
    workspaces: tuple[Workspace, ...] = ()
    roster: RosterSettings = RosterSettings()
    executor: ExecutorChoice = "claude"
    executors: Mapping[str, Mapping[str, object]] = Field(default_factory=dict)
    """Executors besides (or instead of) the shipped ones, in the form of config/executors.yaml."""
    auto_continue: bool = False
    """Whether the next story of a backlog starts by itself."""
    language: Literal["en", "zh-TW"] = "en"
    watch: WatchSettings = WatchSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    execute: ExecuteSettings = ExecuteSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    sandbox: SandboxSettings = SandboxSettings()
    limits: LimitSettings = LimitSettings()
    caps: CapSettings = CapSettings()
    prices: Mapping[str, Price] = Field(default_factory=dict)
    """Prices by pattern of the model's name; they win over the shipped ones (config/prices.yaml)."""
    notify: NotifySettings = NotifySettings()
    report: ReportSettings = ReportSettings()
    control: ControlSettings = ControlSettings()
    retention: RetentionSettings = RetentionSettings()
    log: LogSettings = LogSettings()

    @field_validator("notify")
    @classmethod
    def _must_name_groups(cls, notify: NotifySettings, info: ValidationInfo) -> NotifySettings:
        scheduling = info.data.get("scheduling")
        known = () if scheduling is None else tuple(scheduling.groups)
        named = dict.fromkeys(notify.groups()) if scheduling is not None else ()
        if wrong := [repr(name[:64]) for name in named if name not in known]:
            raise ValueError(
                f"routes: there is no group {', '.join(wrong)} (groups: {', '.join(known) or 'none'})"
            )
        return notify

    @property
    def control_token(self) -> Path:
        """The file with the token of the loopback port."""
        return self.state_dir / "control.token"

    @property
    def journal(self) -> Path:
        """The journal's database."""
        return self.state_dir / "journal.db"

    @property
    def runs_dir(self) -> Path:
        """The folder of start and exit records, one folder per run."""
        return self.state_dir / "runs"

    @property
    def control_socket(self) -> Path:
        """The daemon's socket."""
        return self.runtime_dir / "control.sock"

    @property
    def launcher_socket(self) -> Path:
        """The launcher's socket."""
        return self.runtime_dir / "launcher.sock"


class TestSettings(_Section):
    """How the daemon runs the project's own tests. No command: it runs none."""

    __test__ = False

    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """argv; `{report}` is replaced by the path of the report."""
    report: Literal["junit", "gotest", "tap", "jest", "cargo", "exit"] = "exit"
    reports: tuple[str, ...] = ()
    """Where a runner that takes no path leaves JUnit files, as globs: `**/target/surefire-reports/*.xml`."""
    exclude_argument: str | None = None
    """Added once for each test file that cannot be loaded, e.g. `--ignore={file}`."""

    @model_validator(mode="after")
    def _reports_are_junit(self) -> Self:
        if self.reports and self.report != "junit":
            raise ValueError("reports are JUnit files: they need report: junit")
        return self


def _kind_alone(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


def _below_the_root(path: str) -> str:
    odd = {"", ".", "..", ".git", ".ai"} & {*path.split("/")}  # also of an absolute one
    if odd or "\0" in path:
        raise ValueError("must be a path below the project's folder, outside of .git and .ai")
    return path


class StoryWorkspace(_Section):
    """The folder in which the agents of a story work."""

    kind: Literal["root", "clone"] = "root"
    """`root`: the project's own folder; `clone`: a private clone of its repository."""
    setup: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """argv of what makes a clone ready: installs packages, for instance."""
    setup_min: Minutes = 30
    link: tuple[Annotated[str, AfterValidator(_below_the_root)], ...] = ()
    """What a clone gets of the project's folder that is not in git: `node_modules`, `.venv`, `.env`."""


SpelledWorkspace = Annotated[
    StoryWorkspace,
    BeforeValidator(_kind_alone, json_schema_input_type=StoryWorkspace | Literal["root", "clone"]),
]
"""One word alone is its kind."""


Landing = Literal["ask", "auto", "branch", "command"]


def _are_branches(patterns: tuple[str, ...]) -> tuple[str, ...]:
    odd = next((one for one in patterns if not one or one.startswith(("refs/", "/")) or "\0" in one), None)
    if odd is not None:
        raise ValueError(f"{odd!r} is not a branch: write main, or release/* for all that begin so")
    return patterns


class StoriesSettings(_Section):
    """How many stories of the project are in flight at once; more than one needs clones."""

    parallel: int = Field(1, ge=1, le=64)
    """Most stories that are worked on at once."""
    waiting: int = Field(5, ge=0, le=1_000)
    """Most stories that may wait, for a person for instance, while the next one is begun."""
    land_command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """argv of what takes a story that is done: it opens a pull request, for instance."""
    land_command_min: Minutes = 10
    land: Landing = "ask"
    """Who lands a story of a clone that is done: a person, the daemon, `land_command`, or none of them: its
    branch is all that is wanted."""
    protected: Annotated[tuple[str, ...], AfterValidator(_are_branches)] = ()
    """Branches that no landing moves: `main`, `release/*`."""
    overlap: Literal["wait", "warn"] = "wait"
    """Whether a story waits, before its code, for another one that changes the same files."""

    @field_validator("land")
    @classmethod
    def _must_have_a_command(cls, land: Landing, info: ValidationInfo) -> Landing:
        if land == "command" and info.data.get("land_command") is None:
            raise ValueError("command needs stories.land_command: [PROGRAM, ARGUMENT, ...]")
        return land


Commits = Literal["step", "story", "agent", "none"]
_AUTHOR = r"^[^<>\x00-\x1f]{1,200} <[^<>\s]{1,200}>$"


class ProjectSettings(_Section):
    """`.ai/handoffd.yaml`: the settings of one project."""

    auto: bool = False
    """Level 2 from the moment the project is added."""
    auto_continue: bool | None = None
    """Whether the next story of its backlog starts by itself; None: as the daemon's settings say."""
    executor: ExecutorChoice | None = None
    language: Literal["en", "zh-TW"] | None = None
    preset: str | tuple[str, ...] | None = None
    """What is laid over the shipped step table: the name of a preset, or several, the last one on top."""
    gates: Gates = "before"
    """When a person decides about each of its stories."""
    identical_ends: int = Field(IDENTICAL_ENDS, ge=0, le=100)
    """Equal ends of a step in a row after which a person is asked; 0: never."""
    stall_min: float | None = Field(None, ge=0, le=LONGEST_S / 60)
    test: TestSettings = TestSettings()
    allow_test_changes: Patterns = ()
    """Test files that green steps may change."""
    external_edits: Literal["hold_gates", "adopt", "refuse"] = "hold_gates"
    caps: ProjectCaps = ProjectCaps()
    """Tighter than the daemon's caps; looser ones are ignored."""
    group: GroupName | None = None
    """The project's group, which the daemon's settings define."""
    priority: Priority | None = None
    schedule: Annotated[tuple[ScheduledStart, ...], AfterValidator(must_differ)] = ()
    """What starts in it at fixed times."""
    env: tuple[VariableName, ...] = ()
    """Names of further environment variables that the project's executors get."""
    sandbox: ProjectSandbox = ProjectSandbox()
    """May be tighter than the daemon's; anything looser waits for trust."""
    snapshots: bool = True
    """Whether the files of its stories are kept as refs of its git repository."""
    workspace: SpelledWorkspace = StoryWorkspace()
    """Where its stories work."""
    stories: StoriesSettings = StoriesSettings()
    """How many of its stories are in flight at once."""
    commit: Commits | None = None
    """When the daemon commits on the branch of a story; None: `step` in a clone, `none` in the root."""
    commit_author: str | None = Field(None, pattern=_AUTHOR)
    """`NAME <ADDRESS>`; None: handoffd."""

    @field_validator("commit")
    @classmethod
    def _must_leave_the_clone(cls, commit: Commits | None, info: ValidationInfo) -> Commits | None:
        place = info.data.get("workspace")
        if commit == "none" and place is not None and place.kind == "clone":
            raise ValueError("work in a clone is lost without commits: say step, story or agent")
        return commit

    @property
    def commits(self) -> Commits:
        """When the daemon commits."""
        return self.commit or ("step" if self.workspace.kind == "clone" else "none")
