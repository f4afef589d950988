"""A secret of the settings: given there, or in a file that is read whenever it is needed.

So a key can be changed under a running daemon, and a file that is not there is a delivery that failed,
not a daemon that does not start.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from handoffd.notify.sink import Undelivered

MOST_BYTES = 64 * 1024


def secret_text(given: SecretStr | None, file: Path | None) -> str | None:
    """Return the secret without blanks around it; None when there is to be none. Blocks on the disk.

    Raises Undelivered when the file cannot be read, or holds nothing; the message names it.
    """
    if file is None:
        return None if given is None else given.get_secret_value().strip()
    try:
        with file.open("rb") as opened:
            text = opened.read(MOST_BYTES + 1).decode("utf-8").strip()
    except OSError as error:
        raise Undelivered(f"{file} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise Undelivered(f"{file} is no text") from None
    if not text or len(text) > MOST_BYTES:
        raise Undelivered(f"{file} {'holds nothing' if not text else 'is too long'}")
    return text
