// Test harness for headless Chromium, driven through the DevTools protocol over a pipe, which needs no package. Console
// messages, exceptions, dialogs and failed requests fail a test.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

// Starts a browser that opens files of `directory`. Screenshots are saved in the folder `screenshots`, if given.
export async function start(directory, screenshots) {
  const profile = mkdtempSync(join(tmpdir(), "dsconvert-browser-"));
  const chromium = spawn("chromium", [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--remote-debugging-pipe", `--user-data-dir=${profile}`,
  ], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });

  const complaintMethods = ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Page.javascriptDialogOpening"];
  const answers = new Map();
  const complaints = [];
  let listeners = [];
  let lastId = 0;
  let unread = "";
  chromium.stdio[4].setEncoding("utf8");
  chromium.stdio[4].on("data", (data) => {
    const messages = (unread + data).split("\0");
    unread = messages.pop();
    for (const text of messages) {
      const message = JSON.parse(text);
      if (message.id) {
        answers.get(message.id)(message);
        answers.delete(message.id);
      } else if (complaintMethods.includes(message.method)) {
        complaints.push(JSON.stringify(message.params).slice(0, 500));
      }
      listeners = listeners.filter(({ method, done }) => (message.method === method ? (done(), false) : true));
    }
  });

  function send(method, params = {}, sessionId = undefined) {
    lastId += 1;
    const id = lastId;
    return new Promise((done, fail) => {
      answers.set(id, ({ result, error }) => (error ? fail(new Error(`${method}: ${error.message}`)) : done(result)));
      chromium.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const call = (method, params) => send(method, params, sessionId);
  for (const domain of ["Page", "Runtime", "Log", "DOM"]) await call(`${domain}.enable`);

  async function js(expression) {
    const { result, exceptionDetails } = await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    assert.equal(exceptionDetails, undefined, `${expression}: ${exceptionDetails?.exception?.description}`);
    return result.value;
  }

  const frames = () => js("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => done(1)))))");

  async function open(file, { width, height, dark = false, still = true, script = true }) {
    await call("Emulation.setScriptExecutionDisabled", { value: !script });
    await call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
    await call("Emulation.setEmulatedMedia", {
      features: [
        { name: "prefers-color-scheme", value: dark ? "dark" : "light" },
        { name: "prefers-reduced-motion", value: still ? "reduce" : "no-preference" },
      ],
    });
    const loaded = new Promise((done) => listeners.push({ method: "Page.loadEventFired", done }));
    await call("Page.navigate", { url: pathToFileURL(resolve(directory, file)).href });
    await loaded;
    if (script) await frames();
  }

  async function press(key, times = 1) {
    const code = { " ": "Space" }[key] ?? key;
    const codes = { ArrowRight: 39, ArrowLeft: 37, Home: 36, Tab: 9, " ": 32, Enter: 13 };
    for (let i = 0; i < times; i += 1) {
      const event = { key, code, windowsVirtualKeyCode: codes[key] };
      await call("Input.dispatchKeyEvent", { type: "keyDown", text: { " ": " ", Enter: "\r" }[key], ...event });
      await call("Input.dispatchKeyEvent", { type: "keyUp", ...event });
    }
    await frames();
  }

  async function click(selector) {
    await js(`document.querySelector(${JSON.stringify(selector)}).scrollIntoView({ block: "center" })`);
    const box = await js(`(() => { const b = document.querySelector(${JSON.stringify(selector)}).getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()`);
    for (const type of ["mousePressed", "mouseReleased"]) {
      await call("Input.dispatchMouseEvent", { type, x: box[0], y: box[1], button: "left", clickCount: 1 });
    }
    await frames();
  }

  async function shoot(name) {
    if (!screenshots) return;
    const { data } = await call("Page.captureScreenshot", { format: "png", captureBeyondViewport: true });
    writeFileSync(join(screenshots, name), Buffer.from(data, "base64"));
  }

  // Runs tests by name, prints a line for each, and ends the process.
  async function run(tests) {
    let failed = 0;
    for (const [name, test] of Object.entries(tests)) {
      try {
        complaints.length = 0;
        await test();
        assert.deepEqual(complaints, []);
        console.log(`ok: ${name}`);
      } catch (error) {
        failed += 1;
        console.log(`FAILED: ${name}\n${error.stack}`);
      }
    }
    await send("Browser.close").catch(() => {});
    await new Promise((done) => chromium.once("exit", done));
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    process.exit(failed > 0 ? 1 : 0);
  }

  const text = (selector) => js(`document.querySelector(${JSON.stringify(selector)}).textContent`);
  const count = (selector) => js(`document.querySelectorAll(${JSON.stringify(selector)}).length`);
  return { call, open, js, frames, text, count, press, click, shoot, run };
}
