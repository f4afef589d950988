"""The control API of a real daemon, asked by a machine that reads its OpenAPI document."""
