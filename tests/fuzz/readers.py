"""The readers of foreign text, each called as the daemon calls it: bytes in, nothing out.

What a reader documents for bad input (`InvalidFile`, `Refused` and their like) ends here; everything
else that it raises is a fault of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, get_args
from zoneinfo import ZoneInfo

import msgspec
from starlette.requests import Request
from starlette.types import Message

from handoffd.api.arguments import event_of, values
from handoffd.api.http import application
from handoffd.api.http.endpoint import error_body
from handoffd.api.verbs import VERBS
from handoffd.chat.addressing import directed
from handoffd.chat.intents import classify
from handoffd.engine.run import Usage, last_line, steady
from handoffd.errors import HandoffdError, Json
from handoffd.execute.base import ExitRecord
from handoffd.execute.ending import Ended, ending_of
from handoffd.execute.evidence import Baseline, TestOutput, evidence_of, measured
from handoffd.execute.meter import Note
from handoffd.execute.proof import Choice, Kind, Sealed, choice_of, declared_in, names_in
from handoffd.execute.registry import ExecutorBook, Layer, load_book, shipped_layer
from handoffd.execute.reports import junit
from handoffd.execute.stream.format import StreamFormat
from handoffd.execute.stream.reader import StreamReader, last_words, plain_words
from handoffd.files.atomic import digest_of
from handoffd.git.landing import paths_in
from handoffd.hooks.claude_settings import commands, with_ours, without_ours
from handoffd.hooks.event import NotAnEventError, parse_event
from handoffd.inspection import framework
from handoffd.inspection.own_files import shipped_layers, with_gates
from handoffd.inspection.papers import Subject, quoted
from handoffd.inspection.project_status import project_name
from handoffd.inspection.suites import find_suites
from handoffd.inspection.test_files import lay_back, sections_of
from handoffd.journal import codec
from handoffd.protocol import rule_merge
from handoffd.protocol.delivery import MOST_CHARACTERS, NotReadable, examined, json_in
from handoffd.protocol.handoff import Found, Handoff, HandoffMark
from handoffd.protocol.json_schema import flaws, misfits
from handoffd.protocol.prompt import PromptTemplates
from handoffd.protocol.reading import Expected, HandoffTexts, read_claims, read_handoff
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import Delivery, Gates
from handoffd.protocol.state import encoded, parse_state, render_state
from handoffd.protocol.story_text import decoded, stories_in, story_in
from handoffd.settings.loading import held, load, load_project
from handoffd.settings.model import ProjectSettings, TestSettings
from handoffd.track.attempts import OUTPUT_END_BYTES, exit_of
from handoffd.track.second_run import Named

Reader = Callable[[bytes], None]

NOW: Final = datetime(2026, 11, 21, 20, 30, tzinfo=UTC)
RUN: Final = "20261121T203000-00000000"


@cache
def book() -> ExecutorBook:
    """Return the executors that ship with handoffd."""
    return load_book(shipped_layer())


@cache
def folder() -> Path:
    """Return a folder for readers that open files themselves; it is deleted with the process."""
    kept.append(TemporaryDirectory(prefix="handoffd-fuzz-"))
    return Path(kept[0].name)


kept: list[TemporaryDirectory[str]] = []


def put(name: str, body: bytes) -> Path:
    """Write a file below the folder, and return its path."""
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return path


# --- what an agent hands over ---------------------------------------------------------------------------
def handoff(body: bytes) -> None:
    """HANDOFF.md, for the running attempt and for any."""
    _claims(HandoffTexts(handoff=body, mark=HandoffMark()))


def result(body: bytes) -> None:
    """executor-result, beside a hand-off that says something else."""
    _claims(HandoffTexts(result=body))
    _claims(HandoffTexts(handoff=b"---\nstatus: failing\n---\nIt fails.\n", result=body))


def _claims(texts: HandoffTexts) -> None:
    expected = Expected(story="US-001", step="impl", attempt=1, dispatch="d-1", since=NOW, ours=True)
    for reading in (read_handoff(texts, expected), read_claims(texts)):
        codec.encode(reading)
        encoded(reading)


DELIVERY: Final = Delivery.model_validate(
    {
        "outcomes": ("ready", "revise"),
        "fields": {
            "score": {"minimum": 0, "maximum": 10},
            "calm": {"kind": "boolean"},
            "why": {"kind": "text"},
        },
        "out": {
            "plan": {"path": "plan.json", "schema_id": "plan/1"},
            "role": {"path": "role.yaml", "schema_id": "plan/1"},
            "text": {"path": "notes.md"},
        },
        "checks": [{"text": "size(out.plan.tasks) > 1", "names": [("out.plan", "any")]}],
    }
)
SCHEMA: Final = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "required": ["id"],
            "properties": {"id": {"pattern": "^[a-z]+$"}, "parts": {"items": {"$ref": "#/$defs/node"}}},
            "additionalProperties": {"uniqueItems": True},
        }
    },
}
"""Of a file that a task hands over."""


def artifact(body: bytes) -> None:
    """Files that a task of a flow hands over, with a hand-off beside them."""
    said = read_claims(HandoffTexts(handoff=body))
    claim = said.handoff if isinstance(said, Found) else Handoff(status=None)
    done = examined(DELIVERY, claim, lambda _: body, lambda _: SCHEMA, {})
    codec.encode(done)
    assert all(len(one) <= MOST_CHARACTERS for one in done.problems)


def schema(body: bytes) -> None:
    """A project's own schema, and what it makes of itself."""
    with suppress(NotReadable):
        document = json_in(body)
        if not flaws(document):
            misfits(document, document)


def state(body: bytes) -> None:
    """STATE.json, which is written again as it was read."""
    with suppress(HandoffdError):
        found = parse_state(body).state
        written = render_state(found)
        again = render_state(parse_state(written.encode()).state)
        assert written == again, "what is written is read as something else"
        codec.encode(found)


# --- what a project or a person writes ------------------------------------------------------------------
def rules(body: bytes) -> None:
    """A project's own step table, over the shipped one."""
    layers = (*shipped_layers(None), rule_merge.Layer(".ai/step-rules.yaml", body.decode("utf-8", "replace")))
    kinds: tuple[Gates, ...] = ("before", "after")
    for gates in kinds:
        with suppress(HandoffdError):
            codec.encode(build_rulebook(layers, gates=gates))


def project_settings(body: bytes) -> None:
    """A project's own settings, and what needs trust in them."""
    text = body.decode("utf-8", "replace")
    with suppress(HandoffdError):
        settings = load_project(text, ".ai/handoffd.yaml")
        held(settings, ProjectSettings())
        json.dumps(settings.model_dump(mode="json"))
    with suppress(HandoffdError):
        with_gates(text, "after")


def daemon_settings(body: bytes) -> None:
    """The settings file of the daemon, with the executors in it."""
    path = put("handoffd.yaml", body)
    with suppress(HandoffdError):
        loaded = load({"config": str(path)}, {"HOME": str(folder())}, daemon=True, base=str(folder()))
        loaded.explain()
        definitions = loaded.settings.executors
        load_book(shipped_layer(), Layer(file=str(path), definitions=definitions, line_of=loaded.line_of))


def stories(body: bytes) -> None:
    """A file of stories for the backlog, and the text of one."""
    try:
        text = decoded(body)
    except HandoffdError:
        return
    for file in ("stories.md", "issues.json"):
        for name in (None, "dark-mode"):
            for one in stories_in(file, text, name=name):
                encoded(one) if isinstance(one, msgspec.Struct) else str(one)
        with suppress(HandoffdError):
            encoded(story_in(file, text))


def papers(body: bytes) -> None:
    """The project's memory and history, for all that reads them."""
    for name in (framework.MEMORY, framework.HISTORY, "PROJECT_CONTEXT.md"):
        put(f"papers/{name}", body)
    root = str(folder() / "papers")
    with suppress(HandoffdError):
        memory = framework.read_memory(root) or ""
        framework.memory_summary(memory), framework.open_issues(memory)
    framework.finished_before(root)
    encoded(framework.story_facts(root, ("US-001", "US-2")))
    encoded(framework.described_in_memory(root, "US-001"))
    for subject in get_args(Subject):
        encoded(quoted(root, subject))


def suites(body: bytes) -> None:
    """The manifests of a project, from which the command of its tests is taken."""
    for name in ("package.json", "pyproject.toml", "Cargo.toml", "go.work", "Makefile"):
        put(f"suites/{name}/{name}", body)
        find_suites(folder() / "suites" / name)


def manifests(body: bytes) -> None:
    """The manifests of a project, whose sections about tests are laid back as they were."""
    command, before = ("npm", "run", "test"), b'{"scripts": {"test": "jest"}, "imports": {"#a": "./a.js"}}\n'
    was = Sealed(kind="setting", seal="of sections", content=digest_of(before)[:32], mode="file")
    root = folder() / "manifests"
    for name in ("package.json", "pyproject.toml", "setup.cfg"):
        sections_of(name, body, command)
        put(f"manifests/{name}", body)
        lay_back(root, (name,), {name: was}, {}, {name: before}, command)
        put(f"manifests/{name}", body)
        project_name(str(root))
        (root / name).unlink()


def named(body: bytes) -> None:
    """Files that settings of tests name: a Makefile, a script, a package, a conftest.py, settings of jest."""
    names = ("Makefile", "run.sh", "package.json", "conftest.py", "jest.config.js", "tox.ini")
    for name in names:
        path = put(f"named/{name}", body)
        kind: Kind = "test" if name == "conftest.py" else "setting"
        known = {name: Sealed(kind=kind, seal="-", content="-", mode="file")}
        Named(path.parent, "", known, ("make", "test", "run.sh")).files()
        path.unlink()
    paths_in(body[: 256 * 1024])


def sources(body: bytes) -> None:
    """Test files of other languages than Python."""
    text = body.decode("utf-8", "replace")
    for file in ("a_test.go", "src/a.test.ts", "src/test/java/ATest.java"):
        names_in(file, text)
        declared_in(file, text, Choice())


def sources_python(body: bytes) -> None:
    """A test file of Python, the command that chooses tests, and a conftest.py."""
    text = body.decode("utf-8", "replace")
    names_in("tests/test_a.py", text)
    declared_in("tests/test_a.py", text, choice_of(f"-m slow {text[:4096]}", text))


def template(body: bytes) -> None:
    """A prompt of the project's own, by itself: the shipped ones are compiled once, which takes long."""
    text = body.decode("utf-8", "replace")
    for problem in PromptTemplates({"en/steps/impl.j2": text}).problems():
        str(problem)


# --- what an agent prints -------------------------------------------------------------------------------
def stream(name: str) -> Reader:
    """Return the reader of what the agent CLI of that name prints."""
    return partial(_stream, name)


def _stream(name: str, body: bytes) -> None:
    executor = book().get(name)
    reader = StreamReader(executor, Usage(input_tokens=10, cost_usd=0.1))
    half = len(body) // 2
    reader.feed(body[:half])
    note = msgspec.json.encode(Note(position=half - reader.held, standing=reader.standing)).decode()
    standing = msgspec.json.decode(note, type=Note).standing
    StreamReader.resumed(executor, standing).feed(body[half:], left_out=1)
    reader.feed(body[half:])
    reader.end()
    seen = reader.seen
    encoded(seen)
    record = ExitRecord(run_id=RUN, code=len(body) % 2, tail=body[-4096:].decode("utf-8", "replace"))
    last = Ended(record=record, seen=seen, last=body[-OUTPUT_END_BYTES:])
    ending = ending_of(executor, last, NOW, ZoneInfo("Europe/Berlin"))
    said = last_words(executor.stream or StreamFormat(), seen.result, last.last)
    tail = plain_words(record.tail) if executor.output == "text" else said
    steady(last_line(tail))
    codec.decode_exit(codec.encode(exit_of(record, tail=tail, seen=seen, ending=ending)))


# --- what tests and hooks report ------------------------------------------------------------------------
def report(form: str) -> Reader:
    """Return the reader of a form of test reports."""
    return partial(_report, form)


def _report(form: str, body: bytes) -> None:
    printed = body[-64 * 1024 :].decode("utf-8", "replace")
    settings = TestSettings.model_validate({"command": ("pytest",), "report": form})
    record = ExitRecord(run_id=RUN, code=len(body) % 2, tail=printed[-4096:])
    found = measured(settings, record, TestOutput(report=body, printed=printed), "/project")
    baseline = Baseline(results=dict(found.results)) if len(body) % 3 else None
    codec.decode_tests(codec.encode(evidence_of(found, record, baseline, frozenset())))
    if form == "junit":
        junit.not_compiled(printed)
        junit.united((body, body))


def hook(body: bytes) -> None:
    """What Claude Code sends a hook."""
    with suppress(NotAnEventError):
        parse_event(body)


def hook_settings(body: bytes) -> None:
    """Claude Code's settings, to which a hook of ours is added, and taken away again."""
    text = body.decode("utf-8", "replace")
    with suppress(HandoffdError):
        commands(text, "settings.json")
        added = with_ours(text, "settings.json", "handoffd hook", ("Stop", "SessionEnd"))
        without_ours(added, "settings.json")


# --- what programs and people ask -----------------------------------------------------------------------
def api(body: bytes) -> None:
    """The body of a request, as the arguments of each verb."""
    try:
        given = _object(body)
    except HandoffdError as error:
        error_body(error)
        return
    application.fingerprint("/v1/verbs/start", given)
    with suppress(HandoffdError):
        values(VERBS["start"].parameters, given)
    for spec in VERBS.values():
        names = {parameter.name for parameter in spec.parameters} & given.keys()
        try:
            arguments = values(spec.parameters, {name: given[name] for name in names})
            if spec.event is not None:
                codec.encode(event_of(spec, arguments, "api"))
        except HandoffdError as error:
            error_body(error)


def _object(body: bytes) -> Json:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    reading = application._body(Request({"type": "http", "method": "POST"}, receive))
    try:
        reading.send(None)
    except StopIteration as done:
        found: Json = done.value
        return found
    raise AssertionError("it waits for more")


def chat(body: bytes) -> None:
    """A message of a chat, about one of two projects."""
    text = body.decode("utf-8", "surrogateescape")  # JSON can hold half a character, too
    encoded(classify(text))
    encoded(directed(text, ("shop", "blog")))
