"""What a message means: from text to an intent, by rules alone.

The order decides. What holds back (a stop, a wait, a negation) comes first: it pauses, or starts nothing.
A person who tells CC (Claude Code) to work starts work. Opening a project is a question.
A message that begins with a verb of work is an order, and any other question is answered and starts nothing.
A command is one only if it is the whole message, but for a note. Everything else is a custom task; at a human
gate it is a note (`settled`), because free text is never consent. Where a message comes close to a decision
without being one, says nothing at all, or tells to work without saying on what, it is `unclear`, and the
answer says what to type.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from handoffd.chat import commands, questions, restraints
from handoffd.chat.commands import STEPS_IN_CHINESE, Command, Said
from handoffd.chat.project_names import named_project
from handoffd.chat.questions import Asks, Topic
from handoffd.chat.restraints import CC, forbids_agent, leaves_nothing_to_do, remarks_on_agent, restraint
from handoffd.chat.text import LazyPattern, bare, cleaned, evened, folded, narrow, trimmed
from handoffd.errors import Refused
from handoffd.protocol.state import Reason, canonical_step
from handoffd.protocol.story import check_story_id, is_story_id

Kind = Literal[Command, "init", "start_custom", "query", "unclear"]

READING: Final[frozenset[Kind]] = frozenset({"query", "list", "detect", "review", "triage", "unclear"})
"""Intents that change nothing in any state; at a human gate an unclear one may become a note."""


class Intent(Struct, frozen=True, kw_only=True):
    """What a message means. `text` is the message as it came, without what cannot be seen.

    `unclear` names the command that it comes near to in `near`, if there is one.
    """

    kind: Kind
    text: str
    story: str | None = None
    step: str | None = None
    reason: Reason | None = None
    note: str | None = None
    """What comes with a command; of a `note`, all of it."""
    instruction: str | None = None
    """Of `start_custom`: what shall be done."""
    agent_teams: bool = False
    topic: Topic | None = None
    project: str | None = None
    """The project that the message names explicitly, as written; the message is about that one or none."""
    near: Kind | None = None
    command: str | None = None
    """Of `unclear`: the command of the command line that it names, and says no more."""
    addressed: bool = False
    """Whether the message addresses CC."""
    sure: bool = True
    """False: it may be something else, which matters where something waits for a person."""

    @property
    def tells_nothing(self) -> bool:
        """Whether there is nothing in it that a note could keep."""
        return self.tells_no_task or self.command is not None

    @property
    def tells_no_task(self) -> bool:
        """Whether it tells to work, and not on what."""
        return self.kind == "unclear" and self.near == "start_custom"


_MENTION: Final = LazyPattern(CC)
_TOLD_FIRST: Final = LazyPattern(
    r"^(?:please|pls|hey|hi|ok|請|麻煩|幫我|那|就)?[\s,]*"
    r"(?:用|使用|讓|叫|請|找|派|透過|交給|use|using|let|have|ask|tell|get|with|via|by|hey)?\s*@?"
    + CC
    + r"(?:\s+cli\b)?[\s,:]*(?:來|去|幫我|幫忙|to\b|for\b|and\b|please\b)?[\s,:]*"
)
_TOLD_LAST: Final = LazyPattern(
    r"[\s,]*(?:with|using|via|by|through|用|交給|讓)\s*" + CC + r"(?:\s*(?:來)?(?:做|處理|跑))?[\s.!]*$"
)
_TOLD: Final = LazyPattern(
    r"(?:用|使用|讓|叫|請|找|派|透過|交給)\s*" + CC
    + r"|\b(?:use|using|let|have|ask|tell|get|with|via)\s+" + CC
    + r"|\b(?:can|could|would|will)\s+" + CC + r"|^" + CC + r"\s*(?:[,:]|請|幫|去|來|可以|可否|能|please)"
)  # fmt: skip
_LONGEST_COMMAND: Final = 4000
"""Characters, with its note; for a longer message the reply asks to send the command alone."""
_STORY_NAMED: Final = LazyPattern(r"(?<![a-z0-9])us-\d+")
_SIGN: Final = LazyPattern(r"[,;:.!\n]")
_DOES: Final = LazyPattern(r"^(?:please\s+)?do\s+us-")
_DISPOSED: Final = LazyPattern(
    r"^(?:please\s+)?(?:(?:drop|remove|delete|discard|archive)\s+(?:the\s+)?(?:story\s+)?us-\d+$"
    r"|(?:make|be)\s+sure\s+(?:that\s+)?us-\d+\s+(?:\w+n't|\w+\s+not)\b)"
)
_SMALL_TALK: Final = 200
"""Characters; what says nothing is not longer."""
_ONE_WORD: Final = LazyPattern(r"[a-z0-9']+|\W*\w[\u4e00-\u9fff]?")
"""One word, or two ideographs: a task has more, and `done` or `whatever` is none."""
_NOTHING_SAID: Final = LazyPattern(
    r"^(?:(?:help|commands|指令|幫助|說明|not ok(?:ay)?|hi|hello|hey|thanks?|thank you|thx|ty|ok|okay|k|yes"
    r"|yeah|yep|no|nope|y|n|good|great|nice|cool|fine|sure|right|hm+|good (?:morning|night|evening|job"
    r"|work)|got it|well done|sounds good|looks good|你好|您好|哈囉|嗨|謝謝|感謝|多謝|好|好的|好喔|好啊|對"
    r"|是|是的|不是|不|嗯|可以|了解|收到|沒問題|辛苦了?|早安|晚安|早|讚)(?![a-z])[\s,.!~]*)+$"
)


def classify(text: str) -> Intent:
    """Return what a message means by itself; the project's status is not known here.

    Never raises: a story id that is none makes the message `unclear`.
    """
    message = cleaned(text)
    whole = trimmed(folded(message))
    if not any(sign.isalnum() for sign in whole) and "?" not in whole:
        return Intent(kind="unclear", text=message)
    line = evened(message) if len(message) <= _SMALL_TALK else message
    intent = _classified(line, trimmed(folded(line)))
    return intent if intent.text == message else replace(intent, text=message)


def _classified(message: str, whole: str) -> Intent:
    """Return what a message means. `whole` is it for comparing, `core` that without its courtesies."""
    core = bare(whole) or whole
    if (held := _held_back(message, core)) is not None:
        return held
    if _MENTION.search(core) and (intent := _for_an_agent(message, core)) is not None:
        return intent
    found = commands.said(core) if len(core) <= _LONGEST_COMMAND else None
    if found is None and (intent := _of_a_project(message, core)) is not None:
        return intent
    read = commands.said(core.rstrip("? ")) if found is None and len(core) <= _SMALL_TALK else found
    if read is not None and read.command in {"list", "detect"}:
        return Intent(kind=read.command, text=message)
    asks = questions.asks(whole)
    if asks == "clearly":
        return _question(message, core)
    if found is not None and found.command == "approve" and restraints.has_refusing_sign(message):
        return Intent(kind="unclear", text=message, near="approve")
    return _commanded(message, core, found) if found is not None else _free(message, whole, asks)


def _free(message: str, whole: str, asks: Asks | None) -> Intent:
    """Return what a message means that matches no command: a task, or nothing."""
    core = bare(whole) or whole
    short = len(core) <= _SMALL_TALK
    if short and (decided := _at_terminal(message, core)) is not None:
        return decided
    if (command := questions.names_command(core)) is not None:
        return Intent(kind="unclear", text=message, command=command)
    told = commands.work_for_an_agent(core) if short else None
    if told is not None and told.command == "start_story":
        return _commanded(message, core, told)
    said_nothing = short and _NOTHING_SAID.match(core) is not None
    if short and not said_nothing and (commands.names_no_task(core) or questions.names_no_object(core)):
        return Intent(kind="unclear", text=message, near="start_custom")
    near = None if questions.begins_with_work(whole) else commands.near(core[:_LONGEST_COMMAND])
    if near is None and short and _says_more_of_a_story(core):
        near = "start_story"
    if asks == "perhaps" and near is None:
        return replace(_question(message, core), sure=False)
    if (
        near is not None
        or said_nothing
        or (short and (_ONE_WORD.fullmatch(core) or leaves_nothing_to_do(core)))
    ):
        return Intent(kind="unclear", text=message, near=near)
    return _task(message, core, message)


def _at_terminal(message: str, core: str) -> Intent | None:
    """Return what a message means that asks to undo, land or discard; None of any other."""
    found = commands.at_terminal(core)
    if found is None:
        return None
    command, named = found
    story = named.upper() if named is not None and is_story_id(named) else None
    return Intent(kind="unclear", text=message, command=command, story=story)


def _says_more_of_a_story(core: str) -> bool:
    """Tell whether a message says, in one breath, something of a story that is neither its start nor work.

    `start US-7 tomorrow`, `US-7 is cancelled`, `drop US-7`: a task of these words would begin now.
    """
    if _STORY_NAMED.search(core) is None or _SIGN.search(core) is not None:
        return False
    of_story = _DOES.match(core) or _DISPOSED.match(core)
    return of_story is not None or not questions.begins_with_work(core)


def _held_back(message: str, core: str, *, told: bool = False) -> Intent | None:
    """Return what a message means that stops, waits or forbids: a pause, or nothing that can be done."""
    match restraint(core, told=told):
        case "stop":
            return Intent(kind="pause", text=message)
        case "wait":
            near = commands.near(core)
            decided = near in {"approve", "reject"}
            return Intent(kind="unclear", text=message, near=near if decided else "pause")
    return None


def _of_a_project(message: str, core: str) -> Intent | None:
    """Return what a message means that names its project explicitly; None if it names none."""
    named = named_project(core[:_LONGEST_COMMAND])
    if named is None:
        return None
    written = message[folded(message).find(core) :]
    name = narrow(named.name_in(written) or "") or None
    match named.how:
        case "opened":
            if name is not None and (commands.is_step(folded(name)) or questions.asks(folded(name))):
                return None  # `go back to impl`, `show the project status`
            kind: Kind = "list" if name is None else "query"
            return Intent(kind=kind, text=message, topic=None if name is None else "status", project=name)
        case "paused":
            return Intent(kind="pause", text=message, project=name)
        case "made":
            return Intent(kind="init", text=message, project=name)
        case "going_on":
            of_step = commands.is_step(folded(name or ""))
            return Intent(kind="continue", text=message, project=None if of_step else name)
        case "to_make":
            return replace(_task(message, core, message), project=name)
    rest = written[named.rest_at :].strip()
    intent = classify(rest) if rest else Intent(kind="query", text=message, topic="status")
    return replace(intent, text=message, project=name)


def settled(intent: Intent, *, at_gate: bool) -> Intent:
    """Return what an intent means in its track's status: at a human gate, other text is a note.

    Nothing but the commands themselves opens or shuts a gate.
    """
    free = intent.kind in {"start_custom", "unclear"} or not intent.sure
    if not at_gate or intent.addressed or intent.tells_nothing or not free or not intent.text:
        return intent
    return Intent(kind="note", text=intent.text, note=intent.text, sure=False, near=intent.near)


def _for_an_agent(message: str, core: str) -> Intent | None:
    """Return the work given to CC; None for a question about its progress."""
    if questions.asks(core) == "clearly" and (forbids_agent(core) or not _TOLD.search(core)):
        return None
    rest = trimmed(_TOLD_LAST.sub("", _TOLD_FIRST.sub("", core, count=1), count=1))
    if (held := _held_back(message, rest, told=True)) is not None:
        return held
    if questions.screen(rest) is not None:
        return _question(message, rest)
    if len(rest) <= _SMALL_TALK:
        if (decided := _at_terminal(message, rest)) is not None:
            return decided
        told = commands.work_for_an_agent(rest) or commands.said(rest)
        if told is not None and told.command == "start_story":
            return replace(_commanded(message, rest, told), addressed=True)
        if told is not None and told.command in {"continue", "retry"}:
            return Intent(kind=told.command, text=message, story=_story_of(told), addressed=True)
        if told is not None and told.command not in {"review", "triage", "reopen", "note"}:
            return Intent(kind="unclear", text=message, near=told.command, addressed=True)
        if (decision := commands.begun_decision(rest)) is not None:
            return Intent(kind="unclear", text=message, near=decision, addressed=True)
        if (
            commands.names_no_task(rest)
            or _NOTHING_SAID.match(rest)
            or _ONE_WORD.fullmatch(rest)
            or not any(sign.isalnum() for sign in rest)
        ):
            return Intent(kind="unclear", text=message, near="start_custom", addressed=True)
    if remarks_on_agent(core):
        return Intent(kind="unclear", text=message)
    instruction = _instruction(message)
    placed = _of_a_project(instruction, trimmed(folded(instruction)))
    if placed is not None and placed.kind not in {"start_custom", "unclear", "query"}:
        return replace(placed, text=message, addressed=True)
    task = replace(_task(message, core, instruction), addressed=True)
    if placed is None:
        return task
    return replace(task, project=placed.project, instruction=placed.instruction or instruction)


def _instruction(message: str) -> str:
    """Return a message without the address at its beginning."""
    text = folded(message)
    start = next((at for at, sign in enumerate(text) if sign.isalnum()), 0)  # behind quotes and emoji
    match = _TOLD_FIRST.match(text[start:])
    if match is None or not _TOLD.search(match.group() + " "):
        return message
    return message[start + match.end() :].strip() or message


def _question(message: str, core: str) -> Intent:
    topic, named = questions.topic(core), _STORY_NAMED.search(core)
    story = named.group().upper() if named is not None and topic == "gate" else None
    return Intent(
        kind="query", text=message, topic=topic, project=questions.project_of_screen(core),
        story=story if story is not None and is_story_id(story) else None,
    )  # fmt: skip


def _task(message: str, core: str, instruction: str) -> Intent:
    teams = commands.wants_team(core)
    return Intent(kind="start_custom", text=message, instruction=instruction, agent_teams=teams)


def _commanded(message: str, core: str, found: Said) -> Intent:
    try:
        story = _story_of(found)
    except Refused:
        return Intent(kind="unclear", text=message, near=found.command)
    note = _note(message, core, found)
    intent = Intent(kind=found.command, text=message, story=story, note=note, sure=not found.loose)
    match found.command:
        case "start_story":
            return replace(intent, agent_teams=commands.wants_team(core))
        case "reopen":
            step = found.step and (STEPS_IN_CHINESE.get(found.step) or canonical_step(found.step))
            return replace(intent, step=step or None)
        case "reject":
            return _rejection(intent)
    return intent


def _story_of(found: Said) -> str | None:
    """Return the story's id as it is written. Raises Refused (INVALID_STORY)."""
    if found.story is None:
        return None
    story = found.story
    # Folding made it small; ids of tickets are written in capitals.
    return check_story_id(story.upper() if re.fullmatch(r"[a-z]+-\d+", story) else story)


def _note(message: str, core: str, found: Said) -> str | None:
    """Return the note as it was written: `core` is a piece of the folded message, sign for sign."""
    if found.note_at < 0:
        return None
    start = folded(message).find(core)
    return message[start + found.note_at :].strip() or None


def _rejection(intent: Intent) -> Intent:
    """Return a rejection with the reason that its note gives; a clarification, if it gives none."""
    note = intent.note or ""
    reason, end = commands.reason_in(folded(note))
    rest = note[end:].lstrip(" :,.;：，。；、-–—")
    return replace(intent, reason=Reason(reason or "needs_clarification"), note=rest or None)
