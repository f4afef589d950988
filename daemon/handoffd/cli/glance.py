"""`handoffd status` while a daemon runs: the question asked most often, answered before click is imported.

Most of what a short command takes is imports, so this way has the standard library's quick modules alone.
Whatever is not plain (other options, no daemon, a refusal, settings to be read) is for the whole command
line, which says the same in more time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from handoffd.api.unix_socket import BadAnswerError, NoAnswerError, Silent, read
from handoffd.entrance.place import called
from handoffd.settings.paths import SOCKET, folders

LIMIT_S = 60.0
MAX_BYTES = 64 * 1024 * 1024
_JSON = "--json"
_UNQUOTED = frozenset(b"/-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def glance(
    words: Sequence[str], config: str | None, environ: Mapping[str, str], limit_s: float = LIMIT_S
) -> str | None:
    """Return what `handoffd status WORDS` prints, with colours; None where the whole command line has to.

    `config` is the settings file, if it was named. Raises NoAnswerError for a daemon that does not answer.
    """
    projects = [word for word in words if word != _JSON]
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
    return _as_json(answer) if _JSON in words else _as_text(answer, whole=project is not None)


def show(text: str) -> int:
    """Print what `glance` returned; return the exit code."""
    from handoffd.cli.wording import unstyled

    try:
        sys.stdout.write((text if sys.stdout.isatty() else unstyled(text)) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def tell(error: NoAnswerError, *, as_json: bool) -> int:
    """Say that a daemon does not answer, as the whole command line says it; return the exit code."""
    from handoffd.errors import NoAnswer

    if as_json:
        import json

        told = {"type": "error", "code": NoAnswer.default_code, "message": error.message, "hint": error.hint}
        sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"handoffd: {error.message}\n  next: {error.hint}\n")
    return NoAnswer.exit_code


def _of_lock(state_dir: str) -> NoAnswerError:
    """Return the error for a daemon so crowded that only its lock tells which process it is."""
    from pathlib import Path

    from handoffd.files.locks import daemon_lock_path, holder_of

    holder = holder_of(daemon_lock_path(Path(state_dir)))
    return NoAnswerError(Silent(holder.pid if holder is not None else 0))


def _asked(path: str, project: str | None, limit_s: float) -> dict[str, object] | None:
    target = "/v1/status"
    if project is not None:
        target += f"?project={_quoted(project)}"
    try:
        return read(path, target, limit_s, MAX_BYTES)
    except NoAnswerError:
        raise  # asked again, it would be as silent
    except BadAnswerError:
        return None


def _quoted(text: str) -> str:
    """Return `text` as a value of a query: what `urllib.parse.quote` does, which is long in coming."""
    return "".join(chr(byte) if byte in _UNQUOTED else f"%{byte:02X}" for byte in os.fsencode(text))


def _as_json(answer: dict[str, object]) -> str:
    import json

    return json.dumps(answer, indent=2, ensure_ascii=False)


def _as_text(answer: dict[str, object], *, whole: bool) -> str:
    from handoffd.cli.status_report import report

    return "\n".join(report(answer, whole=whole))
