"""What an executor can do, as its definition says: for the matrix of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from handoffd.execute.executor import Executor
from handoffd.execute.stream.format import StreamFormat, UsageRule

Tokens = Literal["live", "at the end", "no"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """One row of the matrix."""

    name: str
    prompt: str
    """How it gets the prompt: `stdin` or `file`."""
    output: str
    resume: bool
    """Whether its sessions can be continued."""
    session: str
    """Whether another attempt does so: `fresh` or `resume`."""
    tokens: Tokens
    cost: bool
    """Whether it says what it costs; else the price table reckons."""
    limits: bool
    """Whether a usage limit is told from other errors."""
    permission: str | None
    permissions: tuple[str, ...]
    account: str
    writes: tuple[str, ...]


def capabilities(executor: Executor) -> Capabilities:
    """Return what `executor` can do."""
    rules = [rule.usage for rule in (executor.stream or StreamFormat()).lines if rule.usage is not None]
    return Capabilities(
        name=executor.name,
        prompt=executor.prompt,
        output=executor.output,
        resume=executor.can_resume,
        session=executor.session,
        tokens=_tokens(rules),
        cost=any(rule.cost for rule in rules),
        limits=bool(executor.limits),
        permission=executor.permission,
        permissions=executor.choices,
        account=executor.account,
        writes=executor.writes,
    )


def _tokens(rules: list[UsageRule]) -> Tokens:
    if not rules:
        return "no"
    return "live" if any(rule.mode == "add" for rule in rules) else "at the end"
