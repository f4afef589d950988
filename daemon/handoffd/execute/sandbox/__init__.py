"""The sandbox around agents and checks: what a run may see and write, and what holds it to that.

`planning` decides, `plan` carries the decision in the run's specification, and the shim enters it (`entry`).
"""
