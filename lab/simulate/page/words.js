// Numbers, verdicts and command lines as text.
const Words = (() => {
  "use strict";

  const MS = 1e6;

  const round = (x) => String(Number(x.toPrecision(3)));
  const timeText = (ns) => (ns >= 1e9 ? `${round(ns / 1e9)} s` : ns >= MS ? `${round(ns / MS)} ms` : `${round(ns / 1e3)} µs`);
  // Formats a number like `number` in format.rs.
  const number = (x) => String(Number(x.toFixed(x >= 100 ? 0 : x >= 10 ? 1 : x >= 1 ? 2 : 4)));
  const batchCount = (count) => (count === 1 ? "1 batch" : `${count} batches`);
  const percent = (share) => `${(100 * share).toFixed(1)}%`;

  // Returns the mean of a normal variable with mean 1, given that it is positive.
  function truncatedMean(cv) {
    const z = 1 / cv;
    const density = Math.exp(-0.5 * z * z) / 2.506628274631;
    const t = 1 / (1 + 0.2316419 * z);
    const tail = density * t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))));
    return 1 + (cv * density) / (1 - tail);
  }

  function meanLoad(options) {
    const { load, slow } = options;
    const mean = load.trace_ns ? load.trace_ns.reduce((sum, ns) => sum + ns, 0) / load.trace_ns.length
      : load.shape === "normal" && load.cv > 0 ? load.mean_ns * truncatedMean(load.cv) : load.mean_ns;
    return mean * (slow === null ? 1 : 1 + slow.share * (slow.factor - 1));
  }

  function meanStep(step) {
    return step.shape === "normal" && step.cv > 0 ? step.mean_ns * truncatedMean(step.cv) : step.mean_ns;
  }

  // Returns the limits of report.rs, in batches per second: of the workers, of the model, of the model with a core of
  // its own, and of the cores that workers and model share (or null).
  function limits(options) {
    const { cores, workers } = options;
    const load = meanLoad(options);
    const stepMean = meanStep(options.step);
    const alone = 1e9 / (stepMean + options.transfer_ns);
    const shared = options.step_core ? (cores * 1e9) / (load + stepMean) : null;
    const model = shared === null ? alone : Math.min(shared, alone);
    const parallel = options.step_core ? Math.min(workers, cores - (model * stepMean) / 1e9)
      : cores === null ? workers : Math.min(cores, workers);
    return { loader: (parallel * 1e9) / load, model, alone, shared };
  }

  // Returns the bottleneck like verdict.rs: its name, whether it is loading, and the verdict as text. The page does not
  // search for remedies.
  function verdict(result, report) {
    const { options } = result;
    const { STALL_TOLERANCE, START_TOLERANCE, BUSY_CORES, LONG_RUN_BATCHES } = Simulate;
    const { loader, model, alone, shared } = limits(options);
    const ratio = loader / model;
    if (report.first === null) return { name: "loading", isBad: true, text: "No batch arrives before the end of the run." };
    const waits = Simulate.waits(result);
    const { lateShare, start } = waits;
    const isTolerable = (share) => share === null || share <= STALL_TOLERANCE;
    const hasCapacity = loader >= model * (1 - STALL_TOLERANCE);
    const isCoreLimited = shared !== null && shared < alone;
    let long = null;
    let keepsUp = hasCapacity && isTolerable(lateShare);
    if ((keepsUp || (hasCapacity && isCoreLimited)) && report.batches < LONG_RUN_BATCHES) long = Simulate.longRun(options);
    const longShare = long === null ? null : long.lateShare;
    keepsUp = keepsUp && isTolerable(longShare);
    const { lateRate } = long === null ? waits : long;
    const coresAreBusy = isCoreLimited && lateRate !== null && lateRate >= shared * BUSY_CORES;
    const hardlyStalls = report.stallShare <= STALL_TOLERANCE;
    const idle = `the model waits ${percent(report.stallShare)} of the time`;
    const longRun = `of a run of ${LONG_RUN_BATCHES} batches`;
    const reserve = ratio < 1.1 ? "load just as many batches as it consumes, with no reserve" : `can load ${ratio.toFixed(1)} times as many batches as it consumes`;
    if (keepsUp && (!hardlyStalls || report.waitShare > START_TOLERANCE)) {
      const share = percent(hardlyStalls ? report.waitShare : report.stallShare);
      const later = lateShare !== null && start !== null ? `but only ${percent(start.share)} after the first ${timeText(start.end)}`
        : longShare !== null ? `but only ${percent(longShare)} ${longRun}` : "in a run that is too short to tell more";
      return { name: "start", isBad: false, text: `Only the start is slow: the model waits ${share} of the time, ${later}; the workers ${reserve}.` };
    }
    if (hasCapacity && coresAreBusy) {
      const count = options.cores === 1 ? "1 core" : `${options.cores} cores`;
      const waiting = hardlyStalls ? "" : ` ${idle}, but more workers would not help;`;
      const text = `The cores are the bottleneck: loading and the model share ${count}, enough for ${number(model)} batches/s, and the model alone could consume ${number(alone)};${waiting} more cores or less work per batch would help.`;
      return { name: "cores", isBad: true, text };
    }
    if (keepsUp) {
      return ratio < 1.1
        ? { name: "balanced", isBad: false, text: "Balanced: the workers load just as many batches as the model consumes, with no reserve." }
        : { name: "model", isBad: false, text: `The model is the bottleneck: the workers ${reserve}.` };
    }
    if (ratio < 1 - 1e-9) {
      const load = meanLoad(options);
      const needed = Math.ceil((load * model) / 1e9 - 1e-9);
      const how = options.cores !== null && needed > options.cores ? `${needed} workers on as many cores` : `at least ${needed} workers`;
      // Faster loading leaves more of the shared cores to the model, so its limit rises too.
      const faster = isCoreLimited
        ? Math.min((load * alone) / 1e9 / options.workers, (load * (options.cores / options.workers - 1)) / meanStep(options.step))
        : 1 / ratio;
      const text = `Loading ${hardlyStalls ? "would be the bottleneck of a longer run" : `is the bottleneck: ${idle}`}. It needs ${how}, or loading that is at least ${round(faster)} times faster.`;
      return { name: "loading", isBad: true, text };
    }
    const text = hardlyStalls && longShare !== null
      ? `Uneven loading would be the bottleneck of a longer run: the workers are fast enough on average, but the model would wait ${percent(longShare)} ${longRun}.`
      : `Uneven loading is the bottleneck: the workers are fast enough on average, but ${idle}.`;
    return { name: "uneven", isBad: true, text: `${text} More prefetch, more workers or another order may help.` };
  }

  // Returns the parts of the command line that simulates `options`.
  function command(options) {
    const parts = ["dsconvert simulate"];
    const add = (flag, value) => parts.push(`--${flag} ${value}`);
    const ms = (ns) => String(ns / MS);
    if (options.load.trace_ns) add("load-trace", "FILE");
    else {
      add("load-ms", ms(options.load.mean_ns));
      if (options.load.shape !== "constant" && options.load.cv > 0) {
        add("load-distribution", options.load.shape);
        if (options.load.shape !== "exponential") add("load-cv", options.load.cv);
      }
    }
    add("step-ms", ms(options.step.mean_ns));
    if (options.step.shape !== "constant" && options.step.cv > 0) {
      add("step-distribution", options.step.shape);
      if (options.step.shape !== "exponential") add("step-cv", options.step.cv);
    }
    add("workers", options.workers);
    const hasQueue = options.order === "pool" && options.queue !== null;
    if (!hasQueue) add("prefetch", options.prefetch);
    if (options.order !== "pytorch") add("order", options.order);
    if (hasQueue) add("queue", options.queue);
    if (options.stagger_ns > 0) parts.push(`--stagger=${ms(options.stagger_ns)}`);
    if (options.transfer_ns > 0) add("transfer-ms", ms(options.transfer_ns));
    if (options.startup_ns > 0) add("startup-ms", ms(options.startup_ns));
    if (options.cores !== null) add("cores", options.cores);
    if (options.step_core) parts.push("--step-core");
    if (options.tick_ns > 1) add("tick-ms", ms(options.tick_ns));
    if (options.slow !== null) {
      add("slow-share", options.slow.share);
      add("slow-factor", options.slow.factor);
      add("slow-length", options.slow.length);
    }
    if (options.stop.batches !== undefined) add("batches", options.stop.batches);
    else add("seconds", options.stop.after_ns / 1e9);
    add("seed", String((BigInt(options.seed[1]) << 32n) | BigInt(options.seed[0])));
    return parts;
  }

  return { round, timeText, percent, batchCount, meanLoad, verdict, command };
})();
