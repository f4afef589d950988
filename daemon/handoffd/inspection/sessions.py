"""Prompts for two sessions outside of any story: a review of the whole project, and a triage of its issues.

They are texts for a person to give to an executor. Making one changes nothing, and what such a
session finds changes nothing either, until a person acts on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from handoffd.engine.wording import command_for
from handoffd.errors import HandoffdError, Refused
from handoffd.inspection.framework import Framework, Level, open_issues, read_memory
from handoffd.inspection.own_files import settings_of, templates_for
from handoffd.inspection.project_status import ProjectStatus, query_project_status
from handoffd.protocol.prompt import PromptTemplates, code, identifier, line, listed, render_template
from handoffd.protocol.rules import Language
from handoffd.settings.model import ProjectSettings

REVIEW = "review_session.j2"
TRIAGE = "triage.j2"
_ISSUES_BYTES = 64 * 1024


class SessionPrompt(Struct, frozen=True, kw_only=True):
    """A prompt for a session, in Markdown; `issues` are what a triage is about."""

    type: Literal["review_prompt", "triage_prompt"]
    prompt: str
    issues: tuple[str, ...] = ()
    fw_lv: Level


def review(root: str, language: Language | None = None, default: Language = "en") -> SessionPrompt:
    """Return the prompt for a review of the project at `root`, richer the more of the protocol it has.

    `language` None: the one of the project's settings, else `default`. Raises InvalidFile for templates of
    the project that cannot be used, StoreError for what cannot be read.
    """
    status = query_project_status(root)
    settings = _settings(root)
    chosen = language or settings.language or default
    command = settings.test.command
    values = _values(root, status) | {"test_command": code(" ".join(command)) if command else None}
    prompt = _rendered(REVIEW, chosen, values, templates_for(root))
    return SessionPrompt(type="review_prompt", prompt=prompt, fw_lv=status.has_framework.level)


def triage(root: str, language: Language | None = None, default: Language = "en") -> SessionPrompt:
    """Return the prompt that has the open issues of the project's memory sorted into a plan.

    Raises Refused (NO_MEMORY, NO_ISSUES), and otherwise like `review`.
    """
    issues = _issues(root)
    status = query_project_status(root)
    chosen = language or _settings(root).language or default
    shown = listed(issues, limit=_ISSUES_BYTES, language=chosen, most=len(issues))
    values = _values(root, status) | {"issues": shown, "count": len(issues)}
    prompt = _rendered(TRIAGE, chosen, values, templates_for(root))
    return SessionPrompt(type="triage_prompt", prompt=prompt, issues=issues, fw_lv=status.has_framework.level)


def _issues(root: str) -> tuple[str, ...]:
    memory = read_memory(root)
    if memory is None:
        message = f"{root} has no PROJECT_MEMORY.md, whose ISSUES section would be sorted"
        raise Refused(message, code="NO_MEMORY", hint=command_for(root, "review"))
    issues = open_issues(memory)
    if not issues:
        message = "PROJECT_MEMORY.md has no unticked item (`- [ ] …`) in an ISSUES section: nothing to sort"
        raise Refused(message, code="NO_ISSUES", hint=command_for(root, "review"))
    return issues


def _rendered(name: str, language: Language, values: Mapping[str, Any], templates: PromptTemplates) -> str:
    return render_template(f"{language}/{name}", values, templates, what=name.removesuffix(".j2"))


def _values(root: str, status: ProjectStatus) -> dict[str, Any]:
    return {
        "project": line(status.project),
        "root": code(root),
        "fw_lv": status.has_framework.level,
        "has": _presence(status.has_framework),
        "story": identifier(status.story) if status.story else None,
        "step": identifier(status.step),
        "status": identifier(status.status),
        "reopen_command": code(command_for(root, "reopen", "STEP")),
        "start_command": code(f'{command_for(root, "start")} "TEXT"'),
    }


def _presence(framework: Framework) -> dict[str, bool]:
    return {
        "state": framework.has_state,
        "memory": framework.has_memory,
        "context": framework.has_context,
        "constitution": framework.has_constitution,
        "sdd": framework.has_sdd,
        "handoff": framework.has_handoff,
        "history": framework.has_history,
    }


def _settings(root: str) -> ProjectSettings:
    """Return the project's settings; the defaults where its own cannot be used: a review shall find that."""
    try:
        return settings_of(root)
    except HandoffdError:
        return ProjectSettings()
