// Tests the package: `node main.mjs MODELS node|chromium|firefox`, where the folder MODELS has `expected.json` and its files.
// Prints what was tested; ends with 1 where something differs.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { serve } from "../serve.mjs";

const [models, where] = process.argv.slice(2);
const folder = (path) => new URL(`../${path}`, import.meta.url).pathname;
const folders = { package: folder("package"), page: folder("page"), tests: folder("tests"), models };

/** Commands that open a page in a browser without a screen; `profile` is an empty folder. */
const browsers = {
    chromium: (profile) => ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", `--user-data-dir=${profile}`],
    firefox: (profile) => ["firefox-esr", "--headless", "--no-remote", "--profile", profile],
};

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
async function inBrowser(command, isolated) {
    const profile = await mkdtemp(join(tmpdir(), "trine-web-"));
    // No pages of welcome, no asking home.
    await writeFile(join(profile, "user.js"), 'user_pref("browser.aboutwelcome.enabled", false);\nuser_pref("datareporting.policy.dataSubmissionEnabled", false);\n');
    let browser;
    const result = await new Promise(async (done) => {
        const server = await serve(folders, { isolated, posted: (body) => done({ ...JSON.parse(body), server }) });
        const [program, ...options] = command(profile);
        browser = spawn(program, [...options, `${server.url}/tests/page.html${isolated ? "?isolated" : ""}`], { stdio: "ignore", detached: true });
        browser.on("error", (e) => done({ lines: [], error: e.message, server }));
        browser.on("exit", () => done({ lines: [], error: "the browser ended by itself", server }));
    });
    result.server.close();
    try {
        process.kill(-browser.pid);
    } catch {
        // It has ended already.
    }
    await rm(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
    result.lines.forEach((line) => console.log(line));
    if (result.error) throw new Error(result.error);
}

try {
    if (where === "node") await inNode();
    else for (const isolated of [false, true]) await inBrowser(browsers[where], isolated);
} catch (e) {
    console.error(`error: ${where}: ${e.message}`);
    process.exitCode = 1;
}
process.exit();
