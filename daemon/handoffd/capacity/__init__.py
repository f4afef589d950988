"""What may run now, and what holds it back: slots and their queue, accounts, budgets, and the machine itself.

It rests on the engine's values, on the journal and on what executors print, and says what it finds in words
for people. It knows nothing of projects' loops and folders: higher packages hand it tracks, callbacks and
ways to ask a disk. It never starts an executor, never ends one, and never decides for a track.
"""
