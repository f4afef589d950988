"""The command line: verbs that answer one question share a file with the text that they print.

It uses the client, `entrance` (the daemon, or the journal when none runs) and `doctor`. A verb imports slow
modules itself, so that other verbs start fast. The command line decides nothing: the daemon decides.
"""
