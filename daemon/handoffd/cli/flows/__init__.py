"""Flows as people reach them: `handoffd flow start`, `list`, `show`, `explain`, `messages`, and the answers.

It asks the daemon, or the journal while none runs, and puts the answers into words. It must never decide
what an answer leads to, or guess the type of a parameter: the pipeline says both.
"""
