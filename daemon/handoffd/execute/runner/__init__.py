"""Programs that run without the daemon: the launcher and the shim. Standard library only."""
