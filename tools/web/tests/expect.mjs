// Writes `expected.json` beside the models of a folder: what rgen computes of them. `node expect.mjs RGEN MODELS`

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, writeFileSync } from "node:fs";

const PROMPT = "The game of chess is played by two";
const TOKENS = 12;

const [rgen, folder] = process.argv.slice(2);
const run = (file, ...options) =>
    execFileSync(rgen, ["-m", `${folder}/${file}`, "-p", PROMPT, "--threads", "1", ...options], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
const models = readdirSync(folder)
    .filter((name) => name.endsWith(".gguf"))
    .map((file) => {
        const sha256 = createHash("sha256").update(run(file, "-n", "0", "--logits-sha256")).digest("hex");
        const { text, tokens } = JSON.parse(run(file, "-n", `${TOKENS}`, "--temp", "0", "--json"));
        return { file, sha256, text, tokens };
    });
writeFileSync(`${folder}/expected.json`, JSON.stringify({ prompt: PROMPT, models }, null, 1));
