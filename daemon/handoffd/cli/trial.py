"""A project's tests run once where the daemon runs them, told as a finding of `doctor`.

While no daemon runs they get the PATH that its service would have, else this terminal's, which is what
`handoffd run` would have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from handoffd.entrance.place import Place
from handoffd.entrance.requests import account, either
from handoffd.errors import HandoffdError, NotFound

if TYPE_CHECKING:
    from handoffd.api.client import Client, Json
    from handoffd.doctor.finding import Finding


def try_tests(place: Place, project: str) -> Finding:
    """Return what came of it, or why it was not done. Raises NotFound for what is no project."""
    from handoffd.doctor.finding import warning
    from handoffd.doctor.service import installed, service_of
    from handoffd.doctor.tests import CHECK, Terminal, judge

    try:
        tried = _tried(place, project)
    except NotFound:
        raise
    except HandoffdError as error:
        return warning(CHECK, f"the tests were not tried: {error.message}", None, error.hint)
    service = service_of(_pid(place), installed(place.environ, place.config))
    return judge(tried, Terminal(path=place.environ.get("PATH", "")), service)


def _tried(place: Place, project: str) -> Json:
    from handoffd.doctor.service import path_in, unit_file_of

    def ask(client: Client) -> Json:
        return client.post("/v1/tests/try", {"project": project, "by": account()})

    def without() -> Json:
        from handoffd.entrance import offline

        path = path_in(unit_file_of(place.environ))
        return offline.try_tests(place.settings(), project, account(), path)

    return either(place, ask, without).json


def _pid(place: Place) -> int | None:
    try:
        return place.client().daemon_pid()
    except HandoffdError:  # it went, or hangs: the commands are those of its unit
        return None
