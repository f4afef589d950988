"""Files in the repository that are made from the code, whole or in parts, and the command that makes them.

`python -m tests.support.generate` rewrites them; with `--check` it changes nothing and exits with 1
when one of them is not what the code would make. To add a file, add it to `GENERATED`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.support.documents import documents, filled
from tests.support.schemas import schemas
from tests.support.shipped_pipelines import pictures

from handoffd.api.http.application import described

ROOT = Path(__file__).resolve().parents[2]


def _schema_text(name: str) -> Callable[[], str]:
    return lambda: json.dumps(schemas()[name], indent=2, ensure_ascii=False) + "\n"


def _document_text(path: Path) -> str:
    return filled(path.read_text(encoding="utf-8"))


def _openapi_text() -> str:
    return json.dumps(described(), indent=2, ensure_ascii=False) + "\n"


GENERATED: dict[Path, Callable[[], str]] = {
    **{ROOT / "config" / "schema" / name: _schema_text(name) for name in schemas()},
    ROOT / "docs/reference/openapi.json": _openapi_text,
    **pictures(),
    **{path: partial(_document_text, path) for path in documents()},
}
"""Every generated file, with the function that makes its whole text."""


def drifted(generated: Mapping[Path, Callable[[], str]] = GENERATED) -> list[Path]:
    """Return the files that are missing or differ from what the code makes."""
    return [path for path, make in generated.items() if not _holds(path, make())]


def main(arguments: Sequence[str], generated: Mapping[Path, Callable[[], str]] = GENERATED) -> int:
    """Rewrite what has drifted, or only tell; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 on any drift")
    options = parser.parse_args(arguments)
    stale = drifted(generated)
    for path in stale:
        print(f"{'out of date' if options.check else 'written'}: {path}")
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(generated[path](), encoding="utf-8")
    if options.check and stale:
        print("run `make schema`")
    return 1 if options.check and stale else 0


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
