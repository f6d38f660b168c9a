// JavaScript port of `src/engine`: the same options give the same event log. Integers are nanoseconds below 2^53. `ln`,
// `exp` and `sqrt` are implemented here, because those of `Math` differ between browsers.
const Simulate = (() => {
  "use strict";

  const MAX_BATCHES = 1000000;
  const MAX_RUN_NS = 1e15;
  const MAX_TIME_NS = 3.6e12;

  // --- math.rs

  const LN2_HI = 6.93147180369123816490e-1;
  const LN2_LO = 1.90821492927058770002e-10;
  const INV_LN2 = 1.44269504088896338700;
  const SQRT_2 = 1.41421356237309504880;
  const SQRT_HALF = 0.707106781186547524401;

  function ln(x) {
    let m = x, k = 0;
    while (m >= SQRT_2) { m *= 0.5; k += 1; }
    while (m < SQRT_HALF) { m *= 2; k -= 1; }
    const f = m - 1;
    const s = f / (2 + f);
    const z = s * s;
    const w = z * z;
    const even = w * (0.3999999999940942 + w * (0.22222198432149784 + w * 0.15313837699209373));
    const odd = z * (0.6666666666666735 + w * (0.2857142874366239 + w * (0.1818357216161805 + w * 0.14798198605116586)));
    const halfSquare = 0.5 * f * f;
    const rest = s * (halfSquare + (even + odd));
    return k * LN2_HI - ((halfSquare - (rest + k * LN2_LO)) - f);
  }

  function exp(argument) {
    if (argument < -700) return 0;
    const x = argument > 700 ? 700 : argument;
    const k = Math.floor(x * INV_LN2 + 0.5);
    const hi = x - k * LN2_HI;
    const lo = k * LN2_LO;
    const r = hi - lo;
    const t = r * r;
    const c = r - t * (0.16666666666666602 + t * (-0.0027777777777015593 + t * (6.613756321437934e-5
      + t * (-1.6533902205465252e-6 + t * 4.1381367970572385e-8))));
    let y = 1 - ((lo - (r * c) / (2 - c)) - hi);
    let n = k;
    while (n > 0) { y *= 2; n -= 1; }
    while (n < 0) { y *= 0.5; n += 1; }
    return y;
  }

  const sqrt = (x) => (x <= 0 ? 0 : exp(0.5 * ln(x)));

  // --- random.rs

  const STREAM = { load: 1, slow: 2, step: 3 };

  function mix(word) {
    let h = word;
    h ^= h >>> 16;
    h = Math.imul(h, 0x85ebca6b);
    h ^= h >>> 13;
    h = Math.imul(h, 0xc2b2ae35);
    return (h ^ (h >>> 16)) >>> 0;
  }

  const rotate = (x, n) => ((x << n) | (x >>> (32 - n))) >>> 0;

  // `seed` holds the low and the high 32 bits of the seed.
  function makeRandom(seed, stream) {
    let h = (seed[0] ^ mix((seed[1] + Math.imul(stream, 0x9e3779b9)) >>> 0)) >>> 0;
    const s = [0, 0, 0, 0].map(() => {
      h = (h + 0x9e3779b9) >>> 0;
      return mix(h);
    });
    if (s.every((word) => word === 0)) s[0] = 1;

    function next() {
      const result = (rotate((s[0] + s[3]) >>> 0, 7) + s[0]) >>> 0;
      const t = s[1] << 9;
      s[2] ^= s[0];
      s[3] ^= s[1];
      s[1] ^= s[2];
      s[0] ^= s[3];
      s[2] ^= t;
      s[3] = rotate(s[3] >>> 0, 11);
      for (let i = 0; i < 4; i += 1) s[i] >>>= 0;
      return result;
    }

    function uniform() {
      const high = next() >>> 6;
      const low = next() >>> 6;
      return (high * 67108864 + low + 0.5) / 4503599627370496;
    }

    function normal() {
      for (;;) {
        const u = 2 * uniform() - 1;
        const v = 2 * uniform() - 1;
        const q = u * u + v * v;
        if (q > 0 && q < 1) return u * sqrt(-2 * ln(q) / q);
      }
    }

    function gamma(shape) {
      if (shape < 1) {
        const larger = gamma(shape + 1);
        return larger * exp(ln(uniform()) / shape);
      }
      const d = shape - 1 / 3;
      const c = 1 / sqrt(9 * d);
      for (;;) {
        const z = normal();
        const t = 1 + c * z;
        if (t <= 0) continue;
        const v = t * t * t;
        if (ln(uniform()) < 0.5 * z * z + d - d * v + d * ln(v)) return d * v;
      }
    }

    return { uniform, normal, exponential: () => -ln(uniform()), gamma };
  }

  // --- distribution.rs and load.rs

  function roundNs(ns) {
    const rounded = Math.floor(ns + 0.5);
    return rounded < 1 ? 1 : rounded > MAX_TIME_NS ? MAX_TIME_NS : rounded;
  }

  function draw(times, random) {
    const { shape, mean_ns: mean, cv } = times;
    if (shape === "constant" || cv === 0) return mean;
    if (shape === "normal") {
      for (;;) {
        const x = mean * (1 + cv * random.normal());
        if (x > 0) return roundNs(x);
      }
    }
    if (shape === "lognormal") {
      const variance = ln(1 + cv * cv);
      return roundNs(mean * exp(sqrt(variance) * random.normal() - 0.5 * variance));
    }
    if (shape === "exponential") return roundNs(mean * random.exponential());
    const gammaShape = 1 / (cv * cv);
    return roundNs(mean * (random.gamma(gammaShape) / gammaShape));
  }

  function makeLoads(options) {
    const { load, slow, seed } = options;
    const slowness = makeRandom(seed, STREAM.slow);
    const times = makeRandom(seed, STREAM.load);
    let isSlow = slow !== null && slowness.uniform() < slow.share;
    let batch = 0;
    return () => {
      let ns = load.trace_ns ? load.trace_ns[batch % load.trace_ns.length] : draw(load, times);
      batch += 1;
      if (slow !== null) {
        if (isSlow) ns = roundNs(ns * slow.factor);
        const change = isSlow ? 1 / slow.length : slow.share / (slow.length * (1 - slow.share));
        if (slowness.uniform() < change) isSlow = !isSlow;
      }
      return ns;
    };
  }

  // --- engine

  // Workers that are loading: a binary heap by finishing work, then by number.
  function makeHeap() {
    const items = [];
    const before = (a, b) => a.target < b.target || (a.target === b.target && a.worker < b.worker);
    return {
      get size() { return items.length; },
      peek: () => items[0],
      push(item) {
        let i = items.push(item) - 1;
        while (i > 0) {
          const parent = (i - 1) >> 1;
          if (!before(items[i], items[parent])) break;
          [items[i], items[parent]] = [items[parent], items[i]];
          i = parent;
        }
      },
      pop() {
        const top = items[0];
        const last = items.pop();
        if (items.length > 0) {
          items[0] = last;
          let i = 0;
          for (;;) {
            let least = i;
            for (const child of [2 * i + 1, 2 * i + 2]) {
              if (child < items.length && before(items[child], items[least])) least = child;
            }
            if (least === i) break;
            [items[i], items[least]] = [items[least], items[i]];
            i = least;
          }
        }
        return top;
      },
    };
  }

  // Exact: the remainder of doubles is exact, their quotient is not.
  const divideDown = (a, b) => (a - (a % b)) / b;
  const divideUp = (a, b) => (a % b === 0 ? a / b : divideDown(a, b) + 1);

  // Throws if more than `maxBatches` are loaded. Without events, a run is faster.
  function run(options, maxBatches = Infinity, isLogging = true) {
    const { workers: count, prefetch, order, cores, stop } = options;
    const capacity = options.queue === null ? prefetch * count : options.queue;
    const horizon = stop.after_ns === undefined ? MAX_RUN_NS : stop.after_ns;
    const limit = stop.batches === undefined ? Infinity : stop.batches;
    const nextLoad = makeLoads(options);
    const stepRandom = makeRandom(options.seed, STREAM.step);
    const workers = Array.from({ length: count }, () => ({ state: "starting", batch: 0, tasks: [], head: 0, outstanding: 0 }));
    const batches = [];
    const events = [];
    const speed = [];
    const loading = makeHeap();
    const queue = [];
    let queueHead = 0;
    const blocked = [];
    let idle = [];
    let now = 0, work = 0, started = 0, nextInOrder = 0, turn = 0, finished = 0;
    let model = null;

    const tick = (ns) => divideUp(ns, options.tick_ns) * options.tick_ns;
    const startTime = (worker) => tick(options.startup_ns + worker * options.stagger_ns);
    // Loading workers, and the model if it needs one of their cores.
    const active = () => loading.size + (model !== null && model.target !== undefined ? 1 : 0);
    const isShared = () => cores !== null && cores < active();
    // The time at which `work` reaches `target` if nothing happens before.
    const timeOfWork = (target) => {
      const left = Math.max(0, target - work);
      return tick(now + (isShared() ? divideUp(left * active(), cores) : left));
    };
    const log = (kind, batch) => { if (isLogging) events.push({ ns: now, kind, batch, worker: batches[batch].worker }); };

    function newBatch(worker) {
      if (batches.length >= limit) return null;
      if (batches.length >= maxBatches) throw new Error(`the run has more than ${maxBatches} batches`);
      batches.push({
        worker, load: nextLoad(), start: null, startWork: 0, done: null, queued: null, taken: null, step: null, end: null,
      });
      return batches.length - 1;
    }

    function assign() {
      if (order === "completed") {
        let tried = 0;
        while (workers[turn].outstanding >= prefetch && tried < count) {
          turn = (turn + 1) % count;
          tried += 1;
        }
      }
      const chosen = turn;
      const batch = newBatch(chosen);
      if (batch === null) return;
      turn = (chosen + 1) % count;
      workers[chosen].tasks.push(batch);
      workers[chosen].outstanding += 1;
      if (workers[chosen].state === "idle") idle.push(chosen);
    }

    function nextTime() {
      let next = Infinity;
      if (started < count) next = Math.min(next, startTime(started));
      if (loading.size > 0) next = Math.min(next, timeOfWork(loading.peek().target));
      if (model !== null) next = Math.min(next, model.target === undefined ? model.until : timeOfWork(model.target));
      return next;
    }

    function startLoad(number) {
      const worker = workers[number];
      if (worker.state !== "idle") return;
      let batch = null;
      if (order === "pool") {
        batch = newBatch(number);
      } else if (worker.head < worker.tasks.length) {
        batch = worker.tasks[worker.head];
        worker.head += 1;
      }
      if (batch === null) return;
      worker.state = "loading";
      worker.batch = batch;
      batches[batch].start = now;
      batches[batch].startWork = work;
      loading.push({ target: work + batches[batch].load, worker: number });
      log("start", batch);
    }

    function enqueue(batch) {
      batches[batch].queued = now;
      queue.push(batch);
      log("queue", batch);
    }

    function loadEnded(number) {
      const worker = workers[number];
      worker.state = "idle";
      batches[worker.batch].done = now;
      log("done", worker.batch);
      if (order === "pytorch") {
        while (nextInOrder < batches.length && batches[nextInOrder].done !== null) {
          enqueue(nextInOrder);
          nextInOrder += 1;
        }
      } else if (order === "completed" || queue.length - queueHead < capacity) {
        enqueue(worker.batch);
      } else {
        worker.state = "blocked";
        blocked.push(number);
        return;
      }
      idle.push(number);
    }

    function compute(batch) {
      const ns = draw(options.step, stepRandom);
      model = options.step_core
        ? { batch, target: work + ns, computing: true }
        : { batch, until: tick(now + ns), computing: true };
      batches[batch].step = now;
      log("step", batch);
    }

    function advanceModel() {
      if (model === null || (model.target === undefined ? model.until !== now : model.target > work)) return;
      const { batch, computing } = model;
      if (!computing) {
        compute(batch);
        return;
      }
      batches[batch].end = now;
      finished += 1;
      model = null;
      log("end", batch);
    }

    function take() {
      if (queueHead === queue.length) return;
      const batch = queue[queueHead];
      queueHead += 1;
      batches[batch].taken = now;
      log("take", batch);
      if (options.transfer_ns === 0) compute(batch);
      else model = { batch, until: tick(now + options.transfer_ns), computing: false };
      if (order === "pool") {
        if (blocked.length > 0) {
          const number = blocked.shift();
          workers[number].state = "idle";
          enqueue(workers[number].batch);
          idle.push(number);
        }
      } else {
        workers[batches[batch].worker].outstanding -= 1;
        assign();
      }
    }

    function stepTo(time) {
      const passed = time - now;
      work += isShared() ? divideDown(passed * cores, active()) : passed;
      now = time;
      const wasActive = active();
      while (started < count && startTime(started) <= time) {
        workers[started].state = "idle";
        idle.push(started);
        started += 1;
      }
      while (loading.size > 0 && loading.peek().target <= work) loadEnded(loading.pop().worker);
      advanceModel();
      if (model === null) take();
      const ready = idle.sort((a, b) => a - b);
      idle = [];
      ready.forEach(startLoad);
      if (cores !== null && active() !== wasActive) speed.push({ ns: time, work });
      if (finished > MAX_BATCHES) throw new Error(`the run takes more than ${MAX_BATCHES} batches`);
    }

    if (order !== "pool") for (let i = 0; i < count * prefetch; i += 1) assign();
    let end = horizon;
    for (;;) {
      if (finished === limit) { end = now; break; }
      const time = nextTime();
      if (time > horizon) {
        if (limit !== Infinity) throw new Error("the run takes longer than 1,000,000 s of simulated time");
        break;
      }
      stepTo(time);
    }
    return { options, end, finished, batches, events, speed };
  }

  const logText = (result) => result.events.map((e) => `${e.ns} ${e.kind} ${e.batch} ${e.worker}\n`).join("");

  // --- progress of a batch, for the animation

  // Returns the first index whose item does not satisfy `holds`.
  function partition(items, holds) {
    let low = 0, high = items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (holds(items[middle])) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function workAt(result, ns) {
    const { speed, options } = result;
    const after = partition(speed, (point) => point.ns <= ns);
    if (after === 0) return ns;
    const a = speed[after - 1];
    if (after < speed.length) {
      const b = speed[after];
      return a.work + (b.work - a.work) * ((ns - a.ns) / (b.ns - a.ns));
    }
    const loading = result.batches.filter((b) => b.start !== null && b.done === null).length;
    const computing = result.batches.some((b) => b.step !== null && b.end === null);
    const active = loading + (options.step_core && computing ? 1 : 0);
    return a.work + (ns - a.ns) * Math.min(1, options.cores / Math.max(1, active));
  }

  function progress(result, batch, ns) {
    if (batch.start === null || ns < batch.start) return 0;
    if (batch.done !== null && ns >= batch.done) return 1;
    return Math.max(0, Math.min(1, (workAt(result, ns) - batch.startWork) / batch.load));
  }

  // --- report.rs: the part that the page shows

  function report(result) {
    const { batches, end } = result;
    let computing = 0;
    let transferring = 0;
    const taken = [];
    for (const b of batches) {
      if (b.taken === null) continue;
      taken.push(b);
      transferring += Math.min(b.step === null ? end : b.step, end) - b.taken;
      if (b.step !== null) computing += Math.min(b.end === null ? end : b.end, end) - b.step;
    }
    taken.sort((a, b) => a.taken - b.taken);
    let stallCount = 0, stallTotal = 0, longest = 0, firstStall = 0, lastStall = 0;
    taken.forEach((b, i) => {
      if (b.end === null) return;
      const next = i + 1 < taken.length ? taken[i + 1].taken : end;
      const length = Math.max(0, next - b.end);
      if (length === 0) return;
      if (stallCount === 0) firstStall = b.end;
      lastStall = b.end;
      stallCount += 1;
      stallTotal += length;
      longest = Math.max(longest, length);
    });
    const first = taken.length > 0 ? taken[0].taken : null;
    return {
      batches: result.finished,
      idleShare: 1 - computing / end,
      waitShare: Math.max(0, end - computing - transferring) / end,
      computing,
      transferring,
      first,
      stallCount,
      stallTotal,
      longest,
      stallMean: stallCount > 0 ? stallTotal / stallCount : 0,
      stallPeriod: stallCount > 1 ? (lastStall - firstStall) / (stallCount - 1) : null,
      stallShare: first === null ? 1 : stallTotal / Math.max(1, end - first),
    };
  }

  // --- waits.rs: the model's waits, and the criterion for loading that keeps up

  const STALL_TOLERANCE = 0.01;
  const START_TOLERANCE = 0.1;
  const BUSY_CORES = 0.95;
  const LONG_RUN_BATCHES = 20_000;

  // Returns the share of the time that the model waits during the second half of its batches, and the batches per second
  // that it takes, both null if the run is so short that the second half can contain batches that the workers loaded
  // first; and when the start of the run ends, with the share after it, or null.
  function waits(result) {
    const { end, options } = result;
    const taken = result.batches.filter((b) => b.taken !== null).sort((a, b) => a.taken - b.taken);
    const lengths = taken.map((b, i) => (b.end === null ? 0 : Math.max(0, (i + 1 < taken.length ? taken[i + 1].taken : end) - b.end)));
    const half = Math.floor(taken.length / 2);
    const started = options.startup_ns + (options.workers - 1) * options.stagger_ns;
    let left = lengths.reduce((sum, length) => sum + length, 0);
    let start = null;
    for (let i = 0; i < taken.length && i <= half; i += 1) {
      const rest = Math.max(1, end - taken[i].taken);
      const share = left / rest;
      if (start === null && share <= STALL_TOLERANCE) start = { end: taken[i].taken, share };
      if (i === half) {
        const isLate = half >= options.workers && taken[half].taken >= started;
        return { lateShare: isLate ? share : null, lateRate: isLate ? (taken.length - half) * 1e9 / rest : null, start };
      }
      left -= lengths[i];
    }
    return { lateShare: null, lateRate: null, start };
  }

  // Returns the waits of a long run; null if such a run takes longer than the simulator allows.
  function longRun(options) {
    try {
      return waits(run({ ...options, stop: { batches: LONG_RUN_BATCHES } }, Infinity, false));
    } catch {
      return null;
    }
  }

  return { run, logText, progress, report, waits, longRun, partition, ln, exp, STALL_TOLERANCE, START_TOLERANCE, BUSY_CORES, LONG_RUN_BATCHES };
})();

if (typeof module !== "undefined") module.exports = Simulate;
