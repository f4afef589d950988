"""Stories as people meet them: `start` with a text, `backlog import`, and `gate`, where one is decided.

It reads what people wrote (an argument, a file, standard input, an editor, a key) and hands it to the verbs.
It must never decide which id a story gets, whether it is known, or whether it waits at a gate: the engine
does, where the decision is made.
"""
