"""Every reader of foreign text that is fuzzed: its name, its samples, its words, and how much it is given.

`make fuzz` and the slice in the suite go through this table. Samples that exist nowhere else, and inputs
on which a reader has failed once, are in `tests/data/fuzz/<name>/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fuzz import readers, words
from tests.fuzz.readers import Reader
from tests.fuzz.rows import ROWS

ROOT: Final = Path(__file__).parents[2]
OWN: Final = ROOT / "tests/data/fuzz"

KIB: Final = 1024
MOST_SAMPLE: Final = 32 * KIB
"""A longer sample is cut: what it says is in its beginning, and what is long is made by `stretched`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One reader.

    `samples` are globs from the root of the repository,
    `inline` samples by themselves. `most` is the size up
    to which it is given input: what the daemon gives it at most, or 1 MiB, where that is more.
    """

    name: str
    read: Reader
    most: int
    samples: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def seeds(self) -> Iterator[bytes]:
        """Yield an empty input, the samples, and what the reader has failed on."""
        yield b""
        for pattern in self.samples:
            for path in sorted(ROOT.glob(pattern)):
                yield path.read_bytes()[:MOST_SAMPLE]
        for path in sorted((OWN / self.name).glob("*")):
            yield path.read_bytes()[: self.most]

    def long(self) -> Iterator[bytes]:
        """Yield the long inputs that once took too long."""
        yield from (row.body()[: self.most] for row in ROWS.get(self.name, ()))


_CLIS: Final[Mapping[str, str]] = {
    "claude": "jsonl", "codex": "jsonl", "gemini": "jsonl", "opencode": "jsonl", "aider": "txt",
}  # fmt: skip
_REPORTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "junit": ("*.xml", words.XML),
    "tap": ("*.tap", words.TAP),
    "gotest": ("go-*.json", words.GO),
    "cargo": ("cargo-*.txt", words.CARGO),
    "jest": ("jest.json", words.JEST),
}


def _streams() -> Iterator[Target]:
    for name, ending in _CLIS.items():
        samples = (f"tests/data/streams/{name}/*.{ending}", f"tests/data/streams/{name}/*.err")
        reader = readers.stream(name)
        yield Target(name=f"stream-{name}", read=reader, most=256 * KIB, samples=samples, words=words.STREAM)


def _reports() -> Iterator[Target]:
    for name, (files, known) in _REPORTS.items():
        samples = (f"tests/data/reports/{files}",)
        yield Target(
            name=f"report-{name}", read=readers.report(name), most=1024 * KIB, samples=samples, words=known
        )


_ALL: Final = (
    Target(
        name="handoff", read=readers.handoff, most=1024 * KIB, words=words.CLAIM,
        samples=("tests/data/handoffs/*.md",),
    ),
    Target(
        name="artifact", read=readers.artifact, most=1024 * KIB, words=(*words.JSON, *words.CLAIM)
    ),
    Target(
        name="schema", read=readers.schema, most=64 * KIB, words=words.SCHEMA,
        samples=("config/schema/**/*.json",),
    ),
    Target(name="result", read=readers.result, most=64 * KIB, words=words.CLAIM),
    Target(
        name="state", read=readers.state, most=512 * KIB, words=words.STATE,
        samples=("tests/data/states/*.json",),
    ),
    Target(
        name="rules", read=readers.rules, most=64 * KIB, words=words.RULES,
        samples=("config/step-rules.yaml", "config/presets/*.yaml"),
    ),
    Target(name="settings-project", read=readers.project_settings, most=64 * KIB, words=words.YAML),
    Target(
        name="settings-daemon", read=readers.daemon_settings, most=64 * KIB, words=words.YAML,
        samples=("config/handoffd.example.yaml", "config/executors.yaml"),
    ),
    *_streams(),
    *_reports(),
    Target(
        name="stories", read=readers.stories, most=256 * KIB, words=(*words.MARKDOWN, *words.JSON)
    ),
    Target(
        name="papers", read=readers.papers, most=256 * KIB, words=words.MARKDOWN,
        samples=("docs/how-to/stories.md", "CHANGELOG.md"),
    ),
    Target(name="suites", read=readers.suites, most=1024 * KIB, words=words.JSON),
    Target(name="manifests", read=readers.manifests, most=256 * KIB, words=words.JSON),
    Target(name="named", read=readers.named, most=256 * KIB, words=(*words.SOURCES, *words.JSON)),
    Target(name="sources", read=readers.sources, most=1024 * KIB, words=words.SOURCES),
    Target(name="python", read=readers.sources_python, most=64 * KIB, words=words.SOURCES),
    Target(
        name="template", read=readers.template, most=64 * KIB, words=words.TEMPLATE,
        samples=("config/prompts/en/**/*.j2",),
    ),
    Target(name="hook", read=readers.hook, most=1024 * KIB, words=words.JSON),
    Target(name="hook-settings", read=readers.hook_settings, most=64 * KIB, words=words.JSON),
    Target(name="api", read=readers.api, most=1024 * KIB, words=words.JSON),
    Target(name="chat", read=readers.chat, most=64 * KIB, words=words.CHAT),
)  # fmt: skip

TARGETS: Final[Mapping[str, Target]] = {target.name: target for target in _ALL}
"""By their names."""
