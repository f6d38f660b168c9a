// Tests pages and pictures in headless Chromium: node browser.mjs DIRECTORY [SCREENSHOTS]
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { start } from "./chromium.mjs";

const [directory, screenshots] = process.argv.slice(2);
const expected = JSON.parse(readFileSync(join(directory, "expected.json"), "utf8"));
const { call, open, js, frames, text, count, press, click, shoot, run } = await start(directory, screenshots);

const batches = () => text("#numbers b");
// Returns the number of different colors on the canvas; an empty canvas has one.
const colors = () => js(`(() => {
  const c = document.getElementById("chart");
  const data = new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer);
  return new Set(data).size;
})()`);

const DESKTOP = { width: 1280, height: 900 };
const PHONE = { width: 360, height: 740, dark: true };

const tests = {
  async "every page is drawn on a desktop and on a phone, without console messages"() {
    for (const [file, page] of Object.entries(expected.pages)) {
      for (const [name, view] of Object.entries({ desktop: DESKTOP, phone: PHONE })) {
        await open(file, view);
        await js(`document.getElementById("scrubber").value = 350; document.getElementById("scrubber").dispatchEvent(new Event("input"))`);
        await frames();
        assert.equal(await text("h1"), page.title);
        assert.equal(await js("document.title"), page.title);
        assert.equal(await batches(), String(page.batches), file);
        assert.equal(await count("#stage .worker"), page.workers);
        const progress = await js(`[...document.querySelectorAll("#stage .worker")].map((w) => Number(w.dataset.progress))`);
        assert.ok(progress.every((p) => p >= 0 && p <= 1), String(progress));
        assert.ok((await colors()) > 5, "the timeline is empty");
        assert.ok(await js("document.documentElement.scrollWidth <= innerWidth"), `${file} is wider than a ${name}`);
        assert.equal(await js("window.hacked"), undefined);
        await shoot(`${file}-${name}.png`);
      }
    }
  },

  async "the fill of a cell is its progress, as number and as opacity"() {
    await open("bottleneck.html", DESKTOP);
    await js(`document.getElementById("scrubber").value = 150; document.getElementById("scrubber").dispatchEvent(new Event("input"))`);
    await frames();
    // 4.5 s into a run in which loads start every 2 s.
    const found = await js(`(() => {
      const w = document.querySelector("#stage .worker");
      return [w.dataset.progress, w.querySelector(".progress").textContent, w.querySelector("rect:not(.cell)").getAttribute("fill-opacity")];
    })()`);
    assert.deepEqual(found, ["0.250", "0.25", "0.250"]);
  },

  async "finished batches are in the queue in the color of their worker"() {
    await open("fast.html", DESKTOP);
    await js(`document.getElementById("scrubber").value = 900; document.getElementById("scrubber").dispatchEvent(new Event("input"))`);
    await frames();
    const fills = await js(`[...document.querySelectorAll("#stage .token")].filter((t) => t.getAttribute("visibility") === "visible").map((t) => t.getAttribute("fill"))`);
    const workers = await js(`[...document.querySelectorAll("#stage .worker rect:not(.cell)")].map((r) => r.getAttribute("fill"))`);
    assert.ok(fills.length >= 5, String(fills));
    assert.ok(fills.every((fill) => workers.includes(fill)));
    assert.match(await js(`document.querySelector("#stage .model .status").textContent`), /^step on batch/);
  },

  async "labels do not overlap, and short runs have short units"() {
    await open("brief.html", DESKTOP);
    assert.match(await text("#numbers span"), /^batch in 20 µs$/);
    assert.match(await text("#clock"), /^0\.00 µs$/);
    await js(`document.getElementById("scrubber").value = 500; document.getElementById("scrubber").dispatchEvent(new Event("input"))`);
    await frames();
    assert.equal(await text("#clock"), "10.00 µs");
    assert.equal(await js(`document.getElementById("scrubber").getAttribute("aria-valuetext")`), "10.00 microseconds");
    assert.match(await js(`document.getElementById("chart").getAttribute("aria-label")`), /: 1 batch, /);
    assert.match(await text("label:has(#cv)"), /^Variation \(cv\)/);
    for (const file of ["brief.html", "bottleneck.html", "everything.html", "traced.html"]) {
      for (const view of [DESKTOP, PHONE]) {
        await open(file, view);
        for (const at of [0, 500, 990]) {
          await js(`document.getElementById("scrubber").value = ${at}; document.getElementById("scrubber").dispatchEvent(new Event("input"))`);
          await frames();
          const overlaps = await js(`(() => {
            const boxes = [...document.querySelectorAll("#stage text.label")].filter((t) => t.textContent !== "").map((t) => [t.textContent, t.getBoundingClientRect()]);
            return boxes.flatMap(([a, p], i) => boxes.slice(i + 1)
              .filter(([, q]) => p.left < q.right && q.left < p.right && p.top < q.bottom && q.top < p.bottom)
              .map(([b]) => a + " | " + b));
          })()`);
          assert.deepEqual(overlaps, [], `${file} ${view.width}`);
        }
      }
    }
  },

  async "each slider runs the simulation again"() {
    await open("bottleneck.html", DESKTOP);
    for (const [id, key] of [["load", "ArrowLeft"], ["cv", "ArrowRight"], ["workers", "ArrowRight"], ["prefetch", "ArrowLeft"], ["step", "ArrowRight"]]) {
      assert.equal(await js(`document.getElementById("${id}").type`), "range");
      const before = [await text("#command"), await text(`#${id}-out`)];
      await js(`document.getElementById("${id}").focus()`);
      await press(key, id === "cv" ? 6 : 2 - (id === "prefetch"));
      assert.notEqual(await text("#command"), before[0], id);
      assert.notEqual(await text(`#${id}-out`), before[1], id);
    }
    // The same options in the crate.
    await open("bottleneck.html", DESKTOP);
    await js(`(() => { const s = document.getElementById("load"); s.value = 350; s.dispatchEvent(new Event("input")); })()`);
    assert.equal(await batches(), "296");
    // The verdict follows a slider after a short delay.
    while (/^Loading/.test(await text("#verdict"))) await js("new Promise((done) => setTimeout(done, 20))");
    assert.match(await text("#verdict"), /^The model is the bottleneck/);
    for (const [selector, value] of [["#order", "pool"], ["#shape", "gamma"]]) {
      await js(`(() => { const s = document.querySelector("${selector}"); s.value = "${value}"; s.dispatchEvent(new Event("input", { bubbles: true })); })()`);
    }
    assert.match(await text("#command"), /--order pool/);
    assert.equal((await js(`document.getElementById("verdict").textContent`)).includes("cannot"), false);
  },

  async "the six situations are presets"() {
    await open("bottleneck.html", PHONE);
    const found = {};
    const presets = await count("#presets button");
    for (let i = 1; i <= presets; i += 1) {
      await click(`#presets button:nth-child(${i})`);
      assert.equal(await js(`document.querySelector("#presets button:nth-child(${i})").getAttribute("aria-pressed")`), "true");
      found[await text(`#presets button:nth-child(${i})`)] = Number(await batches());
    }
    assert.deepEqual(found, expected.presets);
  },

  async "play, pause, speed and scrubber move the time, also with the keyboard"() {
    await open("bottleneck.html", DESKTOP);
    const clock = async () => Number.parseFloat(await text("#clock"));
    assert.equal(await text("#play"), "Play", "does not play automatically with prefers-reduced-motion");
    assert.equal(await clock(), 0);
    await click("#play");
    assert.equal(await text("#play"), "Pause");
    await js("new Promise((done) => setTimeout(done, 300))");
    await click("#play");
    const reached = await clock();
    assert.ok(reached > 0.05, String(reached));
    await frames();
    assert.equal(await clock(), reached, "paused");
    await js(`document.activeElement.blur()`);
    await press("ArrowRight", 3);
    assert.ok(Math.abs((await clock()) - reached - 0.3) < 0.02);
    await press("Home");
    assert.equal(await clock(), 0);
    await press(" ");
    assert.equal(await text("#play"), "Pause");
    await press(" ");
    assert.equal(await text("#play"), "Play");
    await js(`document.getElementById("speed").value = "20"`);
    await click("#play");
    await js("new Promise((done) => setTimeout(done, 2600))");
    assert.equal(await clock(), 30, "at 20×, the run of 30 s has ended");
    assert.equal(await text("#play"), "Play");
    await click("#timeline");
    assert.ok((await clock()) > 5 && (await clock()) < 25);
    // Every control is reached with the Tab key and has a visible focus outline.
    await open("bottleneck.html", DESKTOP);
    const reachedIds = new Set();
    for (let i = 0; i < 30; i += 1) {
      await press("Tab");
      reachedIds.add(await js("document.activeElement.id || document.activeElement.parentElement?.id"));
      if (i === 8) assert.notEqual(await js(`getComputedStyle(document.activeElement).outlineStyle`), "none");
    }
    for (const id of ["presets", "play", "restart", "speed", "scrubber", "load", "cv", "workers", "prefetch", "step", "order", "shape", "stagger", "command"]) {
      assert.ok(reachedIds.has(id), `${id} is not reached with Tab: ${[...reachedIds]}`);
    }
  },

  async "the page plays automatically unless reduced motion is preferred"() {
    await open("bottleneck.html", { ...DESKTOP, still: false });
    await js("new Promise((done) => setTimeout(done, 250))");
    assert.ok(Number.parseFloat(await text("#clock")) > 0);
  },

  async "without JavaScript the page shows the timeline"() {
    for (const view of [DESKTOP, PHONE]) {
      await open("bottleneck.html", { ...view, script: false });
      const { root } = await call("DOM.getDocument", { depth: -1 });
      const { nodeId } = await call("DOM.querySelector", { nodeId: root.nodeId, selector: "noscript svg" });
      const { model } = await call("DOM.getBoxModel", { nodeId });
      assert.ok(model.width >= 640 && model.width <= 1280 && model.height > 200, JSON.stringify([model.width, model.height]));
      await shoot(`no-javascript-${view.width}.png`);
    }
    await call("Emulation.setScriptExecutionDisabled", { value: false });
  },

  async "a run that is too long for the page is refused with a message"() {
    await open("bottleneck.html", DESKTOP);
    await js(`(() => {
      for (const [id, value] of [["load", 10], ["step", 10]]) {
        const s = document.getElementById(id);
        s.min = 0.001; s.step = "any"; s.value = 0.001;
        s.dispatchEvent(new Event("input"));
      }
    })()`);
    assert.match(await text("#verdict"), /cannot be shown: the run has more than 20000 batches/);
  },

  async "pictures are well-formed SVG"() {
    for (const [file, texts] of Object.entries(expected.pictures)) {
      for (const view of [DESKTOP, { ...DESKTOP, dark: true }]) {
        await open(file, view);
        assert.equal(await js("document.documentElement.tagName"), "svg", file);
        assert.equal(await count("parsererror"), 0, file);
        const all = await js(`[...document.querySelectorAll("text")].map((t) => t.textContent).join("\\n")`);
        for (const part of texts) assert.ok(all.includes(part), `${part} is not in ${file}`);
        assert.ok((await count("rect, path, circle")) > 10);
        assert.equal(await js(`getComputedStyle(document.documentElement).backgroundColor`), view.dark ? "rgb(20, 23, 28)" : "rgb(255, 255, 255)");
        assert.equal(await js("window.hacked"), undefined);
        await shoot(`${file}-${view.dark ? "dark" : "light"}.png`);
      }
    }
  },
};

await run(tests);
