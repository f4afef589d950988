"""What `orchestrator` does otherwise than the reference, for docs/reference/compatibility.md."""

from __future__ import annotations

from tests.differential.comparing import deliberate
from tests.differential.recordings import results
from tests.support.markdown import table


def differences() -> str:
    """Return the counts of the latest comparison, and the table of deliberate differences."""
    found = results()
    cases, same = found["cases"], found["same"]
    sequences, verbs, same_verbs = found["sequences"], found["verbs"], found["same_verbs"]
    counts = (
        f"The reference\n{found['reference']} and ours got {cases:,} cases (a project state and a verb each)"
        f"\nand agreed in {same:,}. Then they got {sequences:,} sequences of three to six verbs,"
        f"\n{verbs:,} in all, and agreed after {same_verbs:,}. Each difference has a row here."
    )
    rows = [(rule.what, rule.why, ", ".join(f"`{verb}`" for verb in rule.verbs)) for rule in deliberate()]
    return f"{counts}\n\n{table(('What differs', 'Why', 'Verbs'), rows)}\n"
