"""How each agent CLI is set up for a scripted model, and which of its tools does what.

Everything about a run is below its own HOME: settings, sessions, logs. Keys are dummies, and whatever a
CLI sends beside its requests to the model is switched off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.real.provider.turns import Call, Turn

DUMMY_KEY = "sk-dummy-0000"


@dataclass(frozen=True)
class Write:
    """Write a file, by the agent's own tool. `path` is relative to the project."""

    path: str
    text: str


@dataclass(frozen=True)
class Run:
    """Run a shell command, by the agent's own tool."""

    command: str


@dataclass(frozen=True)
class Read:
    """Read a file, by the agent's own tool where it has one."""

    path: str


Action = Write | Run | Read
Translate = Callable[[Path, Action], Call]


@dataclass(frozen=True)
class Agent:
    """One CLI."""

    name: str
    argv: tuple[str, ...]
    """Headless, with JSON where there is any; the prompt comes on standard input."""
    environment: Callable[[str], Mapping[str, str]]
    """Its variables, for a model server at this URL."""
    home: Callable[[str], Mapping[str, str]] = field(default=lambda url: {})
    """Files it needs in its HOME, by their paths there."""
    translate: Translate | None = None
    """Its call of a tool for an action; None: it has no tools and writes files by what it says."""
    resume: Callable[[tuple[str, ...], str], tuple[str, ...]] = lambda argv, session: argv
    """Its argv to go on with a session."""
    version: tuple[str, ...] = ()
    model: str | None = None
    """The model given to the shipped executor; None: the one in the files of HOME, or any."""

    def turn(self, project: Path, action: Action, said: str) -> Turn:
        """Return the model's answer that makes the agent do `action`."""
        if self.translate is None:
            return Turn(f"{action.path}\n```\n{action.text}```\n" if isinstance(action, Write) else "")
        return Turn(said, (self.translate(project, action),))


# --- claude -------------------------------------------------------------------------------------------
def _claude_call(project: Path, action: Action) -> Call:
    if isinstance(action, Read):
        return Call("Read", {"file_path": str(project / action.path)})
    if isinstance(action, Write):
        return Call("Write", {"file_path": str(project / action.path), "content": action.text})
    return Call("Bash", {"command": action.command, "description": "Run a command"})


CLAUDE = Agent(
    name="claude",
    argv=(
        "claude", "-p", "--output-format", "stream-json", "--verbose",
        "--permission-mode", "acceptEdits", "--allowedTools", "Bash",
    ),
    environment=lambda url: {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": DUMMY_KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    },
    translate=_claude_call,
    resume=lambda argv, session: (*argv, "--resume", session),
    version=("claude", "--version"),
)  # fmt: skip


# --- codex --------------------------------------------------------------------------------------------
def _codex_call(project: Path, action: Action) -> Call:
    if isinstance(action, Write):
        lines = "".join(f"+{line}\n" for line in action.text.splitlines())
        patch = f"*** Begin Patch\n*** Add File: {action.path}\n{lines}*** End Patch\n"
        return Call("apply_patch", {"input": patch}, freeform=True)
    command = f"cat {action.path}" if isinstance(action, Read) else action.command
    return Call("exec_command", {"cmd": command})


CODEX = Agent(
    name="codex",
    argv=("codex", "exec", "--json", "--skip-git-repo-check", "--sandbox", "workspace-write", "-"),
    environment=lambda url: {"CODEX_API_KEY": DUMMY_KEY},
    home=lambda url: {
        ".codex/config.toml": (
            f'model = "gpt-5.5"\nopenai_base_url = "{url}/v1"\n'
            "check_for_update_on_startup = false\n[analytics]\nenabled = false\n[features]\nplugins = false\n"
        )
    },
    translate=_codex_call,
    resume=lambda argv, session: (*argv[:-1], "resume", session, "-"),
    version=("codex", "--version"),
)


# --- gemini -------------------------------------------------------------------------------------------
def _gemini_call(project: Path, action: Action) -> Call:
    if isinstance(action, Read):
        return Call("read_file", {"file_path": str(project / action.path)})
    if isinstance(action, Write):
        return Call("write_file", {"file_path": str(project / action.path), "content": action.text})
    return Call("run_shell_command", {"command": action.command, "description": "Run a command"})


GEMINI = Agent(
    name="gemini",
    argv=(
        "gemini", "--output-format", "stream-json", "--approval-mode", "yolo", "--skip-trust",
        "--model", "gemini-2.5-pro",
    ),
    environment=lambda url: {"GEMINI_API_KEY": DUMMY_KEY, "GOOGLE_GEMINI_BASE_URL": url},
    home=lambda url: {
        ".gemini/settings.json": json.dumps(
            {
                "security": {"auth": {"selectedType": "gemini-api-key"}},
                "privacy": {"usageStatisticsEnabled": False},
                "telemetry": {"enabled": False},
                "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            }
        )
    },
    translate=_gemini_call,
    resume=lambda argv, session: (*argv, "--resume", session),
    version=("gemini", "--version"),
    model="gemini-2.5-pro",
)  # fmt: skip


# --- opencode -----------------------------------------------------------------------------------------
def _opencode_call(project: Path, action: Action) -> Call:
    if isinstance(action, Read):
        return Call("read", {"filePath": str(project / action.path)})
    if isinstance(action, Write):
        return Call("write", {"filePath": str(project / action.path), "content": action.text})
    return Call("bash", {"command": action.command, "description": "Run a command"})


OPENCODE = Agent(
    name="opencode",
    argv=("opencode", "run", "--format", "json", "--model", "scripted/model-1"),
    environment=lambda url: {
        "SCRIPTED_API_KEY": DUMMY_KEY,
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    },
    home=lambda url: {
        ".config/opencode/opencode.json": json.dumps(
            {
                "$schema": "https://opencode.ai/config.json",
                "autoupdate": False,
                "share": "disabled",
                "provider": {
                    "scripted": {
                        "npm": "@ai-sdk/openai-compatible",
                        "name": "Scripted",
                        "options": {"baseURL": f"{url}/v1", "apiKey": "{env:SCRIPTED_API_KEY}"},
                        "models": {
                            "model-1": {
                                "name": "Model 1",
                                "tool_call": True,
                                "cost": {"input": 1, "output": 5, "cache_read": 0.1, "cache_write": 1.25},
                                "limit": {"context": 200000, "output": 8192},
                            }
                        },
                    }
                },
            }
        )
    },
    translate=_opencode_call,
    resume=lambda argv, session: (*argv, "--session", session),
    version=("opencode", "--version"),
    model="scripted/model-1",
)


# --- aider --------------------------------------------------------------------------------------------
AIDER = Agent(
    name="aider",
    argv=(
        "aider", "--message-file", "/dev/stdin", "--yes-always", "--no-git",
        "--no-pretty", "--no-stream", "--no-fancy-input", "--no-check-update", "--no-show-release-notes",
        "--analytics-disable", "--no-show-model-warnings", "--no-suggest-shell-commands", "--no-detect-urls",
        "--model", "openai/gpt-4o",
    ),
    environment=lambda url: {
        "OPENAI_API_KEY": DUMMY_KEY,
        "OPENAI_API_BASE": f"{url}/v1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    },
    home=lambda url: {
        # A price list that it takes for a fresh one; else it asks for one at GitHub.
        ".aider/caches/model_prices_and_context_window.json": '{"sample_spec": {}}',
        ".aider.conf.yml": "edit-format: whole\nmap-tokens: 0\n",
    },
    resume=lambda argv, session: (*argv, "--restore-chat-history"),
    version=("aider", "--version"),
    model="openai/gpt-4o",
)  # fmt: skip

AGENTS: Mapping[str, Agent] = {agent.name: agent for agent in (CLAUDE, CODEX, GEMINI, OPENCODE, AIDER)}
