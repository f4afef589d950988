"""The API over HTTP: the control socket, the loopback port, and what serves them.

Each endpoint is declared once: in `routes`, or in the tables of questions and verbs. Routes, checks of
parameters, docs/reference/api.md and the OpenAPI document are generated from that. Only this package imports
Starlette and uvicorn; every answer comes from `api.service`. `auth` and `limits` check a request before
anything else reads it.
"""
