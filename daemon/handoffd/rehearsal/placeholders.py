"""The texts for stories and projects that the rehearsal knows nothing of: right in form, modest in content.

Each is a template of `str.format`; every one carries the mark by which the rehearsal knows its own
files again. `label` is the story as file names spell it, `slug` as identifiers do.
"""

from __future__ import annotations

from handoffd.rehearsal.workspace import MARK

NOTE = f"<!-- {MARK}: a placeholder, no model was asked -->"

CONTEXT = """# Project context

{note}
## Why
To be written.

## Who
To be written.

## What
{name}

## Stack
To be written.

## Structure
{structure}
"""

DESIGN = """# Software design

{note}
## Modules
{structure}

## Data model
To be written.

## Interfaces
To be written.
"""

CONSTITUTION = """# Constitution

{note}
1. **Tests first.** No behaviour without a test that failed before it was there.
2. **Small steps.** One story at a time, and nothing beside it.
3. **Refuse, do not guess.** What cannot be understood is refused and named.
"""

REQUIREMENTS = """# Non-functional requirements

{note}
| id | requirement | how it is tested |
|---|---|---|
"""

MEMORY = """# Project memory

{note}
## NOW
- {story}

## NEXT
- Nothing planned

## ISSUES

## TESTS
- Not run yet

## DONE

## LOG
"""

SCENARIOS = """# {label} {title}

{note}
## Scenarios

### Scenario: {label} is there @unit
- **Given** the project at this story
- **When** it is asked for its story
- **Then** it MUST answer `{label}`

### Scenario: {label} refuses another story @unit
- **Given** the project at this story
- **When** it is asked whether it is another one
- **Then** it MUST NOT say yes

## Non-Goals
- Anything a customer would notice
"""

DELTA = """# {label} {title}: changes to the design

{note}
## ADDED
- `rehearsal_{slug}`: answers with the story it belongs to

## MODIFIED
- nothing

## REMOVED
- nothing
"""

CONTRACT = """openapi: 3.1.0
info:
  title: {name}
  version: 0.1.0
paths:
"""

CONTRACT_PATH = """  /rehearsal/{label}:  # {mark}
    get:
      summary: The story {label}
      responses:
        "200":
          description: Its name
"""

INSTRUCTION = """# {label}

{note}
The instruction was:

{quoted}
"""

TEST = '''"""{label}, rehearsed. {mark}: no model was asked."""

import importlib.util
from pathlib import Path

MODULE = Path(__file__).resolve().parents[1] / "rehearsal_{slug}.py"


def _module():
    # By its path: which folders a project puts on sys.path is its own affair.
    assert MODULE.is_file(), f"{{MODULE.name}} is not written yet"
    spec = importlib.util.spec_from_file_location(MODULE.stem, MODULE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_{slug}_is_there():
    assert _module().story() == "{label}"


def test_{slug}_refuses_another_story():
    assert not _module().is_story("{label}-other")
'''

MODULE = '''"""{label}, rehearsed. {mark}: no model was asked."""


def story():
    """Return the story that this module belongs to."""
    return "{label}"


def is_story(name):
    """Is `name` that story?"""
    return name == story()
'''

GO_TEST = """// {mark}: no model was asked.

package rehearsal_{slug}

import "testing"

func Test{camel}IsThere(t *testing.T) {{
	if Story() != "{label}" {{
		t.Fatal(Story())
	}}
}}

func Test{camel}RefusesAnotherStory(t *testing.T) {{
	if IsStory("{label}-other") {{
		t.Fatal("another story")
	}}
}}
"""

GO_CODE = """// Package rehearsal_{slug} is the story {label}, rehearsed. {mark}: no model was asked.
package rehearsal_{slug}

// Story returns the story that this package belongs to.
func Story() string {{
	return "{label}"
}}

// IsStory tells whether name is that story.
func IsStory(name string) bool {{
	return name == Story()
}}
"""

RUST_TEST = """//! {label}, rehearsed. {mark}: no model was asked.

#[path = "../rehearsal_{slug}.rs"]
mod story;

#[test]
fn {slug}_is_there() {{
    assert_eq!("{label}", story::story());
}}

#[test]
fn {slug}_refuses_another_story() {{
    assert!(!story::is_story("{label}-other"));
}}
"""

RUST_CODE = """//! {label}, rehearsed. {mark}: no model was asked.

/// Returns the story that this module belongs to.
pub fn story() -> &'static str {{
    "{label}"
}}

/// Tells whether `name` is that story.
pub fn is_story(name: &str) -> bool {{
    name == story()
}}
"""

JS_HEADS = {
    ("node:test", False): 'const { test } = require("node:test");\n',
    ("node:test", True): 'import { test } from "node:test";\n',
    ("vitest", True): 'import { test } from "vitest";\n',
    ("jest", False): "",
    ("jest", True): "",
}
"""Where a runner's `test` comes from, by the runner and whether the file is a module."""

JS_TEST = """// {label}, rehearsed. {mark}: no model was asked.
const assert = require("node:assert");
{head}
test("{label} is there", () => {{
  assert.strictEqual(require("{code}").story(), "{label}");
}});

test("{label} refuses another story", () => {{
  assert.ok(!require("{code}").isStory("{label}-other"));
}});
"""

JS_TEST_OF_MODULE = """// {label}, rehearsed. {mark}: no model was asked.
import assert from "node:assert";
{head}
test("{label} is there", async () => {{
  const {{ story }} = await import("{code}");
  assert.strictEqual(story(), "{label}");
}});

test("{label} refuses another story", async () => {{
  const {{ isStory }} = await import("{code}");
  assert.ok(!isStory("{label}-other"));
}});
"""

JS_CODE = """// {label}, rehearsed. {mark}: no model was asked.
exports.story = () => "{label}";
exports.isStory = (name) => name === exports.story();
"""

JS_MODULE = """// {label}, rehearsed. {mark}: no model was asked.
export const story = () => "{label}";
export const isStory = (name) => name === story();
"""

PAGE = """# {label}: {what}

{note}
The rehearsal wrote no {what} of its own: {why}.
An agent would have written them here, from `docs/bdd/{label}.md`.
"""
