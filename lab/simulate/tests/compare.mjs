// Reads options as JSON, one run per line. Prints the event log of each run, then
// `# FINISHED END COMPUTING STALLS STALL_NS`. With the argument `verdicts`, prints only the bottlenecks and
// the verdicts in words.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const Simulate = createRequire(import.meta.url)("../page/simulate.js");
const words = readFileSync(new URL("../page/words.js", import.meta.url), "utf8");
const Words = new Function("Simulate", `${words}; return Words;`)(Simulate);
for await (const line of createInterface({ input: process.stdin })) {
  const result = Simulate.run(JSON.parse(line));
  const report = Simulate.report(result);
  if (process.argv[2] === "verdicts") {
    const { name, text } = Words.verdict(result, report);
    process.stdout.write(`${name}: ${text}\n`);
    continue;
  }
  process.stdout.write(Simulate.logText(result));
  process.stdout.write(`# ${result.finished} ${result.end} ${report.computing} ${report.stallCount} ${report.stallTotal}\n`);
}
