"""What `orchestrator` does otherwise than the reference, for docs/compatibility.md."""

from __future__ import annotations

from tests.differential.comparing import Rule, deliberate
from tests.differential.recordings import results
from tests.support.markdown import table


def differences() -> str:
    """Return the counts of the latest comparison, and the table of deliberate differences."""
    found = results()
    cases, same = found["cases"], found["same"]
    counts = (
        f"{cases:,} cases (a project state and a verb each) were given to the reference"
        f"\n{found['reference']} and to ours. In {same:,} both said and did the same;"
        f"\nin {cases - same:,} there is a difference, and each one has a row here."
    )
    rows = [_row(rule, found["rules"][rule.id]) for rule in deliberate()]
    return f"{counts}\n\n{table(('What differs', 'Why', 'Verbs', 'Cases'), rows)}\n"


def _row(rule: Rule, count: int) -> tuple[str, ...]:
    verbs = ", ".join(f"`{verb}`" for verb in rule.verbs)
    return (f"**{rule.id}** {rule.what}", rule.why, verbs, str(count))
