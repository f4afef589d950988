"""The deterministic state machine: facts in, orders out, nothing done."""
