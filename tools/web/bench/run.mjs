// Measures @trine/web beside wllama in a browser. In this folder:
//
//   npm install
//   node run.mjs FOLDER chromium 5 1,2 [FILE...]     five turns, with one thread and with two, of files in FOLDER
//
// Prints the medians as a table, and writes every turn to `bench.json` beside where it is started.

import { readdirSync, writeFileSync } from "node:fs";
import { loadavg } from "node:os";

import { open } from "../browser.mjs";

const [models, where = "chromium", turns = "5", threads = "1,2", ...named] = process.argv.slice(2);
const files = named.length > 0 ? named : readdirSync(models).filter((name) => name.endsWith(".gguf"));
const folder = (path) => new URL(path, import.meta.url).pathname;
const folders = {
    package: process.env.TRINE_WEB_PACKAGE ?? folder("../package"),
    bench: folder("."),
    wllama: folder("node_modules/@wllama/wllama/esm"),
    models,
};
const query = new URLSearchParams({ files: files.join(","), threads, turns, prompt: "256", tokens: "64" });
const before = loadavg()[0];
const { results = [], error, agent } = await open(where, folders, `/bench/page.html?${query}`, true);
console.log(`${agent}; load ${before.toFixed(1)} before, ${loadavg()[0].toFixed(1)} after\n`);
console.log("| file | threads | | @trine/web | wllama | ratio |\n|---|---|---|---|---|---|");
for (const { file, threads, prompt, text } of results) {
    for (const [what, { trine, wllama, ratio }] of Object.entries({ prompt, text })) {
        console.log(`| ${file} | ${threads} | ${what} | ${trine.toFixed(1)} | ${wllama.toFixed(1)} | ${ratio.toFixed(2)} |`);
    }
}
writeFileSync("bench.json", JSON.stringify(results, null, 1));
if (error) {
    console.error(`error: ${error}`);
    process.exitCode = 1;
}
process.exit();
