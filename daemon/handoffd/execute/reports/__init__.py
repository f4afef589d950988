"""What test runners write, turned into one form: a file for each format, bytes in, a `TestReport` out.

It relies on nothing but the bytes. Whoever wrote them may lie, and may write without end: nothing is believed
beyond its form, every size is bounded, and what cannot be used is a report that says so, never an exception.
"""
