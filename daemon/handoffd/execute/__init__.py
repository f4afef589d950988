"""Executors as processes: launcher, shim, checks."""
