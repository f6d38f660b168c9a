// Checks HTML reports in headless Chromium. Usage: node report.mjs DIRECTORY [SCREENSHOTS]
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { start } from "../../lab/simulate/tests/chromium.mjs";

const [directory, screenshots] = process.argv.slice(2);
const expected = JSON.parse(readFileSync(join(directory, "expected.json"), "utf8"));
const { call, open, js, text, count, press, shoot, run } = await start(directory, screenshots);

const VIEWS = {
  light: { width: 1280, height: 900 },
  dark: { width: 1280, height: 900, dark: true },
  phone: { width: 400, height: 800 },
  "dark-phone": { width: 340, height: 740, dark: true },
};

await run({
  async "every page renders in each view, without console messages or network requests"() {
    for (const [name, page] of Object.entries(expected)) {
      for (const [viewName, view] of Object.entries(VIEWS)) {
        await open(`${name}.html`, view);
        const what = `${name}, ${viewName}`;
        assert.ok(await js("document.documentElement.scrollWidth <= innerWidth"), `${what}: the page scrolls sideways`);
        const pictures = await js(`[...document.images].map((i) => i.complete && i.naturalWidth > 0 && i.getBoundingClientRect().width > 8)`);
        assert.equal(pictures.length, page.images, what);
        assert.ok(pictures.every(Boolean), `${what}: an image is not rendered`);
        const plots = await js(`[...document.querySelectorAll("svg.dsc-plot")].map((p) => p.getBoundingClientRect().width)`);
        assert.equal(plots.length, page.plots, what);
        assert.ok(plots.every((width) => width > 250 && width <= view.width), `${what}: ${plots}`);
        assert.ok((await count(".dsc-bar, .dsc-dot, .dsc-line")) > 3, `${what}: the plots are empty`);
        const background = await js("getComputedStyle(document.body).backgroundColor");
        assert.equal(background, view.dark ? "rgb(15, 18, 22)" : "rgb(244, 246, 248)", "the style is not applied");
        const fill = await js(`getComputedStyle(document.querySelector(".dsc-plot .dsc-title")).fill`);
        assert.equal(fill, view.dark ? "rgb(238, 241, 245)" : "rgb(28, 36, 48)");
        assert.equal(await count("script, iframe, object, embed, [onerror], [onmouseover], [style]"), 0);
        assert.equal(await js("window.hacked"), undefined);
        assert.equal(await js("performance.getEntriesByType('resource').filter((r) => !r.name.startsWith('data:')).length"), 0);
        await shoot(`${name}-${viewName}.png`);
      }
    }
  },

  async "hostile names are shown as text"() {
    await open("hostile-images.html", VIEWS.light);
    assert.match(await js("document.title"), /^<script>alert\(1\)<!--/);
    assert.match(await text("h1"), /<script>/);
    assert.ok((await js("document.body.innerText")).includes("<script>window.hacked=1<"));
    await open("hostile-text.html", VIEWS.light);
    const tokens = await js(`[...document.querySelectorAll(".tokens")].map((t) => t.textContent).join("")`);
    assert.ok(tokens.includes("<script>window.hacked=1</script>"), tokens.slice(0, 400));
    // No bidirectional control characters remain.
    assert.equal(await js(`/[\\u202a-\\u202e\\u200e\\u200f]/.test(document.documentElement.textContent)`), false);
  },

  async "links and summaries are reached with the keyboard, with a visible focus"() {
    for (const name of ["photos", "stories"]) {
      await open(`${name}.html`, VIEWS.light);
      const wanted = await count("a[href], summary");
      const seen = new Set();
      for (let i = 0; i < 200 && seen.size < wanted; i += 1) {
        await press("Tab");
        const [tag, place, outline] = await js(`(() => {
          const e = document.activeElement;
          return [e.localName, [...document.querySelectorAll("a[href], summary")].indexOf(e), getComputedStyle(e).outlineStyle];
        })()`);
        if (tag === "body") break;
        assert.notEqual(outline, "none", tag);
        if (place >= 0) seen.add(place);
      }
      // Summaries inside closed details cannot be focused.
      const hidden = await js(`[...document.querySelectorAll("details:not([open]) summary")].filter((s) => s.parentElement.parentElement.closest("details:not([open])")).length`);
      assert.equal(seen.size, wanted - hidden, name);
      await js(`document.querySelector("details.data > summary").focus()`);
      await press("Enter");
      assert.equal(await js(`document.querySelector("details.data").open`), true);
    }
  },

  async "tokens that are trained on are underlined, and their text is shown"() {
    for (const view of [VIEWS.light, VIEWS.dark]) {
      await open("chats.html", view);
      assert.ok((await text("main")).includes("19 of 80 tokens trained on (23.8%)"));
      const marks = await js(`[...document.querySelectorAll(".tokens[tabindex] mark")].map((m) => [m.textContent, getComputedStyle(m).boxShadow, getComputedStyle(m).color])`);
      assert.equal(marks.length, 19);
      assert.ok(marks.map(([text]) => text).join("").includes("there<eos>"));
      const ink = await js("getComputedStyle(document.body).color");
      assert.ok(marks.every(([, shadow, color]) => shadow.includes("inset") && color === ink), marks[0]);
      assert.equal(await js(`[...document.querySelectorAll(".tokens[tabindex] span")].every((s) => getComputedStyle(s).boxShadow === "none")`), true);
    }
  },

  async "a printed page shows what scrolls on the screen"() {
    for (const name of Object.keys(expected)) {
      await open(`${name}.html`, VIEWS.light);
      await call("Emulation.setEmulatedMedia", { media: "print" });
      await js(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`);
      const hidden = await js(`[...document.querySelectorAll(".tall, .tokens, .scroll")]
        .filter((e) => e.scrollHeight > e.clientHeight + 1 || getComputedStyle(e).maxHeight !== "none").map((e) => e.className)`);
      assert.deepEqual(hidden, [], name);
      assert.equal(await js("getComputedStyle(document.querySelector('.card')).printColorAdjust"), "exact", name);
      await call("Emulation.setEmulatedMedia", { media: "" });
    }
  },

  async "plots are well-formed SVG in light and dark"() {
    for (const name of Object.keys(expected)) {
      for (const dark of [false, true]) {
        await open(`${name}.svg`, { ...VIEWS.light, dark });
        assert.equal(await js("document.documentElement.tagName"), "svg", name);
        assert.equal(await count("parsererror"), 0, name);
        assert.ok((await count("svg.dsc-plot")) > 1 && (await count(".dsc-bar, .dsc-dot")) > 3, name);
        const background = await js("getComputedStyle(document.documentElement).backgroundColor");
        assert.equal(background, dark ? "rgb(20, 23, 28)" : "rgb(255, 255, 255)");
        await shoot(`${name}-${dark ? "dark" : "light"}.svg.png`);
      }
    }
  },
});
