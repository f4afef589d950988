// Runs the reference CLI in this process, once for each line of JSON on stdin: {"words": [...], "ahead_s": 0}.
// Answers each with a line {"code", "out", "err"}. A process for each case would take minutes.
"use strict";
const cli = require.resolve(process.argv[2]);
const say = process.stdout.write.bind(process.stdout);
const EXIT = Symbol("exit");

// Between two verbs of a sequence seconds pass, for the program: so many that files of before are older.
let aheadMs = 0;
const Machine = Date;
globalThis.Date = class extends Machine {
  constructor(...given) { if (given.length) super(...given); else super(Machine.now() + aheadMs); }
  static now() { return Machine.now() + aheadMs; }
};

function run(words) {
  const said = { code: null, out: [], err: [] };
  const over = () => said.code !== null;
  const log = console.log, error = console.error, exit = process.exit, argv = process.argv;
  console.log = (...parts) => { if (!over()) said.out.push(parts.join(" ")); };
  console.error = (...parts) => { if (!over()) said.err.push(parts.join(" ")); };
  // The program's own safety net catches what is thrown here; what it says then is not heard any more.
  process.exit = (code) => { if (!over()) said.code = code ?? 0; throw EXIT; };
  process.argv = [argv[0], cli, ...words];
  delete require.cache[cli];
  try { require(cli); } catch (thrown) { if (thrown !== EXIT) throw thrown; }
  finally { Object.assign(console, { log, error }); process.exit = exit; process.argv = argv; }
  const text = (lines) => lines.map((line) => line + "\n").join("");
  return { code: said.code ?? 0, out: text(said.out), err: text(said.err) };
}

require("readline").createInterface({ input: process.stdin, terminal: false }).on("line", (line) => {
  const { words, ahead_s } = JSON.parse(line);
  aheadMs = (ahead_s ?? 0) * 1000;
  say(JSON.stringify(run(words)) + "\n");
});
