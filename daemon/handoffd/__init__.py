"""handoffd supervises coding agents over many projects, one verified step at a time."""

__version__ = "0.1.0"
