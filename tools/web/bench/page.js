// The page that measures @trine/web beside wllama, in turns: the same file, the same tokens, the page's clock.

import { Wllama } from "/wllama/index.js";
import { Model } from "/package/index.js";

const CONTEXT = 512;
const asked = new URLSearchParams(location.search);
const number = (name) => Number(asked.get(name));
const [TURNS, PROMPT, TOKENS] = [number("turns"), number("prompt"), number("tokens")];

const WORDS = "the of in and a to was is on as for with by at from his that an it were city had which first song are new year game one time two after film world war people most other series part life north book between made school house".split(" ");

/** A text of `PROMPT` tokens, another one in every turn, so that nothing of an earlier prompt is of use. */
async function prompt(turn, model) {
    let state = 1 + turn;
    let text = "";
    for (let length = 0; length < PROMPT; ) {
        for (let i = length; i < PROMPT; i += 8) {
            state = (Math.imul(state, 1103515245) + 12345) >>> 0;
            text += ` ${WORDS[(state >>> 8) % WORDS.length]}`;
        }
        length = (await model.tokenize(text)).length;
    }
    return text;
}

/** Tokens a second of the prompt up to its first token, and of those that follow. */
function speeds(read, begun, times) {
    const [first, last] = [times[0], times.at(-1)];
    return { prompt: (read * 1000) / (first - begun), text: ((times.length - 1) * 1000) / (last - first) };
}

async function trine(url, threads) {
    const model = await Model.load(url, { threads, nCtx: CONTEXT, cache: "off" });
    if (model.info.threads !== threads) throw new Error(`trine has ${model.info.threads} threads`);
    return {
        model,
        async run(text) {
            const begun = performance.now();
            const times = [];
            const chunks = model.generate(text, { temperature: 0, max_tokens: TOKENS, ignore_eos: true });
            for (;;) {
                const { done, value } = await chunks.next();
                if (done) return { ...speeds(value.promptTokens, begun, times), read: value.promptTokens, tokens: times.length };
                if (value.token !== null) times.push(performance.now());
            }
        },
        close: () => model.close(),
    };
}

/** `letter` is a token that wllama is made to choose: its answers must be UTF-8, which random weights do not write. */
async function wllama(url, threads, letter) {
    const note = (...what) => said.push(what.join(" "));
    const engine = new Wllama({ default: "/wllama/wasm/wllama.wasm" }, { logger: { debug: note, log: note, warn: note, error: note } });
    const file = await (await fetch(url)).blob();
    await engine.loadModel([file], { n_ctx: CONTEXT, n_threads: threads, n_gpu_layers: 0, n_parallel: 1 });
    if (engine.getNumThreads() !== threads) throw new Error(`wllama has ${engine.getNumThreads()} threads`);
    return {
        async run(text) {
            const begun = performance.now();
            const times = [];
            let timings;
            const options = { prompt: text, temperature: 0, max_tokens: TOKENS, ignore_eos: true, cache_prompt: false, stream: true, logit_bias: { [letter]: 1e4 } };
            for await (const chunk of await engine.createCompletion(options)) {
                timings = chunk.timings ?? timings;
                if (!chunk.choices[0]?.finish_reason) times.push(performance.now());
            }
            const { prompt_n: read, predicted_n: tokens, prompt_per_second, predicted_per_second } = timings;
            const own = { prompt: prompt_per_second, text: predicted_per_second };
            return { ...speeds(read, begun, times), read, tokens, own };
        },
        close: () => engine.exit(),
    };
}

const median = (numbers) => numbers.sort((a, b) => a - b)[numbers.length >> 1];

async function measure(file, threads) {
    const url = new URL(`/models/${file}`, location).href;
    const ours = await trine(url, threads);
    const theirs = await wllama(url, threads, (await ours.model.tokenize("a")).at(-1));
    const seen = { trine: [], wllama: [] };
    // The first turn is not counted: browsers compile in it.
    for (let turn = 0; turn <= TURNS; turn++) {
        const text = await prompt(turn, ours.model);
        const pair = { trine: await ours.run(text), wllama: await theirs.run(text) };
        for (const what of ["read", "tokens"]) {
            if (pair.trine[what] !== pair.wllama[what]) throw new Error(`${what}: ${pair.trine[what]} and ${pair.wllama[what]}`);
        }
        if (turn > 0) for (const [who, speed] of Object.entries(pair)) seen[who].push(speed);
    }
    ours.close();
    await theirs.close();
    const of = (who, what) => median(seen[who].map((speed) => speed[what]));
    const line = { file, threads };
    for (const what of ["prompt", "text"]) {
        const ratio = median(seen.trine.map((speed, i) => speed[what] / seen.wllama[i][what]));
        line[what] = { trine: of("trine", what), wllama: of("wllama", what), ratio };
    }
    return { ...line, turns: seen };
}

const results = [];
/** The messages of wllama, whose last lines tell more than its errors. */
const said = [];
let error;
try {
    for (const file of asked.get("files").split(",")) {
        for (const threads of asked.get("threads").split(",")) results.push(await measure(file, Number(threads)));
    }
} catch (e) {
    error = `${e.message}\n${said.slice(-5).join("\n")}`;
}
await fetch("/result", { method: "POST", body: JSON.stringify({ results, error, agent: navigator.userAgent }) });
