"""The three-file protocol as values: text in, models out, no I/O."""
