"""Keeps the files of a track before something else is written over them, and brings them back.

It happens before the decision is committed that calls for it, so that the next executor never begins before
what the last one has left is kept. A snapshot that cannot be made holds nothing up: `status` warns, and the
story goes on. Bringing files back is a person's order, and refused unless it can be done whole.

What is kept also shows what a step has changed. Where nothing can be kept, digests of the files show it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.decision import Decision, Refusal
from handoffd.engine.events import Event, Retried, RolledBack
from handoffd.engine.run import Wrote
from handoffd.engine.track import BroughtBack, StopReason, Track, TrackKey, Workspace
from handoffd.engine.wording import command_for, first_few, shortened
from handoffd.errors import Refused, StoreError
from handoffd.execute.base import EXIT
from handoffd.execute.checks import Stamps, stamps_below
from handoffd.execute.run import claimed
from handoffd.execute.sandbox.plan import GUARDED, NAMESPACES, STRICT
from handoffd.failpoints import reached
from handoffd.files.atomic import replace_text
from handoffd.git.branches import HEADS, StoryBranch
from handoffd.git.clones import Clone
from handoffd.git.command import TOO_SLOW
from handoffd.git.labels import (
    BEGUN,
    KEPT,
    STARTED,
    Label,
    Snapshot,
    is_kept,
    label_of,
    of_this_life,
    since_decision,
    since_step,
)
from handoffd.git.repository import (
    LEADS_AWAY,
    NO_REPOSITORY,
    Obeyed,
    disobeyed,
    end_of,
    files_at,
    obey_again,
    obeyed_in,
    own_folder_of_git,
    repository_at,
)
from handoffd.git.snapshots import RESTORE_LIMIT_S, Comparison, Measured, Snapshots
from handoffd.git.worktree import FIRST_LIMIT_S, LIMIT_S, Worktree, shadow_of, top_of_clone
from handoffd.inspection.own_files import RULES, SETTINGS
from handoffd.protocol.rules import Rule, RuleBook
from handoffd.track.reach import Reach
from handoffd.track.services import Files, Services

log = structlog.get_logger(__name__)

AT_ONCE_S = 2.0
"""How soon after a snapshot an attempt is begun without another: only a wait gives others the time."""
REST_S = 1800.0
"""How long no snapshot is made after one that took too long: each would hold the story up."""


class TrackSnapshots:
    """The snapshots of one track's stories."""

    def __init__(self, key: TrackKey, files: Files, services: Services) -> None:
        self._key = key
        self._files = files
        self._services = services
        # A look must not keep a snapshot from being made: they do not wait for each other.
        self._making, self._looking = Reach(key.project, services.asking), Reach(key.project, services.asking)
        self._unkept = False
        """Whether the last one was not made because no repository is there."""
        self._rests_until = 0.0
        """Until when (monotonic seconds) none is made, as the last ones took too long."""
        self._made_at = -AT_ONCE_S
        """When (monotonic seconds) the last one was made here."""
        self._comparing = asyncio.Lock()
        self._compared: tuple[tuple[Snapshot, ...], Comparison] | None = None
        """The last comparison, and of what: commits do not change, and a screen asks again and again."""
        self.trouble: str | None = None
        """Why the last one was not made, in words; a project without a repository has none to make."""
        self.seen: Worktree | None = None
        """What has looked at the files for the decision that is about to be committed."""
        self._measured: Worktree | None = None
        """The same, at the end of an attempt, until the next decision: checks may follow."""

    async def keep(self, before: Track, event: Event, decision: Decision) -> None:
        """Keep the files as they are if a decision that is about to be committed calls for that."""
        label = label_of(before, event, decision, self._services.clock.now())
        now = self._services.clock.monotonic()
        measured, self._measured, self.seen = self._measured, None, None
        if isinstance(event, Retried):  # a person may have put right what took long
            self._rests_until = 0.0
        if label is None:
            return
        if label.result in {BEGUN, STARTED}:
            before = decision.track  # where the attempt begins: a story may have got its place just now
            await self._note_obeyed(before)
            await self._note_others(before, anew=label.result == BEGUN)
            if self._unkept or not self._files.settings.snapshots:
                await self._stamp(before)
        if label.result == STARTED and now - self._made_at < AT_ONCE_S and not self._takes_in(before):
            return
        if not self._files.settings.snapshots or now < self._rests_until:
            with suppress(StoreError):
                await self._making.asked(partial(self._snapshots(before).miss, label))
            return
        reached("before_snapshot")
        self.trouble = await self._kept(before, label, measured)
        if self._unkept and label.result in {BEGUN, STARTED}:
            await self._stamp(before)
        self._made_at = self._services.clock.monotonic()
        reached("after_snapshot")

    def _takes_in(self, track: Track) -> bool:
        """Return whether the daemon may merge what has landed before a step: that is not an agent's work."""
        rule = self._files.rules.steps.get(track.state.step) if track.state is not None else None
        return rule is not None and rule.only_papers and track.works_in(self._key.project).kind == "clone"

    async def _kept(self, track: Track, label: Label, seen: Worktree | None) -> str | None:
        """Make a snapshot; return what is wrong with it, if something is."""
        snapshots = self._snapshots(track, seen)
        what = f"the files that {label.step} left" if label.numbered else "the present files"
        left_in = self._services.run_dir(label.run) / _LEFT if label.run is not None else None

        def work() -> Snapshot:
            with suppress(OSError):
                return snapshots.take(label, left_in.read_text() if left_in is not None else None)
            return snapshots.take(label)

        try:
            made = await self._making.asked(work, FIRST_LIMIT_S + 5)
        except StoreError as error:
            self._unkept = error.code == NO_REPOSITORY
            if self._unkept:
                return None
            log.warning("no snapshot", project=self._key.project, step=label.step, error=error.message)
            if error.code != TOO_SLOW:
                return f"{what} were not kept: {error.message}"
            self._rests_until = self._services.clock.monotonic() + REST_S
            return f"{what} were not kept: {error.message}; none is made for {REST_S / 60:.0f} min"
        self._unkept, self.seen = False, snapshots.worktree
        log.debug("snapshot", project=self._key.project, ref=made.ref, commit=made.commit)
        if (told := await self._by_checks(track, label, snapshots, made)) is not None:
            return told
        return f"{made.name} is without {first_few(snapshots.left_out)}" if snapshots.left_out else None

    async def _by_checks(self, track: Track, label: Label, kept: Snapshots, made: Snapshot) -> str | None:
        """Put back, or name, what a step's checks have changed in its clone that the step may not write.

        No agent has written it, but the program that the agent wrote; it would be committed.
        """
        rule, changed = self._files.rules.steps.get(label.step), made.left not in {None, kept.worktree.seen}
        if rule is None or not changed or not label.accepted or track.works_in("").kind != "clone":
            return None
        undo = rule.enforcement(shared=False) != "warn"
        look = partial(kept.by_checks, made, partial(rule.strays, story=label.story), undo=undo)
        what = f"what the checks of {label.step} wrote, and it may not,"
        try:
            paths = await self._making.asked(look, RESTORE_LIMIT_S + 5)
        except StoreError as error:
            return f"{what} is not known, or was not put back: {error.message}"
        self.seen = None if undo else self.seen
        return f"{what} {'was put back' if undo else 'is committed'}: {first_few(paths)}" if paths else None

    # --- what a step has changed -----------------------------------------------------------------
    async def wrote(self, track: Track, rules: RuleBook, run_dir: Path) -> Wrote | None:
        """Return what the step in flight has changed by the end of its attempt, for which `run_dir` is.

        What it may not write is put back first, where its rule asks for that. None where no daemon drives it.
        """
        dispatch, ledger = track.ledger.dispatch, track.ledger
        rule = rules.steps.get(dispatch.step) if dispatch is not None else None
        if rule is None or dispatch is None or not is_kept(ledger) or dispatch.stop is StopReason.ABORT:
            return None
        trusted, looked = await self._trusted(), list[Worktree]()

        def work() -> Wrote:
            undone = self._obey_again(track, run_dir)  # first: lists of ignored files are among it
            own, left = self._own_again(track, run_dir, trusted)
            try:
                found = self._found(track, rule, run_dir, looked)
            except StoreError as error:
                found = self._unmeasured(dispatch.id, error)
            return _with_obeyed(replace(found, own=left), (*undone, *own), run_dir)

        await self._note_others(track, anew=False)  # one that began under an earlier release
        try:
            wrote = await self._making.asked(work, FIRST_LIMIT_S + RESTORE_LIMIT_S + 5)
        except StoreError as error:
            return self._unmeasured(dispatch.id, error)
        self._measured = looked[0] if looked else None  # not in the thread, which may be given up
        return wrote

    def _unmeasured(self, run: str, error: StoreError) -> Wrote:
        log.warning("scope not measured", project=self._key.project, run=run, error=error.message)
        return Wrote(unknown=error.message)

    def _found(self, track: Track, rule: Rule, run_dir: Path, looked: list[Worktree]) -> Wrote:
        dispatch, shared = track.ledger.dispatch, track.works_in(self._key.project).kind == "root"
        assert dispatch is not None
        if (begun := _undoing(run_dir)) is not None:
            return begun.wrote if begun.done else self._undone(track, begun, run_dir)
        found, reverts = None, rule.enforcement(shared=shared) == "revert"
        snapshots = self._snapshots(track)
        try:
            found = snapshots.measured(dispatch.story, dispatch.step, durable=reverts)
        except StoreError as error:
            if error.code != NO_REPOSITORY:
                raise
        if found is None:
            return self._by_stamps(track, rule, shared=shared)
        replace_text(run_dir / _LEFT, found.tree, durable=False)
        names = _paths(found)
        strays = rule.strays(tuple(names), dispatch.story)
        if strays and not shared:
            merged = self._merged(track)
            strays = tuple(name for name in strays if names[name] not in merged)
        came, went = found.lines
        wrote = _wrote(tuple(names), strays, shared=shared)
        wrote = replace(wrote, added_lines=came, removed_lines=went)
        if not reverts or not strays:
            looked.append(snapshots.worktree)
            return wrote
        undoing = Undoing(found=found, strays=strays, wrote=wrote)
        _note(run_dir, undoing)
        return self._undone(track, undoing, run_dir)

    def _merged(self, track: Track) -> frozenset[bytes]:
        """Return the paths that come from the branch that the story will land on."""
        where, services = track.works_in(self._key.project), self._services
        if where.branch is None:
            return frozenset()
        state_dir, environment = services.settings.state_dir, services.environment
        return StoryBranch(self._key.project, where, state_dir, environment).taken_in()

    def _undone(self, track: Track, undoing: Undoing, run_dir: Path) -> Wrote:
        """Put back what the step may not write, and return what it has changed then."""
        dispatch, found, paths = track.ledger.dispatch, undoing.found, _paths(undoing.found)
        assert dispatch is not None
        story, step, strays, at = dispatch.story, dispatch.step, undoing.strays, self._services.clock.now()
        wanted = {paths[name] for name in strays} - {*map(os.fsencode, found.beside)}
        label = Label(story=story, step=step, result=KEPT, run=dispatch.id, at=at)
        try:
            back = self._snapshots(track).put_back(label, found, wanted, _left_at(run_dir))
        except StoreError as error:
            return replace(undoing.wrote, fault=error.message)
        replace_text(run_dir / _LEFT, back.tree)
        why = dict.fromkeys(map(os.fsencode, found.beside), "no snapshot has it") | dict(back.stay)
        stay = [f"{name} ({why[paths[name]]})" for name in strays if paths[name] in why]
        undone = {name: None for name in strays if paths[name] not in why}
        left = tuple(name for name in paths if name not in undone)
        wrote = replace(
            _wrote(left, [one for one in strays if one not in undone], shared=undoing.wrote.shared),
            reverted=_few(tuple(undone)),
            undone=len(undone), kept=back.ref if undone else None, stay=first_few(stay) or None,
        )  # fmt: skip
        _note(run_dir, replace(undoing, wrote=wrote, done=True))
        return wrote

    async def _note_others(self, track: Track, *, anew: bool) -> None:
        """Note which projects are below this one, whose files are not the story's; `anew` where it begins."""
        if (where := track.works_in(self._key.project)).kind == "clone":
            return
        services = self._services
        worktree = Worktree(where.folder, services.settings.state_dir, services.environment)
        with suppress(StoreError):
            roots = [one.root for one in await services.journal.projects()]
            await self._making.asked(partial(worktree.note_others, roots, anew=anew), LIMIT_S)

    # --- what git obeys ---------------------------------------------------------------------------
    async def _note_obeyed(self, track: Track) -> None:
        """Note what hooks, settings and lists of a repository are where an attempt begins."""
        dispatch = track.ledger.dispatch
        if dispatch is not None:
            where, run_dir = track.works_in(self._key.project), self._services.run_dir(dispatch.id)
            with suppress(StoreError):
                await self._making.asked(partial(_noted, where, run_dir), LIMIT_S)

    def _obey_again(self, track: Track, run_dir: Path) -> tuple[str, ...]:
        """Undo what an attempt has changed of these; return the names, also what a crash has cut off."""
        with suppress(OSError, msgspec.DecodeError, StoreError):
            was = msgspec.json.decode((run_dir / _GIT).read_bytes(), type=dict[str, Obeyed])
            where = track.works_in(self._key.project)
            _lead_home(where.folder, run_dir)
            if where.kind == "clone" and where.branch is not None:
                self._stand_again(where, run_dir)
            repository = repository_at(where.folder)
            now, kept_from = obeyed_in(repository), _out_of_reach(run_dir)
            for path in disobeyed(was, now):
                if path.partition("/")[0] in kept_from or _is_later(repository.folder, path, run_dir):
                    continue
                _undo(run_dir, repository.folder, path, was.get(path), now.get(path))
        return tuple(f".git/{name}" for name in _undone_in(run_dir, own=False))

    def _stand_again(self, where: Workspace, run_dir: Path) -> None:
        """Have the clone's repository be one, with a HEAD; keep with the run what an attempt left of that."""
        state_dir, environment = self._services.settings.state_dir, self._services.environment
        with suppress(StoreError):  # its folder may be gone: measuring finds that
            said = StoryBranch(self._key.project, where, state_dir, environment).stand_again()
            if said is not None:
                (run_dir / _UNDONE).mkdir(mode=0o700, exist_ok=True)
                replace_text(run_dir / _UNDONE / "HEAD", said)

    # --- handoffd's own files -------------------------------------------------------------------
    async def _trusted(self) -> Collection[str]:
        """Return the texts of the project's own files that a person has trusted last."""
        with suppress(StoreError):
            return {*(await self._services.journal.trusted(self._key.project))[self._key.project].values()}
        return ()

    def _own_again(
        self, track: Track, run_dir: Path, trusted: Collection[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Undo what an attempt has changed of handoffd's own files in its clone; return the names.

        In the project's own folder people edit them while agents work, and nothing tells these edits from an
        agent's: there they stay, and are the second of what is returned, unless a person has trusted them.
        """
        was, where = _owned(run_dir), track.works_in(self._key.project)
        if was is None:
            return (), ()
        now = _own_in(where)
        changed = [path for path in disobeyed(was, now) if not _is_later(where.folder, path, run_dir)]
        if where.kind != "clone":
            texts = {path: now[path].content.decode("utf-8", "replace") for path in changed if path in now}
            return (), tuple(path for path in changed if texts.get(path) not in trusted)
        with suppress(OSError):
            top = top_of_clone(where.folder, self._services.settings.state_dir) or where.folder
            merged = self._merged(track) if changed else frozenset()
            for path in changed:
                if os.fsencode(os.path.relpath(os.path.join(where.folder, path), top)) not in merged:
                    _undo(run_dir, where.folder, path, was.get(path), now.get(path))
        return _undone_in(run_dir, own=True), ()

    # --- without a repository --------------------------------------------------------------------
    async def _stamp(self, track: Track) -> None:
        """Note what the files are where a step begins, unless it is just another attempt of it."""
        try:
            await self._making.asked(partial(self._stamped, track), LIMIT_S)
        except StoreError as error:
            log.warning("files not noted", project=self._key.project, error=error.message)

    def _stamped(self, track: Track) -> None:
        (place, known), entry = self._stamps(track), _entry(track)
        again = known is not None and known.entry == entry
        if again and (known is None or known.left is None):
            return
        try:
            folder = Path(track.works_in(self._key.project).folder)
            now = stamps_below(folder, (known.left or known.files) if known is not None else {})
            stamps = known.without(now) if again and known is not None else Stamps(entry=entry, files=now)
        except StoreError as error:
            stamps = Stamps(entry=entry, problem=error.message)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_text(place, msgspec.json.encode(stamps), durable=False)

    def _stamps(self, track: Track) -> tuple[Path, Stamps | None]:
        folder = track.works_in(self._key.project).folder
        place = shadow_of(folder, self._services.settings.state_dir) / "stamps.json"
        with suppress(OSError, msgspec.DecodeError):
            return place, msgspec.json.decode(place.read_bytes(), type=Stamps)
        return place, None

    def _by_stamps(self, track: Track, rule: Rule, *, shared: bool) -> Wrote:
        """Return what a step has changed, by digests; nothing can be put back by these."""
        assert track.state is not None
        place, before = self._stamps(track)
        if before is None or before.entry != _entry(track) or before.problem is not None:
            why = before.problem if before is not None else None
            return Wrote(unknown=why or "its files were not kept as they were before it")
        now = stamps_below(Path(track.works_in(self._key.project).folder), before.files)
        replace_text(place, msgspec.json.encode(replace(before, left=now)), durable=False)
        changed = before.changed(now)
        strays = rule.strays(changed, track.state.story)
        wrote = _wrote(changed, strays, shared=shared)
        reverts = rule.enforce_writes == "revert" and wrote.strays
        return replace(wrote, fault="there is no snapshot of them") if reverts else wrote

    # --- a person's order ------------------------------------------------------------------------
    async def bring_back(self, before: Track, event: RolledBack, decision: Decision) -> RolledBack:
        """Bring the files back as they were before a step, if a roll back asks for it and is accepted.

        Return the event with the result. Raises HandoffdError when that cannot be done whole.
        """
        if not event.files or isinstance(decision.result, Refusal) or before.state is None:
            return event
        state, at = before.state, self._services.clock.now()
        kept = Label(story=state.story, step=state.step, result=KEPT, by=event.by, at=at)
        work = partial(self._brought, event, kept, state.task_type, self._snapshots(before))
        return replace(event, brought=await self._making.asked(work, RESTORE_LIMIT_S + 5))

    def _brought(self, event: RolledBack, kept: Label, task: str, snapshots: Snapshots) -> BroughtBack:
        path = self._files.rules.path(task)
        earlier = path[: path.index(event.step)] if event.step in path else ()
        since = since_step(of_this_life(snapshots.all(kept.story)), event.step, earlier)
        if not since:
            why = f"the files from before {event.step} were not kept, or not all since then"
            hint = command_for(self._key.project, "snapshots")
            raise Refused(why, code="NO_SNAPSHOT", hint=hint)
        present, paths = snapshots.restore(since, kept, over=event.over)
        return BroughtBack(snapshot=since[0].ref, kept=present.ref, files=len(paths))

    async def all(self, track: Track) -> tuple[Snapshot, ...]:
        """Return the snapshots of the story in flight, by age. Raises StoreError where there are none."""
        story, snapshots = track.state.story if track.state is not None else None, self._snapshots(track)

        return await self._looking.asked(
            lambda: snapshots.counted(of_this_life(snapshots.all(story))), LIMIT_S + 5
        )

    async def compared(self, track: Track, *, since_decided: bool) -> Comparison | None:
        """Return what the story has changed so far; None where there is no snapshot to compare with.

        `since_decided`: only since a person decided the step that the track is at; None where none has.
        Raises StoreError where nothing can be kept.
        """
        state, snapshots = track.state, self._snapshots(track)
        folder = snapshots.worktree.folder
        if state is None:
            return None

        def found() -> Comparison | None:
            life = of_this_life(snapshots.all(state.story))
            if since_decided:
                life = since_decision(life, state.step)
            elif life and life[0].label.result != BEGUN:
                life = ()
            if not any(one.commit is not None for one in life):
                repository_at(folder)  # without one, that is why
                return None
            if self._compared is None or self._compared[0] != life:
                self._compared = life, snapshots.compared(life, self._news(track))
            return self._compared[1]

        async with self._comparing:
            return await self._looking.asked(found, LIMIT_S + 5)

    def _news(self, track: Track) -> str:
        """Return where the branch ends that a story in a clone began at; empty if it began at none."""
        where = track.works_in(self._key.project)
        begun = f"{HEADS}{where.onto}" if where.kind == "clone" and where.onto is not None else None
        return "" if begun is None else end_of(repository_at(self._key.project), begun)

    def _snapshots(self, track: Track, seen: Worktree | None = None) -> Snapshots:
        """Return where the story's are: the project has them once its clone is gone."""
        folder, services = track.works_in(self._key.project).folder, self._services
        root = folder if os.path.isdir(folder) else self._key.project
        return Snapshots(root, services.settings.state_dir, services.environment, seen)


def keep_snapshots(clone: Clone, services: Services) -> None:
    """Keep the snapshots of a clone in the project's repository before it is removed. Raises StoreError."""
    state_dir, environment = services.settings.state_dir, services.environment
    made = Snapshots(clone.workspace.folder, state_dir, environment).all(clone.story)
    if commits := [one.commit for one in made if one.commit is not None]:
        StoryBranch(clone.root, clone.workspace, state_dir, environment).bring_snapshots(commits)
        Snapshots(clone.root, state_dir, environment).adopt(made)


# --- what a step has changed, as it is kept -----------------------------------------------------------
MOST_NAMED = 200
"""Files that are named of one step's."""
_LONGEST = 300
_UNDOING, _GIT, _UNDONE, _OWNED, _LEFT = "wrote.json", "git.json", "undone", "own.json", "left"
_OWN_OF_PEOPLE = (SETTINGS, RULES, ".ai/.gitignore", ".ai/prompts")
_OWN = (*_OWN_OF_PEOPLE, ".ai/STATE.json", ".ai/states")
"""In a clone also what the daemon writes in the project's own folder, and shows again there at once."""


def _noted(where: Workspace, run_dir: Path) -> None:
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(run_dir / _OWNED, msgspec.json.encode(_own_in(where)), durable=False)
    obeyed = obeyed_in(repository_at(where.folder))
    replace_text(run_dir / _GIT, msgspec.json.encode(obeyed), durable=False)


def _own_in(where: Workspace) -> dict[str, Obeyed]:
    """Return handoffd's own files in a workspace, as far as no step and no daemon writes them there."""
    return files_at(where.folder, _OWN if where.kind == "clone" else _OWN_OF_PEOPLE)


def _owned(run_dir: Path) -> dict[str, Obeyed] | None:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((run_dir / _OWNED).read_bytes(), type=dict[str, Obeyed])
    return None


def _is_later(folder: str, path: str, run_dir: Path) -> bool:
    """Return whether a file was changed by others, after the attempt."""
    place = os.path.join(folder, path)
    return os.path.lexists(place) and os.lstat(place).st_ctime_ns > _left_at(run_dir)


def _undo(run_dir: Path, folder: str, path: str, was: Obeyed | None, now: Obeyed | None) -> None:
    """Have a file as it was, and keep with the run what the attempt has left. Raises OSError."""
    (run_dir / _UNDONE).mkdir(mode=0o700, exist_ok=True)
    with suppress(StoreError):  # its name may be too long
        content = now.content if now is not None else b""
        replace_text(run_dir / _UNDONE / quote(path, safe=""), content)
    obey_again(folder, path, was)


def _lead_home(root: str, run_dir: Path) -> None:
    """Take away what leads git from its own folder to another one: nothing else could be put back there."""
    folder = own_folder_of_git(root)
    if folder is not None and os.path.lexists(os.path.join(folder, LEADS_AWAY)):
        left = files_at(folder, (LEADS_AWAY,)).get(LEADS_AWAY)
        _undo(run_dir, folder, LEADS_AWAY, None, left)


def _undone_in(run_dir: Path, *, own: bool) -> tuple[str, ...]:
    """Return what was undone of an attempt, also what a crash has cut off: of `own` files, or of git's."""
    with suppress(OSError):
        names = map(unquote, os.listdir(run_dir / _UNDONE))
        return tuple(sorted(name for name in names if name.startswith(".ai/") is own))
    return ()


def _out_of_reach(run_dir: Path) -> Sequence[str]:
    """Return what the sandbox of a run kept as it was: what has changed of it, a person has changed."""
    run = claimed(run_dir)
    start = run.start_record() if run is not None else None
    return GUARDED if start is not None and start.sandbox in {STRICT, NAMESPACES} else ()


def _with_obeyed(wrote: Wrote, undone: tuple[str, ...], run_dir: Path) -> Wrote:
    """Return what a step has changed, with the files of git's own that were put back."""
    if not undone:
        return wrote
    kept = " and ".join(filter(None, (wrote.kept, str(run_dir / _UNDONE))))
    return replace(wrote, reverted=(*undone, *wrote.reverted), undone=len(undone) + wrote.undone, kept=kept)


class Undoing(Struct, frozen=True, kw_only=True):
    """What was found before files were put back, for a daemon that takes over; `done` when they are."""

    found: Measured
    strays: tuple[str, ...]
    wrote: Wrote
    done: bool = False


def _undoing(run_dir: Path) -> Undoing | None:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((run_dir / _UNDOING).read_bytes(), type=Undoing)
    return None


def _note(run_dir: Path, undoing: Undoing) -> None:
    replace_text(run_dir / _UNDOING, msgspec.json.encode(undoing))


def _left_at(run_dir: Path) -> int:
    """Return when the last process of a run had ended, by the clock of files (ns); if that is lost, never."""
    with suppress(OSError):
        return (run_dir / EXIT).stat().st_mtime_ns
    return sys.maxsize


def _entry(track: Track) -> str:
    """Return what tells how often a story has come to its step, whatever the attempt."""
    state, ledger = track.state, track.ledger
    assert state is not None
    judged = ledger.facts.attempts.get(state.step, 0) - state.attempt
    return f"{state.story} {state.step} {ledger.visits.get(state.step, 0)} {judged}"


def _paths(found: Measured) -> dict[str, bytes]:
    """Return the paths from the top of the repository, by what they are called in the project."""
    within = os.fsencode(found.within)
    every = (*found.paths, *map(os.fsencode, found.beside))
    return {path.removeprefix(within).decode("utf-8", "backslashreplace"): path for path in every}


def _wrote(names: Sequence[str], strays: Sequence[str], *, shared: bool) -> Wrote:
    return Wrote(files=_few(names), count=len(names), outside=_few(strays), strays=len(strays), shared=shared)


def _few(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(shortened(name, _LONGEST) for name in names[:MOST_NAMED])
