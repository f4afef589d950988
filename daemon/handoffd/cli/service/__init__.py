"""`handoffd service`: the daemon as a systemd service, of a person or of an account.

`commands` has the verbs, `plan` what they are going to do, `unit_files` the text of the units, `scope` whose
service it is and how its systemd is reached. Relies on `doctor` for what systemd says of units. It must never
touch a file without our mark, nor state without --purge.
"""
