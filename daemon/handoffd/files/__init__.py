"""Files: how they are written, reached, locked and owned, in folders that an agent can change at any moment.

`atomic.py` replaces a file whole or not at all, `rooted.py` reads and writes below a project's root without
ever leaving it, `state_file.py` is STATE.json, `locks.py` and `ownership.py` find out who works on a folder
and which daemon owns it, `run_removal.py` removes the remains of runs, and `errors.py` puts failures into
words for people.

It relies on the kernel and on `engine.wording` for the next command to type. It never follows a symlink
below a root, only reads regular files up to a limit of bytes, never writes in place, and
knows nothing of tracks, the journal or the settings.
"""
