"""Settings that change while the daemon runs."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from tests.support.eventually import eventually
from tests.support.house import House, at, daemon, house
from tests.support.refusals import refused

from handoffd.engine.notice import Notice
from handoffd.errors import ConfigurationError, InvalidFile, StoreError
from handoffd.fleet.enrolment import Enrolment
from handoffd.fleet.reloading import (
    Reloading,
    Renewal,
    Trusted,
    live_part,
    marks,
    needs_restart,
    trusted_of,
    usable,
)
from handoffd.fleet.roster import Roster
from handoffd.settings.loading import Further, Given, Loaded, SettingsView, load
from handoffd.settings.model import ExecuteSettings, Settings, WatchSettings

LOOK_S = 0.01


class File:
    """A settings file, which each write replaces."""

    def __init__(self, here: House, text: str) -> None:
        self.path = here.base / "handoffd.yaml"
        self._base = f"state_dir: {here.services.settings.state_dir}\nruntime_dir: {here.base / 'run'}\n"
        self.write(text)
        self.given = Given(flags={"config": str(self.path)}, environ={"HOME": str(here.base)})

    def write(self, text: str) -> None:
        """Replace it by a rename."""
        new = self.path.with_suffix(".new")
        new.write_text(self._base + text)
        new.rename(self.path)


class TwoPlaces(Given, frozen=True):
    """Settings in the first existing file that the flags name."""

    def files(self) -> tuple[Path, ...]:
        """Return both."""
        return tuple(Path(str(path)) for path in self.flags.values())

    def load(self, further: Further | None = None, *, text: bytes | None = None) -> Loaded:
        """Return the settings of the first file that exists."""
        file = next(path for path in self.files() if path.exists())
        return load({"config": str(file)}, self.environ, daemon=True, further=further, text=text)


@asynccontextmanager
async def edited(tmp_path: Path, text: str = "") -> AsyncIterator[tuple[House, File, Reloading]]:
    """Lend a house that runs with the settings of a file, and the reloading of that file."""
    async with house(tmp_path) as here:
        file = File(here, text)
        here.services.settings = file.given.load().settings
        yield here, file, Reloading(here.services, file.given, file.path, LOOK_S)


@asynccontextmanager
async def followed(again: Reloading) -> AsyncIterator[None]:
    """Follow the files meanwhile, after their first reading."""
    seen: list[SettingsView] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(again.watch, seen.append)
        await eventually(lambda: len(seen) == 1)  # a change while the daemon starts counts, too
        yield
        tasks.cancel_scope.cancel()


async def delivered(here: House) -> list[Notice]:
    """Return the notices so far."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.services.notifier.run)
        assert await here.services.notifier.drain(60)
        tasks.cancel_scope.cancel()
    return here.told.notices


async def test_a_good_edit_applies_completely(tmp_path: Path) -> None:
    """Settings, executors and prices change, and followers get the new settings once."""
    async with edited(tmp_path) as (here, file, again):
        followers = list[Settings]()
        again.followers.append(followers.append)
        file.write(
            "execute: {slots: 9}\nprices: {mine: {input: 1, output: 2}}\n"
            "executors: {own: {extends: claude}}\n"
        )

        view = await again.reload()

        changed = ("execute.slots", "executors.own.extends", "prices.mine.cache_read")
        assert set(changed) <= set(view.changed)
        assert 9 == here.services.settings.execute.slots
        assert "own" in here.services.executors.names
        assert here.services.prices.price_of("mine") is not None
        assert () == (await again.reload()).changed
        assert [here.services.settings] == followers


async def test_a_bad_edit_is_reported_with_all_problems_and_changes_nothing(tmp_path: Path) -> None:
    """One notice reports the same problems once; a good edit ends them."""
    async with edited(tmp_path, "execute: {slots: 3}\n") as (here, file, again):
        file.write("execute: {slots: 0}\nlanguage: de\nspeed: 9\n")

        view = await again.reload()
        await again.reload()

        lines = [(problem.line, problem.key) for problem in view.problems]
        assert [(3, "execute.slots"), (4, "language"), (5, "speed")] == lines
        assert ("en", "zh-TW") == view.problems[1].allowed
        assert (3, 3) == (here.services.settings.execute.slots, len(view.warnings))
        (notice,) = await delivered(here)
        assert ("warning", "handoffd config check") == (notice.kind, notice.action)
        assert all(str(problem) in (notice.why or "") for problem in view.problems)

        file.write("execute: {slots: 5}\n")
        good = await again.reload()
        assert ((), ()) == (good.problems, good.warnings)
        assert 5 == here.services.settings.execute.slots


@pytest.mark.parametrize("text", ["executors: {own: {extends: nothing}}\n", "executors:\n  own: 7\n"])
async def test_an_executor_that_does_not_fit_the_others_is_refused(tmp_path: Path, text: str) -> None:
    """The problem has its line, although only the whole book shows it."""
    async with edited(tmp_path) as (here, file, again):
        file.write(text)

        view = await again.reload()

        assert all(problem.file == str(file.path) and problem.line for problem in view.problems)
        assert view.problems
        assert "own" not in here.services.executors.names


async def test_an_edit_that_breaks_a_follower_is_rolled_back(tmp_path: Path) -> None:
    """A bug in the daemon is reported like a problem of the file, and the daemon goes on."""
    async with edited(tmp_path, "execute: {slots: 3}\n") as (here, file, again):
        calls = list[int]()

        def choke(settings: Settings) -> None:
            calls.append(settings.execute.slots)
            if settings.execute.slots == 9:
                raise OverflowError("too many")

        again.followers += [choke, lambda settings: calls.append(-settings.execute.slots)]
        file.write("execute: {slots: 9}\nexecutors: {own: {extends: claude}}\n")

        (problem,) = (await again.reload()).problems

        assert str(file.path) == problem.file
        assert "OverflowError" in problem.message
        assert 3 == here.services.settings.execute.slots
        assert "own" not in here.services.executors.names
        file.write("execute: {slots: 4}\n")
        assert () == (await again.reload()).problems
        assert [9, 3, -3, 4, -4] == calls


def _make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link_to_a_long_name(path: Path) -> None:
    path.unlink()
    os.symlink("n" * 300, path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(Path.unlink, "", id="gone"),
        pytest.param(_make_pipe, "is a pipe", id="a pipe, which can be read only once"),
        pytest.param(lambda path: path.write_text("\n"), "is empty", id="emptied by a full disk"),
        pytest.param(_link_to_a_long_name, "cannot be read (File name too long)", id="unreadable path"),
    ],
)
async def test_a_damaged_file_changes_nothing_until_it_is_replaced(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    """The problem names the file; a later good edit applies."""
    async with edited(tmp_path, "execute: {slots: 3}\n") as (here, file, again):
        damage(file.path)

        (problem,) = (await again.reload()).problems

        assert (str(file.path), 3) == (problem.file, here.services.settings.execute.slots)
        assert message in problem.message
        file.write("execute: {slots: 4}\n")
        assert () == (await again.reload()).problems
        assert 4 == here.services.settings.execute.slots


@pytest.mark.parametrize("further", [False, True], ids=["no other file", "a machine-wide file"])
async def test_no_other_file_replaces_a_missing_one(tmp_path: Path, further: bool) -> None:
    """The next file of the search path may be the machine's, which does not know the same projects."""
    async with edited(tmp_path, "execute: {slots: 3}\n") as (here, mine, _):
        machines = here.base / "machine.yaml"
        machines.write_text(mine.path.read_text().replace("3", "8"))
        given = Given(flags={}, environ={"HOME": str(tmp_path / "home")})
        if further:
            given = TwoPlaces(flags={"mine": mine.path, "machine": machines}, environ=mine.given.environ)
        mine.path.rename(here.base / "moved.yaml")

        (problem,) = (await Reloading(here.services, given, mine.path).reload()).problems
        assert "is gone" in problem.message
        assert (str(mine.path), 3) == (problem.file, here.services.settings.execute.slots)


async def test_a_file_may_appear(here: House, tmp_path: Path) -> None:
    """The daemon started without any, and reads it."""
    home = tmp_path / "home"
    environ = {"HOME": str(home), "HANDOFFD_STATE_DIR": str(here.services.settings.state_dir)}
    given = Given(flags={}, environ=environ)
    again = Reloading(here.services, given)
    assert marks(given.files()) == ()
    (home / ".config/handoffd").mkdir(parents=True)
    (home / ".config/handoffd/handoffd.yaml").write_text("execute: {slots: 7}\n")

    view = await again.reload()

    assert (7, str(given.files()[0])) == (here.services.settings.execute.slots, view.file)


async def test_an_empty_mapping_means_the_defaults(tmp_path: Path) -> None:
    """An empty file does too, if it was empty when the daemon started."""
    async with edited(tmp_path, "execute: {slots: 3}\n") as (here, file, again):
        file.path.write_text("{}\n")
        assert () == (await again.reload()).problems
        assert ExecuteSettings().slots == here.services.settings.execute.slots != 3

        file.path.write_text("")
        here.services.settings = file.given.load().settings
        assert () == (await again.reload()).problems


async def test_the_file_is_followed(tmp_path: Path) -> None:
    """Through a rename, a write in place, an error of its path, and a link that is swapped."""
    async with edited(tmp_path) as (here, file, again), followed(again):
        file.write("execute: {slots: 6}\n")
        await eventually(lambda: here.services.settings.execute.slots == 6)

        with file.path.open("a") as text:
            text.write("language: zh-TW\n")
        await eventually(lambda: here.services.settings.language == "zh-TW")

        target = file.path.rename(tmp_path / "one.yaml")
        os.symlink("n" * 300, file.path)
        await eventually(lambda: again.view.problems)

        other = tmp_path / "two.yaml"
        other.write_text(target.read_text().replace("6", "8"))
        os.symlink(other, tmp_path / "link")
        (tmp_path / "link").rename(file.path)
        await eventually(lambda: here.services.settings.execute.slots == 8)


@pytest.mark.parametrize("source", ["a pipe", "no file"])
async def test_a_source_that_can_be_read_only_once_is_not_followed(tmp_path: Path, source: str) -> None:
    """`--config <(...)`, and settings without a file."""
    async with edited(tmp_path) as (here, file, again):
        _make_pipe(file.path)
        none = Reloading(here.services, None)
        assert SettingsView(file=None) == await none.reload()
        with anyio.fail_after(60):
            await (again if source == "a pipe" else none).watch(lambda view: pytest.fail(str(view)))


async def test_the_settings_and_their_secrets_are_hidden_from_agents(tmp_path: Path) -> None:
    """Also a file that is named later."""
    secret = tmp_path / "topic"
    secret.write_text("a secret")
    async with edited(tmp_path) as (here, file, again):
        assert str(file.path) in here.services.own_places
        assert str(secret) not in here.services.own_places

        with file.path.open("a") as settings:
            settings.write(f"notify: {{ntfy: {{topic: {{file: {secret}}}}}}}\n")
        await again.reload()

        assert {str(file.path), str(secret)} <= set(here.services.own_places)


async def test_secret_files_are_followed(tmp_path: Path) -> None:
    """A changed key applies; a missing one is reported, and the last one stays in effect."""
    (tmp_path / "topic").write_text("one\n")
    async with edited(tmp_path, "notify: {ntfy: {topic: {file: topic}}}\n") as (here, _, again):

        def topic() -> str | None:
            ntfy = here.services.settings.notify.ntfy
            return None if ntfy is None else ntfy.topic.get_secret_value()

        async with followed(again):
            assert "one" == topic()

            (tmp_path / "topic").write_text("the other\n")
            await eventually(lambda: topic() == "the other")

            (tmp_path / "topic").unlink()
            await eventually(lambda: again.view.problems)
            assert "the other" == topic()

            (tmp_path / "topic").write_text("third\n")
            await eventually(lambda: topic() == "third")
            assert () == again.view.problems


def settings(**changes: Any) -> Settings:
    """Return settings."""
    return Settings.model_validate({"state_dir": "/s", "runtime_dir": "/r", **changes})


def test_values_that_need_a_restart_stay_as_they_are() -> None:
    """The daemon keeps them until it ends; the rest applies at once."""
    wanted = settings(
        state_dir="/other", control={"tcp": {"port": 8321}}, watch={"sweep_s": 5, "backend": "watchfiles"},
        notify={"command_timeout_s": 3}, execute={"slots": 8}, log={"level": "debug"},
    )  # fmt: skip
    running = settings()

    live = live_part(wanted, running)

    assert (running.state_dir, running.control, 8, "debug", 3) == (
        live.state_dir, live.control, live.execute.slots, live.log.level, live.notify.command_timeout_s,
    )  # fmt: skip
    assert WatchSettings(sweep_s=5) == live.watch
    keys = "state_dir control.tcp.port watch.backend watch.sweep_s execute.slots projects log.level"
    assert ["state_dir", "control.tcp.port", "watch.backend"] == list(filter(needs_restart, keys.split()))


def test_unusable_executors_of_the_environment_are_reported(tmp_path: Path) -> None:
    """Without a line, because a variable has none."""
    environ = {"HOME": str(tmp_path), "HANDOFFD_EXECUTORS": '{"own": {"extends": "nothing"}}'}

    with pytest.raises(InvalidFile) as invalid:
        usable(load({}, environ))

    (problem,) = invalid.value.problems
    assert (None, "executors.own.extends") == (problem.line, problem.key)


# --- edits that wait for a person ------------------------------------------------------------------------
OWN = "executors: {own: {extends: claude}}\n"


async def test_an_edit_that_names_a_program_waits_as_a_whole(tmp_path: Path) -> None:
    """Until a person accepts it as seen; it is reported once, with its values."""
    async with edited(tmp_path, "execute: {slots: 3}\n") as (here, file, again):
        await again.reload()
        file.write("execute: {slots: 5}\n" + OWN)

        view = await again.reload()
        await again.reload()

        told = [(one.key, one.before, one.now, one.guarded) for one in view.held]
        assert [("execute.slots", 3, 5, False), ("executors.own.extends", None, "claude", True)] == told
        assert (3, False) == (here.services.settings.execute.slots, "own" in here.services.executors.names)
        (warning,) = again.warnings
        assert "executors.own.extends (handoffd trust --daemon)" in warning
        (notice,) = await delivered(here)
        assert ("needs_human", "handoffd trust --daemon") == (notice.kind, notice.action)

        edit = await again.edit()
        file.write("execute: {slots: 6}\n" + OWN)
        with refused("FILES_EDITED", "handoffd trust --daemon"):
            await again.trust(edit.sign)
        await again.trust((await again.edit()).sign)
        assert (6, True) == (here.services.settings.execute.slots, "own" in here.services.executors.names)
        assert ((), ()) == (again.view.held, again.warnings)


async def test_an_edit_that_is_taken_back_waits_no_longer(tmp_path: Path) -> None:
    """And what is tighter counts at once, also as what the next edit is compared with."""
    async with edited(tmp_path, "caps: {story_usd: 9}\n") as (here, file, again):
        await again.reload()
        file.write("caps: {story_usd: 99}\n")
        assert (await again.reload()).held
        file.write("caps: {story_usd: 5}\n")
        assert (("caps.story_usd",), ()) == ((view := await again.reload()).changed, view.held)

        file.write("caps: {story_usd: 9}\n")
        (one,) = (await again.reload()).held

        assert ("caps.story_usd", 5.0, 9.0) == (one.key, one.before, one.now)
        assert 5 == here.services.settings.caps.story_usd


def next_daemon(here: House, file: File) -> Trusted:
    """Return what the next daemon knows before it looks."""
    found = trusted_of(here.services, file.given)
    assert found is not None
    return found


async def test_a_restart_trusts_nothing(tmp_path: Path) -> None:
    """The next daemon begins as it was trusted last, also if the file is gone meanwhile."""
    async with edited(tmp_path, "caps: {story_usd: 9}\n") as (here, file, _):
        first = file.given.load()
        assert first.settings is await next_daemon(here, file).begin(first)
        (kept,) = here.services.settings.state_dir.glob("handoffd.trusted-*.yaml")
        assert (first.text, 0o600) == (kept.read_bytes(), stat.S_IMODE(kept.stat().st_mode))

        file.write("caps: {story_usd: 10}\nexecute: {slots: 9}\n")
        assert first.settings == await next_daemon(here, file).begin(file.given.load())
        file.write("")
        assert 9 == (await next_daemon(here, file).begin(file.given.load())).caps.story_usd

        file.write("caps: {story_usd: 5}\nexecute: {slots: 9}\n")
        assert 9 == (await next_daemon(here, file).begin(file.given.load())).execute.slots
        (kept,) = here.services.settings.state_dir.glob("handoffd.trusted-*.yaml")
        assert file.path.read_bytes() == kept.read_bytes()


async def test_commands_find_a_daemon_that_begins_with_older_settings(tmp_path: Path) -> None:
    """They look for its socket where the file says."""
    async with edited(tmp_path) as (here, file, _):
        await next_daemon(here, file).begin(file.given.load())
        file.write(OWN)
        moved = file.path.read_text().replace(str(here.base / "run"), str(here.base / "other"))
        file.path.write_text(moved)

        settings = await next_daemon(here, file).begin(file.given.load())

        assert (here.base / "other", {}) == (settings.runtime_dir, settings.executors)


@pytest.mark.parametrize("text", [b"caps: [\n", b"executors: {own: {extends: claude}}\n", None])
async def test_a_text_in_place_of_the_trusted_one_is_not_trusted(tmp_path: Path, text: bytes | None) -> None:
    """An agent may write or remove it: neither this daemon nor the next one obeys; a person trusts anew."""
    async with edited(tmp_path) as (here, file, again):
        await again.reload()
        (kept,) = here.services.settings.state_dir.glob("handoffd.trusted-*.yaml")
        kept.unlink() if text is None else kept.write_bytes(text)
        file.write(OWN)

        assert [one.key for one in (await again.reload()).held] == ["executors.own.extends"]
        with pytest.raises(ConfigurationError, match=r"executors\.own\.extends") as error:
            await next_daemon(here, file).begin(file.given.load())
        assert "handoffd trust --daemon" == error.value.hint

        later = next_daemon(here, file)
        await later.recall()
        await later.accept(later.edit()[0].sign)
        loaded = file.given.load()
        assert loaded.settings is await next_daemon(here, file).begin(loaded)


async def test_what_was_trusted_and_cannot_be_used_any_more_is_a_persons_matter(tmp_path: Path) -> None:
    """A secret's file has another name now: the edit waits, and can be trusted."""
    async with edited(tmp_path) as (here, file, again):
        (here.base / "old").write_text("secret-secret-secret")
        file.write("execute: {keys: {A_KEY: {file: old}}}\n")
        await again.trust((await again.edit()).sign)
        (here.base / "old").rename(here.base / "new")
        file.write("execute: {keys: {A_KEY: {file: new}}}\n")

        held = (await again.reload()).held
        assert ["execute.keys.A_KEY"] == [one.key for one in held if one.guarded]
        await again.trust((await again.edit()).sign)

        assert () == again.view.held
        assert "secret" in str(here.services.settings.execute.keys["A_KEY"].get_secret_value())


async def test_without_a_file_the_defaults_are_what_is_trusted(tmp_path: Path) -> None:
    """A file that is made later is an edit like any other."""
    async with house(tmp_path) as here:
        environ = {"HOME": str(tmp_path), "HANDOFFD_STATE_DIR": str(here.services.settings.state_dir)}
        given = Given(flags={}, environ=environ)
        trusted = Trusted(given, here.services.journal, here.services.settings.state_dir, here.clock)
        await trusted.begin(given.load())
        file = tmp_path / ".config/handoffd/handoffd.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(OWN)

        edit, text = trusted.edit()

        assert (OWN.encode(), ["executors.own.extends"]) == (text, [one.key for one in edit.held])


async def test_settings_that_came_through_a_pipe_are_trusted_as_they_came(tmp_path: Path) -> None:
    """Only who starts the daemon writes into it, and it cannot be read a second time."""
    async with house(tmp_path) as here:
        os.mkfifo(pipe := tmp_path / "pipe")
        given = Given(flags={"config": str(pipe)}, environ={"HOME": str(tmp_path)})
        trusted = Trusted(given, here.services.journal, here.services.settings.state_dir, here.clock)
        for text in ("", OWN):
            threading.Thread(target=pipe.write_text, args=(text,)).start()
            loaded = await to_thread.run_sync(given.load)
            assert loaded.settings is await trusted.begin(loaded)


# --- everything that people write, read again -------------------------------------------------------
@asynccontextmanager
async def renewing(
    tmp_path: Path, reloaded: type[Roster] = Roster
) -> AsyncIterator[tuple[House, Roster, Renewal, File]]:
    """Lend a daemon that follows its settings, and their file; a change reloads the roster `reloaded`."""
    async with edited(tmp_path) as (here, file, again), daemon(here) as roster:
        enrolling = Enrolment(here.services, roster)
        renewal = Renewal(again, enrolling, roster if reloaded is Roster else reloaded(here.services))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enrolling.run)
            tasks.start_soon(renewal.follow)
            yield here, roster, renewal, file
            tasks.cancel_scope.cancel()


async def test_a_reload_reads_everything_again(root: str, tmp_path: Path) -> None:
    """The settings, the places of projects, and the projects' own files."""
    async with renewing(tmp_path) as (_, roster, renewal, file):
        file.write(f"projects: [{root}]\n")

        first = await renewal.renew()

        assert {root} == roster.roots()
        assert ((), ()) == (first.settings.problems, first.problems)
        at(root, ".ai/handoffd.yaml").write_text("auto: maybe\n")
        file.write("execute: {slots: 0}\n")
        second = await renewal.renew()
        assert ["execute.slots"] == [problem.key for problem in second.settings.problems]
        assert [root] == [problem.partition(":")[0] for problem in second.problems]
        assert (0, frozenset({root})) == (second.let_go, roster.roots())
        assert "1 problem (handoffd config check)" == renewal.trouble
        assert "execute.slots" in renewal.warnings[0]

        file.write("")
        third = await renewal.renew()
        assert (1, frozenset()) == (third.let_go, roster.roots())
        assert [None] == [renewal.trouble, *renewal.warnings]


class Deaf(Roster):
    """A roster that fails to reload."""

    async def reload(self) -> tuple[str, ...]:
        """Fail like an unreadable journal."""
        raise StoreError("the journal cannot be read")


async def test_an_unreadable_journal_does_not_stop_following(root: str, tmp_path: Path) -> None:
    """Later changes of the settings apply, and new projects arrive."""
    async with renewing(tmp_path, Deaf) as (here, roster, _, file):
        file.write("language: zh-TW\n")
        await eventually(lambda: here.services.settings.language == "zh-TW")
        file.write(f"projects: [{root}*]\nexecute: {{slots: 7}}\n")
        await eventually(lambda: here.services.settings.execute.slots == 7)
        await eventually(lambda: roster.roots() == {root})
