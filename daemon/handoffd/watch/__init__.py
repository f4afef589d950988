"""Hints that something under `.ai/` may have changed."""
