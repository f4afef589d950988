"""What people in a chat are told: short texts in their language, made from plain JSON and templates.

`replies` answers a message, `status_text` says where projects are, `news` what happened. It relies on the
sentences of `config/reports/` and on the JSON of verbs and reads, and on nothing that acts.

It must never decide what a message means or do what it asks for, and put nothing of a project or an agent
into a text that is not one short line of printable characters.
"""
