"""Programs that run without the daemon: the launcher, and the shim that looks after each run.

`launcher` and `shim` are started by their paths, which installed units name. What the daemon shares with them
is here, too: where a run's records and output are, its process tree and control group, and what /proc says.
Relies on the kernel, the standard library, and the run's records in `execute.base`. Must never import
anything else, for each shim carries it as long as its run lasts, or ask the daemon for anything.
"""
