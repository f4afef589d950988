"""Reads the settings: defaults, then one file, the environment, and flags, each over the one before.

All problems are reported at once, with their places. The source of every key is kept, because the
commonest question about a setting is where it comes from.

The environment is read by pydantic-settings (`HANDOFFD_SECTION__KEY`, lists and mappings as JSON),
the files by the same bounded YAML reader as everything else; a project's own file is hostile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import BaseModel, SecretStr, ValidationError

from handoffd.errors import InvalidFile, Problem
from handoffd.protocol import yamltext
from handoffd.protocol.rules import OPENED_BY
from handoffd.settings.model import (
    ProjectCaps,
    ProjectSandbox,
    ProjectSettings,
    Settings,
    StoriesSettings,
    StoryWorkspace,
)
from handoffd.settings.paths import default_files, default_runtime_dir, default_state_dir
from handoffd.settings.secrets import STAND_IN, Vault, fetched, named_files
from handoffd.settings.sources import (
    DEFAULT,
    Merge,
    Source,
    problems_of,
    section_of,
    source_of,
    without_empty_keys,
)

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

PREFIX = "HANDOFFD_"
_DELIMITER = "__"
Further = Callable[[Mapping[str, Any], Callable[[str], tuple[str, int | None]]], Iterable[Problem]]
"""Finds more problems in settings as they are written. Its second argument locates a dotted key."""

_SHOWN_SCHEMES = ("http", "https")
"""In other addresses (apprise has some) the host may be a part of the secret."""


class Explained(Struct, frozen=True, kw_only=True):
    """One setting: its dotted key, its value as JSON knows values, and the source that won."""

    key: str
    value: object
    source: Source


class Loaded(Struct, frozen=True, kw_only=True):
    """The settings, the file they were read from, and the source of every key that is not a default.

    `text` is what the file held; `blank`: whether that was nothing, not even a remark.
    """

    settings: Settings
    file: Path | None
    sources: Mapping[str, Source]
    text: bytes = b""

    @property
    def blank(self) -> bool:
        """Whether there was a file, with nothing in it."""
        return self.file is not None and not self.text.strip()

    def line_of(self, key: str) -> int | None:
        """Return the line of the file that holds a key; None when it came from elsewhere."""
        source = source_of(key, self.sources)
        return source.line if source is not None and source.kind == "file" else None

    def explain(self) -> tuple[Explained, ...]:
        """Return every setting with its value (secrets shortened) and the source that won."""
        return tuple(
            Explained(key=key, value=_plain(value), source=source_of(key, self.sources) or DEFAULT)
            for key, value in _leaves(self.settings)
        )


class Given(Struct, frozen=True, kw_only=True):
    """The arguments of `load`, for callers that read the settings or check their files repeatedly.

    `base` is the folder that relative paths of flags and variables start at; None: the current one, which a
    daemon must not ask for, since someone may delete it while it runs. `daemon`: as in `load`.
    """

    flags: Mapping[str, object]
    environ: Mapping[str, str]
    base: str | None = None
    daemon: bool = True

    def load(self, further: Further | None = None, *, text: bytes | None = None) -> Loaded:
        """Return the settings as `load` does, as they are or if the file held `text`. Raises InvalidFile."""
        return load(self.flags, self.environ, daemon=self.daemon, further=further, base=self.base, text=text)

    def files(self) -> tuple[Path, ...]:
        """Return the possible paths of the settings file; the first that exists counts."""
        given = self.flags.get("config")
        return tuple(map(Path, default_files(self.environ))) if given is None else (_at(self.base, given),)

    def secret_files(self) -> tuple[Path, ...]:
        """Return the files that the settings file names as `{file: PATH}`; none if it is unreadable now."""
        path = _find_file(self.environ, self.flags.get("config"), self.base)
        if path is None or not os.path.isfile(path):  # a pipe can be read only once
            return ()
        try:
            values = _mapping(yamltext.load(_text_of(path), file=str(path)), str(path))
        except InvalidFile:
            return ()
        return named_files(values, path.parent)


# --- what a running daemon has made of its settings ----------------------------------------------------
class HeldSetting(Struct, frozen=True, kw_only=True):
    """One setting of an edit that waits, as a whole, until a person trusts it. Secrets are shortened."""

    key: str
    before: Any
    now: Any
    guarded: bool = True
    """Whether it is the reason for that."""


class HeldEdit(Struct, frozen=True, kw_only=True):
    """What of the settings file waits for a person; `sign` is the digest of the file's text."""

    file: str | None
    held: tuple[HeldSetting, ...]
    sign: str


class SettingsView(Struct, frozen=True, kw_only=True):
    """The result of the last reading of the daemon's settings."""

    file: str | None
    """The file they were read from; None: there is none."""
    problems: tuple[Problem, ...] = ()
    """Why they are invalid: the daemon keeps the last valid ones."""
    changed: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    """The keys whose new values apply now, and those whose values wait for a restart of the daemon."""
    held: tuple[HeldSetting, ...] = ()
    """What a person has to trust before anything of the file applies."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know while it is so, in words."""
        why, keys = "the settings cannot be used, the last good ones still apply", ", ".join(self.restart)
        later = f"changed in the settings, takes effect after a restart of the daemon: {keys}"
        waiting = ", ".join(one.key for one in self.held if one.guarded)
        waits = f"the settings wait for your trust, the last trusted ones still apply: {waiting}"
        return (
            *(f"{why}: {problem}" for problem in self.problems),
            *([later] if keys else ()),
            *([f"{waits} (handoffd trust --daemon)"] if waiting else ()),
        )


class Renewed(Struct, frozen=True, kw_only=True):
    """The result of rereading everything; `problems` says in words what is wrong with projects' own files."""

    settings: SettingsView
    brought: int
    """How many projects the settings have brought."""
    let_go: int
    problems: tuple[str, ...]


def differing(one: Settings, other: Settings) -> tuple[str, ...]:
    """Return the dotted keys, sorted, that have another value in `other`, or whose names another order."""
    before, after = dict(_leaves(one)), dict(_leaves(other))
    changed = {key for key in before.keys() | after.keys() if before.get(key, ...) != after.get(key, ...)}
    first, now = dict(_orders(one)), dict(_orders(other))  # the first group that names a project counts
    moved = {key for key in first.keys() & now.keys() if _is_moved(first[key], now[key])}
    return tuple(sorted(changed | moved))


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    daemon: bool = False,
    further: Further | None = None,
    base: str | None = None,
    text: bytes | None = None,
) -> Loaded:
    """Return the settings of the daemon. `daemon`: a secret that cannot be read is a problem.

    `text` counts in place of what the file holds; there need not be one then.

    `base` is the folder of relative paths in flags and variables; None: the current one.
    `flags` maps dotted keys (`state_dir`, `log.level`) to values; None and () mean «not given»;
    `config` names the settings file; `further` checks values against each other. Raises InvalidFile
    with all problems.
    """
    flags = {key: value for key, value in (flags or {}).items() if value is not None and value != ()}
    merge = Merge(environ)
    file = _find_file(environ, flags.pop("config", None), base)
    if file is None and text is not None:
        file = Path(default_files(environ)[0])
    held = _lay_file(merge, file, text, daemon) if file is not None else b""
    _lay_environment(merge, _at(base, "."))
    _lay_flags(merge, flags, _at(base, "."))
    return Loaded(settings=_settle(merge, further), file=file, sources=merge.sources, text=held)


def load_project(text: str | None, file: str) -> ProjectSettings:
    """Return a project's own settings; `text` None or empty: the defaults.

    Raises InvalidFile with all problems, in terms of `file`.
    """
    if text is None:
        return ProjectSettings()
    read = yamltext.load(text, file=file)
    values = _mapping(read, file)
    try:
        return ProjectSettings.model_validate(without_empty_keys(values, ProjectSettings))
    except ValidationError as error:
        problems = problems_of(error, ProjectSettings, lambda key: (file, read.line_of(key)))
        raise InvalidFile(_in_reading_order(problems)) from None


def sensitive(settings: ProjectSettings) -> dict[str, object]:
    """Return the project's own settings that take effect only once a person trusts them, by dotted key.

    They run commands, spend money, hand out secrets or weaken a gate, and an agent can write the
    file. All results have the same keys, so two of them can be compared.
    """
    return {
        "auto": settings.auto,
        "auto_continue": settings.auto_continue,
        "schedule": settings.schedule,
        "executor": settings.executor,
        "preset": settings.preset,
        "gates": settings.gates,
        "identical_ends": settings.identical_ends,
        "stall_min": settings.stall_min,
        "allow_test_changes": settings.allow_test_changes,
        "external_edits": settings.external_edits,
        "group": settings.group,
        "priority": settings.priority,
        "env": settings.env,
        "snapshots": settings.snapshots,
        "commit": settings.commit,
        "commit_author": settings.commit_author,
        **{f"workspace.{name}": getattr(settings.workspace, name) for name in StoryWorkspace.model_fields},
        **{f"stories.{name}": getattr(settings.stories, name) for name in StoriesSettings.model_fields},
        **{f"caps.{name}": getattr(settings.caps, name) for name in ProjectCaps.model_fields},
        **{f"sandbox.{name}": getattr(settings.sandbox, name) for name in ProjectSandbox.model_fields},
        "test.command": settings.test.command,
        "test.report": settings.test.report,
        "test.reports": settings.test.reports,
        "test.exclude_argument": settings.test.exclude_argument,
    }


def held(new: ProjectSettings, granted: ProjectSettings) -> tuple[str, ...]:
    """Return the dotted keys, sorted, in which `new` goes beyond what a person has granted.

    A lower cap, a tighter sandbox or one more gate needs no trust, even if an agent wrote it.
    """
    wanted, before = sensitive(new), sensitive(granted)
    return tuple(
        sorted(
            key
            for key, value in wanted.items()
            if value != before[key]
            and not (key.startswith("caps.") and _is_lower(value, before[key]))
            and not (key.startswith("sandbox.") and _is_tighter(value, before[key]))
            and not (key == "gates" and OPENED_BY[new.gates] > OPENED_BY[granted.gates])
        )
    )


_GUARDED: Final = (
    "auto_continue", "caps", "control", "execute.env_allow", "execute.keys", "execute.memory_max",
    "execute.tasks_max", "executors", "notify.command", "notify.sinks", "prices", "projects", "sandbox",
    "schedule.starts",
)  # fmt: skip
"""The daemon's settings that name a command, hand out secrets, spend money, trust files or loosen a guard."""


def beyond(wanted: Settings, granted: Settings) -> tuple[str, ...]:
    """Return the dotted keys, sorted, in which the daemon's settings go beyond what a person has granted."""
    now, before = dict(_leaves(wanted)), dict(_leaves(granted))
    return tuple(
        key
        for key in differing(granted, wanted)
        if any(f"{key}.".startswith(f"{one}.") for one in _GUARDED)
        and not (key.startswith("notify.sinks.") and not key.endswith(".command"))
        and not _asks_for_no_trust(key, now, before)
    )


def _asks_for_no_trust(key: str, now: Mapping[str, object], before: Mapping[str, object]) -> bool:
    value, old = now.get(key), before.get(key)
    match key.split("."):
        case ["caps", "on_cap"]:
            return value == "stop"
        case ["caps", *_] | ["execute", "memory_max" | "tasks_max"]:
            return _is_lower(value, old)
        case ["sandbox", *_]:
            return _is_tighter(value, old)
        case ["projects"]:  # what a pattern finds is not trusted
            return all(one in _all(old) or any(sign in str(one) for sign in "*?[") for one in _all(value))
        case ["execute", "env_allow"] | ["schedule", "starts"]:
            return all(one in _all(old) for one in _all(value))
        case ["executors" | "prices", *names]:  # without an entry, the shipped one of that name would be back
            return not names
        case _:  # gone, empty, or switched off
            return not value


def _all(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()


def held_settings(wanted: Settings, granted: Settings) -> tuple[HeldSetting, ...]:
    """Return all that an edit changes, if it goes `beyond` what a person has granted; else nothing."""
    guarded = beyond(wanted, granted)
    now, before = dict(_leaves(wanted)), dict(_leaves(granted))
    return tuple(
        HeldSetting(key=k, before=_plain(before.get(k)), now=_plain(now.get(k)), guarded=k in guarded)
        for k in (differing(granted, wanted) if guarded else ())
        if {} not in (before.get(k), now.get(k))  # a table that was empty, or is: its entries tell
    )


def _is_lower(cap: object, before: object) -> bool:
    return isinstance(cap, int | float) and (not isinstance(before, int | float) or cap < before)


_TIGHTER: Final[Mapping[object, frozenset[object]]] = {
    "strict": frozenset({"auto", "namespaces", "landlock", "off", None}),
    "auto": frozenset({"namespaces", "landlock", "off"}),
    "namespaces": frozenset({"landlock", "off"}),
    "landlock": frozenset({"off"}),
    "none": frozenset({"loopback", "on", None}),
    "loopback": frozenset({"on"}),
}
"""Which levels and networks each is tighter than. None is the daemon's own, whatever that is."""


def _is_tighter(value: object, before: object) -> bool:
    if isinstance(value, tuple) and isinstance(before, tuple):
        return set(value) <= set(before)
    return before in _TIGHTER.get(value, ())


def _lay_file(merge: Merge, path: Path, text: bytes | None, daemon: bool) -> bytes:
    """Lay the values of a file over the earlier ones; return its text, or `text` in its place."""
    try:
        text = _text_of(path) if text is None else text
        read = yamltext.load(text, file=str(path))
        values = _mapping(read, str(path))
    except InvalidFile as invalid:
        merge.problems += invalid.problems
        return b""

    def report(key: str, message: str, allowed: tuple[str, ...]) -> None:
        line = read.line_of(key)
        merge.problems.append(Problem(file=str(path), line=line, key=key, message=message, allowed=allowed))

    vault = Vault(environ=merge.environ, base=path.parent, required=daemon)
    merge.lay(
        fetched(values, vault, report),
        lambda key: Source(kind="file", name=str(path), line=read.line_of(key)),
        path.parent,
    )
    return text


def _at(base: str | None, path: object) -> Path:
    """Return a path as seen from the folder `base`; None: from the current one."""
    return Path(os.path.abspath(os.path.join(base or "", str(path))))


def _find_file(environ: Mapping[str, str], given: object, base: str | None) -> Path | None:
    if given is not None:
        return _at(base, given)
    return next((Path(path) for path in default_files(environ) if os.path.lexists(path)), None)


def _text_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(yamltext.MAX_BYTES + 1)
    except OSError as error:
        raise InvalidFile((Problem(file=str(path), message=f"cannot be read ({error.strerror})"),)) from error


def _lay_environment(merge: Merge, base: Path) -> None:
    known = {name.upper() for name in Settings.model_fields}
    ours = {
        name: name.upper().removeprefix(PREFIX).partition(_DELIMITER)
        for name in sorted(merge.environ)
        if name.upper().startswith(PREFIX)
    }
    if any(key in known for key, _, _ in ours.values()):
        merge.lay(_from_environment(merge.environ), lambda key: _variable(key, merge.environ), base)
    for name, (section, delimiter, _) in ours.items():
        if delimiter and section not in known:
            sections = (key for key, field in Settings.model_fields.items() if section_of(field))
            allowed = tuple(f"{PREFIX}{key.upper()}{_DELIMITER}…" for key in sections)
            merge.problems.append(Problem(file=name, message="there is no such section", allowed=allowed))


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that variables give, as pydantic-settings reads them."""
    # Imported here: it takes a fifth of a command's start, and hardly anyone sets such a variable.
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

    class FromEnvironment(Settings, BaseSettings):
        """Where the library looks for keys; never instantiated."""

        model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter=_DELIMITER)

    class Environment(EnvSettingsSource):
        def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
            """Return invalid JSON unchanged, so that validation names the place and the expected form."""
            try:
                return super().decode_complex_value(field_name, field, value)
            except ValueError:
                return value

    source = Environment(FromEnvironment)
    source.env_vars = {name.lower(): value for name, value in environ.items() if value}
    return source()


def _variable(key: str, environ: Mapping[str, str]) -> Source:
    """Return the variable that holds a key: its own, or the one that holds the whole section as JSON."""
    names = {name.upper(): name for name in environ}
    while key:
        name = PREFIX + key.upper().replace(".", _DELIMITER)
        if name in names:
            return Source(kind="environment", name=names[name])
        key = key.rpartition(".")[0]
    return Source(kind="environment")


def _lay_flags(merge: Merge, flags: Mapping[str, object], base: Path) -> None:
    values: dict[str, Any] = {}
    for key, value in flags.items():
        *sections, name = key.split(".")
        inner = values
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = list(value) if isinstance(value, tuple) else value

    def flag(key: str) -> Source:
        return Source(kind="flag", name="--" + key.replace(".", "-").replace("_", "-"))

    merge.lay(values, flag, base)


def _settle(merge: Merge, further: Further | None) -> Settings:
    """Fill in the two defaults that depend on the environment, and validate everything."""
    merge.data.setdefault("state_dir", default_state_dir(merge.environ))
    state_dir = str(merge.data["state_dir"])
    merge.data.setdefault("runtime_dir", default_runtime_dir(merge.environ, state_dir))
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(merge.data)
    except ValidationError as error:
        merge.problems += problems_of(error, Settings, merge.locate)
    if further is not None:
        told = {problem.key for problem in merge.problems}
        merge.problems += (one for one in further(merge.data, merge.locate) if one.key not in told)
    if settings is not None and not merge.problems:
        return settings
    raise InvalidFile(_in_reading_order(merge.problems))


def _in_reading_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return problems by file and line; the ones of a whole file come first."""
    return tuple(sorted(problems, key=lambda problem: (problem.file, problem.line or 0)))


def _mapping(read: yamltext.YamlText, file: str) -> Mapping[str, Any]:
    if read.data is None:
        return {}
    if not isinstance(read.data, Mapping):
        line = read.line_of("")
        raise InvalidFile((Problem(file=file, line=line, message="must be lines of the form `key: value`"),))
    return read.data


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping) and (value or not path):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, value


def _orders(value: object, path: str = "") -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield the dotted key of each mapping below `value`, with its names in order."""
    if isinstance(value, BaseModel):
        inner: Mapping[Any, object] = {name: getattr(value, name) for name in type(value).model_fields}
    elif isinstance(value, Mapping):
        yield path, tuple(value)
        inner = value
    else:
        return
    for name, one in inner.items():
        yield from _orders(one, f"{path}.{name}" if path else str(name))


def _is_moved(before: tuple[object, ...], after: tuple[object, ...]) -> bool:
    return before != after and frozenset(before) == frozenset(after)


def _plain(value: object) -> object:
    """Return `value` as a JSON value; of a secret address only the host."""
    match value:
        case SecretStr():
            text = value.get_secret_value()
            if text.startswith(STAND_IN):
                return f"credential {text.removeprefix(STAND_IN)}, which only the service has"
            parts = urlsplit(text)
            return f"{parts.scheme}://{parts.hostname}/…" if parts.scheme in _SHOWN_SCHEMES else "…"
        case BaseModel():
            return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
        case tuple() | list():
            return [_plain(item) for item in value]
        case Path():
            return str(value)
    return value
