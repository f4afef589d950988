"""What can be set, by whom it was set, and where the daemon and its files are.

`model` says what there is, `loading` reads it from files, the environment and flags, `paths` answers where
the daemon is for programs that cannot wait for all that. It relies on `errors` and on the YAML reader of
`protocol`.

It must never change a file, reach for the environment by itself (it is handed one), quote a value that may
be a secret, or take a value that it does not know. Nothing is imported here: `paths` is for programs that
start fast.
"""
