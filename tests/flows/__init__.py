"""Flows by chance: random pipelines, random events, and a watcher that shares no code with the machine."""
