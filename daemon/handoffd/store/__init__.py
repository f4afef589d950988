"""The only place that writes state: the journal and its projection."""
