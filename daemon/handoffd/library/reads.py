"""The functions that only look. All but `peek` read the project's files alone, at any level."""

from __future__ import annotations

from handoffd.engine.views import Peek
from handoffd.inspection import framework, prerequisites, project_status, sessions, workspace
from handoffd.inspection.framework import Framework
from handoffd.inspection.prerequisites import PrerequisiteCheck
from handoffd.inspection.project_status import ProjectStatus
from handoffd.inspection.sessions import SessionPrompt
from handoffd.inspection.workspace import ListedProject
from handoffd.library.asking import Root, path_of, peeked
from handoffd.library.results import peek_result
from handoffd.protocol.rules import Language
from handoffd.protocol.state import State


def read_state(root: Root) -> State:
    """Return STATE.json, near-misses normalised.

    Raises Refused (NOT_INITIALIZED), InvalidFile, StoreError.
    """
    return project_status.state_of(path_of(root))


def peek(root: Root) -> Peek:
    """Return what the next turn would do, with its prompt where it would dispatch. Changes nothing.

    A project that is not supervised is not supervised for that: the answer is what its files lead to.
    Raises HandoffdError, among others NotFound for a folder that has no STATE.json and is not supervised.
    """
    return peek_result(peeked(root))


def detect_framework(root: Root) -> Framework:
    """Return which files of the protocol there are, and the level (0, 1, 2) that follows."""
    return framework.detect_framework(path_of(root))


def query_project_status(root: Root) -> ProjectStatus:
    """Return where a project stands; status `not_initialized` without a STATE.json."""
    return project_status.query_project_status(path_of(root))


def list_projects(folder: Root) -> tuple[ListedProject, ...]:
    """Return the projects in a folder, by name. Raises NotFound when it is none."""
    return workspace.list_projects(path_of(folder))


def check_prerequisites(root: Root) -> PrerequisiteCheck:
    """Return which files the current step wants to read and cannot, and the step that would make them."""
    return prerequisites.check_prerequisites(path_of(root))


def review(root: Root, language: Language | None = None) -> SessionPrompt:
    """Return the prompt for a health check of any project, the richer the more of the protocol it has."""
    return sessions.review(path_of(root), language)


def triage(root: Root, language: Language | None = None) -> SessionPrompt:
    """Return the prompt that makes a plan of MEMORY's open issues. Raises Refused (NO_MEMORY, NO_ISSUES)."""
    return sessions.triage(path_of(root), language)
