"""Stories in a person's words: `handoffd start` with a text, and `handoffd backlog import`.

It reads what people wrote (an argument, a file, standard input, an editor) and hands it to the verbs. It must
never decide which id a story gets, nor whether it is known: the engine does, where the decision is made.
"""
