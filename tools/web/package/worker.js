// The worker that has the model: it answers one request after the other, and hears meanwhile that one is to end.

import { Engine } from "./engine.js";
import { load } from "./files.js";
import { breathe, canShare, parent, processors } from "./host.js";

/** Tokens of a prompt that are read between two looks at what has come in. */
const PART = 64;
/** More threads than these gain nothing: memory is the limit. */
const MOST_THREADS = 8;

let engine;
/** Requests that are to end. */
const aborted = new Set();

/** Told by the page how its workers for threads began: nothing, or why they did not. */
let begun = () => {};

/** Has the page begin workers that are threads. */
function threadWorkers(shared, count) {
    return new Promise((done, failed) => {
        begun = (why) => (why === undefined ? done() : failed(new Error(`threads cannot be started: ${why}`)));
        parent.post({ threads: { shared, count } });
    });
}

/** Threads where nobody says how many. Hardware threads come in pairs as a rule, of which the second gains little. */
function usual() {
    const all = processors();
    return Math.min(all, MOST_THREADS, Math.max(2, Math.floor(all / 2)));
}

/** Begins the engine; returns how many threads it has. */
async function begin(threads, env) {
    if (threads !== undefined && !(Number.isInteger(threads) && threads >= 1 && threads <= 64)) {
        throw new Error(`threads must be a whole number from 1 to 64, not ${threads}`);
    }
    const count = canShare() ? (threads ?? usual()) : 1;
    try {
        engine = await Engine.create({ threads: count, env }, threadWorkers);
        return count;
    } catch (e) {
        // A browser may have shared memory and too little of it, or forbid more workers.
        if (threads !== undefined || count === 1) throw e;
        engine = await Engine.create({ threads: 1, env });
        return 1;
    }
}

const answers = {
    async open({ id, sources, threads, nCtx, isa, cache }) {
        const count = await begin(threads, isa ? { TRINE_ISA: isa } : {});
        const progress = (news) => parent.post({ id, progress: news });
        const files = await load(engine, sources, cache, progress, () => aborted.has(id));
        return engine.call({ op: "open", files, threads: count, nCtx });
    },

    async text({ id, prompt, options }) {
        const { promptTokens } = engine.call({ op: "generate", ...prompt, options });
        const begun = performance.now();
        for (let read = 0; read < promptTokens - 1 && !aborted.has(id); ) {
            ({ read } = engine.call({ op: "read", tokens: PART }));
            parent.post({ id, progress: { stage: "reading", done: read, all: promptTokens } });
            await breathe();
        }
        let first;
        for (let tokens = 0; ; tokens++) {
            if (aborted.has(id)) {
                engine.call({ op: "stop" });
                return { end: "cancelled" };
            }
            const chunk = engine.call({ op: "next" });
            first ??= performance.now();
            parent.post({ id, chunk: { text: chunk.text, token: chunk.token } });
            if (chunk.end) {
                const seconds = (performance.now() - first) / 1000;
                return { end: chunk.end, promptTokens, promptSeconds: (first - begun) / 1000, textTokens: tokens, textSeconds: seconds };
            }
            await breathe();
        }
    },

    async call({ request }) {
        return engine.call(request);
    },
};

let turn = Promise.resolve();
parent.listen((message) => {
    if (message.abort !== undefined) {
        aborted.add(message.abort);
        return;
    }
    if (message.begun !== undefined) {
        begun(message.begun.failed);
        return;
    }
    turn = turn.then(async () => {
        const { id, kind } = message;
        try {
            if (!engine && kind !== "open") throw new Error("no model is open");
            parent.post({ id, answer: await answers[kind](message) });
        } catch (e) {
            parent.post({ id, error: e.message });
        }
        aborted.delete(id);
    });
});
