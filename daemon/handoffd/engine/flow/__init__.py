"""Flows: the pure machine that runs a graph of tasks, and a simulator of it."""
