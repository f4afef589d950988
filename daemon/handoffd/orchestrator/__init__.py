"""The program `orchestrator`: the reference CLI's verbs, arguments and output, on this engine."""
