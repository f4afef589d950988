"""Reading what an agent prints while it runs, by rules that are data (`config/executors.yaml`).

Bytes go in, values come out. It relies on the rules alone: no clock, no file, no process. What agents print
is hostile, so nothing here may raise, hold more than a line, or take longer than the line is long.
"""
