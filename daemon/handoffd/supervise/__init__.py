"""One consumer per track, and the interpreter of what the engine orders."""
