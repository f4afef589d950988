"""The verbs people give, and the socket they come in by."""
