// Workers and files where they have other names: in a browser and in Node.js.

const inNode = typeof process !== "undefined" && Boolean(process.versions?.node);
const threads = inNode ? await import("node:worker_threads") : undefined;
const os = inNode ? await import("node:os") : undefined;

/** A worker, with the same few methods everywhere. */
function wrapped(worker) {
    return {
        post: (message, transfer = []) => worker.postMessage(message, transfer),
        terminate: () => worker.terminate(),
        /** `message` gets what the worker posts, `failed` why it ended. */
        listen(message, failed) {
            if (threads) {
                worker.on("message", message);
                worker.on("error", (e) => failed(e.message));
                return;
            }
            worker.onmessage = (event) => message(event.data);
            worker.onerror = (event) => failed(event.message ?? "it could not be loaded");
        },
        /** Node.js need not wait for it. */
        unref: () => worker.unref?.(),
    };
}

/** Begins the worker that has the model. */
export function engineWorker() {
    if (threads) return wrapped(new threads.Worker(new URL("./worker.js", import.meta.url)));
    return wrapped(new Worker(new URL("./worker.js", import.meta.url), { type: "module" }));
}

/** Begins a worker that is a thread of the engine. */
export function threadWorker() {
    if (threads) return wrapped(new threads.Worker(new URL("./thread.js", import.meta.url)));
    return wrapped(new Worker(new URL("./thread.js", import.meta.url), { type: "module" }));
}

/** The other side, inside of a worker. */
export const parent = {
    post: (message, transfer = []) => (threads ? threads.parentPort : self).postMessage(message, transfer),
    listen(message) {
        if (threads) threads.parentPort.on("message", message);
        else self.onmessage = (event) => message(event.data);
    },
};

/** Compiles a module that lies beside this file. */
export async function compile(url) {
    if (threads) {
        const { readFile } = await import("node:fs/promises");
        return WebAssembly.compile(await readFile(url));
    }
    const answer = await fetch(url);
    if (!answer.ok) throw new Error(`cannot fetch the engine: the server answers ${answer.status} for '${url}'`);
    const typed = answer.headers.get("content-type")?.startsWith("application/wasm");
    return typed ? WebAssembly.compileStreaming(answer) : WebAssembly.compile(await answer.arrayBuffer());
}

/** True where memory can be shared between threads. */
export const canShare = () => inNode || globalThis.crossOriginIsolated === true;

/** Threads that the machine may have. */
export const processors = () => os?.availableParallelism() ?? navigator.hardwareConcurrency ?? 1;

/** Lets messages in, between two steps of long work. */
export const breathe = threads
    ? () => new Promise((done) => setImmediate(done))
    : () =>
          new Promise((done) => {
              const { port1, port2 } = new MessageChannel();
              port1.onmessage = () => {
                  port1.close();
                  done();
              };
              port2.postMessage(0);
          });
