"""handoffd as a library: the verbs and reads of one project as plain, typed functions.

They block, and do what the command line does: through the daemon while one runs, else in this process
with the same locks. `root` is a project's folder. A refusal raises `Refused`, whose `code` is one of
docs/reference/protocol/results.md and whose `hint` is a command for a person.

Everything here can be imported from `handoffd` itself: `from handoffd import dispatch`.

It relies on `entrance` for what the engine decides, and on `inspection` and `protocol` for what only reads
files. It must never decide by itself, print, or have a behaviour that the command line has not.
"""

from handoffd.chat.intents import Intent, classify
from handoffd.engine.decision import AlreadyRunning, Blocked, Finished, NeedsHuman, TimedOut
from handoffd.engine.views import Applied, Peek
from handoffd.errors import HandoffdError, InvalidFile, NotFound, Refused, StoreError
from handoffd.forecast.plan import Tonight
from handoffd.inspection.checklist import generate_checklist
from handoffd.inspection.discovery import ListedProject
from handoffd.inspection.framework import Framework
from handoffd.inspection.project_status import PrerequisiteCheck, ProjectStatus
from handoffd.inspection.sessions import SessionPrompt
from handoffd.library.documents import (
    build_prompt,
    dispatch_mode,
    fail_target,
    get_rule,
    parse_handoff,
    resolve_paths,
    sanitize,
    step_sequence,
    team_roles,
    validate,
    write_state,
)
from handoffd.library.project import (
    Reply,
    apply_handoff,
    approve_review,
    auto,
    check_prerequisites,
    detect_framework,
    dispatch,
    init_state,
    list_projects,
    night_report,
    peek,
    query_project_status,
    read_state,
    reject_review,
    reopen,
    review,
    rollback,
    run_post_check,
    start_custom,
    start_next,
    start_story,
    tonight,
    triage,
    undo_approval,
)
from handoffd.library.results import Checked, Dispatched, DispatchResult
from handoffd.protocol.handoff import Handoff
from handoffd.protocol.rules import Rule, TeamRole
from handoffd.protocol.state import ParsedState, Reason, State, Status
from handoffd.report.values import Report

__all__ = [
    "AlreadyRunning",
    "Applied",
    "Blocked",
    "Checked",
    "DispatchResult",
    "Dispatched",
    "Finished",
    "Framework",
    "Handoff",
    "HandoffdError",
    "Intent",
    "InvalidFile",
    "ListedProject",
    "NeedsHuman",
    "NotFound",
    "ParsedState",
    "Peek",
    "PrerequisiteCheck",
    "ProjectStatus",
    "Reason",
    "Refused",
    "Reply",
    "Report",
    "Rule",
    "SessionPrompt",
    "State",
    "Status",
    "StoreError",
    "TeamRole",
    "TimedOut",
    "Tonight",
    "apply_handoff",
    "approve_review",
    "auto",
    "build_prompt",
    "check_prerequisites",
    "classify",
    "detect_framework",
    "dispatch",
    "dispatch_mode",
    "fail_target",
    "generate_checklist",
    "get_rule",
    "init_state",
    "list_projects",
    "night_report",
    "parse_handoff",
    "peek",
    "query_project_status",
    "read_state",
    "reject_review",
    "reopen",
    "resolve_paths",
    "review",
    "rollback",
    "run_post_check",
    "sanitize",
    "start_custom",
    "start_next",
    "start_story",
    "step_sequence",
    "team_roles",
    "tonight",
    "triage",
    "undo_approval",
    "validate",
    "write_state",
]
