"""What a program can do inside a sandbox: each guard is tried, as root and as an ordinary account."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.children import ending
from tests.support.sandboxes import Box, accounts, box

from handoffd.execute.sandbox import kernel
from handoffd.execute.sandbox.plan import SCOPES_SINCE


@pytest.fixture(params=accounts(), ids=lambda account: "root" if account == 0 else "ordinary")
def here(request: pytest.FixtureRequest) -> Iterator[Box]:
    """A folder of each account that can be tried."""
    with box(request.param) as made:
        yield made


def test_exit_code_and_output_are_the_programs(here: Box) -> None:
    """The process that keeps the namespace passes them on."""
    done = here.run("echo out; echo err >&2; exit 7")

    assert (7, "out\nerr\n") == (done.returncode, done.stdout)


def test_death_by_signal_is_reported(here: Box) -> None:
    """As the signal that it was."""
    assert -signal.SIGKILL % 256 == here.run("kill -KILL $$").returncode % 256


WALLS = pytest.mark.parametrize("level", ["auto", "namespaces"])
"""With Landlock as a second wall, and without: then the view holds alone."""


@WALLS
def test_the_workspace_is_writable_and_nothing_else_outside(here: Box, level: str) -> None:
    """Neither where the account may write, nor where root may."""
    outside = here.folder / "outside"
    outside.mkdir()
    os.chown(outside, here.account, here.account)
    plan = here.plan(hidden=("/root", "/home", "/run"), level=level)

    elsewhere = [Path(folder, f"handoffd-test-{os.getpid()}") for folder in (outside, "/usr", "/etc", "/")]
    here.run(f"echo a > made; {'; '.join(f'echo b > {path}' for path in elsewhere)}", plan)
    written = [path for path in elsewhere if path.exists()]
    for path in written:
        path.unlink()

    assert "a\n" == (here.workspace / "made").read_text()
    assert [] == written


def test_home_and_temporary_files_are_private_and_writable(here: Box) -> None:
    """The home's own files are out of sight, and what is written there stays nowhere."""
    Path("/tmp/handoffd-test-outside").touch()

    done = here.run(
        "ls -A ~ /tmp; cat ~/.ssh/id; mkdir ~/.ssh && echo mine > ~/.ssh/id && cat ~/.ssh/id;"
        "touch /tmp/y /dev/shm/z"
    )

    Path("/tmp/handoffd-test-outside").unlink()
    assert "a secret" not in done.stdout
    assert "handoffd-test-outside" not in done.stdout
    assert "mine\n" == done.stdout[-5:]
    assert "a secret\n" == (here.home / ".ssh/id").read_text()
    assert not Path("/tmp/y").exists()
    assert not Path("/dev/shm/z").exists()


def test_neither_ai_nor_git_can_be_moved_and_gits_hooks_and_settings_not_changed(here: Box) -> None:
    """All else in them can be written."""
    done = here.run(
        "echo a > .ai/HANDOFF.md; echo b > .git/index;"
        "mv .ai x; mv .git y; rm -rf .git/hooks; echo evil > .git/hooks/pre-push; echo evil >> .git/config;"
        "mv .git/hooks .git/h; mv .git/config .git/c; echo c > .git/n; mv .git/n .git/config;"
        "ln -sf /x .git/config"
    )

    assert {".ai", ".git"} == set(os.listdir(here.workspace)), done.stdout
    assert "a\n" == (here.workspace / ".ai/HANDOFF.md").read_text()
    assert "b\n" == (here.workspace / ".git/index").read_text()
    assert [] == os.listdir(here.workspace / ".git/hooks")
    assert "[core]\n" == (here.workspace / ".git/config").read_text()


def test_a_repository_without_hooks_and_settings_gets_them_before_an_agent_can_make_them(here: Box) -> None:
    """Git runs what they name, outside the sandbox."""
    (here.workspace / ".git/hooks").rmdir()
    (here.workspace / ".git/config").unlink()

    here.run("mkdir .git/hooks; echo evil > .git/hooks/x; echo evil > .git/config")

    assert [] == os.listdir(here.workspace / ".git/hooks")
    assert "" == (here.workspace / ".git/config").read_text()


def test_a_repository_without_its_head_is_still_guarded(here: Box) -> None:
    """An agent may have removed it, and bring it back."""
    here.run("rm .git/HEAD")
    here.run("echo x > .git/HEAD; echo evil > .git/hooks/x; echo evil > .git/config")

    assert [] == os.listdir(here.workspace / ".git/hooks")
    assert "[core]\n" == (here.workspace / ".git/config").read_text()


def test_in_a_linked_worktree_the_repositorys_hooks_and_settings_are_guarded(here: Box) -> None:
    """It can be written otherwise; the pointer to it cannot."""
    repository = here.folder / "main"
    (here.workspace / ".git").rename(repository)
    (here.workspace / ".git").write_text(f"gitdir: {repository}/worktrees/work\n")
    os.chown(here.workspace / ".git", here.account, here.account)

    here.run(
        f"cd {repository} && echo a > index; echo evil > hooks/x; echo evil >> config;"
        f"cd {here.workspace}; echo evil > .git; rm .git; mv .git x",
        here.plan(repository=str(repository)),
    )

    assert "a\n" == (repository / "index").read_text()
    assert ([], "[core]\n") == (os.listdir(repository / "hooks"), (repository / "config").read_text())
    assert f"gitdir: {repository}/worktrees/work\n" == (here.workspace / ".git").read_text()


def test_a_link_in_place_of_a_guarded_folder_refuses_the_start(here: Box) -> None:
    """It would have the start mount something that an agent chose."""
    (here.workspace / ".ai").rmdir()
    (here.workspace / ".ai").symlink_to(here.home)

    done = here.run("echo started")

    assert 1 == done.returncode
    assert "no sandbox: .ai: Too many levels of symbolic links" in done.stderr


def test_other_processes_cannot_be_seen_signalled_or_looked_into(here: Box) -> None:
    """Process 1 in there is the sandbox's own, and its end would be the run's."""
    with ending(subprocess.Popen(["sleep", "600"])) as sleeper:
        done = here.run(
            f"kill -0 {sleeper.pid} && echo signalled; test -e /proc/{sleeper.pid} && echo seen;"
            f"test -e /proc/1/root/proc/{sleeper.pid} && echo reached; kill -KILL 1; echo alive"
        )
        assert sleeper.poll() is None
        sleeper.kill()

    assert {"alive"} == {"alive", "reached", "seen", "signalled"} & set(done.stdout.splitlines())


def test_every_privilege_is_given_up_for_good(here: Box) -> None:
    """A program with set-user-id cannot bring one back."""
    status = here.run("cat /proc/self/status").stdout

    sets = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Cap")}
    assert {"0000000000000000"} == set(sets.values())
    assert "NoNewPrivs:\t1" in status


@WALLS
@pytest.mark.parametrize(
    "attempt",
    [
        "umount {home}", "umount .ai", "umount /tmp", "mount -o remount,rw,bind /",
        "mount -t tmpfs none /tmp",
        "unshare -Urm sh -c 'umount {home}; cat {home}/.ssh/id; umount .git/config; echo evil > .git/config'",
        "unshare -Urmp --fork mount -t proc proc /proc",
        "nsenter -t 1 -m cat {home}/.ssh/id", "chroot /proc/1/root cat {home}/.ssh/id",
        "echo 1 > /proc/sys/kernel/printk", "echo b > /proc/sysrq-trigger", "mknod disk b 8 0 && cat disk",
    ],
)  # fmt: skip
def test_the_view_cannot_be_undone(here: Box, attempt: str, level: str) -> None:
    """Not with a namespace of one's own either."""
    script = attempt.format(home=here.home)

    done = here.run(f"{script} && echo done; ls -A {here.home}; cat .git/config", here.plan(level=level))

    assert "a secret" not in done.stdout
    assert "done" not in done.stdout
    assert done.stdout.endswith("[core]\n")
    assert "[core]\n" == (here.workspace / ".git/config").read_text()


@pytest.mark.skipif(kernel.landlock_version() < SCOPES_SINCE, reason="this kernel's Landlock has no scopes")
def test_abstract_sockets_outside_cannot_be_reached(here: Box) -> None:
    """They have no place in the tree that could hide them."""
    name = f"handoffd-test-{os.getpid()}-{here.account}"
    code = f"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + {name!r}); print('reached')"
    python = os.path.realpath(sys.executable)
    shown = here.plan(readable=(str(Path(python).parents[1]),))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        done = here.run(f'{python} -I -S -c "{code}"', shown)
        namespaces_alone = here.run(
            f'{python} -I -S -c "{code}"', here.plan(level="namespaces", readable=shown.readable)
        )

    if here.account == 0:  # another account may not read this interpreter
        assert "PermissionError" in done.stdout
        assert "reached\n" == namespaces_alone.stdout  # so the guard is Landlock's


def test_hidden_things_are_shown_again_where_the_plan_says_so(here: Box) -> None:
    """Read-only or writable, folders and files, below what is hidden."""
    for name in ("tool", "cache"):
        (here.folder / name).mkdir()
        (here.folder / name / "file").write_text(f"{name}\n")
        os.chown(here.folder / name, here.account, here.account)
    one, two = here.folder / "tool", here.folder / "cache"
    plan = here.plan(readable=(f"{one}/file", "/no/such/path"), writable=(str(two), f"{here.home}/.agent"))

    done = here.run(
        f"cat {one}/file {two}/file; echo x > {one}/file; echo y > {two}/new; echo z > ~/.agent/conf;"
        f"ls {here.folder}",
        plan,
    )

    assert done.stdout.startswith("tool\ncache\n")
    assert done.stdout.endswith("cache\nhome\ntool\nwork\n")
    assert "tool\n" == (one / "file").read_text()
    assert "y\n" == (two / "new").read_text()
    assert "z\n" == (here.home / ".agent/conf").read_text()


def test_another_folder_can_be_shown_in_the_workspaces_place(here: Box) -> None:
    """At its path, and writable; neither the workspace itself nor the folder's own path can be reached."""
    copy = here.folder / "copy"
    copy.mkdir()
    os.chown(copy, here.account, here.account)
    (copy / "file").write_text("the copy's\n")
    (here.workspace / "file").write_text("its own\n")

    done = here.run(f"pwd; cat {here.workspace}/file; echo x > new; ls {copy}", here.plan(shown=str(copy)))

    assert f"{here.workspace}\nthe copy's\n" == done.stdout.split("ls:")[0]
    assert ({"file", "new"}, False) == (
        {one.name for one in copy.iterdir()},
        (here.workspace / "new").exists(),
    )


def test_copied_files_can_be_replaced_and_the_originals_stay(here: Box) -> None:
    """As agents do with settings that are in the home itself: by renaming a new file over the old one."""
    for name in (".agent.json", ".agent.json.backup", ".other"):
        (here.home / name).write_text(f"{name}\n")
        os.chown(here.home / name, here.account, here.account)

    done = here.run(
        "ls -A ~; echo new > ~/n; mv ~/n ~/.agent.json; cat ~/.agent.json",
        here.plan(copied=(f"{here.home}/.agent.json*",)),
    )

    assert ".agent.json\n.agent.json.backup\nnew\n" == done.stdout
    assert ".agent.json\n" == (here.home / ".agent.json").read_text()


def _kept(here: Box, *names: str) -> tuple[Path, dict[str, str]]:
    """Return the folder of an agent's program with files of these names, and the project's own for it."""
    kept, own = here.home / ".agent", here.folder / "own"
    for path in (kept, *(kept / name for name in names), own):
        path.write_text("a person's\n") if path.suffix else path.mkdir()
        os.chown(path, here.account, here.account)
    return own, {str(kept): str(own)}


def test_a_project_has_a_folder_of_its_own_with_the_persons_settings_in_it(here: Box) -> None:
    """What is written there stays there; of the person's the settings can be read, and nothing else."""
    own, places = _kept(here, "settings.json", "hooks", "hooks/one.sh", "history.txt")
    plan = here.plan(
        own=places,
        read_only=tuple(f"{here.home}/.agent/{name}" for name in ("settings.json", "hooks/", "no/")),
    )

    done = here.run(
        "exec 2> /dev/null; cd ~/.agent && ls -A && cat settings.json hooks/one.sh; echo x > session;"
        "echo x > settings.json; echo x > hooks/two.sh; mv hooks gone; rm -f settings.json",
        plan,
    )

    assert "hooks\nsettings.json\na person's\na person's\n" == done.stdout
    assert "x\n" == (own / "session").read_text()
    assert "a person's\n" == (here.home / ".agent/settings.json").read_text()
    assert ["one.sh"] == os.listdir(here.home / ".agent/hooks")
    assert {"settings.json", "hooks", "history.txt"} == set(os.listdir(here.home / ".agent"))


@pytest.mark.parametrize("trap", ["ln -s {0} hooks", "mkdir settings.json", "ln -s {0}/made settings.json"])
def test_what_an_agent_puts_in_the_place_of_settings_hides_none(here: Box, trap: str) -> None:
    """It is moved away before the next run: neither a start fails, nor is anything mounted elsewhere."""
    _, places = _kept(here, "settings.json", "hooks", "hooks/one.sh")
    names = (f"{here.home}/.agent/settings.json", f"{here.home}/.agent/hooks/")

    here.run(f"cd ~/.agent && {trap.format(here.workspace)}", here.plan(own=places))
    done = here.run("cat ~/.agent/settings.json; ls ~/.agent/hooks", here.plan(own=places, read_only=names))

    assert "a person's\none.sh\n" == done.stdout
    assert {".ai", ".git"} == set(os.listdir(here.workspace))


def test_settings_that_are_a_link_stay_one(here: Box) -> None:
    """It leads where the run may look, or nowhere."""
    _, places = _kept(here)
    for name, target in (("settings.json", here.workspace / "settings"), ("hooks", here.home / ".ssh")):
        (here.home / ".agent" / name).symlink_to(target)
    (here.workspace / "settings").write_text("the project's\n")
    names = (f"{here.home}/.agent/settings.json", f"{here.home}/.agent/hooks/")

    done = here.run(
        "exec 2> /dev/null; cat ~/.agent/settings.json; ls ~/.agent/hooks/",
        here.plan(own=places, read_only=names),
    )

    assert "the project's\n" == done.stdout


def test_in_a_folder_that_all_runs_share_settings_cannot_be_changed_or_made(here: Box) -> None:
    """A login there can be replaced by renaming a new one over it, and sessions are the project's own."""
    own, _ = _kept(here, "settings.json", "login.txt")
    kept = here.home / ".agent"
    plan = here.plan(
        writable=(str(kept),),
        own={f"{kept}/sessions": str(own)},
        read_only=tuple(f"{kept}/{name}" for name in ("settings.json", "more.json", "rules.toml", "hooks/")),
    )

    done = here.run(
        "exec 2> /dev/null; cd ~/.agent; echo new > n && mv n login.txt; echo x > sessions/one;"
        "cat settings.json; for file in settings.json more.json rules.toml hooks/a; do"
        "  echo x > $file; echo x > n; mv -f n $file; rm -f $file n; done; mv hooks gone",
        plan,
    )

    assert "a person's\n" == done.stdout
    assert ("new\n", "x\n") == ((kept / "login.txt").read_text(), (own / "one").read_text())
    assert ("{}\n", "", []) == (
        (kept / "more.json").read_text(),
        (kept / "rules.toml").read_text(),
        os.listdir(kept / "hooks"),
    )
    assert "a person's\n" == (kept / "settings.json").read_text()
    assert [] == os.listdir(kept / "sessions")


def test_a_shared_folder_that_is_a_link_is_held_at_both_of_its_paths(here: Box) -> None:
    """A person keeps it among other files of the kind."""
    own, _ = _kept(here, "settings.json", "sessions")
    kept, real = here.home / ".agent", here.home / "dotfiles"
    kept.rename(real)
    kept.symlink_to(real)
    names = (f"{kept}/settings.json", f"{kept}/hooks/")
    plan = here.plan(writable=(str(kept),), own={f"{kept}/sessions": str(own)}, read_only=names)

    here.run(
        f"for at in {kept} {real}; do echo x > $at/settings.json; echo x > $at/hooks/a;"
        " echo x > $at/sessions/one; echo x > $at/login; done",
        plan,
    )

    assert {"hooks", "login", "sessions", "settings.json"} == set(os.listdir(real))
    assert "a person's\n" == (real / "settings.json").read_text()
    assert ([], [], ["one"]) == (os.listdir(real / "hooks"), os.listdir(real / "sessions"), os.listdir(own))


@pytest.mark.parametrize(("network", "interfaces", "up"), [("loopback", "lo", True), ("none", "lo", False)])
def test_the_network_can_be_left_out(here: Box, network: str, interfaces: str, up: bool) -> None:
    """With `loopback`, programs of the run reach each other; with `none` not even that."""
    done = here.run(
        "cat /proc/net/dev | tail -n +3 | cut -d: -f1; ip -brief address show lo || cat /proc/net/if_inet6",
        here.plan(network=network),
    )

    assert [interfaces] == done.stdout.split()[:1]
    assert up == ("::1" in done.stdout or "00000000000000000000000000000001" in done.stdout)


def test_what_cannot_be_made_refuses_the_start_with_the_reason(here: Box) -> None:
    """Nothing is started with less than the plan."""
    nowhere = here.run("echo started", here.plan(writable=("/proc/no/such/place",)))

    assert (1, "") == (nowhere.returncode, nowhere.stdout)
    assert "ENOENT: no sandbox: /proc/no" in nowhere.stderr
    assert "next: handoffd doctor" in nowhere.stderr


def test_a_home_that_was_never_made_keeps_nothing_from_starting(here: Box) -> None:
    """Accounts of services name one."""
    assert "started\n" == here.run("echo started", here.plan(private=("/no/such/home",))).stdout


@pytest.mark.parametrize("level", ["auto", "landlock"])
def test_a_writable_folder_that_is_not_there_yet_is_made(here: Box, level: str) -> None:
    """The cache of a tool that the account has never used."""
    cache = here.home / ".cache/tool"

    here.run(f"echo a > {cache}/made", here.plan(level=level, writable=(str(cache),)))

    assert "a\n" == (cache / "made").read_text()
    assert 0o700 == cache.stat().st_mode & 0o777


def test_landlock_alone_keeps_to_the_workspace_and_hides_homes(here: Box) -> None:
    """The weakest level: what is in the workspace is not guarded, and processes are seen."""
    done = here.run(
        f"echo a > made; cat {here.home}/.ssh/id; echo b > {here.folder}/x; ls /usr > /dev/null && echo read",
        here.plan(level="landlock"),
    )

    assert done.stdout.endswith("read\n")
    assert "a secret" not in done.stdout
    assert "a\n" == (here.workspace / "made").read_text()
    assert not (here.folder / "x").exists()
