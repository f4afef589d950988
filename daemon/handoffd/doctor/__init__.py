"""What will go wrong on this machine: what `handoffd doctor` looks at, and how the service is.

Each subject has a file: facts are gathered by one function and judged by another, which is pure and returns
findings; `examination` puts the looks in order and gives each its time. `service` is what systemd says of the
units, for every command that finds no daemon. Relies on the settings, the journal and the executors, which
it reads, on the daemon's API, and on programs of the machine. Must never change anything, take a lock, wait
for a disk or a program without a limit, or keep what it saw.
"""
