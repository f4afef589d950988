"""Telling people, without ever holding up the supervisor."""
