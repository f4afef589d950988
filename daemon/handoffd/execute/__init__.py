"""Agents and checks as processes: executors as data, runs from their start to what they prove.

`runner` holds the programs that outlive the daemon, `stream` reads what agents print, `reports` what test
runners write. It relies on the kernel for what runs and on a run's records for what happened, and believes no
program's word. It knows no track and no project: what an end means for a story is the engine's to say.
"""
