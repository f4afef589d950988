"""The entry point: answers hooks and `status` before it imports anything else.

Claude Code waits for a hook at the end of every turn, people and scripts ask for the status all day, and
importing click alone takes as long as all the rest. So each way imports what it needs, and only quick modules
of the standard library.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from handoffd.api.unix_socket import NoAnswerError


def main() -> None:
    """Run the command line and exit."""
    words = sys.argv[1:]
    config = os.environ.get("HANDOFFD_CONFIG")
    if words[:1] == ["--config"] and len(words) > 2:
        config, words = words[1], words[2:]
    if words == ["hook"]:
        from handoffd.entrance.hook import answer_hook

        sys.exit(answer_hook(config or None, os.environ))
    if words[:1] == ["status"]:
        from handoffd.api.unix_socket import NoAnswerError

        try:
            text = glance(words[1:], config or None, os.environ)
        except NoAnswerError as error:
            sys.exit(tell(error, as_json="--json" in words))
        if text is not None:
            sys.exit(show(text))
    # What a command imports lives as long as it does: looking for garbage among that takes 30 ms.
    if words[:1] == ["run"]:
        gc.disable()  # the daemon enables it once it has started
    else:
        gc.set_threshold(50_000)
    from handoffd.cli.main import main as whole

    whole()


# --- without click -------------------------------------------------------------------------------------
# `handoffd status` while a daemon runs is the most frequent call, and most of the time of a short command
# goes into imports. So this path uses only quick modules of the standard library. For anything else (other
# options, no daemon, a refusal, settings to read) the whole command line prints the same text, more slowly.
LIMIT_S = 60.0
MAX_BYTES = 64 * 1024 * 1024
_JSON, _EVERY = "--json", "--all"
_UNQUOTED = frozenset(b"/-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def glance(
    words: Sequence[str], config: str | None, environ: Mapping[str, str], limit_s: float = LIMIT_S
) -> str | None:
    """Return the output of `handoffd status WORDS`, with colours; None if the whole command line must answer.

    `config` is the settings file, if the user named one. Raises NoAnswerError if the daemon does not answer.
    """
    from handoffd.api.unix_socket import NoAnswerError
    from handoffd.entrance.place import called
    from handoffd.settings.paths import SOCKET, folders

    projects = [word for word in words if word not in {_JSON, _EVERY}]
    if len(projects) > 1 or any(word.startswith("-") for word in projects):
        return None
    found = folders(config, environ)
    if found is None:
        return None
    project = called(projects[0]) if projects else None
    try:
        answer = _asked(os.path.join(found[1], SOCKET), project, limit_s)
    except NoAnswerError as error:
        raise error if error.pid else _of_lock(found[0]) from None
    if answer is None:
        return None
    if _JSON in words:
        return _as_json(answer)
    from handoffd.cli.status_report import told

    return "\n".join(told(answer, whole=project is not None, every=_EVERY in words))


def show(text: str) -> int:
    """Print what `glance` returned; return the exit code."""
    from handoffd.cli.wording import unstyled, wants_colour

    coloured = sys.stdout.isatty() and wants_colour(os.environ)
    try:
        sys.stdout.write((text if coloured else unstyled(text)) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def tell(error: NoAnswerError, *, as_json: bool) -> int:
    """Report that the daemon does not answer, as the whole command line does; return the exit code."""
    from handoffd.errors import NoAnswer

    if as_json:
        import json

        told = {"type": "error", "code": NoAnswer.default_code, "message": error.message, "hint": error.hint}
        sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"handoffd: {error.message}\n  next: {error.hint}\n")
    return NoAnswer.exit_code


def _of_lock(state_dir: str) -> NoAnswerError:
    """Return the error for a daemon that accepts no connections; its lock file has its pid."""
    from pathlib import Path

    from handoffd.api.unix_socket import NoAnswerError, Silent
    from handoffd.files.locks import daemon_lock_path, holder_of

    holder = holder_of(daemon_lock_path(Path(state_dir)))
    return NoAnswerError(Silent(holder.pid if holder is not None else 0))


def _asked(path: str, project: str | None, limit_s: float) -> dict[str, object] | None:
    from handoffd.api.unix_socket import BadAnswerError, NoAnswerError, read

    target = "/v1/status"
    if project is not None:
        target += f"?project={_quoted(project)}"
    try:
        return read(path, target, limit_s, MAX_BYTES)
    except NoAnswerError:
        raise  # asking again would not help
    except BadAnswerError:
        return None


def _quoted(text: str) -> str:
    """Return `text` as a value of a query, like `urllib.parse.quote`, which is slow to import."""
    return "".join(chr(byte) if byte in _UNQUOTED else f"%{byte:02X}" for byte in os.fsencode(text))


def _as_json(answer: dict[str, object]) -> str:
    import json

    return json.dumps(answer, indent=2, ensure_ascii=False)
