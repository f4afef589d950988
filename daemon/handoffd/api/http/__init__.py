"""The API over HTTP: the control socket, the loopback port, and what serves them.

Each endpoint is declared once, in `reads` or `orders`; routes, checks of parameters, docs/reference/api.md
and the OpenAPI document are made from that. This is the one home of Starlette and uvicorn, and relies on
`api.service` for every answer. It never answers a stranger: `auth` and `limits` look at a request first.
"""
