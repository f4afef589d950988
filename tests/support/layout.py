"""Where agent CLIs write outside of the project, held against what their definitions say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handoffd.execute.environment import expanded
from handoffd.execute.executor import Executor


def undeclared(executor: Executor, environment: Mapping[str, str], paths: Iterable[str]) -> tuple[str, ...]:
    """Return the absolute `paths` outside of all of the executor's `writes` and `own`."""
    declared = [expanded(path, environment) or "" for path in (*executor.writes, *executor.own)]
    # A folder holds what is below it; what ends in a star, whatever begins so.
    begins = tuple(path.removesuffix("*") if path.endswith("*") else f"{path}/" for path in declared)
    return tuple(path for path in paths if not f"{path}/".startswith(begins))
