// Opens pages in browsers without a screen.

import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { serve } from "./serve.mjs";

/** Commands that open a page in a browser without a screen; `profile` is an empty folder. */
const BROWSERS = {
    chromium: (profile) => ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", `--user-data-dir=${profile}`],
    firefox: (profile) => ["firefox-esr", "--headless", "--no-remote", "--profile", profile],
};

/**
 * Opens a page and waits until it posts JSON to /result, which is returned.
 * @param {"chromium" | "firefox"} where
 * @param {Record<string, string>} folders what the server shows
 * @param {string} path the page's
 * @param {boolean} isolated true if the page is cross-origin isolated
 */
export async function open(where, folders, path, isolated) {
    const profile = await mkdtemp(join(tmpdir(), "trine-web-"));
    // No pages of welcome, no asking home.
    await writeFile(join(profile, "user.js"), 'user_pref("browser.aboutwelcome.enabled", false);\nuser_pref("datareporting.policy.dataSubmissionEnabled", false);\n');
    let browser;
    const result = await new Promise(async (done) => {
        const server = await serve(folders, { isolated, posted: (body) => done({ ...JSON.parse(body), server }) });
        const [program, ...options] = BROWSERS[where](profile);
        browser = spawn(program, [...options, `${server.url}${path}`], { stdio: "ignore", detached: true });
        browser.on("error", (e) => done({ error: e.message, server }));
        browser.on("exit", () => done({ error: "the browser ended by itself", server }));
    });
    result.server.close();
    try {
        process.kill(-browser.pid);
    } catch {
        // It has ended already.
    }
    await rm(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
    return result;
}
