"""Notices about a flow: a question with its answers, and the end. Functions of values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from handoffd.engine.flow.events import Ask, ReportEnd
from handoffd.engine.flow.flow import FLOWS, Feedback, Flow, Node
from handoffd.engine.flow.views import answering, asked_of
from handoffd.engine.notice import Notice
from handoffd.engine.wording import counted, flow_command
from handoffd.journal.records import PendingEffect
from handoffd.protocol.plan import Plan
from handoffd.protocol.rules import Language

_MOST_TEXT = 300


def topic_of(flow: str, node: str) -> str:
    """Return what the question of a node is known by, until it is settled."""
    return f"{FLOWS}{flow}/{node}"


def question_notice(order: Ask, pending: PendingEffect, flow: Flow, plan: Plan, language: Language) -> Notice:
    """Return the notice about a question. Its id follows from the order: a repetition is recognised."""
    root = pending.key.project
    node = flow.nodes.get(order.node)
    text = question_text(flow, plan, order, language)
    choices = [answering(flow.id, order.node, one) for one in order.choices]
    deadline = order.deadline
    then = ""
    if deadline is not None and order.default is not None:
        then = f"unanswered by {deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC, it is {order.default}"
    return Notice(
        id=_id(pending),
        at=pending.at,
        project=root,
        name=Path(root).name,
        story=flow.id,
        step=order.node or "flow",
        kind="needs_human",
        text=text,
        why="; ".join(part for part in (order.why, then) if part) or None,
        action=choices[0],
        review=_review(node, plan),
        facts=tuple(f"To answer: {one}" for one in choices[1:]),
    )


def question_text(flow: Flow, plan: Plan, order: Ask, language: Language) -> str:
    """Return what a person is asked, in one line."""
    node = flow.nodes.get(order.node)
    if node is None:
        return f"{flow.id} opens nothing more before you have decided: {order.why}"
    task = plan.scope(node.place).tasks[node.task]
    asked = asked_of(task, hold=order.hold, language=language)
    item = "" if order.item is None else f" ({order.item.id})"
    told = _told(order.feedback)
    return f"{flow.id} {node.id}{item}: {asked}{told}"


def _told(feedback: tuple[Feedback, ...]) -> str:
    words = next((one.text for one in reversed(feedback) if one.text), "")
    return f" ({words[:_MOST_TEXT]})" if words else ""


def _review(node: Node | None, plan: Plan) -> tuple[str, ...]:
    if node is None:
        return ()
    question = plan.scope(node.place).tasks[node.task].question
    return () if question is None else question.review


def end_notice(order: ReportEnd, pending: PendingEffect, flow: Flow, plan: Plan) -> Notice:
    """Return the notice about the end of a flow."""
    root = pending.key.project
    counts = ", ".join(f"{number} {state}" for state, number in order.counts.items() if number)
    lost = f"; lost: {', '.join(order.lost[:5])}" if order.lost else ""
    unread = counted(len(order.unread), "word of feedback", "words of feedback")
    left = f"; {unread} reached no task any more" if order.unread else ""
    return Notice(
        id=_id(pending),
        at=pending.at,
        project=root,
        name=Path(root).name,
        story=flow.id,
        step="flow",
        kind="done" if order.how == "succeeded" else "warning",
        text=f"{flow.id} has {'been cancelled' if order.how == 'cancelled' else order.how}",
        why=f"{counts}{lost}{left}" or None,
        action=flow_command("show", flow.id),
    )


def unfit_notice(root: str, flow: Flow, node: Node, files: Sequence[str], at: datetime) -> Notice:
    """Return the notice about work that was accepted, and does not fit the work of others any more."""
    return Notice(
        id=f"{flow.id}.{node.number}-unfit",
        at=at,
        project=root,
        name=Path(root).name,
        story=flow.id,
        step=node.id,
        kind="warning",
        text=f"{flow.id} {node.id} was accepted, and is not on the flow's branch",
        why=f"others changed {', '.join(files[:10])} meanwhile; what it did is kept by a ref",
        action=flow_command("revise", flow.id, node.id),
    )


def _id(pending: PendingEffect) -> str:
    return f"{pending.at.astimezone(UTC):%Y%m%dT%H%M%S.%f}-{pending.id}"
