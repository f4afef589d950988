"""handoffd supervises coding agents over many projects, one verified step at a time.

As a library: `from handoffd import dispatch, start_story`; see `handoffd.library`. Its functions are
imported when they are asked for, because every command imports this module.
"""

from importlib import import_module

__version__ = "0.1.0"

# Names alone: `import *` asks for each of them below. A test holds them against those of the library.
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


def __getattr__(name: str) -> object:
    """Return a function or type of the library."""
    if not name.startswith("_"):
        library = import_module("handoffd.library")
        if name in library.__all__:
            return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
