// The page: draws the run at a moment, plays it, and simulates it again when a control changes.
(() => {
  "use strict";

  const MS = 1e6;
  const MAX_PAGE_BATCHES = 20000;
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  const COLORS = [[212, 50], [24, 46], [152, 36], [268, 56], [340, 50], [190, 38], [46, 38], [300, 42], [100, 34], [4, 52]];
  const fillOf = (worker) => {
    const [hue, lightness] = COLORS[worker % COLORS.length];
    return `hsl(${hue} 62% ${lightness - 8 * (Math.floor(worker / COLORS.length) % 3)}%)`;
  };

  const given = JSON.parse(byId("options").textContent);

  const constant = (ms) => ({ shape: "constant", mean_ns: Math.round(ms * MS), cv: 0 });
  const presetOptions = (changes) => ({
    workers: 7, prefetch: 2, order: "pytorch", queue: null, load: constant(2000), slow: null, step: constant(100),
    transfer_ns: 0, startup_ns: 0, stagger_ns: 0, cores: null, step_core: false, tick_ns: 1, seed: [1, 0], stop: { after_ns: 30e9 }, ...changes,
  });
  const PRESETS = [
    { name: "This run", about: "The run that this page was made for.", options: given },
    { name: "Bottleneck", about: "Seven workers need 2 s per batch: 3.5 batches per second for a model that consumes 10. It waits 1.3 s in every 2 s.",
      options: presetOptions({}) },
    { name: "Balanced", about: "At 700 ms, seven workers load exactly the 10 batches per second that the model consumes.",
      options: presetOptions({ load: constant(700) }) },
    { name: "Twice as fast", about: "At 350 ms, the workers have twice the capacity. The queue fills up, and the workers wait for the model.",
      options: presetOptions({ load: constant(350) }) },
    { name: "High variance", about: "The mean is still 2 s. The regular stall is gone, the bottleneck is not: a slow batch holds back finished ones, and the model waits even longer.",
      options: presetOptions({ load: { shape: "lognormal", mean_ns: 2000 * MS, cv: 0.5 } }) },
    { name: "Desynchronized", about: "The workers start one after another. The long stall becomes a short one before every batch; the total is the same.",
      options: presetOptions({ stagger_ns: Math.round(2000 * MS / 7) }) },
    { name: "Converted dataset", about: "Decoding and resizing were done once, offline: loading is 20 times faster, and two workers are enough.",
      options: presetOptions({ load: constant(100), workers: 2 }) },
  ];

  let options = given;
  let result = null;
  let report = null;
  let perWorker = [];
  let taken = [];
  let now = 0;
  let playing = false;
  let lastFrame = null;

  // --- the command line

  // Wraps each option in a span, so that lines break only between options.
  function showCommand() {
    const pieces = Words.command(options).flatMap((part) => {
      const span = document.createElement("span");
      span.textContent = part;
      return [" ", span];
    });
    byId("command").replaceChildren(...pieces.slice(1));
  }

  // --- controls

  const CONTROLS = ["load", "cv", "workers", "prefetch", "step", "order", "shape", "stagger"];

  // Sets a slider, and extends its range if it does not contain the value.
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
    setSlider("load", traced ? Words.meanLoad(options) / MS : options.load.mean_ns / MS);
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
    byId("load-out").textContent = options.load.trace_ns ? "from a trace" : `${Words.round(Number(byId("load").value))} ms`;
    byId("cv-out").textContent = options.load.trace_ns ? "from a trace" : (Number(byId("cv").value) / 100).toFixed(2);
    byId("workers-out").textContent = byId("workers").value;
    byId("prefetch-out").textContent = byId("prefetch").value;
    byId("step-out").textContent = `${Words.round(Number(byId("step").value))} ms`;
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
    simulate(next, VERDICT_DELAY_MS);
    showValues();
  }

  function markPreset(chosen) {
    for (const button of byId("presets").children) button.setAttribute("aria-pressed", String(button.textContent === chosen));
    byId("about").textContent = chosen === null ? "" : PRESETS.find((p) => p.name === chosen).about;
  }

  // --- the run

  // The verdict simulates a long run, which would slow down the sliders.
  const VERDICT_DELAY_MS = 80;
  let verdictTimer = 0;

  function simulate(next, verdictDelay = 0) {
    clearTimeout(verdictTimer);
    let found;
    try {
      found = Simulate.run(next, MAX_PAGE_BATCHES);
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
    if (verdictDelay === 0) showVerdict();
    else verdictTimer = setTimeout(showVerdict, verdictDelay);
    layout();
    drawChart();
    draw();
  }

  function showNumbers() {
    const entries = [
      [String(report.batches), `${report.batches === 1 ? "batch" : "batches"} in ${Words.timeText(result.end)}`],
      [Words.percent(report.idleShare), "of the time the GPU is idle"],
      [report.stallCount === 0 ? "none" : Words.timeText(report.stallMean),
        report.first === null ? "stalls" : report.stallCount === 0 ? "stalls after the first batch" : report.stallCount === 1 ? "length of the only stall" : "mean length of a stall"],
      [report.stallPeriod === null ? "–" : Words.timeText(report.stallPeriod), "from one stall to the next"],
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
    showCommand();
  }

  function showVerdict() {
    const verdict = Words.verdict(result, report);
    byId("verdict").textContent = verdict.text;
    byId("verdict").className = verdict.isBad ? "verdict bad" : "verdict";
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
    // Above a short queue, its name and its count share one centered label.
    const queueWidth = shown * (size + 6) - 6;
    const isShort = queueWidth < 240;
    if (!isShort) node("text", { x: queueLeft, y: queueTop - 8, class: "label" }, stage, "queue");
    modelParts = {
      queuePrefix: isShort ? "queue: " : "",
      queueCount: node("text", { x: isShort ? width / 2 : queueLeft + queueWidth, y: queueTop - 8, class: "label queue-count", "text-anchor": isShort ? "middle" : "end" }, stage),
    };
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

  // Draws the queued batches, and those moving to the queue or to the model.
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

  // Returns a time in the unit of the timeline, the unit, and its name.
  function clockOf(ns) {
    const [scale, unit, name] = result.end < MS ? [1e3, "µs", "microseconds"] : result.end < 1e9 ? [MS, "ms", "milliseconds"] : [1e9, "s", "seconds"];
    return [(ns / scale).toFixed(2), unit, name];
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
    modelParts.queueCount.textContent = `${modelParts.queuePrefix}${ready} ready${waiting.length > ready ? `, ${waiting.length - ready} held back` : ""}${more}`;
    const [clock, unit, unitName] = clockOf(now);
    byId("clock").textContent = `${clock} ${unit}`;
    const scrubber = byId("scrubber");
    scrubber.value = Math.round((now / result.end) * 1000);
    scrubber.setAttribute("aria-valuetext", `${clock} ${unitName}`);
    byId("playhead").style.transform = `translateX(${chartX(now)}px)`;
  }

  // --- the timeline

  const chart = byId("chart");
  let chartX = () => 0;

  function drawChart() {
    const label = `Timeline of the run: ${Words.batchCount(report.batches)}, GPU idle ${Words.percent(report.idleShare)}`;
    chart.setAttribute("aria-label", label);
    chartX = Chart.draw(chart, byId("timeline").clientWidth || 320, result, { perWorker, taken, fillOf });
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
    seek(Chart.timeAt(chart, result, x));
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
