"""Settings that change while the daemon runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.house import House, house

from handoffd.engine.views import SettingsView
from handoffd.errors import InvalidFile
from handoffd.fleet.reloading import Reloading, live_part, marks, needs_restart, usable
from handoffd.notify.notice import Notice
from handoffd.settings.loading import Further, Given, Loaded, load
from handoffd.settings.model import ExecuteSettings, Settings, WatchSettings


class File:
    """A settings file, edited as people do."""

    def __init__(self, here: House, text: str = "") -> None:
        self.path = here.base / "handoffd.yaml"
        self._base = f"state_dir: {here.services.settings.state_dir}\nruntime_dir: {here.base / 'run'}\n"
        self.write(text)
        self.given = Given(flags={"config": str(self.path)}, environ={"HOME": str(here.base)})

    def write(self, text: str) -> None:
        """Replace it whole."""
        new = self.path.with_suffix(".new")
        new.write_text(self._base + text)
        new.rename(self.path)


class TwoPlaces(Given):
    """Settings that may lie in either of two places, which the flags name; the first that exists counts."""

    def files(self) -> tuple[Path, ...]:
        """Return both."""
        return tuple(Path(str(path)) for path in self.flags.values())

    def load(self, further: Further | None = None, *, daemon: bool = True) -> Loaded:
        """Return the settings of the first file that exists."""
        file = next(path for path in self.files() if path.exists())
        return load({"config": str(file)}, self.environ, daemon=daemon, further=further)


def reloading(here: House, file: File) -> Reloading:
    """Return what reads a file again whose settings are in force."""
    here.services.settings = file.given.load().settings
    return Reloading(here.services, file.given, file.path)


async def told(here: House) -> list[Notice]:
    """Return the notices so far."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.services.notifier.run)
        assert await here.services.notifier.drain(60)
        tasks.cancel_scope.cancel()
    return here.told.notices


async def test_a_good_edit_is_in_force_whole(tmp_path: Path) -> None:
    """Settings, executors and prices; whoever keeps a part of them is told."""
    async with house(tmp_path) as here:
        file = File(here)
        again, heard = reloading(here, file), list[Settings]()
        again.followers.append(heard.append)
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
        assert [here.services.settings] == heard
        assert () == (await again.reload()).changed
        assert 1 == len(heard)


async def test_a_bad_edit_is_told_whole_and_the_last_good_one_stays(tmp_path: Path) -> None:
    """People are told once of the same problems; then it is mended."""
    async with house(tmp_path) as here:
        file = File(here, "execute: {slots: 3}\n")
        again = reloading(here, file)
        file.write("execute: {slots: 0}\nlanguage: de\nspeed: 9\n")

        view, repeated = await again.reload(), await again.reload()

        lines = [(problem.line, problem.key) for problem in view.problems]
        assert [(3, "execute.slots"), (4, "language"), (5, "speed")] == lines
        assert ("en", "zh-TW") == view.problems[1].allowed
        assert 3 == here.services.settings.execute.slots
        assert 3 == len(view.warnings)
        assert view.since == repeated.since is not None
        (notice,) = await told(here)
        assert ("warning", "handoffd config check") == (notice.kind, notice.action)
        assert all(str(problem) in (notice.why or "") for problem in view.problems)

        file.write("execute: {slots: 5}\n")
        mended = await again.reload()
        assert ((), (), None) == (mended.problems, mended.warnings, mended.since)
        assert 5 == here.services.settings.execute.slots


@pytest.mark.parametrize("text", ["executors: {own: {extends: nobody}}\n", "executors:\n  own: 7\n"])
async def test_what_does_not_fit_together_is_not_in_force(tmp_path: Path, text: str) -> None:
    """An executor is only wrong beside the others; its line is told all the same."""
    async with house(tmp_path) as here:
        file = File(here)
        again = reloading(here, file)
        file.write(text)

        view = await again.reload()

        assert all(problem.file == str(file.path) and problem.line for problem in view.problems)
        assert view.problems
        assert "own" not in here.services.executors.names


async def test_an_edit_that_somebody_chokes_on_is_taken_back(tmp_path: Path) -> None:
    """A fault of ours is told like one of the file, and ends nothing: the last good settings stay."""
    async with house(tmp_path) as here:
        file, heard = File(here, "execute: {slots: 3}\n"), list[int]()
        again = reloading(here, file)

        def choke(settings: Settings) -> None:
            heard.append(settings.execute.slots)
            if settings.execute.slots == 9:
                raise OverflowError("too many")

        again.followers += [choke, lambda settings: heard.append(-settings.execute.slots)]
        file.write("execute: {slots: 9}\nexecutors: {own: {extends: claude}}\n")

        (problem,) = (await again.reload()).problems

        assert str(file.path) == problem.file
        assert "OverflowError" in problem.message
        assert (3, False) == (
            here.services.settings.execute.slots, "own" in here.services.executors.names
        )  # fmt: skip
        assert [9, 3, -3] == heard
        file.write("execute: {slots: 4}\n")
        assert () == (await again.reload()).problems
        assert [4, -4] == heard[-2:]


async def test_a_file_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    """Named or found: what it said stays in force until a restart says otherwise."""
    async with house(tmp_path) as here:
        file = File(here, "execute: {slots: 3}\n")
        named, found = reloading(here, file), Given(flags={}, environ={"HOME": str(tmp_path / "home")})
        file.path.unlink()

        for again in (named, Reloading(here.services, found, file.path)):
            (problem,) = (await again.reload()).problems
            assert str(file.path) == problem.file
        assert 3 == here.services.settings.execute.slots


async def test_a_file_may_appear(tmp_path: Path) -> None:
    """Where there was none, and where it goes before another one."""
    async with house(tmp_path) as here:
        home = tmp_path / "home"
        environ = {"HOME": str(home), "HANDOFFD_STATE_DIR": str(here.services.settings.state_dir)}
        given = Given(flags={}, environ=environ)
        again = Reloading(here.services, given)
        assert marks(given.files()) == ()
        (home / ".config/handoffd").mkdir(parents=True)
        (home / ".config/handoffd/handoffd.yaml").write_text("execute: {slots: 7}\n")

        view = await again.reload()

        assert (7, str(given.files()[0])) == (here.services.settings.execute.slots, view.file)


async def test_the_file_is_followed(tmp_path: Path) -> None:
    """However it changes: replaced, written in place, behind a link that is swapped."""
    async with house(tmp_path) as here:
        file = File(here)
        again, seen = reloading(here, file), list[SettingsView]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(again.watch, seen.append)
            await eventually(lambda: len(seen) == 1)  # what changed while the daemon started counts

            file.write("execute: {slots: 6}\n")
            await eventually(lambda: here.services.settings.execute.slots == 6)

            with file.path.open("a") as text:
                text.write("language: zh-TW\n")
            await eventually(lambda: here.services.settings.language == "zh-TW")

            target = file.path.rename(tmp_path / "one.yaml")
            other = tmp_path / "two.yaml"
            other.write_text(target.read_text().replace("6", "8"))
            os.symlink(other, tmp_path / "link")
            (tmp_path / "link").rename(file.path)
            await eventually(lambda: here.services.settings.execute.slots == 8)
            tasks.cancel_scope.cancel()


async def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    """`--config <(...)`: what is left in it are no settings, though nothing is what they may be."""
    async with house(tmp_path) as here:
        file = File(here, "execute: {slots: 3}\n")
        again = reloading(here, file)
        file.path.unlink()
        os.mkfifo(file.path)

        with anyio.fail_after(60):
            await again.watch(lambda view: pytest.fail(str(view)))
            (problem,) = (await again.reload()).problems

        assert "is a pipe" in problem.message
        assert 3 == here.services.settings.execute.slots


async def test_an_emptied_file_changes_nothing(tmp_path: Path) -> None:
    """That is what a full disk leaves of an edit; who means the defaults writes `{}`."""
    async with house(tmp_path) as here:
        file = File(here, "execute: {slots: 3}\n")
        again = reloading(here, file)
        file.path.write_text("\n")

        (problem,) = (await again.reload()).problems
        assert "is empty" in problem.message
        assert 3 == here.services.settings.execute.slots

        file.path.write_text("{}\n")
        assert () == (await again.reload()).problems
        assert ExecuteSettings().slots == here.services.settings.execute.slots != 3


async def test_a_file_that_was_empty_may_stay_so(tmp_path: Path) -> None:
    """What is in force already is no problem."""
    async with house(tmp_path) as here:
        file = File(here)
        file.path.write_text("")
        again = reloading(here, file)

        assert () == (await again.reload()).problems


async def test_a_file_that_cannot_be_looked_at_ends_nothing(tmp_path: Path) -> None:
    """What its path leads to answers with an error that is neither that it is there nor that it is not."""
    async with house(tmp_path) as here:
        file = File(here, "execute: {slots: 3}\n")
        again, seen = reloading(here, file), list[SettingsView]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(again.watch, seen.append)
            await eventually(lambda: len(seen) == 1)
            file.path.unlink()
            os.symlink("n" * 300, file.path)

            (problem,) = (await again.reload()).problems
            assert "cannot be read (File name too long)" in problem.message
            file.path.unlink()
            file.write("execute: {slots: 4}\n")
            await eventually(lambda: here.services.settings.execute.slots == 4)
            tasks.cancel_scope.cancel()


async def test_another_file_does_not_take_the_place_of_one_that_is_gone(tmp_path: Path) -> None:
    """The next one in line may be the machine's, in which the projects of this one are unknown."""
    async with house(tmp_path) as here:
        mine, machines = File(here, "execute: {slots: 3}\n"), here.base / "machine.yaml"
        machines.write_text(mine.path.read_text().replace("3", "8"))
        here.services.settings = mine.given.load().settings
        given = TwoPlaces(flags={"mine": mine.path, "machine": machines}, environ=mine.given.environ)
        again = Reloading(here.services, given, mine.path)
        mine.path.rename(here.base / "moved.yaml")

        (problem,) = (await again.reload()).problems
        assert "is gone" in problem.message
        assert 3 == here.services.settings.execute.slots


async def test_secrets_are_followed(tmp_path: Path) -> None:
    """A key is changed under a running daemon; one that is gone stays in force and is told of."""
    async with house(tmp_path) as here:
        key = here.base / "topic"
        key.write_text("one\n")
        file = File(here, "notify: {ntfy: {topic: {file: topic}}}\n")
        again, seen = reloading(here, file), list[SettingsView]()

        def topic() -> str | None:
            ntfy = here.services.settings.notify.ntfy
            return None if ntfy is None else ntfy.topic.get_secret_value()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(again.watch, seen.append)
            await eventually(lambda: len(seen) == 1)
            assert "one" == topic()

            key.write_text("the other\n")
            await eventually(lambda: topic() == "the other")

            key.unlink()
            await eventually(lambda: again.view.problems)
            assert "the other" == topic()

            key.write_text("third\n")
            await eventually(lambda: topic() == "third")
            assert () == again.view.problems
            tasks.cancel_scope.cancel()


async def test_settings_that_came_from_no_file_are_not_read_again(tmp_path: Path) -> None:
    """Nobody said how."""
    async with house(tmp_path) as here:
        again = Reloading(here.services, None)
        await again.watch(lambda _: None)

        assert SettingsView(file=None) == await again.reload()


def settings(**changes: Any) -> Settings:
    """Return settings."""
    return Settings.model_validate({"state_dir": "/s", "runtime_dir": "/r", **changes})


def test_what_only_a_restart_can_change_stays_as_it_is() -> None:
    """The rest counts at once."""
    wanted = settings(
        state_dir="/other", control={"tcp": {"port": 8321}}, watch={"sweep_s": 5, "backend": "watchfiles"},
        notify={"command_timeout_s": 3}, execute={"slots": 8}, log={"level": "debug"},
    )  # fmt: skip
    running = settings()

    live = live_part(wanted, running)

    assert (running.state_dir, running.control, 8, "debug") == (
        live.state_dir, live.control, live.execute.slots, live.log.level,
    )  # fmt: skip
    assert WatchSettings(sweep_s=5) == live.watch
    assert 3 == live.notify.command_timeout_s


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("state_dir", True), ("control.tcp.port", True), ("watch.backend", True),
        ("watch.sweep_s", False), ("execute.slots", False), ("projects", False), ("log.level", False),
    ],
)  # fmt: skip
def test_which_keys_need_a_restart(key: str, expected: bool) -> None:
    """Those that a daemon keeps to its end."""
    assert expected is needs_restart(key)


def test_what_can_be_used_is_all_of_it(tmp_path: Path) -> None:
    """Executors of an environment variable have no line, and are told of all the same."""
    environ = {"HOME": str(tmp_path), "HANDOFFD_EXECUTORS": '{"own": {"extends": "nobody"}}'}

    with pytest.raises(InvalidFile) as invalid:
        usable(load({}, environ))

    (problem,) = invalid.value.problems
    assert (None, "executors.own.extends") == (problem.line, problem.key)
