// Hand-off + dispatch cycles of the reference's library, in this process:
//   node cycles.cjs PATH/OF/dist/index.js FOLDER PROJECTS ROUNDS
// Prints {"cycles", "seconds"}. Only the library's own time counts: the executors' hand-offs are written before
// each round. So are its logs taken away, which it reads and writes whole for every line: it is at its best.
"use strict";
const fs = require("fs");
const path = require("path");
const [library, folder, projects, rounds] = process.argv.slice(2);
const core = require(library);

const front = (state, status) => `---
story: US-001
step: ${state.step}
attempt: ${state.attempt}
status: ${status}
reason: null
files_changed:
  - src/app.py
  - tests/test_app.py
tests_pass: 12
tests_fail: 0
tests_skip: 1
---
Done.
`;

const roots = [];
for (let number = 1; number <= Number(projects); number++) {
  const root = path.join(folder, `project-${number}`);
  fs.mkdirSync(path.join(root, ".ai"), { recursive: true });
  const { state } = core.initState(root, `project-${number}`);
  core.writeState(root, { ...state, story: "US-001", step: "impl", max_attempts: 5, timeout_min: 10 });
  if (core.dispatch(root).type !== "dispatched") throw new Error("not dispatched");
  roots.push(root);
}

let spent = 0n;
for (let round = 0; round < Number(rounds); round++) {
  for (const root of roots) {
    const state = core.readState(root);
    // Between these two it goes round and round, without a person and without an end.
    fs.writeFileSync(path.join(root, ".ai", "HANDOFF.md"), front(state, state.step === "impl" ? "pass" : "failing"));
    fs.rmSync(path.join(root, ".ai", "hook.log"), { force: true });
  }
  const began = process.hrtime.bigint();
  for (const root of roots) {
    const applied = core.applyHandoff(root);
    if (applied.type !== "applied") throw new Error(JSON.stringify(applied));
    const next = core.dispatch(root);
    if (next.type !== "dispatched") throw new Error(JSON.stringify(next));
  }
  spent += process.hrtime.bigint() - began;
}
console.log(JSON.stringify({ cycles: roots.length * Number(rounds), seconds: Number(spent) / 1e9 }));
