// The page: draws the run at a moment, plays it, and simulates it again when a control changes.
(() => {
  "use strict";

  const MS = 1e6;
  const MOST_BATCHES = 20000;
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  const COLOURS = [[212, 50], [24, 46], [152, 36], [268, 56], [340, 50], [190, 38], [46, 38], [300, 42], [100, 34], [4, 52]];
  const fillOf = (worker) => {
    const [hue, lightness] = COLOURS[worker % COLOURS.length];
    return `hsl(${hue} 62% ${lightness - 8 * (Math.floor(worker / COLOURS.length) % 3)}%)`;
  };

  const given = JSON.parse(byId("options").textContent);

  const constant = (ms) => ({ shape: "constant", mean_ns: Math.round(ms * MS), cv: 0 });
  const situation = (changes) => ({
    workers: 7, prefetch: 2, order: "pytorch", queue: null, load: constant(2000), slow: null, step: constant(100),
    transfer_ns: 0, startup_ns: 0, stagger_ns: 0, cores: null, tick_ns: 1, seed: [1, 0], stop: { after_ns: 30e9 }, ...changes,
  });
  const PRESETS = [
    { name: "This run", about: "The run that this page was made for.", options: given },
    { name: "Bottleneck", about: "Seven workers need 2 s per batch: 3.5 batches per second for a model that consumes 10. It waits 1.3 s in every 2 s.",
      options: situation({}) },
    { name: "Balanced", about: "At 700 ms, seven workers load exactly the 10 batches per second that the model consumes.",
      options: situation({ load: constant(700) }) },
    { name: "Twice as fast", about: "At 350 ms, the workers have twice the capacity. The queue fills up, and the workers wait for the model.",
      options: situation({ load: constant(350) }) },
    { name: "High variance", about: "The mean is still 2 s. The regular stall is gone, but the model waits just as long, in pieces.",
      options: situation({ load: { shape: "lognormal", mean_ns: 2000 * MS, cv: 0.5 } }) },
    { name: "Desynchronised", about: "The workers start one after another. The long stall becomes a short one before every batch; the total is the same.",
      options: situation({ stagger_ns: Math.round(2000 * MS / 7) }) },
    { name: "Converted dataset", about: "Decoding and resizing were done once, offline: loading is 20 times faster, and two workers are enough.",
      options: situation({ load: constant(100), workers: 2 }) },
  ];

  let options = given;
  let result = null;
  let report = null;
  let perWorker = [];
  let taken = [];
  let now = 0;
  let playing = false;
  let lastFrame = null;

  // --- text

  const round = (x) => String(Number(x.toPrecision(3)));
  const timeText = (ns) => (ns >= 1e9 ? `${round(ns / 1e9)} s` : ns >= MS ? `${round(ns / MS)} ms` : `${round(ns / 1e3)} µs`);
  const percent = (share) => `${(100 * share).toFixed(1)}%`;

  // Mean of a normal variable of mean 1, given that it is positive.
  function truncatedMean(cv) {
    const z = 1 / cv;
    const density = Math.exp(-0.5 * z * z) / 2.506628274631;
    const t = 1 / (1 + 0.2316419 * z);
    const tail = density * t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))));
    return 1 + (cv * density) / (1 - tail);
  }

  function meanLoad() {
    const { load, slow } = options;
    const mean = load.trace_ns ? load.trace_ns.reduce((sum, ns) => sum + ns, 0) / load.trace_ns.length
      : load.shape === "normal" && load.cv > 0 ? load.mean_ns * truncatedMean(load.cv) : load.mean_ns;
    return mean * (slow === null ? 1 : 1 + slow.share * (slow.factor - 1));
  }

  function verdict() {
    const parallel = options.cores === null ? options.workers : Math.min(options.cores, options.workers);
    const perStep = options.step.mean_ns + options.transfer_ns;
    const ratio = (parallel * perStep) / meanLoad();
    if (report.first === null) return [true, "No batch arrives before the end of the run."];
    const waits = `the model waits ${percent(report.stallShare)} of the time`;
    if (report.stallShare <= 0.01 && ratio >= 0.99) {
      return ratio < 1.1
        ? [false, "Balanced: the workers load just as many batches as the model consumes, with no reserve."]
        : [false, `The model is the bottleneck: the workers can load ${round(ratio)} times as many batches as it consumes.`];
    }
    if (ratio < 1 - 1e-9) {
      const needed = Math.ceil(meanLoad() / perStep - 1e-9);
      const how = options.cores !== null && needed > options.cores ? `${needed} workers on as many cores` : `at least ${needed} workers`;
      return [true, `Loading ${report.stallShare > 0.01 ? `is the bottleneck: ${waits}` : "would be the bottleneck of a longer run"}. It needs ${how}, or loading that is at least ${round(1 / ratio)} times faster.`];
    }
    return [true, `Uneven loading is the bottleneck: the workers are fast enough on average, but ${waits}. More prefetch, more workers or another order may help.`];
  }

  function commandText() {
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

  // Lines break between options, not inside them.
  function showCommand() {
    const pieces = commandText().flatMap((part) => {
      const span = document.createElement("span");
      span.textContent = part;
      return [" ", span];
    });
    byId("command").replaceChildren(...pieces.slice(1));
  }

  // --- controls

  const CONTROLS = ["load", "cv", "workers", "prefetch", "step", "order", "shape", "stagger"];

  // A slider that ends before the value is made longer.
  function setSlider(id, value) {
    const slider = byId(id);
    if (value > Number(slider.max)) slider.max = value;
    if (value < Number(slider.min)) slider.min = value;
    const least = Number(slider.min), step = Number(slider.step);
    if (Math.abs((value - least) / step - Math.round((value - least) / step)) > 1e-9) slider.step = "any";
    slider.value = value;
  }

  function showControls() {
    const traced = Boolean(options.load.trace_ns);
    for (const id of ["load", "cv", "shape", "stagger"]) byId(id).disabled = traced;
    setSlider("load", traced ? meanLoad() / MS : options.load.mean_ns / MS);
    setSlider("cv", traced || options.load.shape === "constant" ? 0 : options.load.cv * 100);
    setSlider("workers", options.workers);
    setSlider("prefetch", options.prefetch);
    setSlider("step", options.step.mean_ns / MS);
    byId("order").value = options.order;
    if (["normal", "lognormal", "gamma"].includes(options.load.shape)) byId("shape").value = options.load.shape;
    byId("stagger").checked = options.stagger_ns > 0;
    showValues();
  }

  function showValues() {
    byId("load-out").textContent = options.load.trace_ns ? "from a trace" : `${round(Number(byId("load").value))} ms`;
    byId("cv-out").textContent = options.load.trace_ns ? "from a trace" : (Number(byId("cv").value) / 100).toFixed(2);
    byId("workers-out").textContent = byId("workers").value;
    byId("prefetch-out").textContent = byId("prefetch").value;
    byId("step-out").textContent = `${round(Number(byId("step").value))} ms`;
    byId("prefetch").disabled = options.order === "pool" && options.queue !== null;
  }

  function readControls(changed) {
    const value = (id) => Number(byId(id).value);
    const next = { ...options, workers: value("workers"), prefetch: value("prefetch"), order: byId("order").value };
    if (changed === "load") next.load = { ...options.load, mean_ns: Math.max(1, Math.round(value("load") * MS)) };
    if (changed === "cv" || changed === "shape") {
      const cv = value("cv") / 100;
      next.load = { shape: cv === 0 ? "constant" : byId("shape").value, mean_ns: options.load.mean_ns, cv };
    }
    if (changed === "step") next.step = { ...options.step, mean_ns: Math.max(1, Math.round(value("step") * MS)) };
    if (["stagger", "load", "workers"].includes(changed) && !options.load.trace_ns) {
      next.stagger_ns = byId("stagger").checked ? Math.round(next.load.mean_ns / next.workers) : 0;
    }
    markPreset(null);
    simulate(next);
    showValues();
  }

  function markPreset(chosen) {
    for (const button of byId("presets").children) button.setAttribute("aria-pressed", String(button.textContent === chosen));
    byId("about").textContent = chosen === null ? "" : PRESETS.find((p) => p.name === chosen).about;
  }

  // --- the run

  function simulate(next) {
    let found;
    try {
      found = Simulate.run(next, MOST_BATCHES);
    } catch (error) {
      byId("verdict").textContent = `This cannot be shown: ${error.message}.`;
      byId("verdict").className = "verdict bad";
      return;
    }
    options = next;
    result = found;
    report = Simulate.report(result);
    perWorker = Array.from({ length: options.workers }, () => []);
    for (const batch of result.batches) if (batch.start !== null) perWorker[batch.worker].push(batch);
    result.batches.forEach((batch, i) => { batch.number = i + 1; });
    taken = result.batches.filter((b) => b.taken !== null).sort((a, b) => a.taken - b.taken);
    now = Math.min(now, result.end);
    showNumbers();
    layout();
    drawChart();
    draw();
  }

  function showNumbers() {
    const seconds = result.end / 1e9;
    const entries = [
      [String(report.batches), `batches in ${round(seconds)} s`],
      [percent(report.idleShare), "of the time the GPU is idle"],
      [report.stallCount === 0 ? "none" : timeText(report.stallMean),
        report.stallCount === 0 ? "stalls after the first batch" : report.stallCount === 1 ? "length of the one stall" : "mean length of a stall"],
      [report.stallPeriod === null ? "–" : timeText(report.stallPeriod), "from one stall to the next"],
    ];
    byId("numbers").replaceChildren(...entries.map(([value, name]) => {
      const div = document.createElement("div");
      const b = document.createElement("b");
      b.textContent = value;
      const span = document.createElement("span");
      span.textContent = name;
      div.append(b, span);
      return div;
    }));
    const [bad, text] = verdict();
    byId("verdict").textContent = text;
    byId("verdict").className = bad ? "verdict bad" : "verdict";
    showCommand();
  }

  // --- the stage

  const stage = byId("stage");
  let cells = [];
  let slots = [];
  let tokens = [];
  let modelParts = null;
  let place = null;

  function node(name, attributes, parent, text) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  }

  // Lays out cells, queue and model for the current width.
  function layout() {
    const width = Math.max(280, stage.clientWidth || 320);
    const count = options.workers;
    const gap = 10;
    const columns = Math.min(count, Math.max(4, Math.floor((width + gap) / 104)));
    const cellWidth = Math.min(130, (width - gap * (columns - 1)) / columns);
    const rows = Math.ceil(count / columns);
    const cellHeight = rows > 4 ? 44 : 66;
    const left = (width - (Math.min(count, columns) * (cellWidth + gap) - gap)) / 2;
    const cellsTop = 18;
    const queueTop = cellsTop + rows * (cellHeight + gap + 12) + 24;
    const size = 24;
    const fitting = Math.max(1, Math.floor((width - 8) / (size + 6)));
    const capacity = options.order === "pool" ? (options.queue === null ? options.prefetch * count : options.queue) : options.prefetch * count;
    const shown = Math.min(capacity, fitting);
    const queueLeft = (width - shown * (size + 6) + 6) / 2;
    const modelTop = queueTop + size + 40;
    const modelWidth = Math.min(360, width);
    const modelLeft = (width - modelWidth) / 2;
    const height = modelTop + 64 + 6;
    place = { size, shown, fitting, queueLeft, queueTop, modelLeft, modelTop, modelWidth, width, cellWidth, cellHeight };

    stage.replaceChildren();
    stage.setAttribute("viewBox", `0 0 ${width} ${height}`);
    stage.setAttribute("height", height);
    cells = [];
    for (let i = 0; i < count; i += 1) {
      const x = left + (i % columns) * (cellWidth + gap);
      const y = cellsTop + Math.floor(i / columns) * (cellHeight + gap + 12);
      const group = node("g", { class: "worker" }, stage);
      node("text", { x, y: y - 5, class: "label" }, group, cellWidth > 70 ? `worker ${i + 1}` : `${i + 1}`);
      node("rect", { x, y, width: cellWidth, height: cellHeight, rx: 8, class: "cell" }, group);
      const fill = node("rect", { x, y, width: cellWidth, height: 0, rx: 8, fill: fillOf(i) }, group);
      const progress = node("text", { x: x + cellWidth / 2, y: y + cellHeight / 2 + 3, class: "progress" }, group);
      const status = node("text", { x: x + cellWidth / 2, y: y + cellHeight - 7, class: "label middle status" }, group);
      cells.push({ group, fill, progress, status, x, y });
    }
    node("text", { x: queueLeft, y: queueTop - 8, class: "label" }, stage, "queue");
    modelParts = { queueCount: node("text", { x: queueLeft + shown * (size + 6) - 6, y: queueTop - 8, class: "label", "text-anchor": "end" }, stage) };
    slots = [];
    for (let i = 0; i < shown; i += 1) {
      const x = queueLeft + i * (size + 6);
      node("rect", { x, y: queueTop, width: size, height: size, rx: 5, class: "slot" }, stage);
      slots.push({ x, y: queueTop });
    }
    const group = node("g", {}, stage);
    node("text", { x: modelLeft, y: modelTop - 6, class: "label" }, group, "model");
    node("rect", { x: modelLeft, y: modelTop, width: modelWidth, height: 58, rx: 10, class: "cell" }, group);
    const fill = node("rect", { x: modelLeft, y: modelTop, width: 0, height: 58, rx: 10 }, group);
    const progress = node("text", { x: modelLeft + modelWidth / 2, y: modelTop + 27, class: "progress" }, group);
    const status = node("text", { x: modelLeft + modelWidth / 2, y: modelTop + 47, class: "middle status" }, group);
    const count2 = node("text", { x: modelLeft + modelWidth, y: modelTop - 6, class: "label", "text-anchor": "end" }, group);
    Object.assign(modelParts, { group, fill, progress, status, count: count2 });
    tokens = [];
  }

  const ease = (x) => (x <= 0 ? 0 : x >= 1 ? 1 : x * x * (3 - 2 * x));

  // Draws batches that are on their way or queued.
  function drawTokens(waiting, leaving) {
    const fall = Math.min(180 * MS, options.step.mean_ns * 1.2);
    const { size, shown } = place;
    let used = 0;
    const put = (batch, x, y, held) => {
      if (used === tokens.length) tokens.push(node("rect", { width: size, height: size, rx: 5 }, stage));
      const token = tokens[used];
      used += 1;
      token.setAttribute("x", x.toFixed(1));
      token.setAttribute("y", y.toFixed(1));
      token.setAttribute("class", held ? "held token" : "token");
      token.setAttribute("fill", held ? "none" : fillOf(batch.worker));
      token.setAttribute("stroke", held ? fillOf(batch.worker) : "none");
      token.setAttribute("visibility", "visible");
    };
    waiting.slice(0, shown).forEach((batch, i) => {
      const cell = cells[batch.worker];
      const share = ease((now - batch.done) / fall);
      const fromX = cell.x + place.cellWidth / 2 - size / 2, fromY = cell.y + place.cellHeight - size;
      put(batch, fromX + (slots[i].x - fromX) * share, fromY + (slots[i].y - fromY) * share, batch.queued === null || batch.queued > now);
    });
    if (leaving) {
      const share = ease((now - leaving.taken) / Math.min(fall, options.step.mean_ns * 0.35));
      if (share < 1) {
        const toX = place.width / 2 - size / 2;
        put(leaving, slots[0].x + (toX - slots[0].x) * share, place.queueTop + (place.modelTop - place.queueTop + 8) * share, false);
      }
    }
    for (let i = used; i < tokens.length; i += 1) tokens[i].setAttribute("visibility", "hidden");
  }

  function drawWorker(i) {
    const list = perWorker[i];
    const cell = cells[i];
    const last = Simulate.partition(list, (b) => b.start <= now) - 1;
    const batch = last >= 0 ? list[last] : null;
    const holds = batch !== null && options.order === "pool" && batch.done !== null && batch.done <= now && (batch.queued === null || batch.queued > now);
    const loads = batch !== null && (batch.done === null || batch.done > now);
    const share = loads ? Simulate.progress(result, batch, now) : holds ? 1 : 0;
    const height = share * place.cellHeight;
    cell.fill.setAttribute("y", (cell.y + place.cellHeight - height).toFixed(2));
    cell.fill.setAttribute("height", height.toFixed(2));
    cell.fill.setAttribute("fill-opacity", share.toFixed(3));
    cell.group.setAttribute("data-progress", share.toFixed(3));
    cell.progress.textContent = loads || holds ? share.toFixed(2) : "";
    cell.status.textContent = loads ? (place.cellHeight > 50 && place.cellWidth > 60 ? `batch ${batch.number}` : "")
      : holds ? "queue full" : now < options.startup_ns + i * options.stagger_ns ? "starting" : "idle";
  }

  function drawModel() {
    const at = Simulate.partition(taken, (b) => b.taken <= now) - 1;
    const batch = at >= 0 ? taken[at] : null;
    const busy = batch !== null && (batch.end === null || batch.end > now);
    const computes = busy && batch.step !== null && batch.step <= now;
    const end = computes ? (batch.end === null ? batch.step + options.step.mean_ns : batch.end) : 0;
    const share = computes ? Math.min(1, (now - batch.step) / (end - batch.step)) : 0;
    const done = batch === null ? 0 : busy ? at : at + 1;
    modelParts.group.setAttribute("class", busy ? "model" : "model waiting");
    modelParts.fill.setAttribute("width", (share * place.modelWidth).toFixed(1));
    modelParts.fill.setAttribute("fill", batch === null ? "none" : fillOf(batch.worker));
    modelParts.fill.setAttribute("fill-opacity", "0.8");
    modelParts.progress.textContent = computes ? share.toFixed(2) : "";
    modelParts.status.textContent = computes ? `step on batch ${batch.number}` : busy ? `transfer of batch ${batch.number}` : "waiting for data";
    modelParts.count.textContent = `${done} done`;
    return busy ? batch : null;
  }

  function draw() {
    if (result === null) return;
    for (let i = 0; i < options.workers; i += 1) drawWorker(i);
    const busy = drawModel();
    const pool = options.order === "pool";
    const waiting = result.batches.filter((b) => b.done !== null && b.done <= now && (b.taken === null || b.taken > now)
      && (!pool || (b.queued !== null && b.queued <= now)));
    // Deliverable batches first, in order of delivery; then those that an earlier batch holds back.
    const rank = (b) => (b.queued !== null && b.queued <= now ? b.queued : Infinity);
    waiting.sort((a, b) => (rank(a) === rank(b) ? (rank(a) === Infinity || options.order === "pytorch" ? a.number - b.number : a.done - b.done || a.number - b.number) : rank(a) - rank(b)));
    drawTokens(waiting, busy);
    const ready = waiting.filter((b) => rank(b) < Infinity).length;
    const more = waiting.length > place.shown ? `, ${place.shown} shown` : "";
    modelParts.queueCount.textContent = `${ready} ready${waiting.length > ready ? `, ${waiting.length - ready} held back` : ""}${more}`;
    byId("clock").textContent = `${(now / 1e9).toFixed(2)} s`;
    const scrubber = byId("scrubber");
    scrubber.value = Math.round((now / result.end) * 1000);
    scrubber.setAttribute("aria-valuetext", `${(now / 1e9).toFixed(2)} seconds`);
    byId("playhead").style.transform = `translateX(${chartX(now)}px)`;
  }

  // --- the timeline

  const chart = byId("chart");
  const GUTTER = 66;
  let chartWidth = 0;
  const chartX = (ns) => GUTTER + (chartWidth - GUTTER - 8) * (ns / result.end);

  function drawChart() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    chartWidth = Math.max(260, byId("timeline").clientWidth || 320);
    const rowHeight = Math.max(4, Math.min(18, 200 / options.workers));
    const gap = rowHeight > 6 ? 3 : 1;
    const top = 4;
    const queueTop = top + options.workers * (rowHeight + gap) + 8;
    const queueHeight = 46;
    const modelTop = queueTop + queueHeight + 10;
    const bottom = modelTop + 24;
    const height = bottom + 40;
    const ratio = window.devicePixelRatio || 1;
    chart.width = Math.round(chartWidth * ratio);
    chart.height = Math.round(height * ratio);
    chart.style.height = `${height}px`;
    const g = chart.getContext("2d");
    g.scale(ratio, ratio);
    g.clearRect(0, 0, chartWidth, height);
    g.font = "12px system-ui, sans-serif";
    g.textBaseline = "middle";

    const seconds = result.end / 1e9;
    const [scale, unit] = seconds < 1e-3 ? [1e6, "µs"] : seconds < 1 ? [1e3, "ms"] : [1, "s"];
    const step = niceStep(seconds * scale, chartWidth < 500 ? 6 : 12);
    g.strokeStyle = color("--line");
    g.fillStyle = color("--soft");
    g.textAlign = "center";
    for (let i = 0; i * step <= seconds * scale * (1 + 1e-9); i += 1) {
      const x = chartX(Math.min(result.end, (i * step / scale) * 1e9));
      g.beginPath();
      g.moveTo(x, top);
      g.lineTo(x, bottom + 4);
      g.stroke();
      g.fillText(round(i * step), x, bottom + 13);
    }
    g.fillText(`simulated time (${unit})`, (GUTTER + chartWidth) / 2, bottom + 30);

    g.textAlign = "right";
    perWorker.forEach((list, i) => {
      const y = top + i * (rowHeight + gap);
      g.fillStyle = color("--row");
      g.fillRect(GUTTER, y, chartWidth - GUTTER - 8, rowHeight);
      g.fillStyle = color("--soft");
      if (rowHeight >= 11 || i % 4 === 0) g.fillText(`worker ${i + 1}`, GUTTER - 6, y + rowHeight / 2);
      g.fillStyle = fillOf(i);
      for (const batch of list) {
        const x = chartX(batch.start);
        const end = chartX(batch.done === null ? result.end : batch.done);
        g.globalAlpha = batch.done === null ? 0.45 : 1;
        g.fillRect(x, y, Math.max(0.5, end - x - (end - x > 3 ? 1 : 0)), rowHeight);
      }
      g.globalAlpha = 1;
    });

    const changes = [];
    for (const b of result.batches) {
      if (b.queued === null || b.queued === b.taken) continue;
      changes.push([b.queued, 1]);
      if (b.taken !== null) changes.push([b.taken, -1]);
    }
    changes.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
    let count = 0, most = 1;
    for (const [, change] of changes) {
      count += change;
      most = Math.max(most, count);
    }
    const queueY = (n) => queueTop + queueHeight * (1 - n / most);
    g.fillStyle = color("--ready");
    g.beginPath();
    g.moveTo(GUTTER, queueY(0));
    count = 0;
    for (const [at, change] of changes) {
      const x = chartX(at);
      g.lineTo(x, queueY(count));
      count += change;
      g.lineTo(x, queueY(count));
    }
    g.lineTo(chartX(result.end), queueY(count));
    g.lineTo(chartX(result.end), queueY(0));
    g.fill();
    g.fillStyle = color("--soft");
    g.fillText(String(most), GUTTER - 6, queueTop + 5);
    g.fillText("queue", GUTTER - 6, queueTop + queueHeight / 2);
    g.fillText("0", GUTTER - 6, queueTop + queueHeight - 4);

    g.fillText("model", GUTTER - 6, modelTop + 12);
    g.fillStyle = color("--wait-fill");
    g.fillRect(GUTTER, modelTop, chartWidth - GUTTER - 8, 24);
    for (const b of taken) {
      const x = chartX(b.taken);
      const from = chartX(b.step === null ? result.end : b.step);
      const end = chartX(b.end === null ? result.end : b.end);
      g.fillStyle = color("--ready");
      g.fillRect(x, modelTop, from - x, 24);
      g.fillStyle = fillOf(b.worker);
      g.fillRect(from, modelTop, Math.max(0.4, end - from), 24);
    }
    chart.setAttribute("aria-label", `Timeline of the run: ${report.batches} batches, GPU idle ${percent(report.idleShare)}`);
  }

  function niceStep(range, most) {
    const raw = range / most;
    const power = 10 ** Math.floor(Math.log10(raw));
    const factor = [1, 2, 5].find((f) => f * power >= raw);
    return (factor === undefined ? 10 : factor) * power;
  }

  // --- playing

  function setPlaying(value) {
    playing = value;
    byId("play").textContent = playing ? "Pause" : "Play";
    lastFrame = null;
    if (playing) {
      if (now >= result.end) now = 0;
      requestAnimationFrame(frame);
    }
  }

  function frame(at) {
    if (!playing) return;
    if (lastFrame !== null) {
      now += Math.min(100, at - lastFrame) * MS * Number(byId("speed").value);
      if (now >= result.end) {
        now = result.end;
        setPlaying(false);
      }
    }
    lastFrame = at;
    draw();
    if (playing) requestAnimationFrame(frame);
  }

  function seek(ns) {
    now = Math.max(0, Math.min(result.end, ns));
    lastFrame = null;
    draw();
  }

  // --- start

  function choose(preset) {
    const wasPlaying = playing;
    now = 0;
    simulate(preset.options);
    showControls();
    markPreset(preset.name);
    if (wasPlaying) setPlaying(true);
  }

  PRESETS.forEach((preset) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = preset.name;
    button.addEventListener("click", () => choose(preset));
    byId("presets").append(button);
  });
  for (const id of CONTROLS) byId(id).addEventListener("input", () => readControls(id));
  byId("play").addEventListener("click", () => setPlaying(!playing));
  byId("restart").addEventListener("click", () => seek(0));
  byId("scrubber").addEventListener("input", (event) => seek((Number(event.target.value) / 1000) * result.end));
  const seekTo = (event) => {
    const x = event.clientX - byId("timeline").getBoundingClientRect().left;
    seek(((x - GUTTER) / (chartWidth - GUTTER - 8)) * result.end);
  };
  byId("timeline").addEventListener("pointerdown", (event) => {
    seekTo(event);
    if (event.pointerType === "mouse") byId("timeline").setPointerCapture(event.pointerId);
  });
  byId("timeline").addEventListener("pointermove", (event) => { if (event.buttons === 1) seekTo(event); });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, button, pre")) return;
    if (event.key === " ") setPlaying(!playing);
    else if (event.key === "ArrowRight") seek(now + 100 * MS);
    else if (event.key === "ArrowLeft") seek(now - 100 * MS);
    else if (event.key === "Home") seek(0);
    else return;
    event.preventDefault();
  });
  const redraw = () => { layout(); drawChart(); draw(); };
  new ResizeObserver(() => requestAnimationFrame(redraw)).observe(document.querySelector("main"));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  byId("app").hidden = false;
  choose(PRESETS[0]);
  if (result !== null && !window.matchMedia("(prefers-reduced-motion: reduce)").matches) setPlaying(true);
})();
