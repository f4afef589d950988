"""What a run may see and write, as a value: from settings, project, executor and account."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from handoffd.execute.sandbox.plan import Plan
from handoffd.execute.sandbox.planning import (
    MOST_HIDDEN,
    PASSES,
    Machine,
    Subject,
    combined,
    folded,
    in_words,
    logins,
    machine_of,
    plan,
    programs,
    repository_of,
    variables_of,
)
from handoffd.settings.model import ProjectSandbox, SandboxSettings

HOME = "/home/me"
MACHINE = Machine(is_root=False, homes=(HOME,), top=("bin", "data", "etc", "home", "usr", "var"))
ROOT = Machine(is_root=True, homes=("/root",), top=MACHINE.top)
SHOP = "/home/me/shop"


def subject(**more: Any) -> Subject:
    """Return a run in its project's own folder."""
    values = {"workspace": SHOP, "project": SHOP, "environment": {"HOME": HOME, "PATH": "/usr/bin"}}
    return Subject(**values | more)


def planned(machine: Machine = MACHINE, settings: dict[str, Any] | None = None, **more: Any) -> Plan:
    """Return the plan of a run."""
    made = plan(SandboxSettings.model_validate(settings or {}), subject(**more), machine)
    assert made is not None
    return made


def test_by_default_the_workspace_alone_is_writable() -> None:
    """Home and temporary files are private, the network is there, and the strongest level is taken."""
    made = planned()

    assert ("auto", "on", SHOP, ()) == (made.level, made.network, made.workspace, made.writable)
    assert (HOME, "/tmp", "/var/tmp") == made.private
    assert {"/home", "/root", "/run"} <= set(made.hidden)


def test_the_daemon_and_other_projects_are_hidden() -> None:
    """Whatever the settings let in."""
    made = planned(own=("/state", "/run/user/1"), others=("/home/me/blog", SHOP, f"{SHOP}/part"))

    assert {"/state", "/run/user/1", "/home/me/blog"} <= set(made.hidden)
    assert {SHOP, f"{SHOP}/part"}.isdisjoint(made.hidden)  # a project's parts are its own


def test_root_sees_only_folders_of_programs() -> None:
    """An ordinary account sees what its rights let it see."""
    made = planned(ROOT)

    assert {"/data", "/etc", "/var"} <= set(made.hidden)
    assert {"/usr", "/bin"}.isdisjoint(made.hidden)
    assert "/etc/passwd" in made.readable
    assert not [path for path in made.readable if "shadow" in path or "sudoers" in path]
    assert {"/data", "/etc", "/var"}.isdisjoint(planned().hidden)


def test_programs_in_homes_are_shown_and_secrets_are_not() -> None:
    """By a list of what holds programs only."""
    made = planned()

    assert {f"{HOME}/.nvm", f"{HOME}/.local/bin", f"{HOME}/.gitconfig"} <= set(made.readable)
    secrets = (
        ".ssh",
        ".aws",
        ".config/gh",
        ".cargo",
        ".config",
        ".local",
        ".netrc",
        ".npmrc",
        ".local/share",
    )
    assert {f"{HOME}/{name}" for name in secrets}.isdisjoint(made.readable)


def test_what_an_executor_writes_is_writable_or_copied() -> None:
    """A folder is mounted; files that are replaced in the home itself can only be copied."""
    made = planned(
        writes=("${AGENT_HOME:-~/.agent}", "~/.agent.json*", "$NOT_SET/x"), run_folder="/state/runs/r/results"
    )

    assert (f"{HOME}/.agent", "/state/runs/r/results") == made.writable
    assert (f"{HOME}/.agent.json*",) == made.copied


AGENT: dict[str, Any] = {
    "keeps": ("${AGENT_HOME:-~/.agent}", "${AGENT_HOME:-~/.agent}/sessions"),
    "reads": ("~/.agent/settings.json", "~/.agent/hooks/", "~/.agent.conf"),
    "room": "/state/agents/1",
}
"""What an agent's program keeps."""


def test_a_project_has_its_own_of_the_folders_that_an_executor_keeps() -> None:
    """In their place; the person's settings are shown in them and cannot be changed."""
    made = planned(**AGENT)

    assert {f"{HOME}/.agent": f"/state/agents/1{HOME}/.agent"} == made.own
    assert (f"{HOME}/.agent/settings.json", f"{HOME}/.agent/hooks/") == made.read_only
    assert f"{HOME}/.agent.conf" in made.readable
    assert () == made.writable


def test_the_folder_of_a_login_is_shared_and_what_is_in_it_is_not() -> None:
    """Sessions are each project's own, settings are the person's."""
    made = planned(**AGENT, logins=(f"{HOME}/.agent",))

    assert (f"{HOME}/.agent",) == made.writable
    assert {f"{HOME}/.agent/sessions": f"/state/agents/1{HOME}/.agent/sessions"} == made.own
    assert (f"{HOME}/.agent/settings.json", f"{HOME}/.agent/hooks/") == made.read_only


def test_the_file_of_a_login_is_shared_in_a_folder_that_is_not() -> None:
    """Unless it is only read."""
    made = planned(**AGENT, logins=(f"{HOME}/.agent/login", f"{HOME}/.agent.conf"))

    assert (f"{HOME}/.agent/login",) == made.writable
    assert [f"{HOME}/.agent"] == list(made.own)


def test_what_settings_let_agents_write_is_shared() -> None:
    """That is how a person shares a folder."""
    made = planned(settings={"writable": ["~/.agent"]}, **AGENT, logins=(f"{HOME}/.agent",))

    assert ({}, (), (f"{HOME}/.agent",)) == (made.own, made.read_only, made.writable)


def test_landlock_alone_lets_an_executor_write_its_folders() -> None:
    """It cannot show others in their place."""
    made = planned(settings={"level": "landlock"}, **AGENT)

    assert ({}, ()) == (made.own, made.read_only)
    assert (f"{HOME}/.agent", f"{HOME}/.agent/sessions") == made.writable
    assert f"{HOME}/.agent.conf" in made.readable


def test_a_login_is_shared_by_its_file_or_by_its_folder(tmp_path: Path) -> None:
    """The folder only where the file is used: no variable logs the agent in."""
    (tmp_path / "login").touch()
    files, environment = ("$AGENT_HOME/login", "~/none"), {"HOME": "/none", "AGENT_HOME": str(tmp_path)}
    with_key = {**environment, "AGENT_KEY": "key"}

    assert (f"{tmp_path}/login",) == logins(files, ["AGENT_KEY"], with_key, with_folder=False)
    assert (str(tmp_path),) == logins(files, ["AGENT_KEY"], environment, with_folder=True)
    assert () == logins(files, ["AGENT_KEY"], with_key, with_folder=True)
    assert () == logins(["~/none"], [], environment, with_folder=True)


def test_a_clone_is_the_workspace_and_its_project_shows_only_what_it_lends() -> None:
    """Though the clone is below the daemon's state."""
    made = planned(workspace="/state/clones/US-1", own=("/state",), lent=(f"{SHOP}/.git/objects",))

    assert "/state/clones/US-1" == made.workspace
    assert {"/state", SHOP} <= set(made.hidden)
    assert f"{SHOP}/.git/objects" in made.readable
    assert SHOP not in made.writable


def test_what_a_clone_borrows_is_shown_where_more_is_writable() -> None:
    """The project is hidden in a folder that the settings let agents write."""
    lent = (f"{SHOP}/.git/objects", f"{SHOP}/.env")
    settings = {"writable": [os.path.dirname(SHOP)]}
    made = planned(settings=settings, workspace="/state/clones/US-1", lent=lent)

    assert SHOP in made.hidden
    assert {*lent} <= {*made.readable}


@pytest.mark.parametrize("name", sorted(PASSES))
def test_what_is_let_in_by_name_is_let_in(name: str) -> None:
    """Caches are writable, sockets are shown, variables are passed; without the name nothing is."""
    environment = {"HOME": HOME, "SSH_AUTH_SOCK": "/tmp/agent/socket"}
    without, made = (
        planned(environment=environment),
        planned(settings={"let_in": [name]}, environment=environment),
    )

    gained = (set(made.writable) | set(made.readable)) - set(without.writable) - set(without.readable)
    assert gained or variables_of(SandboxSettings(let_in=(name,)))
    assert all(path.startswith(HOME) or path == "/tmp/agent/socket" for path in gained)
    assert () == variables_of(SandboxSettings(level="off", let_in=("proxy",)))


def test_the_caches_of_go_are_where_its_variables_say() -> None:
    """They are passed with the name, and the folders can be written."""
    settings = SandboxSettings(let_in=("go",))
    own = {"GOCACHE": "/big/build", "GOMODCACHE": "/big/modules"}

    made = planned(settings={"let_in": ["go"]}, environment={"HOME": HOME, **own})

    assert own.keys() <= {*variables_of(settings)}
    assert {*own.values()} <= {*made.writable}


def test_writable_and_visible_paths_of_the_settings_are_expanded() -> None:
    """`~` and variables are the run's own."""
    made = planned(
        settings={"writable": ["~/out", "/data/x"], "visible": ["$TOOLS/lib", "/data/ro"]},
        environment={"HOME": HOME, "TOOLS": "/t"},
    )

    assert (f"{HOME}/out", "/data/x") == made.writable
    assert {"/t/lib", "/data/ro"} <= set(made.readable)


@pytest.mark.parametrize("path", ["relative", "", "/", "~", "../x", "/a\0b"])
def test_a_setting_that_is_no_place_is_refused(path: str) -> None:
    """The whole tree would be no sandbox."""
    with pytest.raises(ValidationError, match="whole path"):
        SandboxSettings.model_validate({"writable": [path]})


def test_a_network_of_its_own_needs_namespaces() -> None:
    """Landlock cannot keep a run from all of the network."""
    with pytest.raises(ValidationError, match="needs namespaces"):
        SandboxSettings.model_validate({"level": "landlock", "network": "none"})


def test_a_copy_in_the_workspaces_place_needs_namespaces() -> None:
    """Landlock has no view of its own."""
    assert "/copy" == planned(shown="/copy").shown
    with pytest.raises(ValueError, match="landlock cannot show another folder"):
        planned(settings={"level": "landlock"}, shown="/copy")


def test_off_is_no_plan() -> None:
    """The run may then do all that its account may."""
    assert None is plan(SandboxSettings(level="off"), subject(), MACHINE)


def test_a_projects_own_values_win_and_its_lists_are_added() -> None:
    """What is looser has been trusted by then."""
    daemon = SandboxSettings(network="loopback", writable=("/a",), let_in=("npm",))

    same = combined(daemon, ProjectSandbox())
    other = combined(
        daemon, ProjectSandbox(level="strict", network="none", writable=("/b",), visible=("/c",))
    )

    assert daemon == same
    assert ("strict", "none", ("/a", "/b"), ("/c",)) == (
        other.level,
        other.network,
        other.writable,
        other.visible,
    )
    tight = combined(SandboxSettings(level="landlock"), ProjectSandbox(network="none"))
    assert ("namespaces", "none") == (tight.level, tight.network)


def test_many_projects_are_hidden_by_the_folders_that_they_are_in() -> None:
    """Each mount costs time; but nothing at the top of the machine is hidden as a whole."""
    few = tuple(f"/srv/all/p{number}" for number in range(MOST_HIDDEN))
    many = (*few, "/srv/all/more", "/alone", "/other", "/far/away/one")

    assert few == folded(few)
    assert ("/srv/all", "/alone", "/other", "/far/away/one") == folded(many)


def test_a_command_needs_its_programs_folder_its_links_and_what_it_names(tmp_path: Path) -> None:
    """A link to a program leads to the folder that the program is installed in."""
    real, linked = tmp_path / "tool/v1/bin", tmp_path / "mine/bin"
    for folder in (real, linked):
        folder.mkdir(parents=True)
    (real / "agent").touch(mode=0o755)
    (linked / "agent").symlink_to(real / "agent")
    environment = {"PATH": f"/usr/bin:{linked}"}

    shown = programs(("agent", "--file", "/data/rules.md", "/dev/stdin", "relative"), environment, ())

    assert {
        str(linked),
        str(linked / "agent"),
        str(tmp_path / "mine"),
        str(real / "agent"),
        str(tmp_path / "tool/v1"),
        "/data/rules.md",
    } == set(shown)


def test_a_program_of_npms_needs_its_packages(tmp_path: Path) -> None:
    """It is a link to a file among them."""
    modules = tmp_path / "tools/node_modules"
    (modules / ".bin").mkdir(parents=True)
    (modules / "agent").mkdir()
    (modules / "agent/cli.js").touch(mode=0o755)
    (modules / ".bin/agent").symlink_to("../agent/cli.js")

    assert str(modules) in programs(("agent",), {"PATH": f"{modules}/.bin"}, ())


def test_the_folder_above_a_bin_is_not_shown_when_it_holds_more_than_programs() -> None:
    """A home, `.local` and `.cargo`, which has a registry's token."""
    folders = (f"{HOME}/bin", f"{HOME}/.local/bin", f"{HOME}/.cargo/bin", f"{HOME}/.tool/bin", "/venv/bin")

    shown = programs((), {"PATH": ":".join(folders)}, (HOME,))

    assert {*folders, f"{HOME}/.tool", "/venv"} == set(shown)


def worktree(base: Path) -> tuple[Path, Path]:
    """Return a linked worktree and its repository, as git makes them."""
    tree, repository = base / "tree", base / "main/.git"
    (repository / "worktrees/tree").mkdir(parents=True)
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {repository}/worktrees/tree\n")
    (repository / "worktrees/tree/gitdir").write_text(f"{tree}/.git\n")
    return tree, repository


def test_a_linked_worktree_may_write_its_repository(tmp_path: Path) -> None:
    """Otherwise nothing could be committed there."""
    tree, repository = worktree(tmp_path)

    assert str(repository) == repository_of(str(tree))
    made = planned(workspace=str(tree), project=str(tree), repository=str(repository))
    assert (str(repository), ()) == (made.repository, made.writable)


@pytest.mark.parametrize(
    "pointer", ["gitdir: {home}/.ssh", "gitdir: {main}/worktrees/other", "{main}", "", "gitdir:"]
)
def test_a_pointer_that_an_agent_wrote_leads_nowhere(tmp_path: Path, pointer: str) -> None:
    """The repository itself must point back."""
    tree, repository = worktree(tmp_path)
    (tree / ".git").write_text(pointer.format(home=tmp_path, main=repository) + "\n")
    (repository / "worktrees/other").mkdir()
    (repository / "worktrees/other/gitdir").write_text(f"{tmp_path}/elsewhere/.git\n")

    assert None is repository_of(str(tree))
    assert None is repository_of(str(tmp_path))


def test_the_machine_is_seen_as_it_is() -> None:
    """An account without a home of its own has none that could be private."""
    seen = machine_of({"HOME": "/"})

    assert (os.geteuid() == 0) == seen.is_root
    assert "/" not in seen.homes
    assert "usr" in seen.top


@pytest.mark.parametrize(
    "raw",
    [
        {"level": "off", "network": "on", "workspace": "/w"},
        {"level": "auto", "network": "off", "workspace": "/w"},
        {"level": "auto", "network": "on", "workspace": "w"},
        {"level": "auto", "network": "on", "workspace": "/w", "hidden": ["x"]},
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(raw: dict[str, Any]) -> None:
    """The shim refuses the start: it does not guess."""
    with pytest.raises(ValueError, match=r"level|network|absolute"):
        Plan.from_raw(raw)


@pytest.mark.parametrize(
    ("settings", "version", "words"),
    [
        ({}, 6, "namespaces and Landlock (strict); network: on"),
        ({}, 5, "namespaces; network: on"),
        ({"level": "namespaces", "network": "none"}, 6, "namespaces; network: none"),
        ({"level": "landlock"}, 6, "Landlock alone; network: on"),
        ({"level": "off", "writable": ["/x"]}, 6, "none; agents may do all that their account may"),
        (
            {"writable": ["~/.cache/x"], "visible": ["/run/docker.sock"], "let_in": ["npm", "go"]}, 6,
            "namespaces and Landlock (strict); network: on; may also write ~/.cache/x; "
            "read /run/docker.sock; let in npm, go",
        ),
    ],
)  # fmt: skip
def test_what_holds_agents_is_said_in_a_line(settings: dict[str, Any], version: int, words: str) -> None:
    """For a person who starts a first story, or looks at a project."""
    assert words == in_words(SandboxSettings(**settings), version)
