"""What people and programs can ask of handoffd: every verb and every read, once, whoever asks.

`verbs` is the table of verbs, `service` carries them out, `reads`, `events` and `folders` answer questions,
`chat` understands messages; `client` asks a daemon for the same from another process, `http` serves it.
This relies on the journal, on the engine's values and, through the protocols in `ports`, on what supervises
projects. It never decides about a track, writes no state and knows no command line: plain JSON goes in and
out.
"""
