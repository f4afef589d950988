"""Messages in a chat: what each means, which project it is about, and the replies.

`intents` reads a message by rules alone, in English and Chinese: what holds back first (`restraints`),
then questions, then `commands`, then work; `addressing` finds the project that it names. `replies`
answers a message, `status_text` says where projects are: short texts made from the JSON of verbs and reads
and the sentences of `config/reports/` (`wording`).

It relies on `protocol` and on the names and JSON it is given. It must never act, ask a model, or do what
a message asks for: the same message always means the same, and free text is never consent. Nothing of a
project or an agent comes into a text that is not one short line of printable characters.
"""
