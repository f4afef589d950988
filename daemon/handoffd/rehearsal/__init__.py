"""The rehearsal executor: a program in the place of a coding agent, with no model behind it.

It is started exactly as an agent's command line is (prompt on stdin, the project as working directory, an
environment rebuilt from an allow-list) and does each step's work for real, the same way every time, so that
a step table, a gate, a flow or a whole night can be tried without spending a token. Told to by a script, it
misbehaves as agents do. See `script` for the script, `sample` for a small project to rehearse on, `tasks` for
the tasks of flows.

The program side imports the standard library only, and of that only what a step needs: it is started
hundreds of times in a test run. A task of a flow also needs the expressions and schemas of `protocol`.

It must never touch a file outside of the project, overwrite one that a person wrote, or import any other
package of the daemon.
"""
