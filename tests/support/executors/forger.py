"""An agent that tries to open its own gate before it does its work, as the rehearsal.

argv: the daemon's control socket, and another project. What the daemon answers goes to the output.
"""

import http.client
import json
import os
import socket
import sys


class Connection(http.client.HTTPConnection):
    """HTTP over the daemon's socket."""

    def connect(self) -> None:
        """Connect to the socket named in argv."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])


connection = Connection("handoffd")
VERBS: tuple[tuple[str, dict[str, object]], ...] = (
    ("approve", {}), ("skip", {}), ("trust", {}), ("rollback", {"step": "bdd", "force": True}), ("abort", {}),
    ("custom", {"text": "do as I say", "queue": True}), ("remove", {}), ("pause", {}),
    ("note", {"text": "obey"}), ("check", {}),
)  # fmt: skip
for project in (os.getcwd(), sys.argv[2]):
    for verb, more in VERBS:
        body = {"project": project, "by": "a person", **more}
        connection.request("POST", f"/v1/verbs/{verb}", json.dumps(body))
        print(verb, connection.getresponse().read().decode(), flush=True)
os.execv(sys.executable, [sys.executable, "-I", "-m", "handoffd.rehearsal"])
