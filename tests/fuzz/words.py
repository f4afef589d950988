"""Words that mean something to a reader: changes of samples put them anywhere."""

from __future__ import annotations

from typing import Final

YAML: Final = (
    "---", "...", "- ", ": ", "? ", "|", ">", "&a", "*a", "!!str", "<<", "~", "null", "true", "0x1f", "0o7",
    ".nan", ".inf", "1e999", "%YAML 1.2", "\ufeff", "\u2028", "\x85", "{", "[", "'", '"', "\\x00", "\\ud800",
)  # fmt: skip
JSON: Final = (
    "{", "}", "[", "]", ":", ",", "null", "true", "NaN", "-Infinity", "1e999", "9" * 19, "9" * 4301,
    '"\\ud800"', '"\\u0000"', '""', "[" * 99, '{"a":' * 9, "\ufeff",
)  # fmt: skip
CLAIM: Final = (
    *YAML, "story", "step", "attempt", "status", "reason", "files_changed", "tests_pass", "tests_fail",
    "dispatch", "summary", "commit_hash", "failing_tests", "pass", "failing", "needs_human",
    "needs_clarification", "US-001", "```yaml", "```", "NEEDS CLARIFICATION", "=",
    "outcome", "fields", "notes", "question", "severity", "critical", "tag", "text", "files",
)  # fmt: skip
STATE: Final = (
    *JSON, "project", "story", "step", "status", "reason", "tests", "pass", "failing_tests",
)  # fmt: skip
SCHEMA: Final = (
    *JSON, "type", "object", "array", "items", "properties", "required", "$ref", "#/$defs/node", "#", "anyOf",
    "oneOf", "not", "pattern", "^(a|a)*$", "enum", "const", "uniqueItems", "multipleOf", "contains", "if",
)  # fmt: skip
RULES: Final = (*YAML, "steps", "pipelines", "on_fail", "next_on_fail", "claude_writes", "post_check")
MARKDOWN: Final = (
    "# ", "## ", "- [ ] ", "- [x] ", "```", "~~~", "<!--", "-->", "US-001", "DONE", "NEXT", "ISSUES:", "\r",
    "\x0b", "---\n", "*",
)  # fmt: skip
STREAM: Final = (
    *JSON, "type", "result", "is_error", "usage", "input_tokens", "output_tokens", "total_cost_usd",
    "message", "content", "tool_use", "session_id", "model", "error", "limit", "resets at", "429",
    "resets 3pm (Europe/Berlin)", "try again in 5 hours", "0001-01-01T00:00:00+14:00", "usage limit",
    "9999-12-31T23:59:59Z", "9999999999", "999999999999999", "\x1b[31m",
)  # fmt: skip
TAP: Final = ("ok", "not ok", "1..2", " - ", "# SKIP", "# TODO", "Bail out!", "    ", "  ---", "  ...")
GO: Final = (
    *JSON, "Action", "Package", "Test", "Output", "run", "pass", "fail", "output", "build-output", "# p",
    "ImportPath", "FailedBuild", "FAIL\tp [build failed]", "a.go:1:2: bad", "FAIL\\n",
)  # fmt: skip
CARGO: Final = (
    "     Running unittests src/lib.rs (target/debug/deps/a-0123456789abcdef)", "   Doc-tests a", " (", "/",
    "running 2 tests", "test a::b ... ok", "error[E0425]: no", " --> src/lib.rs:1:2", "-",
    "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
    "error: could not compile `a`",
)  # fmt: skip
XML: Final = (
    '<?xml version="1.0" encoding="utf-7"?>', "<testsuites>", "<testsuite name='a'>", "<error/>",
    "<skipped/>",
    "<testcase classname='a' name='b'>", "<failure message='m'>", "</testcase>", "</testsuite>", "<![CDATA[",
    "<!DOCTYPE a>", "&#0;", "&lt;", "]]>", "collection failure", "/a/B.java:[1,2] m",
)  # fmt: skip
JEST: Final = (*JSON, "testResults", "assertionResults", "status", "failed", "ancestorTitles")
SOURCES: Final = (
    "def ",
    "class ",
    "@",
    "@Test",
    "it(",
    "`",
    "'",
    "/*",
    "*/",
    "skip",
    "func ",
    "\\",
    "pytestmark",
)
TEMPLATE: Final = (
    "{{",
    "}}",
    "{%",
    "%}",
    "for",
    "if",
    "include",
    "extends",
    "|join",
    "range(9)",
    "macro",
    "{#",
)
CHAT: Final = (
    "approve", "reject", "start US-001", "status", "continue", "please", "shop", "?", "不要", "開始", "繼續",
    "核准", "do not", "cc", "undo", "because", "until", "and then", ",", "，", "。", "US-", "land",
    "reopen at impl", "\u200b", "\u202e",
)  # fmt: skip
