"""A flow under the daemon: its consumer, the orders of its decisions, and the tracks that work on its tasks.

What follows from a fact is decided in `engine/flow/`; here it is made durable and carried out.
"""
