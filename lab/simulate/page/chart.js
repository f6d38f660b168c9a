// The timeline of a run on a canvas: one row per worker, the queue, the model.
const Chart = (() => {
  "use strict";

  // Left margin, which contains the labels, and right margin.
  const GUTTER = 66;
  const MARGIN = 8;

  // Draws workers, queue and model on `chart`. Returns the function that maps a time to an x coordinate.
  function draw(chart, width, result, { perWorker, taken, fillOf }) {
    const { options } = result;
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const chartWidth = Math.max(260, width);
    const chartX = (ns) => GUTTER + (chartWidth - GUTTER - MARGIN) * (ns / result.end);
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
      g.fillText(Words.round(i * step), x, bottom + 13);
    }
    g.fillText(`simulated time (${unit})`, (GUTTER + chartWidth) / 2, bottom + 30);

    g.textAlign = "right";
    perWorker.forEach((list, i) => {
      const y = top + i * (rowHeight + gap);
      g.fillStyle = color("--row");
      g.fillRect(GUTTER, y, chartWidth - GUTTER - MARGIN, rowHeight);
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
    let count = 0, max = 1;
    for (const [, change] of changes) {
      count += change;
      max = Math.max(max, count);
    }
    const queueY = (n) => queueTop + queueHeight * (1 - n / max);
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
    g.fillText(String(max), GUTTER - 6, queueTop + 5);
    g.fillText("queue", GUTTER - 6, queueTop + queueHeight / 2);
    g.fillText("0", GUTTER - 6, queueTop + queueHeight - 4);

    g.fillText("model", GUTTER - 6, modelTop + 12);
    g.fillStyle = color("--wait-fill");
    g.fillRect(GUTTER, modelTop, chartWidth - GUTTER - MARGIN, 24);
    for (const b of taken) {
      const x = chartX(b.taken);
      const from = chartX(b.step === null ? result.end : b.step);
      const end = chartX(b.end === null ? result.end : b.end);
      g.fillStyle = color("--ready");
      g.fillRect(x, modelTop, from - x, 24);
      g.fillStyle = fillOf(b.worker);
      g.fillRect(from, modelTop, Math.max(0.4, end - from), 24);
    }
    return chartX;
  }

  function niceStep(range, maxSteps) {
    const raw = range / maxSteps;
    const power = 10 ** Math.floor(Math.log10(raw));
    const factor = [1, 2, 5].find((f) => f * power >= raw);
    return (factor === undefined ? 10 : factor) * power;
  }

  // Returns the time at `x`, which may be outside the run.
  const timeAt = (chart, result, x) => ((x - GUTTER) / (chart.clientWidth - GUTTER - MARGIN)) * result.end;

  return { draw, timeAt };
})();
