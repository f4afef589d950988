"""Programs that run without the daemon: the launcher, and the shim that looks after each run.

Installed units start `launcher` and `shim` by their paths. The code that they share with the daemon is here,
too: a run's records and output, its process tree and control group, and facts from /proc. It depends on the
kernel, the standard library, and the run's records in `execute.base`. It must import nothing else, because
each shim keeps it in memory as long as its run lasts, and must never ask the daemon for anything.
"""
