"""handoffd supervises coding agents over many projects, one verified step at a time.

As a library: `from handoffd import dispatch, start_story`; see `handoffd.library`. Its functions are
imported when they are asked for, because every command imports this module.
"""

from importlib import import_module

__version__ = "0.1.1"


def __getattr__(name: str) -> object:
    """Return a function or type of the library; `import *` asks for `__all__`, which is the library's."""
    if name == "__all__" or not name.startswith("_"):
        library = import_module("handoffd.library")
        if name == "__all__" or name in library.__all__:
            return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return what `dir` and completion show: everything that can be imported from here."""
    return sorted([*globals(), *import_module("handoffd.library").__all__])
