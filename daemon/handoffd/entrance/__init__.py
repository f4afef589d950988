"""How a program of ours reaches the verbs and reads: through the daemon, or, while none runs, without one."""
