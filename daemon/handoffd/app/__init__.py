"""The composition root: builds the graph of parts and owns the one top-level task group."""
