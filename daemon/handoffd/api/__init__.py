"""What people and programs can ask of handoffd: every verb and every read, once for all interfaces.

`verbs` is the table of verbs, `service` carries them out, `reads`, `events` and `folders` answer questions,
`chat` understands messages; `client` asks a daemon for the same from another process, `http` serves it.
The package relies on the journal, on the engine's values and, through the protocols in `ports`, on the
fleet. It never decides about a track, writes no state and knows no command line: plain JSON goes in and
out.
"""
