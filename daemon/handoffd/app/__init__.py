"""The daemon itself: its parts are built here, once, and its one top-level task group is run here.

`wiring.py` builds the graph of parts, `daemon.py` runs them and ends them in order, `offline.py` lends them
to a verb that is given while no daemon runs, `service_manager.py` is what systemd is told. It relies on
everything below it and hands each part its own section of the settings. Nothing here decides about a
project, and nothing but the ways in (`entrance/`, `cli/`) imports it.
"""
