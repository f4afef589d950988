"""Reads an agent's output while it runs, by rules that are data (`config/executors.yaml`).

Bytes go in, values come out. Everything follows from the rules: no clock, no file, no process. The
package relies on an executor's rules, on the engine's `Usage`, and on `reports` for text that can be printed.
The output is hostile, so nothing here may raise, hold more than a line, or take more time than in proportion
to the line.
"""
