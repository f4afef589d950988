"""The daemon itself: this package builds its parts, once, and runs its one top-level task group.

`wiring.py` builds the graph of parts, also for verbs without a daemon, `daemon.py` runs and ends them in
order, `service_manager.py` reports to systemd, `logs.py` formats log lines. The package relies on everything
below it and hands each part its own section of the settings. Nothing here decides about a project, and only
the entry points (`entrance/`, `cli/`) import it.
"""
