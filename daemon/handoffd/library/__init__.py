"""handoffd as a library: the verbs and reads of one project as plain, typed functions.

They block, and do what the command line does: through the daemon while one runs, else in this process
with the same locks. `root` is a project's folder. What is refused is raised as `Refused`, whose `code`
is one of docs/protocol.md and whose `hint` is a command for a person.

Everything here can be imported from `handoffd` itself: `from handoffd import dispatch`.
"""

from handoffd.errors import HandoffdError, InvalidFile, NotFound, Refused
from handoffd.inspection.checklist import generate_checklist
from handoffd.library.messages import Intent, Reply, auto, classify
from handoffd.library.reads import (
    check_prerequisites,
    detect_framework,
    list_projects,
    peek,
    query_project_status,
    read_state,
    review,
    triage,
)
from handoffd.library.results import (
    AlreadyRunning,
    Applied,
    Blocked,
    Checked,
    Dispatched,
    DispatchResult,
    Finished,
    NeedsHuman,
    TimedOut,
)
from handoffd.library.verbs import (
    apply_handoff,
    approve_review,
    dispatch,
    init_state,
    reject_review,
    reopen,
    rollback,
    run_post_check,
    start_custom,
    start_next,
    start_story,
)
from handoffd.protocol.state import Reason, State, Status

__all__ = [
    "AlreadyRunning",
    "Applied",
    "Blocked",
    "Checked",
    "DispatchResult",
    "Dispatched",
    "Finished",
    "HandoffdError",
    "Intent",
    "InvalidFile",
    "NeedsHuman",
    "NotFound",
    "Reason",
    "Refused",
    "Reply",
    "State",
    "Status",
    "TimedOut",
    "apply_handoff",
    "approve_review",
    "auto",
    "check_prerequisites",
    "classify",
    "detect_framework",
    "dispatch",
    "generate_checklist",
    "init_state",
    "list_projects",
    "peek",
    "query_project_status",
    "read_state",
    "reject_review",
    "reopen",
    "review",
    "rollback",
    "run_post_check",
    "start_custom",
    "start_next",
    "start_story",
    "triage",
]
