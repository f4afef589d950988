"""How a program of ours reaches the verbs and reads: through the daemon, or, while none runs, without one.

`place` finds the daemon, `requests` asks it, `offline` does without it by its own parts, and `absence` says
why none answers; `hook` is the program that Claude Code runs. It relies on `api.client`, `app`,
`doctor.service` and `settings.paths`. It never prints (the hook's answer apart), and imports the daemon's
parts only when there is no daemon to ask.
"""
