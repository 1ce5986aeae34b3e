// The worker that has the model: it answers one request after the other, and hears meanwhile that one is to end.

import { Engine } from "./engine.js";
import { load } from "./files.js";
import { breathe, parent } from "./host.js";

/** Tokens of a prompt that are read between two looks at what has come in. */
const PART = 64;

let engine;
/** Requests that are to end. */
const aborted = new Set();

const answers = {
    async open({ id, sources, threads, nCtx, isa, cache }) {
        // Loading with several threads does not come to an end yet.
        if (threads > 1) throw new Error("several threads do not work yet; leave out 'threads' or give 1");
        const count = 1;
        engine = await Engine.create({ threads: count, env: isa ? { TRINE_ISA: isa } : {} });
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
