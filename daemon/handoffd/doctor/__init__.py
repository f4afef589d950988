"""What will go wrong on this machine: checks from facts to findings, and who gathers the facts."""
