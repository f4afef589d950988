"""What a project's files say, whether the project is supervised or not.

Which folders are projects, which files of the protocol they have, what their tests, their own rules, their
STATE.json and their memory say. It relies on `files` for opening files below a root, on `protocol` for
reading them, and on no journal.

It must never believe a file (an agent or a stranger may have written it), follow a link out of the project,
or write anything but `.ai/CHECKLIST.md`.
"""
