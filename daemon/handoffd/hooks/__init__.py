"""Claude Code's hooks (level 1): what one answers, and how it gets into Claude Code's settings.

`answering` decides by what `project` finds in the files, `event` is what Claude Code sends and receives,
`tally` is what we keep between hooks, `claude_settings` edits the files that name us. The program itself is
`entrance.hook`. The package uses only quick modules of the standard library (`claude_settings`, which no
hook needs, imports more). It never judges a hand-off, which the engine does, and never stops an agent
because of a fault of ours.
"""
