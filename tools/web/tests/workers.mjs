// The workers that a test has begun and that have not ended. Imported before the package begins any.

const { module, sync, tell } = await (typeof process === "undefined" ? browser() : node());
/** Has a worker say something to its owner. */
export { tell };

/** Workers that are alive. */
export const alive = new Set();
/** No workers are begun for threads where `on` is true. */
export const refusal = { on: false };
/** The newest thread's share: module, memory, table. */
export let shared;

async function browser() {
    return { module: globalThis, sync() {}, tell: (worker, data) => worker.onmessage({ data }) };
}

async function node() {
    const { createRequire, syncBuiltinESMExports } = await import("node:module");
    const module = createRequire(import.meta.url)("node:worker_threads");
    return { module, sync: syncBuiltinESMExports, tell: (worker, data) => worker.emit("message", data) };
}

const Plain = module.Worker;
module.Worker = class extends Plain {
    constructor(...given) {
        if (refusal.on && `${given[0]}`.endsWith("/thread.js")) throw new Error("no more workers");
        super(...given);
        alive.add(this);
        // Node.js tells when a worker has ended, browsers only that it was asked to.
        this.on?.("exit", () => alive.delete(this));
    }

    terminate() {
        if (!this.on) alive.delete(this);
        return super.terminate();
    }

    postMessage(message, ...rest) {
        if (message.table) {
            shared = message;
            this.isThread = true;
        }
        super.postMessage(message, ...rest);
    }
};
sync();

/** A thread of its own with what the newest one was given, but for `table`; what it says, until `enough` of it was said. */
export function thread(table, enough) {
    const worker = new module.Worker(new URL("../package/thread.js", import.meta.url), { type: "module" });
    const said = [];
    return new Promise((done) => {
        const hear = (data) => {
            said.push(data);
            if (enough(data)) done(said);
        };
        if (worker.on) worker.on("message", hear);
        else worker.onmessage = (event) => hear(event.data);
        worker.postMessage({ ...shared, table, place: 0 });
    }).finally(() => worker.terminate());
}
