"""Pipelines that use the whole language, for the tests of its reader, its bounds and its pictures."""

from __future__ import annotations

ISSUES = """\
language: 1
pipeline: issues
title: {en: Issues, zh-TW: 議題}
params:
  issues: {type: array, minItems: 1, maxItems: 100, items: {type: string}}
  priority: {type: integer, default: 3}
  careful: {type: boolean, default: false}
roles:
  explorer: {executor: [claude, codex], isolation: read}
  planner: {executor: claude, isolation: read, instructions: {en: Plan it.}}
  reviewer: {executor: codex, isolation: export, sees: ["docs/**"], writes: []}
  maker:
    executor: [claude, codex]
    isolation: clone
    reads: [docs/**]
    writes: ["**", "!docs/**"]
    session: keep
shapes:
  rated:
    fields: {risk: {minimum: 0, maximum: 100}, sound: {type: boolean}}
    outcomes: {good: ok, poor: warn}
limits: {parallel: 5, tasks: 700, starts: 30000, wall: 24h, usd: 40, hold: {timeout: 24h, default: leave_out}}
tasks:
  mode:
    verdict:
      - {if: "size(params.issues) <= 2 && params.priority < 4", then: quick}
      - {else: full}
    outcomes: {quick: ok, full: ok}
  issue:
    needs: [mode]
    each: params.issues
    parallel: 3
    tasks:
      explore: {agent: explorer, attempts: 2, out: {context: {path: context.json, schema: context/1}}}
      solve:
        needs: [explore]
        agent: planner
        with: {mode: mode, issue: item, again: rounds > 0}
        outcomes: {ready: ok, several: {call: choose, at_most: 1}, failed: drop}
      audit:
        needs: [solve]
        when: mode != 'quick'
        like: rated
        agent: reviewer
        compute: {score: "100 - fields.risk", twice: score * 2}
        verdict:
          - {if: score >= 80 && fields.sound, then: approved}
          - {if: twice >= 120, then: concerns}
          - {else: rejected}
        outcomes: {approved: ok, concerns: warn, rejected: {back_to: solve, at_most: 2, then: {call: judge}}}
      choose:
        on_demand: true
        ask: Pick one
        timeout: 48h
        default: first
        auto: first
        outcomes: {first: again, none: drop}
      judge:
        on_demand: true
        ask: {en: Rejected three times, zh-TW: 三次被拒}
        timeout: 72h
        default: leave_out
        outcomes: {force: warn, once_more: {back_to: solve, at_most: 1, then: warn}, leave_out: drop}
    verdict:
      - {if: audit == 'concerns' && audit.score < 70, then: doubtful}
      - {else: done}
    outcomes: {done: ok, doubtful: warn, failed: drop}
    join: {min: 1, outcomes: {some: warn}}
  marshal:
    needs: {issue: [all, some]}
    agent: planner
    out: {queue: queue.json}
    checks: ["kit.acyclic(out.queue.tasks, 'depends_on')", issue.accepted > 0]
    outcomes: {ready: ok}
  build:
    needs: [marshal]
    each: marshal.out.queue.tasks
    item: {id: id, needs: depends_on, claims: files}
    agent: maker
    tests: green
    attempts: 3
    timeout: 20m
    fields: {covered: }
    outcomes:
      complete: ok
      blocked: {back_to: marshal, at_most: 1, then: stop}
      failed: {back_to: self, at_most: 1}
    join:
      min: 1
      verdict:
        - {if: "items.exists(i, i.covered < 50) || lost > accepted", then: thin}
        - {else: built}
      outcomes: {built: ok, thin: {back_to: self, at_most: 1, then: warn}}
  merge:
    needs: {build: [built]}
    run: git.merge
    claims: ["name:base"]
    outcomes: {merged: ok, conflict: hold}
  test:
    needs: [merge]
    run: "{project.test}"
    fields: {rate: {minimum: 0, maximum: 1}}
    verdict: [{if: fields.rate >= 0.95, then: green}, {else: red}]
    outcomes: {green: ok, red: {call: repair, at_most: 2, then: stop}}
  repair:
    on_demand: true
    agent: maker
    with: {how: "caller.rate > 0.8 ? 'careful' : 'bold'"}
    outcomes: {done: again}
  report: {needs: [test], pipeline: writing, with: {topic: "'what was built'", long: build.accepted}}
  sweep: {always: true, run: [rm, -rf, "{params.priority}"]}
"""

WRITING = """\
language: 1
pipeline: writing
order: chain
params: {topic: {type: string, minLength: 3}, long: {type: number, default: 1}}
roles: {writer: {executor: claude}}
tasks:
  draft: {agent: writer, outcomes: {ready: ok}}
  asked: {on_demand: true, ask: Well?, timeout: never, outcomes: {fine: ok}}
  round:
    order: chain
    tasks:
      critique:
        agent: writer
        fields: {high: {minimum: 0}}
        verdict:
          - {if: "fields.high > 0 && (scope.first || scope.last.critique.high > 1)", then: revise}
          - {else: good}
        outcomes: {good: ok, revise: ok}
      answer: {agent: writer, when: critique == 'revise', with: {was: scope.last.critique, draft: draft}}
    outcomes: {done: {back_to: self, at_most: 2, then: {call: asked}}, failed: stop}
  publish: {agent: writer, hold: {choices: [retry, stop], retries: 3, timeout: never}}
"""

OTHERS = {"writing": WRITING}
