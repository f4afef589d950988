"""Text to values and back: STATE.json, hand-offs, the step table, prompts.

All of these files are written by agents, people and other tools, so nothing read here is trusted beyond
its shape: sizes and depths are bounded, and a problem is reported with file, line, key and allowed values
(`errors.InvalidFile`).

It relies on `errors` and `clock`, on pydantic, PyYAML and jinja2. It must never open a file, look at
a clock, or decide what follows from what it read: that is the engine's.
"""
