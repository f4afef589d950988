"""Claude Code's hooks (level 1): what one answers, and how it gets into Claude Code's settings.

`answering` decides by what `project` finds in the files, `event` is what Claude Code says and hears,
`tally` what is kept between hooks, `claude_settings` the files that name us. The program itself is
`entrance.hook`. It relies on the standard library's quick modules (only `claude_settings`, which no hook
needs, imports more), and must never judge a hand-off, which is the engine's to do, or stop an agent because
something of ours went wrong.
"""
