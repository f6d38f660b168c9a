// Numbers, verdicts and command lines as text.
const Words = (() => {
  "use strict";

  const MS = 1e6;

  const round = (x) => String(Number(x.toPrecision(3)));
  const timeText = (ns) => (ns >= 1e9 ? `${round(ns / 1e9)} s` : ns >= MS ? `${round(ns / MS)} ms` : `${round(ns / 1e3)} µs`);
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

  // Returns the bottleneck like verdict.rs: its name, whether it is loading, and the verdict as text. The page does not
  // search for remedies.
  function verdict(result, report) {
    const { options } = result;
    const { STALL_TOLERANCE, START_TOLERANCE, LONG_RUN_BATCHES } = Simulate;
    const parallel = options.cores === null ? options.workers : Math.min(options.cores, options.workers);
    const perStep = options.step.mean_ns + options.transfer_ns;
    const ratio = (parallel * perStep) / meanLoad(options);
    if (report.first === null) return { name: "loading", isBad: true, text: "No batch arrives before the end of the run." };
    const { lateShare, start } = Simulate.waits(result);
    const isTolerable = (share) => share === null || share <= STALL_TOLERANCE;
    let longShare = null;
    let keepsUp = ratio >= 1 - STALL_TOLERANCE && isTolerable(lateShare);
    if (keepsUp && report.batches < LONG_RUN_BATCHES) {
      longShare = Simulate.longRunShare(options);
      keepsUp = isTolerable(longShare);
    }
    const hardlyStalls = report.stallShare <= STALL_TOLERANCE;
    const idle = `the model waits ${percent(report.stallShare)} of the time`;
    const longRun = `of a run of ${LONG_RUN_BATCHES} batches`;
    if (keepsUp) {
      const reserve = ratio < 1.1 ? "load just as many batches as it consumes, with no reserve" : `can load ${ratio.toFixed(1)} times as many batches as it consumes`;
      if (!hardlyStalls || report.waitShare > START_TOLERANCE) {
        const waits = percent(hardlyStalls ? report.waitShare : report.stallShare);
        const later = lateShare !== null && start !== null ? `but only ${percent(start.share)} after the first ${timeText(start.end)}`
          : longShare !== null ? `but only ${percent(longShare)} ${longRun}` : "in a run that is too short to tell more";
        return { name: "start", isBad: false, text: `Only the start is slow: the model waits ${waits} of the time, ${later}; the workers ${reserve}.` };
      }
      return ratio < 1.1
        ? { name: "balanced", isBad: false, text: "Balanced: the workers load just as many batches as the model consumes, with no reserve." }
        : { name: "model", isBad: false, text: `The model is the bottleneck: the workers ${reserve}.` };
    }
    if (ratio < 1 - 1e-9) {
      const needed = Math.ceil(meanLoad(options) / perStep - 1e-9);
      const how = options.cores !== null && needed > options.cores ? `${needed} workers on as many cores` : `at least ${needed} workers`;
      const text = `Loading ${hardlyStalls ? "would be the bottleneck of a longer run" : `is the bottleneck: ${idle}`}. It needs ${how}, or loading that is at least ${round(1 / ratio)} times faster.`;
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
    add("prefetch", options.prefetch);
    if (options.order !== "pytorch") add("order", options.order);
    if (options.order === "pool" && options.queue !== null) add("queue", options.queue);
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

  return { round, timeText, percent, meanLoad, verdict, command };
})();
