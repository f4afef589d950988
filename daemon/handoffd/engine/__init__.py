"""The deterministic state machine: events in, effects out, nothing done.

One event meets one track; `decide` returns the next track, a result for the asker, the effects (orders)
that follow, and why. Two tables govern it, both in `decide.py`: `TRANSITIONS` (which status may follow
which) and `RULES` (who decides on which event). The values are in `events`, `track`, `run` and `decision`,
the form of `status` in `views`, notices in `notice`, and words for people in `wording`; the rules by
subject in `verbs`, `starting`, `dispatching`, `judging`, `ends`, `limits` and `routing`.

It relies on `protocol` alone, and on its arguments: the track, the event, the step table, the time. It
must never read a clock, a log, a path or a setting, wait, or import anything that does: `replay` makes
recorded decisions again, and a journal is only proof as long as the same input leads to the same
decision. What is stored is known by class name, field and `kind`; these never change their meaning, and a
new field has a default.
"""
