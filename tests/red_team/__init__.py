"""The attacks of docs/explanation/threats.md, played and printed: `make red-team`."""
