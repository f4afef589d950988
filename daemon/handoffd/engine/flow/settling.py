"""What can begin or is over, until nothing more follows: needs, conditions, lists, room, groups, the flow.

Only scopes in which something has changed are examined, and scopes in which a task waits for room while
there is some. In each the tasks are taken in the order of the plan, so that one pass is enough: a task comes
after all that it needs. First everything follows that needs no process, ways back too; only then is
work begun, so that none is begun and taken back at once.
"""

from __future__ import annotations

from collections import Counter
from math import inf

from msgspec.structs import replace

from handoffd.engine.flow.draft import Draft, is_over
from handoffd.engine.flow.events import ReportEnd
from handoffd.engine.flow.flow import LOST, ROOT, Node, NodeId, NodeState, ScopeId, child
from handoffd.engine.flow.opening import (
    begin,
    fate_of,
    has_room,
    is_full,
    next_visit,
    open_items,
    open_node,
)
from handoffd.engine.flow.reacting import (
    ENDED,
    LEFT_OUT,
    give_up,
    judge,
    lift_cap,
    perform_rewinds,
    react,
    stuck,
)
from handoffd.protocol.expressions import Broken
from handoffd.protocol.plan import Accept, Ending, Scope, Task, usual_outcome


def settle(draft: Draft) -> None:
    """Let everything follow that can."""
    looked: set[ScopeId] = set()
    released = draft.released
    while True:
        if perform_rewinds(draft):
            continue
        if draft.released != released:
            looked.clear()
            released = draft.released
        draft.opening = not draft.changed
        scope = _first(draft, draft.changed or draft.ready)
        if scope is None and has_room(draft):
            untried = (one for one in draft.waiting if one not in looked)
            scope = _first(draft, {one for one in untried if _is_free(draft, one)})
        if scope is None:
            break
        if draft.opening:
            looked.add(scope)
        if scope == ROOT or (scope in draft.nodes and draft.nodes[scope].state is NodeState.OPEN):
            _look(draft, scope)
    _finish(draft)


def _is_free(draft: Draft, scope: ScopeId) -> bool:
    """Return whether a task of a scope that waits could begin now, as far as claims are concerned."""
    claims = draft.waiting[scope].claims
    return not claims or any(draft.clash(f"{scope}/", some) is None for some in claims)


def _first(draft: Draft, scopes: set[ScopeId]) -> ScopeId | None:
    """Take the first of some scopes out of them, in the order of the plan."""
    found = min(scopes, key=lambda scope: _rank(draft, scope), default=None)
    if found is not None:
        scopes.discard(found)
    return found


def _rank(draft: Draft, scope: ScopeId) -> tuple[float, ...]:
    """Return the place of a scope in the order of the plan; what is inside of it comes before itself."""
    node = draft.nodes.get(scope)
    return (*(() if node is None else node.rank), inf)


# --- one scope ----------------------------------------------------------------------------------------
def _look(draft: Draft, scope: ScopeId) -> None:
    """Open what can begin in a scope, and end it when all its tasks are over."""
    draft.waiting.pop(scope, None)
    if draft.covered(scope) or draft.ended is not None:
        return
    plan, left_out = draft.scope(scope), draft.left_out(scope)
    if left_out:
        _leave_out(draft, scope)
    _open_called(draft, scope)
    for name in plan.order:
        task, id = plan.tasks[name], child(scope, name)
        node = draft.nodes.get(id)
        if task.on_demand or task.always:
            continue
        if node is None:
            _consider(draft, scope, id, task, left_out)
        elif task.each is not None and node.state is NodeState.OPEN and id in draft.lists:
            open_items(draft, node, task)
    if not _all_over(draft, scope, plan):
        return
    for name in plan.order:
        if plan.tasks[name].always and not is_over(draft.nodes.get(child(scope, name))):
            _consider_always(draft, scope, plan.tasks[name])
    if scope != ROOT and _all_over(draft, scope, plan, always=True):
        _end_group(draft, draft.nodes[scope], plan)


def _leave_out(draft: Draft, scope: ScopeId) -> None:
    """Let nothing more begin in a group that is left out; questions in it are withdrawn."""
    inside = f"{scope}/"
    for callee, caller in [*draft.calls.items()]:
        if callee.startswith(inside):
            del draft.calls[callee]
            give_up(draft, draft.nodes[caller], LEFT_OUT)
    for id in sorted(id for id in draft.asking if id.startswith(inside)):
        draft.withdraw(draft.nodes[id])
        give_up(draft, draft.nodes[id], LEFT_OUT)
    for id, node in draft.nodes.items():
        if id.startswith(inside) and node.state is NodeState.OPEN and draft.is_scope(node):
            draft.changed.add(id)


def _all_over(draft: Draft, scope: ScopeId, plan: Scope, *, always: bool = False) -> bool:
    return all(
        is_over(draft.nodes.get(child(scope, name)))
        for name in plan.order
        if not plan.tasks[name].on_demand and (always or not plan.tasks[name].always)
    ) and not any(rewind.scope == scope for rewind in draft.rewinds)


def _consider(draft: Draft, scope: ScopeId, id: NodeId, task: Task, left_out: bool) -> None:
    """Look whether a task can begin, or must not."""
    if draft.covered(id) or (draft.opening and task.works and task.each is None and is_full(draft, scope)):
        return
    if draft.ending or left_out:
        why = ENDED if draft.ending else LEFT_OUT
        draft.settle(draft.made(scope, task), NodeState.SKIPPED, why)
    elif (fate := _fate(draft, scope, task)) is None:
        return
    elif fate[0] is not NodeState.OPEN:
        draft.settle(draft.made(scope, task), *fate)
    elif task.when is None and task.works and task.each is None and not draft.opening:
        draft.ready.add(scope)
    else:
        node = draft.made(scope, task)
        if _is_wanted(draft, node, task):
            begin(draft, node, task)


def _fate(draft: Draft, scope: ScopeId, task: Task) -> tuple[NodeState, str] | None:
    """Return the state that follows from the needs of a task: OPEN, if it may begin; None: not yet."""
    needed = {name: draft.nodes.get(child(scope, name)) for name in task.needs}
    fate = fate_of(needed)
    if fate is None or fate[0] is not NodeState.OPEN:
        return fate
    for name, node in needed.items():
        taken = task.needs[name]
        if taken is None or node is None or (node.state is NodeState.ACCEPTED and node.outcome in taken):
            continue
        return NodeState.SKIPPED, f"{name} is {node.outcome or node.state}, not {' or '.join(taken)}"
    return fate


def _is_wanted(draft: Draft, node: Node, task: Task) -> bool:
    """Return whether the condition of a task holds; else it is skipped, or held if it has no value."""
    if task.when is None:
        return True
    if node.id not in draft.chosen:
        try:
            draft.chosen[node.id] = bool(draft.value(task.when, node.scope, node.id, {}))
        except Broken as error:
            stuck(draft, replace(node, visit=next_visit(draft, node.id)), str(error), begun=False)
            return False
    if not draft.chosen[node.id]:
        draft.settle(node, NodeState.SKIPPED, f"{task.when.text} is false")
    return draft.chosen[node.id]


def _open_called(draft: Draft, scope: ScopeId) -> None:
    """Open the tasks on demand that were called in a scope."""
    for id, caller in [*draft.calls.items()]:
        node = draft.nodes.get(caller)
        if (node.scope if node is not None else ROOT) != scope or draft.covered(id):
            continue
        task = draft.scope(scope).tasks[id.rpartition("/")[2]]
        made = replace(draft.made(scope, task), id=id)
        item = None if node is None else draft.item(node.id)
        if open_node(draft, made, task, item, caller or None):
            del draft.calls[id]


def _consider_always(draft: Draft, scope: ScopeId, task: Task) -> None:
    node = draft.made(scope, task)
    if node.id in draft.nodes:
        return
    if draft.aborts > 1:
        draft.settle(node, NodeState.SKIPPED, "a person asked for the end at once")
    else:
        open_node(draft, node, task)


# --- ends of groups and of the flow -------------------------------------------------------------------
def _end_group(draft: Draft, node: Node, plan: Scope) -> None:
    """End a group: what is dead in it comes first, then what was left out, then its verdict."""
    states = {
        draft.nodes[child(node.id, name)].state for name in plan.order if not plan.tasks[name].on_demand
    }
    task = draft.task(node)
    if draft.ending:
        hidden = isinstance(task.outcomes["failed"][0], Accept)
        dead = states & LOST and not hidden
        draft.settle(node, NodeState.DEAD if dead else NodeState.SKIPPED, ENDED)
    elif states & LOST:
        react(draft, node, "failed", why="" if "failed" in task.declared else "a task in it is dead")
    elif NodeState.DROPPED in states:
        draft.settle(node, NodeState.DROPPED, "a task in it was left out")
    else:
        _judge_group(draft, node, task)


def _judge_group(draft: Draft, node: Node, task: Task) -> None:
    try:
        node, said = judge(draft, node, task, scope=node.id)
    except Broken as error:
        stuck(draft, node, str(error))
        return
    react(draft, node, said or usual_outcome(task) or "failed")


def _finish(draft: Draft) -> None:
    """End the flow when everything is over."""
    quiet = not (draft.busy or draft.asking or draft.calls or draft.rewinds)
    if draft.ended is not None or not quiet or not _all_over(draft, ROOT, draft.plan.root, always=True):
        return
    root = [
        draft.nodes[child(ROOT, name)] for name in draft.plan.root.order if child(ROOT, name) in draft.nodes
    ]
    plain = [node for node in root if not (draft.task(node).on_demand or draft.task(node).always)]
    states = [node.state for node in plain]
    failed = any(node.state in LOST for node in root)
    how: Ending = draft.ending or "succeeded"
    if how == "succeeded" and failed:
        how = "failed"
    elif how == "succeeded" and all(state is NodeState.DROPPED for state in states):
        how = "cancelled"
    lift_cap(draft)
    draft.ended = how
    draft.waiting.clear()
    draft.orders.append(_report(draft, how))


def _report(draft: Draft, how: Ending) -> ReportEnd:
    counts = Counter(str(node.state) for node in draft.nodes.values())
    lost = tuple(id for id, node in draft.nodes.items() if node.state in LOST)
    unread = tuple(one for some in draft.feedback.values() for one in some)
    return ReportEnd(how=how, counts=dict(counts), lost=lost, unread=unread)
