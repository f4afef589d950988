"""`python -m handoffd`: the same as the `handoffd` command."""

from __future__ import annotations

from handoffd.cli.start import main

if __name__ == "__main__":
    main()
