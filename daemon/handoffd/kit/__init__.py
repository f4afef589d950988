"""The small programs that pipelines run as commands: `handoffd kit NAME`.

Each does one thing that needs no judgement, the same way each time: it groups, merges, counts, compares,
renders, moves to the trash. `given.py` is what a program gets and what it returns; `shell.py` reads the one
from the environment of a task and performs the other; `programs.py` lists them. The programs rely on `files`
and the readers of test reports, and on no daemon: each can be typed by hand.
"""
