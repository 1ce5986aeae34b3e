// Tests the package: `node main.mjs MODELS node|chromium|firefox`, where the folder MODELS has `expected.json` and its files.
// Prints what was tested; ends with 1 where something differs.

import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { open } from "../browser.mjs";
import { serve } from "../serve.mjs";

const [models, where] = process.argv.slice(2);
const folder = (path) => new URL(`../${path}`, import.meta.url).pathname;
const folders = { package: folder("package"), page: folder("page"), tests: folder("tests"), models };

async function inNode() {
    const { run } = await import("./all.mjs");
    const { PROMPT, PUBLISHED } = await import("../page/published.js");
    const { prompt, models: known } = JSON.parse(await readFile(join(models, "expected.json"), "utf8"));
    const printed = Object.entries(PUBLISHED).every(([name, hash]) => known.find(({ file }) => file === name)?.sha256 === hash);
    if (PROMPT !== prompt || !printed) throw new Error("page/published.js is not what rgen prints");
    const server = await serve(folders, { isolated: false });
    await run(await import("../package/index.js"), `${server.url}/models`, true, console.log);
    server.close();
}

/** Runs the tests in a browser, on a page that is cross-origin isolated or not. */
async function inBrowser(isolated) {
    const { lines, error } = await open(where, folders, `/tests/page.html${isolated ? "?isolated" : ""}`, isolated);
    lines?.forEach((line) => console.log(line));
    if (error) throw new Error(error);
}

try {
    if (where === "node") await inNode();
    else for (const isolated of [false, true]) await inBrowser(isolated);
} catch (e) {
    console.error(`error: ${where}: ${e.message}`);
    process.exitCode = 1;
}
process.exit();
