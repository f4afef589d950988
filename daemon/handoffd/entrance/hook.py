"""`handoffd hook`: Claude Code's hook, from its standard input to its exit code.

It is run at the end of every turn of every session, so the usual ends are reached with the standard
library's quick modules: no project, nothing to hand over, a daemon that answers. Everything else is
imported when it is needed. Nothing that goes wrong here stops an agent: that is exit code 1, and a line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

from handoffd.hooks.event import MAX_BYTES, SESSION_END, TOLD, HookEvent, NotAnEventError, Reply, parse_event
from handoffd.hooks.project import Standing, find_root, look
from handoffd.settings.paths import SOCKET, folders, home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoffd.journal.latest import Latest

RUN_VARIABLE = "HANDOFFD_RUN"
"""In the environment of every executor of ours: the daemon hears its hand-off when it ends."""

LIMIT_S = 14 * 60
"""How long checks are waited for; a little less than Claude Code waits for the hook."""
ENDING_S = 50
"""The same at the end of a session."""
_HELD_S = 45
"""A daemon holds a caller for 40 s at most while checks run; with less time left it is not asked again."""
_PAUSE_S = 0.1
YIELDS_BY = 10
"""Niceness added for background work: Claude Code still waits for the hook itself to exit."""

_FOR_WHOM = "it is for Claude Code to call; next: handoffd hooks install"


def answer_hook(config: str | None, environ: Mapping[str, str]) -> int:
    """Read an event on standard input, answer it, and return the exit code. Raises nothing.

    `config` is the settings file, if it was named.
    """
    try:
        if sys.stdin is None:
            return _apologise(f"its standard input is closed; {_FOR_WHOM}")
        if sys.stdin.isatty():
            return _apologise(_FOR_WHOM)
        file = os.path.abspath(config) if config else None
        reply = reply_to(sys.stdin.buffer.read(MAX_BYTES + 1), file, environ)
        _say(reply)
    except NotAnEventError as error:
        return _apologise(str(error))
    except Exception as error:
        from handoffd.api.unix_socket import BadAnswerError

        expected = isinstance(error, BadAnswerError)
        return _apologise(str(error) if expected else f"{type(error).__name__}: {error}")
    return reply.code


def reply_to(raw: bytes, config: str | None, environ: Mapping[str, str]) -> Reply:
    """Return the reply to the event in `raw`. Raises NotAnEventError, OSError, HandoffdError."""
    if environ.get(RUN_VARIABLE):
        return Reply()
    event = parse_event(raw)
    if event is None:
        return Reply()
    root = find_root(event.cwd, home(environ))
    standing = None if root is None else look(root)
    if standing is not None and standing.status == "pass":
        _forget(config, environ, event, standing)
    if standing is None or standing.status not in {"running", "failing"}:
        return Reply()
    from handoffd.hooks.answering import Answering
    from handoffd.hooks.tally import Tally

    house = _House(config, environ, ENDING_S if event.name == SESSION_END else LIMIT_S)
    return Answering(house.apply, house.theirs, Tally(house.folder, standing.root)).answer(event, standing)


def _forget(config: str | None, environ: Mapping[str, str], event: HookEvent, standing: Standing) -> None:
    """Clear the count of a session whose step passed before a hook asked for that. Raises OSError."""
    from handoffd.hooks.tally import Tally

    found = folders(config, environ)
    if found is not None:
        Tally(os.path.join(found[0], "hooks"), standing.root).clear(event.session)


class _House:
    """The daemon's directories, and what there can be asked, for `limit_s` seconds in all."""

    def __init__(self, config: str | None, environ: Mapping[str, str], limit_s: float) -> None:
        self._limit_s = limit_s
        self._config = config
        self._environ = environ
        self._state_dir, self._runtime_dir = folders(config, environ) or self._by_settings()
        self.folder = os.path.join(self._state_dir, "hooks")

    def _by_settings(self) -> tuple[str, str]:
        from handoffd.entrance.place import Place

        settings = Place(config=self._config, environ=self._environ).settings()
        return str(settings.state_dir), str(settings.runtime_dir)

    def theirs(self, root: str) -> bool:
        """Return whether others make the latest attempt in a project that is looked after."""
        found = self._latest(root)
        return found is not None and found.known and found.theirs

    def _latest(self, root: str) -> Latest | None:
        from handoffd.journal.latest import latest

        return latest(os.path.join(self._state_dir, "journal.db"), root)

    def apply(self, standing: Standing) -> dict[str, object] | None:
        """Apply the project's hand-off: through the daemon, else alone; None when that is done later."""
        path = os.path.join(self._runtime_dir, SOCKET)
        answer = self._ask(path, standing) if os.path.lexists(path) else None
        return answer if answer is not None else self._without_daemon(standing)

    def _ask(self, path: str, standing: Standing) -> dict[str, object] | None:
        """Ask the daemon until its checks have ended; it lets a caller go before they have."""
        from handoffd.api.unix_socket import ask
        from handoffd.hooks.project import concluded

        body: dict[str, object] = {"project": standing.root, "by": "a hook", **standing.meant}
        give_up_at = time.monotonic() + self._limit_s
        answer = ask(path, "apply", body, self._limit_s)
        while answer is not None and answer.get("checking"):
            time.sleep(_PAUSE_S)
            left = give_up_at - time.monotonic()
            if left < _HELD_S:
                break
            answer = concluded(ask(path, "apply", body, left))
        return answer

    def _without_daemon(self, standing: Standing) -> dict[str, object] | None:
        from handoffd.hooks.project import may_be_checked
        from handoffd.hooks.tally import remembered

        found = self._latest(standing.root)
        if found is None or not found.known:
            return {"type": "error", "code": "NOT_FOUND"}
        before = remembered(self.folder, standing)
        if before is not None:
            return before
        alone = partial(self._alone, standing)
        if may_be_checked(standing.root, standing.state.get("step")):
            return alone()
        later(alone)
        return None

    def _alone(self, before: Standing) -> dict[str, object] | None:
        """Apply a hand-off with the daemon's own parts, unless another hook has done it meanwhile."""
        from handoffd.hooks.tally import remember, remembered, turn

        with turn(self.folder, before.root):
            now = look(before.root)
            if now is None or now.status != before.status or remembered(self.folder, now) is not None:
                return None
            result = self._given(before)
            if result.get("type") != "error" or result.get("code") == "MALFORMED_HANDOFF":
                remember(self.folder, now, result)  # anything else may be over the next time
            return result

    def _given(self, standing: Standing) -> dict[str, object]:
        from handoffd.entrance.place import Place
        from handoffd.entrance.requests import give
        from handoffd.errors import HandoffdError

        try:
            place = Place(config=self._config, environ=self._environ)
            return give(place, "apply", standing.root, standing.meant).json
        except HandoffdError as error:
            return {"type": "error", "code": error.code, "message": error.message, "hint": error.hint}


def _say(reply: Reply) -> None:
    if reply.text:
        sys.stderr.write(f"{reply.text}\n")
        sys.stderr.flush()
    if reply.note:
        sys.stdout.write(json.dumps({"systemMessage": reply.note}) + "\n")
        sys.stdout.flush()


def _apologise(what: str) -> int:
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in what).split())
    sys.stderr.write(f"handoffd: the hook did nothing: {line[:500]}\n")
    return TOLD


def later(work: Callable[[], object]) -> None:
    """Have `work` done by a process of its own, and return at once. Raises OSError.

    It belongs to no session and holds none of our streams: Claude Code waits for their end.
    """
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _let_go()
            os.nice(YIELDS_BY)
            work()
    except BaseException:
        os._exit(1)
    os._exit(0)


def _let_go() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.chdir("/")
