"""An agent that tries to open its own gate before it does its work, as the rehearsal.

argv: the daemon's control socket. What the daemon answers goes to the output.
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
for verb, more in (
    ("approve", {}),
    ("skip", {}),
    ("trust", {}),
    ("rollback", {"step": "bdd", "force": True}),
):
    connection.request("POST", f"/v1/verbs/{verb}", json.dumps({"project": os.getcwd(), **more}))
    print(verb, connection.getresponse().read().decode(), flush=True)
os.execv(sys.executable, [sys.executable, "-I", "-m", "handoffd.rehearsal"])
