# What type checkers see: `__init__.py` imports the library only when something of it is asked for.
from handoffd.library import *  # noqa: F403

__version__: str
