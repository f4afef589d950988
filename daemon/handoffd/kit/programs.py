"""Which programs there are, what each is for, and the words it takes.

They are data, so that the help of one and the list of all import no program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct


class Word(Struct, frozen=True, kw_only=True):
    """A word of the command line: an argument, or with dashes an option."""

    name: str
    about: str
    default: str | None = None
    """None: an argument must be given; an option has no value then."""
    flag: bool = False
    number: tuple[int, int] | None = None
    """The least and the most of a whole number."""
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name under which the program reads it."""
        return self.name.lstrip("-").replace("-", "_")


class Program(Struct, frozen=True, kw_only=True):
    """One program."""

    name: str
    about: str
    """One line."""
    more: str
    """What it reads, what it makes, and its outcomes."""
    function: str
    """Module and name, imported when it runs."""
    words: tuple[Word, ...] = ()
    example: str = ""


_FLOW = Word(name="flow", about="The name of the flow.")
_LIST: Final = (
    Program(
        name="aggregate",
        about="Put the findings of all reviewers together.",
        more="Reads every findings.json of the board; writes findings.json with ids, without "
        "repetitions, and with the findings that deserve a closer look as `selected`. Fields: "
        "critical, high, medium, low, crowded (files with findings in three dimensions).",
        function="handoffd.kit.findings:aggregate",
        words=(Word(name="--select", about="How many are selected.", default="5", number=(0, 20)),),
    ),
    Program(
        name="archive",
        about="Write down what a flow made, as its record.",
        more="Writes archive.json: tasks with their outcomes, files with their digests.",
        function="handoffd.kit.records:archive",
    ),
    Program(
        name="compare-baseline",
        about="Run the project's tests and compare them with the ones before, tests.json.",
        more="Outcomes: pass; regression, where a test that passed fails now or is gone.",
        function="handoffd.kit.measuring:compare_baseline",
    ),
    Program(
        name="export",
        about="Pack what a flow made into export.tar.gz.",
        more="The same files make the same archive, byte for byte.",
        function="handoffd.kit.records:export",
    ),
    Program(
        name="globs",
        about="List the files that the globs of the parameter `paths` name.",
        more="Writes files.json. Links, .git and .ai are left out, and the folders of package "
        "managers. Outcomes: found, none.",
        function="handoffd.kit.sources:globs",
    ),
    Program(
        name="render",
        about="Fill a template with the parameters.",
        more="command-md: a command file for agents, command.md. A placeholder without a value is an error.",
        function="handoffd.kit.command_files:render",
        words=(
            Word(name="template", about="Which one.", choices=("command-md",)),
            Word(name="--from", about="A file of the workspace to take in place of the shipped template."),
        ),
        example="render command-md",
    ),
    Program(
        name="report",
        about="Write report.md about what the tasks before found and did.",
        more="Findings, items, tests, and how each task ended.",
        function="handoffd.kit.reporting:report",
    ),
    Program(
        name="resolve-path",
        about="Say where a command file belongs, and whether it is there.",
        more="From the parameters name and group: .claude/commands/GROUP/NAME.md. Outcomes: free, "
        "exists. Field: path.",
        function="handoffd.kit.command_files:resolve_path",
    ),
    Program(
        name="restore",
        about="Put back what `trash` moved.",
        more="BATCH is a folder in .ai/trash: the name of a flow, or a day. What is in the way stays. "
        "Outcomes: pass, partial.",
        function="handoffd.kit.trash:restore",
        words=(
            Word(name="batch", about="A folder in .ai/trash."),
            Word(name="--id", about="Only the entries with these ids, with commas."),
        ),
        example="restore clean-7k2q",
    ),
    Program(
        name="tests",
        about="Run the project's tests and count how they ended.",
        more="Fields: pass_rate and coverage (0 to 1; coverage is 0 where no report of it was found), "
        "total, passed, failed, skipped. It fails where the tests cannot be run, and not where "
        "tests fail. Writes tests.json.",
        function="handoffd.kit.measuring:tests",
    ),
    Program(
        name="trash",
        about="Move what a person chose of a manifest into .ai/trash.",
        more="Nothing is deleted: `restore` puts it back. Chosen is what the answer to `choose` names, "
        "or all entries of low risk. .git, .ai and what a link leads to are never moved. "
        "Outcomes: pass, partial.",
        function="handoffd.kit.trash:trash",
        words=(
            Word(name="manifest", about="The file that lists the entries."),
            Word(name="--ids", about="The chosen ids, with commas, in place of the answer."),
        ),
        example="trash manifest.json --ids E1,E2",
    ),
    Program(
        name="write",
        about="Write command.md of the board to its place.",
        more="A file that is there is overwritten only with a person's answer (`resolve-path` ended "
        "with exists).",
        function="handoffd.kit.command_files:write",
    ),
    Program(
        name="append-rules",
        about="Add approved rules to the files in specs/.",
        more="Takes updates.json if the answer to `approve` was apply (all, or the ids that it names), "
        "and the answers of questions about naming, files, architecture, performance and quality. "
        "Fields: added, known.",
        function="handoffd.kit.rules:append_rules",
        words=(Word(name="--dedupe", about="Leave out rules that are there already.", flag=True),),
    ),
    Program(
        name="bind",
        about="Write each solution of the board beside its issue.",
        more="Reads every solutions.json; writes docs/issues/ISSUE.solution.json. Outcomes: pass; "
        "overlap, where solutions change the same files. Fields: bound, overlaps.",
        function="handoffd.kit.issues:bind",
    ),
    Program(
        name="group",
        about="Put issues or findings into groups.",
        more="Writes groups.json: of the parameter `issues`, or of the findings of another flow. "
        "Findings that are alike stay together where they fit. Field: groups.",
        function="handoffd.kit.findings:group",
        words=(
            Word(name="--size", about="The most of a group.", default="5", number=(1, 100)),
            Word(name="--from", about="The flow that has the findings."),
            Word(name="--by", about="What makes findings alike: file, dimension, with commas."),
        ),
    ),
    Program(
        name="issues-append",
        about="Make an issue of each unit of a roadmap.",
        more="Writes docs/issues/ISS-DAY-NUMBER.md and issues.json. A unit that has an issue gets no "
        "second one. Fields: made, known.",
        function="handoffd.kit.issues:issues_append",
        words=(Word(name="roadmap", about="The file of the roadmap."),),
        example="issues-append roadmap.json",
    ),
    Program(
        name="merge",
        about="Merge the requirements of the board into one list.",
        more="Reads every gaps.json and the answer to `questions`; writes refined-requirements.json. "
        "Fields: requirements, assumed.",
        function="handoffd.kit.specs:merge",
    ),
    Program(
        name="merge-plans",
        about="Make one plan of several.",
        more="Of the board's plan.json files, or of the flows that the parameter `plans` names. A task "
        "that shares a file with one of an earlier plan waits for it. Outcomes: pass; with "
        "--detect: clean, conflicts.",
        function="handoffd.kit.merging:merge_plans",
        words=(
            Word(name="--detect", about="Conflicts to report: file, dependency, strategy, with commas."),
            Word(
                name="--serialize-same-file", about="Write groups.json, one plan for each group.", flag=True
            ),
        ),
        example="merge-plans --detect file,dependency",
    ),
    Program(
        name="plan-check",
        about="Check the plan of another flow.",
        more="Refuses needs that lead in a circle or to no task. Outcomes: pass; warned, where tasks "
        "name no files.",
        function="handoffd.kit.plans:plan_check",
        words=(_FLOW,),
        example="plan-check roadmap-1a2b",
    ),
    Program(
        name="probe",
        about="Say whether the project was described before.",
        more="Outcomes: initialised, if docs/project-tech.json is there and is JSON; fresh.",
        function="handoffd.kit.rules:probe",
    ),
    Program(
        name="remove-tagged",
        about="Remove the lines with a mark from all sources.",
        more="A line with `handoffd:TAG` goes, and all from `handoffd:TAG begin` to `handoffd:TAG "
        "end`. A passage without an end is refused. Fields: removed, files.",
        function="handoffd.kit.sources:remove_tagged",
        words=(Word(name="tag", about="What follows `handoffd:` in a mark."),),
        example="remove-tagged debug-instrumentation",
    ),
    Program(
        name="retro",
        about="Say how much of a sprint was done.",
        more="Fields: velocity (the share of items that were done; 1 where there are none), done, planned.",
        function="handoffd.kit.sessions:retro",
    ),
    Program(
        name="scaffold",
        about="Lay out a file for each topic of rules.",
        more="A file that is there is left as it is. Fields: count (rules that are there), made.",
        function="handoffd.kit.rules:scaffold",
        words=(Word(name="folder", about="Where the files are.", default="specs/"),),
        example="scaffold specs/",
    ),
    Program(
        name="session-check",
        about="Hand over the tasks of another flow, if a team can work on them.",
        more="Checks ids, needs, roles and descriptions of its task-analysis.json, and writes the same "
        "file. Field: tasks.",
        function="handoffd.kit.sessions:session_check",
        words=(_FLOW,),
        example="session-check team-coordinate-1a2b",
    ),
    Program(
        name="session-open",
        about="Begin a session, or take up the open one with the same topic.",
        more="Outcomes: created, reused; ambiguous, where several are open. The answer to `pick` names one.",
        function="handoffd.kit.sessions:session_open",
    ),
    Program(
        name="spec-check",
        about="Rate whether the documents in docs/specs are ready.",
        more="Counts in brief.md, requirements.md, architecture.md and epics.md: what is missing or "
        "open, ids that are not defined, requirements that are not followed up, length. Field: "
        "score, 0 to 100.",
        function="handoffd.kit.specs:spec_check",
    ),
)

PROGRAMS: Final[Mapping[str, Program]] = {one.name: one for one in sorted(_LIST, key=lambda one: one.name)}
"""Every program by name."""
