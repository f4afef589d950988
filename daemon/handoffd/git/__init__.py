"""The repository that a project is in: what is unfinished there, and snapshots of its files.

It relies on git's own commands for everything that is kept, and on its own look at a few names for what is
asked often. A repository's files and settings are an agent's to write: no hook, filter, file system monitor
or diff program that they name is ever run, and no person's index, branch or HEAD is written.
"""
