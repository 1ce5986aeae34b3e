// An instance of the engine: memory, threads, and calls in JSON.
//
// The engine starts threads while it computes, when its worker hears no messages, and a browser begins a worker only between two
// of them. So the page begins the threads' workers before the first call, and they sleep in `serve`, each at its place in a table in
// shared memory, until `thread-spawn` gives them work. The engine's own instance comes first: the instance that fills the
// memory is the one that has the first thread's own data.

import { compile } from "./host.js";
import { wasi } from "./wasi.js";

const MODULES = {
    one: new URL("./trine.wasm", import.meta.url),
    many: new URL("./trine-threads.wasm", import.meta.url),
};
/** Pages of 64 KiB: what the module with threads is linked for at the beginning, and all that 32 bits address. */
const FIRST_PAGES = 1024;
const MOST_PAGES = 65536;
/** Words of a place in the table of threads, behind a first word that counts them: state, number, argument. */
const PLACE = 3;
const [IDLE, TAKEN, GO] = [0, 1, 2];

/** The imports of a module, in the engine's worker and in its threads. */
export function imports(module, memory, env, print, table) {
    const all = { wasi_snapshot_preview1: wasi(module, memory, env, print) };
    if (!table) return all;
    all.env = { memory: memory() };
    all.wasi = {
        // Gives the work to an idle thread; negative where there is none.
        "thread-spawn"(argument) {
            for (let at = 1; at < table.length; at += PLACE) {
                if (Atomics.compareExchange(table, at, IDLE, TAKEN) !== IDLE) continue;
                const number = Atomics.add(table, 0, 1) + 1;
                Atomics.store(table, at + 1, number);
                Atomics.store(table, at + 2, argument);
                Atomics.store(table, at, GO);
                Atomics.notify(table, at);
                return number;
            }
            return -1;
        },
    };
    return all;
}

/** The life of a thread: work whenever there is some. */
export function serve(instance, table, place) {
    const at = 1 + PLACE * place;
    for (;;) {
        for (let state; (state = Atomics.load(table, at)) !== GO; ) Atomics.wait(table, at, state);
        instance.exports.wasi_thread_start(Atomics.load(table, at + 1), Atomics.load(table, at + 2));
        Atomics.store(table, at, IDLE);
    }
}

export class Engine {
    #exports;
    #memory;
    #said = "";

    /**
     * @param {{ threads: number, env: Record<string, string> }} options `env` is the environment: `TRINE_ISA` names an instruction set
     * @param {(shared: object, count: number) => Promise<void>} begin begins workers that are threads, with what they share
     */
    static async create({ threads, env }, begin) {
        const engine = new Engine();
        const many = threads > 1;
        const module = await compile(many ? MODULES.many : MODULES.one).catch((e) => {
            throw new Error(`this browser cannot run the engine, which needs SIMD of WebAssembly: ${e.message}`);
        });
        const print = (text) => (engine.#said = (engine.#said + text).slice(-4096));
        // Helpers of two pools, of which one packs weights and the other computes.
        const places = 2 * (threads - 1);
        const table = many ? new Int32Array(new SharedArrayBuffer(4 * (1 + PLACE * places))) : undefined;
        if (many) engine.#memory = new WebAssembly.Memory({ initial: FIRST_PAGES, maximum: MOST_PAGES, shared: true });
        const instance = await WebAssembly.instantiate(module, imports(module, () => engine.#memory, env, print, table));
        engine.#memory ??= instance.exports.memory;
        engine.#exports = instance.exports;
        instance.exports._initialize();
        if (many) await begin({ module, memory: engine.#memory, env, table }, places);
        return engine;
    }

    /** Memory for a file, which `write` fills; a request to open it takes it over. */
    alloc(length) {
        const at = this.#exports.trine_alloc(length) >>> 0;
        if (at === 0) throw new Error(`${length} bytes do not fit into the memory of a page, which ends at 4 GB`);
        return at;
    }

    free(at, length) {
        this.#exports.trine_free(at, length);
    }

    write(at, bytes) {
        new Uint8Array(this.#memory.buffer, at, bytes.length).set(bytes);
    }

    /** Calls the engine; throws its error. */
    call(request) {
        const text = new TextEncoder().encode(JSON.stringify(request));
        const at = this.alloc(text.length);
        this.write(at, text);
        let answer;
        try {
            const packed = BigInt.asUintN(64, this.#exports.trine_call(at, text.length));
            const [from, length] = [Number(packed & 0xffffffffn), Number(packed >> 32n)];
            answer = JSON.parse(new TextDecoder().decode(new Uint8Array(this.#memory.buffer, from, length).slice()));
            this.free(from, length);
        } catch (e) {
            // What a panic said is the better message; the instance cannot be used any more.
            throw new Error(`the engine broke off: ${this.#said.trim() || e.message}`);
        }
        if (answer.error !== undefined) throw new Error(answer.error);
        return answer;
    }
}
