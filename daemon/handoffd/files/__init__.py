"""Files: how they are written, reached, locked and owned, in folders that an agent can change at any moment.

`atomic.py` replaces a file whole or not at all, `rooted.py` reads and writes below a project's root without
ever leaving it, `state_file.py` is STATE.json, `locks.py` and `ownership.py` say whose a folder is and who
works on it, `run_removal.py` removes what is left of runs, and `errors.py` says what failed in words for
people.

It relies on the kernel and on `engine.wording` for the next command to type. It never follows a symlink
below a root, never reads what is no regular file or larger than it should be, never writes in place, and
knows nothing of tracks, the journal or the settings.
"""
