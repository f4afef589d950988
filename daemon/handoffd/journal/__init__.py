"""The journal: what is written here has happened, even if the process dies.

One SQLite file outside every project holds the events, and tables that are derived from them: tracks,
orders, flows, dispatches, projects, notices, schedules. `journal.py` is the whole of it for the daemon; below
it are files for what a decision writes (`commit.py`, and `flows.py` about a flow), and one each for projects
with their schedules, for dispatches and for notices. `records.py` has the values that go in and come out,
`schema.py` the tables by release, `database.py` the file itself. What is done to a journal as a whole is in
`backup.py` (copy, restore, repair) and `retention.py` (what goes for its age); `replay.py` reads it for
`journal verify`.

It relies on `files/` for locks and errors, and on the values of `engine/` and `protocol/`, which it keeps
by class name and field: moving a class changes nothing that is stored, renaming a field does. No other
package imports `sqlite3`. It decides nothing, starts nothing, and never changes an event: history is
appended to, dropped whole for its age, and left alone where it cannot be read.
"""
