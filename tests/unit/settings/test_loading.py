"""Defaults, file, environment and flags: which wins, the source of each value, and all problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from handoffd.errors import InvalidFile
from handoffd.protocol.rules import OPENED_BY, Gates
from handoffd.settings.loading import (
    Given,
    Loaded,
    beyond,
    differing,
    held,
    held_settings,
    load,
    load_project,
    sensitive,
)
from handoffd.settings.model import ProjectSettings, Settings
from handoffd.settings.paths import shared


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a person who has configured nothing."""
    return {"HOME": str(tmp_path / "home"), "PATH": "/bin", "HANDOFFD_STORY": "set for hooks, no setting"}


def write(path: Path, text: str) -> Path:
    """Write `text` to a file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def own_file(environ: dict[str, str], text: str) -> Path:
    """Write the person's own settings file."""
    return write(Path(environ["HOME"], ".config/handoffd/handoffd.yaml"), text)


def told(loaded: Loaded, key: str) -> tuple[object, str]:
    """Return value and source of one key, as `explain` lists them."""
    return next((found.value, str(found.source)) for found in loaded.explain() if found.key == key)


def complaints(environ: dict[str, str], *, daemon: bool = False, **flags: object) -> list[str]:
    """Return all problems."""
    with pytest.raises(InvalidFile) as caught:
        load({key.replace("__", "."): value for key, value in flags.items()}, environ, daemon=daemon)
    return [str(problem) for problem in caught.value.problems]


def test_without_any_configuration_there_are_defaults(environ: dict[str, str]) -> None:
    """No setting is mandatory."""
    state = Path(environ["HOME"], ".local/state/handoffd")

    loaded = load({}, environ)

    assert Settings(state_dir=state, runtime_dir=state / "run") == loaded.settings
    assert (None, {}) == (loaded.file, loaded.sources)
    assert {"default"} == {str(found.source) for found in loaded.explain()}
    assert Path("/srv/h/run") == load({"state_dir": "/srv/h"}, environ).settings.runtime_dir


def test_each_source_wins_over_the_ones_before_it(environ: dict[str, str]) -> None:
    """Flags go before the environment, the environment before the file, the file before the defaults."""
    file = own_file(environ, "watch:\n  step_ms: 11\n  debounce_ms: 11\n  sweep_s: 11\n")
    environ |= {"HANDOFFD_WATCH__DEBOUNCE_MS": "22", "HANDOFFD_WATCH__SWEEP_S": "22"}

    loaded = load({"watch.sweep_s": 33}, environ)

    watch = loaded.settings.watch
    assert (11, 22, 33, 4) == (watch.step_ms, watch.debounce_ms, watch.sweep_s, watch.shards)
    assert (11, f"file {file}:2") == told(loaded, "watch.step_ms")
    assert (22, "environment HANDOFFD_WATCH__DEBOUNCE_MS") == told(loaded, "watch.debounce_ms")
    assert (33, "flag --watch-sweep-s") == told(loaded, "watch.sweep_s")
    assert (4, "default") == told(loaded, "watch.shards")


def test_with_config_no_other_file_is_read(environ: dict[str, str], tmp_path: Path) -> None:
    """A file that does not exist is an error, not a silent default."""
    own_file(environ, "executor: codex\nlanguage: zh-TW\n")
    named = write(tmp_path / "named.yaml", "executor: gemini\n")

    loaded = load({"config": named}, environ)

    assert ("gemini", "en", named) == (loaded.settings.executor, loaded.settings.language, loaded.file)
    missing = complaints(environ, config="/no/such.yaml")
    assert ["/no/such.yaml: cannot be read (No such file or directory)"] == missing


def test_paths_are_relative_to_the_file_or_the_working_directory(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """To the file's folder in a file, to the working directory in flags; `~` is the home."""
    text = "projects: [shop, ~/till, /srv/../srv/bank]\nstate_dir: state\n"
    file = write(tmp_path / "etc" / "h.yaml", text)

    loaded = load({"config": file, "runtime_dir": "run"}, environ)

    home = Path(environ["HOME"])
    assert (tmp_path / "etc/shop", home / "till", Path("/srv/bank")) == loaded.settings.projects
    assert (tmp_path / "etc/state", Path.cwd() / "run") == (
        loaded.settings.state_dir, loaded.settings.runtime_dir
    )  # fmt: skip


def test_lists_and_mappings_come_as_json_from_the_environment(environ: dict[str, str]) -> None:
    """A list, an optional section and a free mapping can all be given."""
    environ |= {
        "HANDOFFD_NOTIFY__COMMAND": '["notify", "--now"]',
        "HANDOFFD_NOTIFY__WEBHOOK__URL": "https://hooks.example.org/key",
        "HANDOFFD_EXECUTORS": '{"mine": {"argv": ["mine"]}}',
        "HANDOFFD_EXECUTOR": "mine",
        "HANDOFFD_LANGUAGE": "",
    }

    loaded = load({}, environ)

    assert ("notify", "--now") == loaded.settings.notify.command
    assert loaded.settings.notify.webhook is not None
    assert {"mine": {"argv": ["mine"]}} == loaded.settings.executors
    assert (["mine"], "environment HANDOFFD_EXECUTORS") == told(loaded, "executors.mine.argv")
    assert ("en", "default") == told(loaded, "language")


def test_flags_that_were_not_given_change_nothing(environ: dict[str, str]) -> None:
    """None and an empty tuple are what a command line without the flag yields."""
    own_file(environ, "projects: [/srv/shop]\nexecutor: codex\n")

    loaded = load({"projects": (), "executor": None, "config": None}, environ)

    assert ((Path("/srv/shop"),), "codex") == (loaded.settings.projects, loaded.settings.executor)


def test_a_key_without_a_value_is_not_given(environ: dict[str, str]) -> None:
    """All of a section, or of a list, may be commented out."""
    own_file(environ, "watch:\n  # step_ms: 5\nprojects:\nlog:\n  level:\nnotify:\n  command:\n")

    assert load({}, {"HOME": "/nowhere"}).settings.watch == load({}, environ).settings.watch


def test_all_problems_are_reported_at_once_with_their_places(environ: dict[str, str]) -> None:
    """Of file, environment and flags."""
    file = own_file(environ, "watch:\n  stepms: 5\nnotify:\n  webhook: {timeout_s: 3}\nexecutor: {a: 1}\n")
    environ |= {
        "HANDOFFD_WATCH__SHARDS": "many",
        "HANDOFFD_SCHEDULE": "3",
        "HANDOFFD_PROJECTS": "/srv/a:/srv/b",
        "HANDOFFD_WACH__STEP_MS": "5",
    }

    found = complaints(environ, log__level="loud")

    sections = (
        "ROSTER WATCH SCHEDULE EXECUTE SCHEDULING SANDBOX LIMITS CAPS NOTIFY REPORT CONTROL RETENTION LOG"
    )
    known = ", ".join(f"HANDOFFD_{name}__…" for name in sections.split())
    assert sorted(
        [
            f"HANDOFFD_WACH__STEP_MS: there is no such section (allowed: {known})",
            f"{file}:2: watch.stepms: unknown setting; did you mean step_ms?",
            f"{file}:4: notify.webhook.url: is missing",
            f"{file}:5: executor: must be the name of an executor, or a list of names",
            "HANDOFFD_WATCH__SHARDS: watch.shards: must be a whole number, not 'many'",
            "HANDOFFD_SCHEDULE: schedule: must be a section with keys of its own, not 3",
            "HANDOFFD_PROJECTS: projects: must be a list, not '/srv/a:/srv/b'",
            "--log-level: log.level: must be one of the allowed values, not 'loud' "
            "(allowed: debug, info, warning, error)",
        ]
    ) == sorted(found)


def test_a_file_that_cannot_be_parsed_hides_no_other_problem(environ: dict[str, str]) -> None:
    """A syntax error is reported together with problems elsewhere."""
    file = own_file(environ, "watch: {step_ms: 5\n")
    environ["HANDOFFD_LANGUAGE"] = "fr"

    syntax, language = complaints(environ)

    assert syntax.startswith(f"{file}:")
    assert language.startswith("HANDOFFD_LANGUAGE: language: ")


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text\n"])
def test_a_file_must_hold_settings(environ: dict[str, str], text: str) -> None:
    """Other YAML is an error."""
    file = own_file(environ, text)

    assert [f"{file}:1: must be lines of the form `key: value`"] == complaints(environ)


def test_a_secret_is_explained_without_its_value(environ: dict[str, str]) -> None:
    """People paste `config show` into bug reports."""
    own_file(environ, "notify:\n  webhook:\n    url: https://me:pass@hooks.example.org/key?k=key\n")

    loaded = load({}, environ)

    assert "https://hooks.example.org/…" == told(loaded, "notify.webhook.url")[0]
    assert "key" not in json.dumps([found.value for found in loaded.explain()])


def test_secrets_are_read_from_files_and_credentials(environ: dict[str, str], tmp_path: Path) -> None:
    """A verb in a terminal needs no credentials; a daemon needs all."""
    file = own_file(
        environ,
        "notify: {webhook: {url: {credential: hook}}}\n"
        "execute: {keys: {A_KEY: {file: key}}}\n"
        "control: {tcp: {port: 8321, token: {credential: token}}}\n",
    )
    write(file.parent / "key", "sk-1\n")
    write(tmp_path / "given/hook", "https://example.org/KEY\n")

    stands_in = "credential hook, which only the service has"
    assert stands_in == told(load({}, environ), "notify.webhook.url")[0]
    not_here = "is for the service, and this daemon is not run by it"
    assert [
        f"{file}:1: notify.webhook.url: the credential hook {not_here}",
        f"{file}:3: control.tcp.token: the credential token {not_here}",
    ] == complaints(environ, daemon=True)
    environ["CREDENTIALS_DIRECTORY"] = str(tmp_path / "given")
    assert [
        f"{file}:3: control.tcp.token: the service was not given the credential token (allowed: hook)"
    ] == complaints(environ, daemon=True)
    write(tmp_path / "given/token", "t" * 20)
    loaded = load({}, environ, daemon=True)

    assert loaded.settings.notify.webhook is not None
    assert "https://example.org/KEY" == loaded.settings.notify.webhook.url.get_secret_value()
    assert ("…", f"file {file}:2") == told(loaded, "execute.keys.A_KEY")


def test_relative_paths_of_flags_start_at_the_folder_given(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current one may be gone by the time they are read again."""
    (tmp_path / "gone").mkdir()
    (tmp_path / "own.yaml").write_text("language: zh-TW\n")
    flags = {"config": "own.yaml", "state_dir": "state"}
    given = Given(flags=flags, environ=environ, base=str(tmp_path))
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    found = given.load()
    assert (tmp_path / "own.yaml",) == given.files()
    assert ("zh-TW", tmp_path / "state") == (found.settings.language, found.settings.state_dir)


def test_the_files_of_secrets_can_be_followed(environ: dict[str, str]) -> None:
    """Invalid settings name them, too."""
    given = Given(flags={}, environ=environ)
    assert () == given.secret_files()

    file = own_file(environ, "speed: 9\nnotify:\n  ntfy: {topic: {file: topic}}\n")
    assert (file.parent / "topic",) == given.secret_files()

    own_file(environ, "notify: [\n")
    assert () == given.secret_files()


def test_a_key_that_is_not_secret_takes_no_secret(environ: dict[str, str]) -> None:
    """It would be shown."""
    file = own_file(environ, "log: {level: {file: level}}\n")
    write(file.parent / "level", "debug")

    (complaint,) = complaints(environ)

    assert complaint.startswith(f"{file}:1: log.level: ")
    assert "debug" not in complaint.partition("allowed")[0]


@pytest.mark.parametrize("token", ["short", "t" * 513, "t" * 20 + " ", "ü" * 20])
def test_an_invalid_token_is_refused_and_not_quoted(environ: dict[str, str], token: str) -> None:
    """A token must be long and fit into a header."""
    file = own_file(environ, f"control: {{tcp: {{port: 8321, token: '{token}'}}}}\n")

    message = f"{file}:1: control.tcp.token: must be 20 to 512 characters of ASCII without blanks"
    assert [message] == complaints(environ)


def test_explain_lists_every_setting(environ: dict[str, str]) -> None:
    """Every value is a JSON value."""
    own_file(environ, "notify: {webhook: {url: 'http://localhost/'}}\n")

    found = {found.key for found in load({}, environ).explain()}

    assert set(_keys(load({}, environ).settings)) == found
    json.dumps([each.value for each in load({}, environ).explain()])


def test_the_example_holds_every_setting_with_its_default(environ: dict[str, str]) -> None:
    """The example equals the defaults; the two directories, whose default varies, are commented out."""
    example = shared("config", "handoffd.example.yaml")
    lines = example.read_text(encoding="utf-8").splitlines()

    loaded = load({"config": example}, environ)

    assert load({}, environ).settings == loaded.settings
    given = set(loaded.sources) | {line[2:].partition(":")[0] for line in lines if line.startswith("# ")}
    assert set(_keys(loaded.settings)) <= given


def _keys(model: BaseModel, path: str = "") -> list[str]:
    keys = []
    for name in type(model).model_fields:
        value = getattr(model, name)
        keys += _keys(value, f"{path}{name}.") if isinstance(value, BaseModel) else [f"{path}{name}"]
    return keys


@pytest.mark.parametrize("text", [None, "", "# nothing yet\n", "test:\n"])
def test_a_project_without_settings_has_the_defaults(text: str | None) -> None:
    """No file, an empty one and one with only comments are the same."""
    assert ProjectSettings() == load_project(text, ".ai/handoffd.yaml")


def test_a_problem_of_a_projects_settings_has_its_line() -> None:
    """It has the key and the allowed values, too."""
    text = "auto: maybe\ntest:\n  command: pytest -q\n  raport: junit\nstate_dir: /\n"

    with pytest.raises(InvalidFile) as caught:
        load_project(text, ".ai/handoffd.yaml")

    assert [
        ".ai/handoffd.yaml:1: auto: must be true or false, not 'maybe'",
        ".ai/handoffd.yaml:3: test.command: must be a list, not 'pytest -q'",
        ".ai/handoffd.yaml:4: test.raport: unknown setting; did you mean report?",
        ".ai/handoffd.yaml:5: state_dir: unknown setting (allowed: auto, auto_continue, executor, language, "
        "preset, gates, identical_ends, stall_min, test, allow_test_changes, external_edits, caps, group, "
        "priority, schedule, env, sandbox, snapshots, workspace, stories, commit, commit_author)",
    ] == [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("land: command", "stories.land: command needs stories.land_command: [PROGRAM, ARGUMENT, ...]"),
        ("protected: [refs/heads/main]", "stories.protected: 'refs/heads/main' is not a branch: write main"),
        (
            "land: always",
            "stories.land: must be one of the allowed values, not 'always' (allowed: ask, auto, ",
        ),
    ],
)
def test_a_landing_that_cannot_be_meant_is_refused(line: str, said: str) -> None:
    """It has its line, and what to write."""
    with pytest.raises(InvalidFile) as caught:
        load_project(f"stories:\n  {line}\n", ".ai/handoffd.yaml")
    (problem,) = caught.value.problems
    assert str(problem).startswith(f".ai/handoffd.yaml:2: {said}")


@pytest.mark.parametrize("text", ["- a\n", "a: &x b\nc: *x\n", "a: {b: [\n", "auto: true\nauto: false\n"])
def test_hostile_or_broken_text_is_an_error_and_no_more(text: str) -> None:
    """The reader raises InvalidFile."""
    with pytest.raises(InvalidFile):
        load_project(text, ".ai/handoffd.yaml")


def test_all_but_the_language_needs_trust() -> None:
    """Every key of a project's settings can be given; all results have the same sensitive keys."""
    changed = load_project(
        "{auto: true, auto_continue: true, executor: x, preset: go, gates: after, identical_ends: 0, "
        "external_edits: adopt, env: [A], language: zh-TW, group: web, priority: 1, snapshots: false, "
        "sandbox: {level: off, network: on, writable: [/w], visible: [/v], let_in: [npm]}, "
        "test: {command: [x], report: junit, reports: [r], exclude_argument: y}, "
        "allow_test_changes: [x], stall_min: 0, "
        "workspace: {kind: clone, setup: [x], setup_min: 1, link: [.venv]}, commit: step, "
        "stories: {parallel: 2, waiting: 1, land: auto, land_command: [x], land_command_min: 1, "
        "protected: [main], overlap: warn}, "
        "commit_author: J <j@x>, "
        "caps: {attempt_usd: 1, attempt_tokens: 1, story_usd: 1, story_tokens: 1, "
        "project_usd: 1, project_tokens: 1}, schedule: [{name: a, cron: '@daily', start: X}]}",
        "f",
    )
    before, after = sensitive(ProjectSettings()), sensitive(changed)

    assert "zh-TW" == changed.language
    assert set(before) == set(after)
    assert all(before[key] != after[key] for key in before)
    assert {*_keys(ProjectSettings())} - {"language"} == set(before)


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("{}", "{caps: {story_usd: 4}}", ()),
        ("{caps: {story_usd: 4}}", "{caps: {story_usd: 3.5}}", ()),
        ("{caps: {story_usd: 4}}", "{caps: {story_usd: 8}}", ("caps.story_usd",)),
        ("{caps: {story_usd: 4}}", "{}", ("caps.story_usd",)),
        ("{caps: {story_usd: 4}}", "{caps: {story_tokens: 100}, auto: true}", ("auto", "caps.story_usd")),
    ],
)
def test_an_agent_may_lower_a_cap_but_not_raise_it(before: str, after: str, kept: tuple[str, ...]) -> None:
    """An agent can write the file; only a person may allow more."""
    assert kept == held(load_project(after, "f"), load_project(before, "f"))


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("{}", "{sandbox: {level: strict, network: none}}", ()),
        ("{}", "{sandbox: {level: auto}}", ("sandbox.level",)),
        ("{}", "{sandbox: {network: loopback}}", ("sandbox.network",)),
        ("{sandbox: {network: 'on'}}", "{sandbox: {network: loopback}}", ()),
        ("{sandbox: {network: none}}", "{sandbox: {network: loopback}}", ("sandbox.network",)),
        ("{sandbox: {network: none}}", "{}", ("sandbox.network",)),
        ("{sandbox: {level: 'off'}}", "{sandbox: {level: landlock}}", ()),
        ("{sandbox: {level: strict}}", "{sandbox: {level: auto}}", ("sandbox.level",)),
        ("{sandbox: {visible: [/a, /b]}}", "{sandbox: {visible: [/b]}}", ()),
        ("{sandbox: {visible: [/a]}}", "{sandbox: {visible: [/a, /b]}}", ("sandbox.visible",)),
        ("{}", "{sandbox: {writable: [/a], let_in: [npm]}}", ("sandbox.let_in", "sandbox.writable")),
    ],
)
def test_an_agent_may_tighten_its_sandbox_but_not_loosen_it(
    before: str, after: str, kept: tuple[str, ...]
) -> None:
    """What leaves it to the daemon's settings is compared with nothing: it may be looser."""
    assert kept == held(load_project(after, "f"), load_project(before, "f"))


@pytest.mark.parametrize("after", get_args(Gates))
@pytest.mark.parametrize("before", get_args(Gates))
def test_an_agent_may_add_a_gate_but_takes_none_away(before: Gates, after: Gates) -> None:
    """One gate for another takes one away. What a person has granted is the file without a word, too."""
    added = OPENED_BY[after] >= OPENED_BY[before]
    kept = () if added else ("gates",)

    assert kept == held(ProjectSettings(gates=after), ProjectSettings(gates=before))
    assert ("identical_ends",) == held(ProjectSettings(identical_ends=0), ProjectSettings())


def test_an_agent_may_not_let_itself_change_tests() -> None:
    """Only a person takes a test file out of what is compared; a pattern that is none is refused."""
    assert ("allow_test_changes",) == held(
        load_project("{allow_test_changes: ['**']}", "f"), load_project("{}", "f")
    )
    with pytest.raises(InvalidFile, match=r"patterns as in \.gitignore"):
        load_project("{allow_test_changes: ['!']}", "f")


def test_a_problem_of_one_item_of_a_list_has_its_line(environ: dict[str, str]) -> None:
    """Each item has its own."""
    text = """\
projects: [~/src/*, 7]
workspaces:
  - ~/src
  - path: ../more
    dept: 3
  - path: /srv
    depth: 99
    add: never
    exclude: [ok, "!"]
  - depth: 2
"""
    file = own_file(environ, text)

    assert [
        f"{file}:1: projects.1: must be a path, not 7",
        f"{file}:5: workspaces.1.dept: unknown setting; did you mean depth?",
        f"{file}:7: workspaces.2.depth: must be at most 8, not 99",
        f"{file}:8: workspaces.2.add: must be one of the allowed values, not 'never' (allowed: auto, ask)",
        f"{file}:9: workspaces.2.exclude: must be patterns as in .gitignore, which '!' is not",
        f"{file}:10: workspaces.3.path: is missing",
    ] == complaints(environ)


def test_workspaces_are_paths_or_sections(environ: dict[str, str]) -> None:
    """Paths become absolute; `config show` has them as plain values."""
    file = own_file(environ, "workspaces: [~/src, {path: ../more, exclude: [old/]}]\n")

    loaded = load({}, environ)

    (shown,) = [one.value for one in loaded.explain() if one.key == "workspaces"]
    assert [
        {"path": f"{environ['HOME']}/src", "depth": 2, "exclude": [], "add": "auto"},
        {"path": str(file.parent.parent / "more"), "depth": 2, "exclude": ["old/"], "add": "auto"},
    ] == shown


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schedule.poll_s", "1e300"), ("schedule.poll_s", "1e-300"), ("roster.scan_s", "1e-9"),
        ("watch.sweep_s", "0"), ("execute.meter_s", "1e12"), ("execute.stall_min", "1e300"),
        ("retention.runs_days", "1e300"), ("retention.journal_days", "1e9"), ("notify.give_up_h", "1e300"),
        ("scheduling.memory_per_agent_mb", "1" + "0" * 400), ("caps.day_tokens", "1" + "0" * 400),
        ("caps.story_usd", "1e300"),
    ],
)  # fmt: skip
def test_an_absurd_number_is_refused(environ: dict[str, str], key: str, value: str) -> None:
    """A time without end, a pause of nothing, more tokens than a number can hold."""
    section, _, name = key.partition(".")
    file = own_file(environ, f"{section}: {{{name}: {value}}}\n")

    (problem,) = complaints(environ)

    assert problem.startswith(f"{file}:1: {key}: must be at ")


@pytest.mark.parametrize(
    ("first", "second", "moved"),
    [
        ("groups: {a: {slots: 1}, b: {slots: 2}}", "groups: {b: {slots: 2}, a: {slots: 1}}", True),
        ("groups: {a: {slots: 1, priority: 3}}", "groups: {a: {priority: 3, slots: 1}}", False),
    ],
)
def test_another_order_is_a_change(environ: dict[str, str], first: str, second: str, moved: bool) -> None:
    """The first group that names a project counts."""
    own_file(environ, f"scheduling: {{{first}}}\n")
    before = load({}, environ).settings
    own_file(environ, f"scheduling: {{{second}}}\n")

    after = load({}, environ).settings

    assert (("scheduling.groups",) if moved else ()) == differing(before, after)
    assert moved == (before.scheduling != after.scheduling)


# --- what the daemon's own settings may not become without a person -----------------------------------
@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [
        ("", "notify: {command: [curl]}", ["notify.command"]),
        ("notify: {command: [curl]}", "notify: {command: [curl, x]}", ["notify.command"]),
        ("notify: {command: [curl]}", "", []),
        ("", "notify: {sinks: {me: {command: [curl]}}}", ["notify.sinks.me.command"]),
        ("", "notify: {sinks: {me: {ntfy: {topic: secret}}}}", []),
        ("", "executors: {mine: {extends: claude}}", ["executors.mine.extends"]),
        ("executors: {mine: {extends: claude}}", "", ["executors.mine.extends"]),
        ("executors: {claude: {permission: read}}", "", ["executors.claude.permission"]),
        ("executors: {mine: {extends: codex, argv: [x]}}", "executors: {mine: {extends: codex}}",
         ["executors.mine.argv"]),
        ("", "sandbox: {level: off}", ["sandbox.level"]),
        ("sandbox: {level: off}", "", []),
        ("", "sandbox: {level: strict, network: loopback}", []),
        ("", "sandbox: {visible: [/run/docker.sock]}", ["sandbox.visible"]),
        ("sandbox: {visible: [/a, /b]}", "sandbox: {visible: [/b]}", []),
        ("caps: {story_usd: 5}", "caps: {story_usd: 6}", ["caps.story_usd"]),
        ("caps: {story_usd: 5}", "", ["caps.story_usd"]),
        ("caps: {story_usd: 5}", "caps: {story_usd: 4, day_usd: 9, on_cap: stop}", []),
        ("caps: {on_cap: stop}", "", ["caps.on_cap"]),
        ("", "control: {tcp: {port: 8000}}", ["control.tcp.port", "control.tcp.host"]),
        ("control: {tcp: {port: 8000}}", "control: {tcp: {port: 8000, gates: true}}", ["control.tcp.gates"]),
        ("control: {tcp: {port: 8000, gates: true}}", "control: {tcp: {port: 8000}}", []),
        ("control: {tcp: {port: 8000}}", "", []),
        ("", "execute: {keys: {A_KEY: x}}", ["execute.keys.A_KEY"]),
        ("", "execute: {env_allow: [HOME, AWS_SECRET_ACCESS_KEY]}", ["execute.env_allow"]),
        ("", "execute: {env_allow: [HOME], memory_max: 1G, slots: 9, stall_min: 0}", []),
        ("execute: {memory_max: 1G}", "execute: {memory_max: 2G}", ["execute.memory_max"]),
        ("", "prices: {'gpt-4.1': {input: 0, output: 0}}", ["prices.gpt-4.1.input", "prices.gpt-4.1.output"]),
        ("prices: {x: {input: 9, output: 9}}", "", ["prices.x.input", "prices.x.output"]),
        ("execute: {tasks_max: 100}", "", ["execute.tasks_max"]),
        ("", "schedule: {starts: [{name: nightly, cron: '0 3 * * *', projects: [shop], start: US-1}]}",
         ["schedule.starts"]),
        ("", "auto_continue: true", ["auto_continue"]),
        ("auto_continue: true", "", []),
        ("", "projects: [/srv/shop]", ["projects"]),
        ("projects: [/srv/shop]", "projects: ['/srv/*']", []),
        ("", "language: zh-TW\nlog: {level: debug}\nretention: {runs_days: 3}", []),
    ],
)  # fmt: skip
def test_what_goes_beyond_what_a_person_has_granted(
    environ: dict[str, str], before: str, after: str, waits: list[str]
) -> None:
    """Commands, secrets, money and looser guards; what is tighter, and all else, waits for nothing."""
    own_file(environ, after)

    wanted, granted = load({}, environ), load({}, environ, text=before.encode())

    found = beyond(wanted.settings, granted.settings)
    assert set(waits) <= set(found)
    assert bool(waits) == bool(found)


def test_no_secret_is_shown_to_the_person_who_is_asked(environ: dict[str, str]) -> None:
    """Only that it has changed."""
    own_file(environ, "execute: {keys: {A_KEY: very-secret-new}}\n")
    granted = load({}, environ, text=b"execute: {keys: {A_KEY: very-secret-old}}\n").settings

    (one,) = held_settings(load({}, environ).settings, granted)

    assert ("execute.keys.A_KEY", "…", "…") == (one.key, one.before, one.now)


def test_the_person_who_is_asked_sees_the_whole_edit(environ: dict[str, str]) -> None:
    """What rides along with a guarded setting, too."""
    own_file(environ, "language: zh-TW\nauto_continue: true\n")
    granted = load({}, environ, text=b"").settings

    found = held_settings(load({}, environ).settings, granted)

    assert [("auto_continue", True), ("language", False)] == [(one.key, one.guarded) for one in found]
