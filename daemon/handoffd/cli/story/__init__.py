"""One story played while you watch: `handoffd demo` and `handoffd rehearse`.

Both run the real daemon with a state directory of its own, and `reviewer` asks at the human steps. Relies on
the client and on `rehearsal`, which plays the agent. It must never touch the project that is rehearsed, nor
the daemon that people have.
"""
