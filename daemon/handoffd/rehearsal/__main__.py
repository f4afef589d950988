"""One session of the rehearsal, from the prompt on stdin to the exit code.

Exit codes: 0 the session is over (the hand-off says how), 2 it could not begin (no step to be found,
a bad script, a path out of the project), else what the script asked for.

What each act of a script does; everything here has been seen from a real agent:

| act | what happens |
|---|---|
| pass | the step's work, then a proper hand-off |
| claim | the same, but verify runs no tests |
| fail[:REASON], needs_human[:REASON] | no work; the hand-off has that status |
| lie | no work; the hand-off claims that all went well |
| none | no work, no hand-off, exit code 0 |
| crash | ends itself by SIGKILL |
| exit:CODE | leaves with that code |
| hang[:SECONDS] | shows no sign of life, for ever or for that long |
| ignore-term | the same for ever, deaf to INT, TERM and HUP |
| linger | work and hand-off as by `pass`, then it does not leave |
| half | begins a front matter and does not close it |
| garbage | a front matter that is neither YAML nor UTF-8 |
| stale | the hand-off of another step, attempt and dispatch |
| old-format | work, then a hand-off without front matter |
| orphan | leaves processes in sessions of their own, with an empty environment, that hold the output open |
| flood:BYTES | prints that much |
| slow:SECONDS | takes that long, printing a line now and then |
| tamper | writes STATE.json, which only the orchestrator may |
| error:REASON | no work, no hand-off; reports that as its error, exit code 1 |
| limit:SECONDS | the same with a usage limit that is over after SECONDS |
| gone | a session to continue does not exist: reports that, exit code 1 |
| turns:COUNT | asks the model COUNT more times: uses up what the script's `stream` says |
| outcome:NAME | of a task of a flow: the work that leads to that outcome, then a hand-off |

Started by `python -I -m handoffd.rehearsal`; `-I` keeps the project's modules from shadowing ours.
"""

# ruff: noqa: PLC0415  (start-up time: the rehearsal is started hundreds of times in a test run)

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from handoffd.rehearsal import script
from handoffd.rehearsal.assignment import (
    HANDOFF,
    Assignment,
    BadAssignment,
    Counts,
    Report,
    body,
    front_matter,
    hand_over,
    tick,
    understand,
)
from handoffd.rehearsal.script import Act, Flow, Speech
from handoffd.rehearsal.workspace import MARK, OutsideProject, Workspace

LOG_VARIABLE = "HANDOFFD_REHEARSAL_LOG"
TASK = ".ai/task.json"
NO_FLOW = Flow()

_MOST_BYTES = 4 * 1024 * 1024
_USAGE = """usage: handoffd-prompt | python -I -m handoffd.rehearsal [--stream]

Does the step that the prompt on stdin asks for, in the current directory, without a model.
--stream                 prints JSON lines as claude does; then --resume SESSION and --model NAME count, too
HANDOFFD_REHEARSAL       a script (JSON or a path) of how to misbehave; else .ai/rehearsal.json
HANDOFFD_REHEARSAL_LOG   a file that gets one line of JSON for each start
"""


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run one session in the current directory and return the exit code; unknown arguments are ignored."""
    # An agent started in the background may have inherited "ignore"; stopping it must work all the same.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if "--help" in arguments or sys.stdin is None or sys.stdin.isatty():
        sys.stderr.write(_USAGE)
        return 0 if "--help" in arguments else 2
    prompt = sys.stdin.buffer.read(_MOST_BYTES).decode("utf-8", "replace")
    try:
        _session(prompt, environ, Workspace(os.getcwd()), _voice(arguments))
    except (BadAssignment, script.BadScript, OutsideProject) as error:
        sys.stderr.write(f"rehearsal: {error}\n")
        return 2
    return 0


def _session(prompt: str, environ: Mapping[str, str], workspace: Workspace, voice: Voice) -> None:
    assignment = understand(prompt, environ, workspace)
    assignment = assignment._replace(task=_task_of(workspace, assignment))
    if environ.get(LOG_VARIABLE):
        _log_start(environ[LOG_VARIABLE], assignment)
    told = script.load(workspace, environ)
    acts: tuple[script.Act, ...] = script.PASS
    if told is not None:
        acts = script.acts_for(told, *_entry_of(told, workspace, assignment))
    if voice.resumed and any(act.name == "gone" for act in acts):
        voice.end(f"No conversation found with session ID: {voice.resumed}", is_error=True)
        raise SystemExit(1)
    voice.begin(f"session-{assignment.dispatch or assignment.step}", script.speech_of(told))
    voice.say(f"{assignment.step} of {assignment.story or 'this project'}, attempt {assignment.attempt}")
    perform(acts, workspace, assignment, voice, script.flow_of(told))
    voice.end(f"{assignment.step} is over")


def _task_of(workspace: Workspace, assignment: Assignment) -> Mapping[str, Any] | None:
    """Return the task of a flow that is asked for; a step costs no more than a look for the file."""
    if not workspace.exists(TASK):
        return None
    from handoffd.rehearsal.tasks import task_in

    return task_in(workspace, assignment.dispatch)


def _entry_of(told: script.Script, workspace: Workspace, assignment: Assignment) -> tuple[str, int]:
    """Return which entry of the script is meant, and the number of the start; of a task, of its visit."""
    if assignment.task is None:
        return assignment.step, script.count_start(workspace, assignment.step)
    from handoffd.rehearsal.tasks import names_of

    return script.name_in(told, names_of(assignment.task, assignment.step)), int(assignment.task["visit"])


def _voice(arguments: Sequence[str]) -> Voice:
    if "--stream" not in arguments:
        return Voice()
    given = dict(pairwise(arguments))
    return StreamVoice(resumed=given.get("--resume"), model=given.get("--model"))


def _log_start(path: str, assignment: Assignment) -> None:
    """Append one line by one write, which O_APPEND makes whole however many write at once."""
    line = {
        "dispatch": assignment.dispatch,
        "story": assignment.story,
        "step": assignment.step,
        "attempt": assignment.attempt,
        "pid": os.getpid(),
        "monotonic": time.monotonic(),
    }
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(log, json.dumps(line).encode() + b"\n")
    finally:
        os.close(log)


# --- the acts of a script ----------------------------------------------------------------------------
_ORPHAN_LIFE_S = 600  # a test that loses them must not leave them for ever
_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SLOW_PIECE_S = 0.5


def perform(
    acts: Iterable[Act], workspace: Workspace, assignment: Assignment, voice: Voice, flow: Flow = NO_FLOW
) -> None:
    """Do the acts in order. Some acts end the process by `SystemExit` or a signal."""
    for act in acts:
        if act.name not in ("pass", "claim"):
            voice.say(f"told to {act.name}{f':{act.argument}' if act.argument else ''}")
        if assignment.task is not None and act.name in ("pass", "claim", "linger", "outcome"):
            _do_task(act, workspace, assignment, voice, flow)
        else:
            _perform(act, workspace, assignment, voice)


def _do_task(act: Act, workspace: Workspace, assignment: Assignment, voice: Voice, flow: Flow) -> None:
    from handoffd.rehearsal import tasks

    report = tasks.perform(workspace, assignment, flow, act.argument)
    for name in report.files:
        voice.say(f"done: {name}")
    _hand_over(workspace, assignment, report, voice)
    if act.name == "linger":
        _wait_for_ever()


def _perform(act: Act, workspace: Workspace, assignment: Assignment, voice: Voice) -> None:
    match act.name:
        case "pass" | "claim" | "outcome":
            report = _work(workspace, assignment, voice, run_tests=act.name != "claim")
            _hand_over(workspace, assignment, report, voice)
        case "fail" | "needs_human":
            _hand_over(workspace, assignment, _failure(act), voice)
        case "lie":
            report = Report(summary="all done, all tests pass", tests=Counts(passed=12))
            _hand_over(workspace, assignment, report, voice)
        case "linger":
            _hand_over(workspace, assignment, _work(workspace, assignment, voice), voice)
            _wait_for_ever()
        case "half" | "garbage" | "stale" | "old-format":
            _spoil(act, workspace, assignment, voice)
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            raise SystemExit(int(act.number))
        case "hang" if act.argument:
            time.sleep(act.number)
        case "hang":
            _wait_for_ever()
        case "ignore-term":
            for number in _DEAF_TO:
                signal.signal(number, signal.SIG_IGN)
            _wait_for_ever()
        case "orphan":
            _leave_orphan(assignment)
            _leave_orphan(assignment)
        case "flood":
            _flood(int(act.number))
        case "slow":
            _work_slowly(act.number, voice)
        case "tamper":
            _tamper(workspace)
        case _:
            _ask_model(act, voice)


def _work(workspace: Workspace, assignment: Assignment, voice: Voice, *, run_tests: bool = True) -> Report:
    report = work_of(assignment.step, run_tests=run_tests)(workspace, assignment)
    for name in report.files:
        voice.say(f"done: {name}")
    if report.status == "pass":
        tick(workspace, assignment.step)
    return report


def _hand_over(workspace: Workspace, assignment: Assignment, report: Report, voice: Voice) -> None:
    hand_over(workspace, assignment, report)
    voice.say(f"{report.status}: {report.summary}")


def _failure(act: Act) -> Report:
    status = "failing" if act.name == "fail" else act.name
    tests = Counts(failed=1) if status == "failing" else Counts()
    return Report(summary="the script told it to fail", status=status, reason=act.argument, tests=tests)


def _spoil(act: Act, workspace: Workspace, assignment: Assignment, voice: Voice) -> None:
    """Write a hand-off that is none. No executor-result: fresh, it would be a hand-off by itself."""
    match act.name:
        case "half":
            whole = front_matter(assignment, Report(summary="half of it"))
            text = whole[: whole.index("status:")].encode() + b"status: pa"
        case "garbage":
            text = b"---\nstatus: [pass\n\tstep: {\x00\xff\xfe : - :\n\xc3(---\n]]\n---\n" + bytes(range(256))
        case "stale":
            text = front_matter(_another(assignment), Report(summary="from another time")).encode()
        case _:
            report = _work(workspace, assignment, voice)
            text = body(assignment, report).lstrip("\n").encode()
    workspace.replace(HANDOFF, text)


def _another(assignment: Assignment) -> Assignment:
    step = "bdd" if assignment.step != "bdd" else "impl"
    return assignment._replace(step=step, attempt=assignment.attempt + 1, dispatch="19700101T000000-000000")


def _wait_for_ever() -> NoReturn:
    # No limit on purpose: ending a process that will not end is what is being rehearsed.
    while True:
        signal.pause()


def _leave_orphan(assignment: Assignment) -> None:
    """Start a process that nothing leads to: other session, no parent, no environment, output held open."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            code = f"import time; time.sleep({_ORPHAN_LIFE_S})"
            marks = [f"{MARK}-orphan", str(assignment.dispatch)]  # an argument is all that it can be found by
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code, *marks], {})  # noqa: S606 (argv)
    finally:
        os._exit(0)  # never back into the session, whatever went wrong


def _flood(size: int) -> None:
    line = b"rehearsal: so much to say, and so little of it needed\n"
    chunk = line * 1200
    while size > len(chunk):
        write(chunk)
        size -= len(chunk)
    if size > 0:
        write(chunk[: size - 1] + b"\n")  # what is printed next begins a line


def _work_slowly(seconds: float, voice: Voice) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(_SLOW_PIECE_S, left))
        voice.say("still at it")


def _ask_model(act: Act, voice: Voice) -> None:
    """Use up what a model would, or be refused by it. That a session is `gone` shows before all else."""
    match act.name:
        case "turns":
            voice.turns(int(act.number))
        case "error":
            _fail_for(act.argument or "", voice)
        case "limit":
            until = int(time.time() + act.number)  # noqa: TID251 (a program by itself, which tells a time)
            voice.limited(until)
            _fail_for(f"Claude AI usage limit reached|{until}", voice)


def _fail_for(text: str, voice: Voice) -> NoReturn:
    voice.end(text, is_error=True)
    raise SystemExit(1)


def _tamper(workspace: Workspace) -> None:
    try:
        state = json.loads(workspace.read(".ai/STATE.json") or "{}")
    except ValueError:
        state = {}
    forged = {**(state if isinstance(state, dict) else {}), "step": "done", "status": "pass", "reason": None}
    workspace.replace(".ai/STATE.json", json.dumps(forged, indent=2).encode())


# --- the work of a step: only the module that it needs is imported -----------------------------------
Work = Callable[[Workspace, Assignment], Report]


def work_of(step: str, *, run_tests: bool = True) -> Work:
    """Return the work of a step. `run_tests` False: verify claims its counts instead of measuring them."""
    match step:
        case "bootstrap" | "bdd" | "sdd-delta" | "contract" | "custom":
            from handoffd.rehearsal import documents

            return documents.WORK[step]
        case "scaffold" | "impl":
            from handoffd.rehearsal import coding

            return coding.WORK[step]
        case "verify":
            from handoffd.rehearsal import programs

            return programs.measured if run_tests else programs.claimed
        case "commit":
            from handoffd.rehearsal import programs

            return programs.commit
        case "update-memory":
            from handoffd.rehearsal import documents

            return documents.update_memory
        case _:
            return _unknown


def _unknown(workspace: Workspace, assignment: Assignment) -> Report:
    return Report(
        summary=f"nothing was changed: the rehearsal knows no work for the step {assignment.step}",
        notes=(
            f"An agent would follow the instruction of {assignment.step} in its prompt "
            f"({len(assignment.prompt)} characters) and hand over what it did.",
            "The claim is pass, so that the steps after it can be rehearsed, too.",
        ),
    )


# --- what is printed: plain lines, or the JSON lines that claude prints ------------------------------
class Voice:
    """Plain lines."""

    resumed: str | None = None
    """The session that shall be continued."""

    def begin(self, session: str, speech: Speech) -> None:
        """Begin the session; `session` is its id unless the script or a resumed one says otherwise."""

    def say(self, text: str) -> None:
        """Print a line of progress."""
        write(f"rehearsal: {text}\n".encode())

    def turns(self, count: int) -> None:
        """Ask the model, which there is none of, `count` times."""

    def limited(self, until: int) -> None:
        """Report a usage limit that is over at `until`, in seconds since 1970."""

    def end(self, text: str, *, is_error: bool = False) -> None:
        """Tell how it went."""
        if is_error:
            write(f"{text}\n".encode())


class StreamVoice(Voice):
    """The lines of a stream, for trying out what depends on one: sessions, tokens and costs, limits, caps.

    It begins with the session, has a message with its tokens for every turn, and ends with a result line that
    sums them up.
    """

    def __init__(self, *, resumed: str | None = None, model: str | None = None) -> None:
        self.resumed = resumed
        self._model = model or "rehearsal"
        self._session = resumed or ""
        self._speech = Speech()
        self._done = 0

    def begin(self, session: str, speech: Speech) -> None:
        """Print the line of the session, and the first turns."""
        self._speech = speech
        self._session = self.resumed or speech.session or session
        self._print(type="system", subtype="init", cwd=os.getcwd(), model=self._model)
        self.turns(speech.turns)

    def say(self, text: str) -> None:
        """Print a line of progress, as part of the latest turn."""
        self._message({"type": "text", "text": text})

    def turns(self, count: int) -> None:
        """Use up tokens, `count` times, with the script's pause after each."""
        for _ in range(count):
            self._done += 1
            self.say(f"turn {self._done}")
            time.sleep(self._speech.pause_s)

    def limited(self, until: int) -> None:
        """Print the line in which claude reports a limit."""
        info = {"status": "rejected", "resetsAt": until, "rateLimitType": "five_hour"}
        self._print(type="rate_limit_event", rate_limit_info=info)

    def end(self, text: str, *, is_error: bool = False) -> None:
        """Print the result line."""
        cost = self._speech.cost_usd * self._done
        self._print(
            type="result", subtype="success", is_error=is_error, result=text, num_turns=self._done,
            total_cost_usd=cost, usage=self._usage(self._done), permission_denials=[],
        )  # fmt: skip

    def _message(self, block: dict[str, str]) -> None:
        name = f"msg_{os.getpid()}_{self._done}"
        usage = self._usage(1 if self._done else 0)
        content = {"id": name, "role": "assistant", "model": self._model, "content": [block], "usage": usage}
        self._print(type="assistant", message=content)

    def _usage(self, turns: int) -> dict[str, int]:
        speech = self._speech
        return {
            "input_tokens": speech.input_tokens * turns,
            "output_tokens": speech.output_tokens * turns,
            "cache_read_input_tokens": speech.cache_read_tokens * turns,
            "cache_creation_input_tokens": speech.cache_write_tokens * turns,
        }

    def _print(self, **line: object) -> None:
        write(json.dumps({**line, "session_id": self._session}).encode() + b"\n")


def write(text: bytes) -> None:
    """Print bytes; the reader may be gone."""
    try:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Said into the void from now on; Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
