// Reads options as JSON, one run per line. Prints the event log of each run, then
// `# FINISHED END COMPUTING STALLS STALL_NS`.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const Simulate = createRequire(import.meta.url)("../page/simulate.js");
for await (const line of createInterface({ input: process.stdin })) {
  const result = Simulate.run(JSON.parse(line));
  const report = Simulate.report(result);
  process.stdout.write(Simulate.logText(result));
  process.stdout.write(`# ${result.finished} ${result.end} ${report.computing} ${report.stallCount} ${report.stallTotal}\n`);
}
