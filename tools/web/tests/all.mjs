// The tests of the package, the same in Node.js and in browsers. `expected.json` has, for each model, what rgen computed of it.

import { alive, refusal, shared, tell, thread } from "./workers.mjs";

/** Throws where `got` is not `wanted`. */
function equal(what, got, wanted) {
    const [a, b] = [JSON.stringify(got), JSON.stringify(wanted)];
    if (a !== b) throw new Error(`${what}: ${a} instead of ${b}`);
}

/** The message of what `work` throws. */
async function failure(work) {
    try {
        await work();
    } catch (e) {
        return e.message;
    }
    return "no error";
}

/**
 * Runs all tests; the lines of `report` say what was done.
 * @param {typeof import("../package/index.js")} trine
 * @param {string} base where models and `expected.json` are
 * @param {boolean} isolated true if several threads are to be had
 * @param {(line: string) => void} report
 */
export async function run(trine, base, isolated, report) {
    const { Model } = trine;
    const { prompt, models } = await (await fetch(`${base}/expected.json`)).json();
    const threads = isolated ? [1, 2, 3] : [1];
    for (const { file, sha256, text, tokens } of models) {
        for (const count of threads) {
            for (const isa of count === 2 ? [undefined] : ["scalar", undefined]) {
                const model = await Model.load(`${base}/${file}`, { threads: count, isa });
                const what = `${file}, ${model.info.threads} threads, ${model.info.isa}`;
                equal(`${what}: threads`, model.info.threads, count);
                const logits = await model.logits(prompt);
                equal(`${what}: logits`, logits.sha256, sha256);
                const done = await model.complete(prompt, { temperature: 0, max_tokens: tokens.length });
                equal(`${what}: text`, [done.text, done.tokens, done.end], [text, tokens, "length"]);
                report(`${what}: ${sha256.slice(0, 16)} equal`);
                model.close();
            }
        }
    }
    const url = `${base}/${models[0].file}`;
    await conversations(trine, url, prompt, report);
    for (const count of threads) await abort(trine, url, count, prompt, report);
    await errors(trine, base, models[0].file, report);
    if (isolated) await manyThreads(trine, url, prompt, report);
    else await oneThread(trine, url, report);
    await ended(0);
    report("no worker is left");
}

/** Waits until no more than `count` workers are alive; Node.js takes a moment to end one. */
async function ended(count) {
    for (let i = 0; alive.size > count && i < 500; i++) await new Promise((done) => setTimeout(done, 10));
    equal("workers that are alive", alive.size, count);
}

/** Where memory is not shared there is one thread, however many are asked for. */
async function oneThread({ Model }, url, report) {
    const model = await Model.load(url, { threads: 3 });
    equal("threads without shared memory", [model.info.threads, alive.size], [1, 1]);
    model.close();
    report("one thread where memory is not shared");
}

async function manyThreads({ Model }, url, prompt, report) {
    const processors = globalThis.navigator?.hardwareConcurrency ?? (await import("node:os")).availableParallelism();
    const usual = await Model.load(url);
    equal("threads, unless told otherwise", usual.info.threads, Math.min(processors, 8, Math.max(2, Math.floor(processors / 2))));
    usual.close();
    for (const threads of [0, 1.5, 65, "2"]) {
        equal("no number of threads", await failure(() => Model.load(url, { threads })), `threads must be a whole number from 1 to 64, not ${threads}`);
    }
    await ended(0);

    // One model after the other, and two at once; each has an engine's worker and helpers of two pools.
    const hashes = [];
    for (let i = 0; i < 3; i++) {
        const model = await Model.load(url, { threads: 2 });
        hashes.push((await model.logits(prompt)).sha256);
        await ended(3);
        model.close();
        await ended(0);
    }
    const both = await Promise.all([2, 3].map((threads) => Model.load(url, { threads })));
    await ended(3 + 5);
    hashes.push(...(await Promise.all(both.map((model) => model.logits(prompt)))).map(({ sha256 }) => sha256));
    equal("hashes of models one after the other and at once", new Set(hashes).size, 1);
    both[0].close();
    equal("the other model goes on", (await both[1].logits(prompt)).sha256, hashes[0]);
    both[1].close();
    await ended(0);
    equal("a load that fails", (await failure(() => Model.load(new Uint8Array(100), { threads: 2 }))).includes("'file 1'"), true);
    await ended(0);
    report("threads: as many as asked for, one model after the other and at once");

    // Where a browser begins no more workers, who asks for threads is told so, and others have one.
    refusal.on = true;
    equal("threads that are refused", await failure(() => Model.load(url, { threads: 2 })), "threads cannot be started: no more workers");
    const one = await Model.load(url);
    equal("one thread instead", [one.info.threads, (await one.logits(prompt)).sha256], [1, hashes[0]]);
    await ended(1);
    one.close();
    refusal.on = false;
    report("one thread where a browser begins no more workers");

    // A thread that traps says so, and its model ends with this error instead of waiting for it.
    const [GO, NUMBER, NOWHERE] = [2, 99, -16];
    const table = new Int32Array(new SharedArrayBuffer(16));
    table.set([0, GO, NUMBER, NOWHERE]);
    const said = await thread(table, ({ failed }) => failed);
    equal("a thread that traps", [said[0].ready, /out of bounds/.test(said[1].failed)], [true, true]);
    const model = await Model.load(url, { threads: 2 });
    equal("memory of the newest thread", shared.memory instanceof WebAssembly.Memory, true);
    const work = failure(() => model.logits("The game of chess ".repeat(60)));
    tell([...alive].find((worker) => worker.isThread), { failed: "it trapped" });
    equal("a model whose thread trapped", await work, "the engine broke off: it trapped");
    equal("and what is asked of it then", await failure(() => model.tokenize("a")), "the engine broke off: it trapped");
    model.close();
    await ended(0);
    report("a thread that breaks off ends its model with an error");
}

async function conversations({ Model }, url, prompt, report) {
    const bytes = new Uint8Array(await (await fetch(url)).arrayBuffer());
    const model = await Model.load(bytes);
    const said = [{ role: "user", content: "Hello" }];
    equal("template", await model.render(said, "chatml"), "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
    equal("no template", await failure(() => model.render(said)), "the model has no chat template; name one as 'template'");
    const answer = await model.complete(said, { template: "chatml", temperature: 0, max_tokens: 4 });
    equal("an answer's tokens", answer.tokens.length, 4);
    const tokens = await model.tokenize(prompt);
    equal("tokens and back", (await model.detokenize(tokens)).endsWith(prompt), true);
    equal("tokens as prompt", await model.logits(tokens), await model.logits(prompt));
    const [one, two, other] = [await model.embed("The game of chess"), await model.embed("A game of chess"), await model.embed("1997")];
    const cosine = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
    equal("a vector's length", Math.round(cosine(one, one) * 1e4), 1e4);
    equal("texts of like meaning", cosine(one, two) > cosine(one, other), true);
    equal("an unknown option", await failure(() => model.complete("a", { warmth: 1 })), "there is no option 'warmth'");
    equal("a bad value", (await failure(() => model.complete("a", { top_p: 2 }))).startsWith("top_p must be a number from 0 to 1"), true);
    model.close();
    equal("a closed model", await failure(() => model.tokenize("a")), "the model was closed");
    report("template, conversation, tokens, vectors, options: as they should be");
}

/** A text is ended in the middle, and others go on; the caller's own thread is free all the time. */
async function abort({ Model }, url, threads, prompt, report) {
    const model = await Model.load(url, { threads });
    const stop = new AbortController();
    const seen = [];
    const text = model.generate(prompt, { temperature: 0, ignore_eos: true, signal: stop.signal });
    let end;
    for (;;) {
        const { done, value } = await text.next();
        if (done) {
            end = value.end;
            break;
        }
        seen.push(value.token);
        if (seen.length === 5) stop.abort();
    }
    equal("an ended text", end, "cancelled");
    // Who stops asking ends it too.
    for await (const chunk of model.generate(prompt, { temperature: 0, ignore_eos: true })) {
        equal("the same text again", chunk.token, seen[0]);
        break;
    }
    const again = await model.complete(prompt, { temperature: 0, max_tokens: 5 });
    equal("a text behind ended ones", again.tokens, seen.slice(0, 5));
    // Turns of the caller's loop while the worker is busy.
    let turns = 0;
    let busy = true;
    const work = model.logits("The game of chess ".repeat(60)).finally(() => (busy = false));
    while (busy) {
        await new Promise((done) => setTimeout(done, 0));
        turns++;
    }
    await work;
    equal("turns while the worker is busy", turns > 3, true);
    model.close();
    report(`a text ends where it is told to, and the page is free meanwhile, ${threads} threads`);
}

async function errors({ Model }, base, file, report) {
    const message = (from, options) => failure(() => Model.load(from, options));
    equal("a bad URL", await message(`${base}/nothing.gguf`), `cannot fetch '${base}/nothing.gguf': the server answers 404 Not Found`);
    equal("no server", (await message("http://127.0.0.1:9/a.gguf")).startsWith("cannot fetch 'http://127.0.0.1:9/a.gguf': the server is not there"), true);
    equal("no model", (await message(`${base}/page.html`)).includes("is not a GGUF file: it looks like"), true);
    const cut = new Uint8Array(await (await fetch(`${base}/${file}`)).arrayBuffer()).slice(0, 100_000);
    equal("a file that was cut off", (await message(cut)).startsWith("'file 1': "), true);
    const stop = new AbortController();
    stop.abort();
    equal("an ended download", await message(`${base}/${file}`, { signal: stop.signal, cache: "off" }), "it was cancelled");
    report("errors are one sentence each");
}

/** Files are kept in the origin's file system, and fetched again where that is asked for. Browsers only. */
export async function cache({ Model, clearCache }, base, report) {
    const { models } = await (await fetch(`${base}/expected.json`)).json();
    const url = `${base}/${models[0].file}`;
    await clearCache();
    const cached = async (cache) => {
        const seen = new Set();
        const model = await Model.load(url, { cache, onProgress: (p) => seen.add(p.cached) });
        model.close();
        return [...seen];
    };
    equal("first from the server", await cached("on"), [false]);
    equal("then from the cache", await cached("on"), [true]);
    equal("again from the server", await cached("reload"), [false]);
    equal("and from the cache", await cached("on"), [true]);
    equal("without cache", await cached("off"), [false]);
    await clearCache();
    equal("cleared", await cached("on"), [false]);
    report("files are kept and found again");
}

/** The page as a person uses it: a model is loaded and proven, it answers, and a bad URL is one sentence. Browsers only. */
export async function page(base, report) {
    const frame = document.createElement("iframe");
    frame.src = "/page/index.html";
    document.body.append(frame);
    await new Promise((done) => frame.addEventListener("load", done, { once: true }));
    const $ = (id) => frame.contentDocument.getElementById(id);
    const until = async (there) => {
        while (!there()) await new Promise((done) => setTimeout(done, 20));
    };
    const open = (url) => {
        $("url").value = url;
        $("open").requestSubmit();
    };
    open(`${base}/trilm-wt-5.8m-F16.gguf`);
    await until(() => $("verdict").textContent || $("status").classList.contains("error"));
    equal("the page's proof", $("verdict").textContent, "Equal, to the last bit.");
    $("text").value = "The game of";
    $("ask").requestSubmit();
    await until(() => $("log").lastElementChild?.textContent.length > 40 || $("stop").hidden);
    $("stop").click();
    await until(() => $("stop").hidden);
    equal("the page's log", $("log").firstElementChild.textContent, "The game of");
    open(`${base}/nothing.gguf`);
    await until(() => $("status").classList.contains("error"));
    equal("the page's error", $("status").textContent, `cannot fetch '${base}/nothing.gguf': the server answers 404 Not Found`);
    frame.remove();
    report("the page loads a model, proves it, answers, and says what is wrong");
}
