"""Entry point of `python -I -m handoffd.rehearsal`; `-I` keeps the project's modules from shadowing ours."""

from __future__ import annotations

import os
import sys

from handoffd.rehearsal.agent import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
