"""One track: the one consumer that decides about a story or a task, and what its decisions do to the world.

`track.py` takes facts from the inbox one at a time, asks the engine, commits to the journal, shows
STATE.json and has `interpreter.py` carry out the orders. The other files are what a turn looks up (the
executor, the prompt) and what an order starts (attempts, checks). They rely on the journal, on the launcher,
on `capacity/` for a place to run in, and on `engine/` for every decision. Nothing here decides what follows
from a fact, knows another track or holds more of the project than `Home` in `services.py` says;
nothing but `track.py` changes a track.
"""
