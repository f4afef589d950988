"""Reads an agent's output while it runs, by rules that are data (`config/executors.yaml`).

Bytes go in, values come out. Everything follows from the rules: no clock, no file, no process. The output is
hostile, so nothing here may raise, hold more than a line, or take more time than in proportion to the line.
"""
