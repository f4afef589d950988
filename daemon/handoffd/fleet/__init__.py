"""All supervised projects: which there are, what runs for each, what people or the settings change about it.

`roster.py` is what the control API, and a verb without a daemon, talk to. Each project that has something to
do has its loop (`loops.py`), which is made anew from the journal after a crash; all others are rows
(`register.py`). Beside them are the tasks that concern all projects: what the settings name
(`enrolment.py`), starts by the clock (`timetable.py`), changed settings (`reloading.py`), cleaning up
(`housekeeping.py`), the gauges. It relies on `project/` for all that concerns one project, and on the
journal for what is recorded of the others. Nothing here decides about a track, or lets the fault of one
project stop another one; nothing imports the API that asks it.
"""
