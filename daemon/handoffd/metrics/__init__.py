"""What Prometheus scrapes: counters that each decision updates, and gauges that are read when it asks.

It relies on the events and tracks of the engine and, but for `recorder`, on the client library.

It must never slow a decision down, raise into one, or make a series for each value that a project can invent.
"""
