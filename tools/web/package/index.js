// @trine/web: language models in GGUF files, in a worker of the page. Types and documentation are in index.d.ts.

import { clearCache } from "./files.js";
import { engineWorker, threadWorker } from "./host.js";

export { clearCache };

/** A file as the worker takes it. */
function source(from, index) {
    if (typeof from === "string" || from instanceof URL) return { url: new URL(from, globalThis.location?.href).href };
    const name = from.name || `file ${index + 1}`;
    if (from instanceof ArrayBuffer) return { name, bytes: new Uint8Array(from) };
    if (ArrayBuffer.isView(from)) return { name, bytes: new Uint8Array(from.buffer, from.byteOffset, from.byteLength) };
    if (typeof Blob !== "undefined" && from instanceof Blob) return { name, blob: from };
    throw new TypeError("a model is a URL, a Blob or bytes");
}

export class Model {
    #worker;
    #threads = [];
    #next = 1;
    #waiting = new Map();
    #dead;

    static async load(from, options = {}) {
        const model = new Model();
        const { threads, nCtx, isa, cache = "on", onProgress, signal } = options;
        const sources = (Array.isArray(from) ? from : [from]).map(source);
        try {
            model.info = await model.#ask({ kind: "open", sources, threads, nCtx, isa, cache }, { onProgress, signal });
        } catch (e) {
            model.close();
            throw e;
        }
        return model;
    }

    constructor() {
        this.#worker = engineWorker();
        this.#worker.listen(
            (message) => this.#hear(message),
            (why) => this.#end(new Error(`the worker ended: ${why}`)),
        );
    }

    /** Begins workers that are threads of the engine, and tells its worker. */
    async #beginThreads({ shared, count }) {
        const one = (place) =>
            new Promise((done, failed) => {
                const worker = threadWorker();
                this.#threads.push(worker);
                const fail = (why) => {
                    failed(new Error(why));
                    // A thread that was at work is waited for in vain.
                    if (started) this.#end(new Error(`the engine broke off: ${why}`));
                };
                worker.listen((message) => (message.ready ? done() : fail(message.failed)), fail);
                worker.unref();
                worker.post({ ...shared, place });
            });
        let started = false;
        let failed;
        try {
            await Promise.all(Array.from({ length: count }, (_, place) => one(place)));
            started = true;
        } catch (e) {
            failed = e.message;
            this.#endThreads();
        }
        this.#worker.post({ begun: { failed } });
    }

    #endThreads() {
        for (const worker of this.#threads) worker.terminate();
        this.#threads = [];
    }

    #hear({ id, answer, error, progress, chunk, threads }) {
        if (threads) return void (this.#dead || this.#beginThreads(threads));
        const waiting = this.#waiting.get(id);
        if (!waiting) return;
        if (progress) return waiting.onProgress?.(progress);
        if (chunk) return waiting.onChunk?.(chunk);
        this.#waiting.delete(id);
        if (error === undefined) waiting.done(answer);
        else waiting.failed(new Error(error));
    }

    #end(why) {
        this.#dead ??= why;
        this.#worker.terminate();
        this.#endThreads();
        for (const { failed } of this.#waiting.values()) failed(why);
        this.#waiting.clear();
    }

    #ask(message, { onProgress, onChunk, signal } = {}) {
        if (this.#dead) return Promise.reject(this.#dead);
        const id = this.#next++;
        const abort = () => this.#worker.post({ abort: id });
        return new Promise((done, failed) => {
            this.#waiting.set(id, { done, failed, onProgress, onChunk });
            this.#worker.post({ id, ...message });
            if (signal?.aborted) abort();
            signal?.addEventListener("abort", abort, { once: true });
        }).finally(() => signal?.removeEventListener("abort", abort));
    }

    #call(request) {
        return this.#ask({ kind: "call", request });
    }

    async *generate(prompt, { signal, onProgress, template, ...options } = {}) {
        const ended = new AbortController();
        const end = () => ended.abort();
        if (signal?.aborted) end();
        signal?.addEventListener("abort", end, { once: true });
        const chunks = [];
        let wake = () => {};
        let outcome;
        const onChunk = (chunk) => {
            chunks.push(chunk);
            wake();
        };
        const form = Array.isArray(prompt)
            ? typeof prompt[0] === "number"
                ? { tokens: prompt }
                : { messages: prompt, template }
            : { text: prompt };
        this.#ask({ kind: "text", prompt: form, options }, { onChunk, onProgress, signal: ended.signal })
            .then((told) => (outcome = { told }), (error) => (outcome = { error }))
            .finally(() => wake());
        try {
            for (;;) {
                while (chunks.length > 0) yield chunks.shift();
                if (outcome?.error) throw outcome.error;
                if (outcome) return outcome.told;
                await new Promise((done) => (wake = done));
            }
        } finally {
            // Who stops asking ends the text.
            if (!outcome) end();
            signal?.removeEventListener("abort", end);
        }
    }

    async complete(prompt, options = {}) {
        let text = "";
        const tokens = [];
        const chunks = this.generate(prompt, options);
        for (;;) {
            const { done, value } = await chunks.next();
            if (done) return { text, tokens, ...value };
            text += value.text;
            if (value.token !== null) tokens.push(value.token);
        }
    }

    async tokenize(text) {
        return (await this.#call({ op: "tokenize", text })).tokens;
    }

    async detokenize(tokens) {
        return (await this.#call({ op: "detokenize", tokens: Array.from(tokens) })).text;
    }

    async render(messages, template) {
        return (await this.#call({ op: "render", messages, template })).text;
    }

    async embed(text, { bits } = {}) {
        return Float32Array.from((await this.#call({ op: "embed", text, bits })).vector);
    }

    async logits(prompt, { bits } = {}) {
        const form = typeof prompt === "string" ? { text: prompt } : { tokens: Array.from(prompt) };
        return this.#call({ op: "logits", ...form, bits });
    }

    close() {
        this.#end(new Error("the model was closed"));
    }
}
