"""The program `orchestrator`: the reference CLI's verbs, arguments and output, on this engine.

`main` finds the verb, in `reads`, `verbs` or `auto`; `console` is how words come in and lines go out, byte
by byte as the reference has them. It relies on `entrance` for what needs the engine, and on the standard
library alone for `status`. It must never have a behaviour of its own: where it differs from the reference
is in docs/reference/compatibility.md.
"""
