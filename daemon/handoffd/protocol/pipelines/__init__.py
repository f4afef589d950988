"""Pipelines as text: what a file may hold, whether it is sound, and the plan that it compiles to."""
