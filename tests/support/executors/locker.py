"""An agent that has a process of another session, without its environment, lock the project's folder.

That process waits until no daemon has the lock, and would keep it for ten minutes. When it is gone, the
agent is the rehearsal; `.ai/locker` has the process's id once it has the lock.
"""

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import fcntl, os, time
fcntl.flock(os.open(".", os.O_RDONLY), fcntl.LOCK_EX)
open(".ai/locker.new", "w").write(str(os.getpid()))
os.rename(".ai/locker.new", ".ai/locker")
time.sleep(600)
"""

if not Path(".ai/locker").exists():
    Path(".ai/locking").touch()
    subprocess.run([sys.executable, "-I", "-c", CODE], env={}, start_new_session=True, check=False)
os.execv(sys.executable, [sys.executable, "-I", "-m", "handoffd.rehearsal"])
