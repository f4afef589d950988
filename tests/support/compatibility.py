"""What `orchestrator` does otherwise than the reference, for docs/reference/compatibility.md."""

from __future__ import annotations

from tests.differential.comparing import Rule, deliberate
from tests.differential.recordings import results
from tests.support.markdown import table


def differences() -> str:
    """Return the counts of the latest comparison, and the table of deliberate differences."""
    found = results()
    cases, same = found["cases"], found["same"]
    sequences, verbs, same_verbs = found["sequences"], found["verbs"], found["same_verbs"]
    counts = (
        f"{cases:,} cases (a project state and a verb each) were given to the reference"
        f"\n{found['reference']} and to ours. In {same:,} both said and did the same."
        f"\nThen {sequences:,} sequences of three to six verbs, {verbs:,} in all:"
        f"\nafter {same_verbs:,} of these the programs agreed. Each difference has a row here."
    )
    rows = [_row(rule, found["rules"][rule.id]) for rule in deliberate()]
    return f"{counts}\n\n{table(('What differs', 'Why', 'Verbs', 'Cases'), rows)}\n"


def _row(rule: Rule, count: int) -> tuple[str, ...]:
    verbs = ", ".join(f"`{verb}`" for verb in rule.verbs)
    return (f"**{rule.id}** {rule.what}", rule.why, verbs, str(count))
