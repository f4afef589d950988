"""The command line: verbs that answer one question share a file, with their text for people beside them.

Relies on the client, on `entrance` (the daemon, or the journal where none runs) and on `doctor`; what takes
time to import is imported by the verb that needs it. It decides nothing: every decision is the daemon's.
"""
