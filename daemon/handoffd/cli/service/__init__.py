"""`handoffd service`: the daemon as a systemd service, for you or for an account of this machine.

`commands` has the verbs, `plan` what they will do, `unit_files` the text of the units, `scope` for whom the
service is and how to reach its systemd. `doctor` provides what systemd reports about units. A file without
our mark is never touched, and state only with --purge.
"""
