"""Commands for people to type, as templates: `{project}` stands for the project they are about.

The engine knows which command comes next and no paths; what shows it knows the path. So both ends meet
here, and every command that a person is shown is made by `command` and completed by `addressed`. Words in
capitals (`STORY`, `STEP`, `TEXT`) are for the person to fill in.

A file of its own, because `handoffd status` loads it and is to be quick: it imports `shlex` and nothing
else, not even `typing`. What the engine says beside commands, and which command it advises, is in
`wording.py`.
"""

from __future__ import annotations

from shlex import quote

PROJECT = "{project}"
"""Where the path goes; quoted for a shell, also one that holds blanks or quotes."""


def command(verb: str, *words: str) -> str:
    """Return the template of `handoffd VERB PROJECT WORDS…`; each word is one word for a shell, too."""
    return " ".join(("handoffd", verb, PROJECT, *map(quote, words)))


def addressed(text: str, root: str) -> str:
    """Return a template, or a sentence that holds some, for the project at `root`."""
    return text.replace(PROJECT, quote(root))


def command_for(root: str, verb: str, *words: str) -> str:
    """Return a command for the project at `root`, ready to be typed."""
    return addressed(command(verb, *words), root)


def approving(story: str | None) -> str:
    """Return what opens the gate a story waits at, and no other's: it may be typed hours later."""
    return command("approve", *(() if story is None else ("--story", story)))


def mending(root: str, condition: str) -> str | None:
    """Return what a person types first about a project in this condition; None where nothing is wrong."""
    match condition:
        case "not_initialized":
            return command_for(root, "init")
        case "invalid_rules":
            return command_for(root, "rules check")
        case "invalid_journal":
            return command_for(root, "journal verify")
        case "unfinished_git":
            return f"git -C {quote(root)} status  # says how to finish it or take it back"
        case "missing":
            return f"ls -ld {quote(root)}  # mount it or move it back; or: {command_for(root, 'remove')}"
        case "io_error":
            return f"ls -ld {quote(root)} {quote(root + '/.ai')}; df -h {quote(root)}"
        case "invalid_state":
            return f"${{EDITOR:-vi}} {quote(root + '/.ai/STATE.json')}"
        case "locked":
            leaving, taking = command_for(root, "remove"), command_for(root, "add", "--take")
            return f"{leaving}  # leaves it to the other one; or end that one, and have it here: {taking}"
    return None
