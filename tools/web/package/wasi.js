// The little that the standard library of Rust asks of a system (WASI preview 1): the environment, clocks, random bytes, and where
// messages go. There are no files and no arguments.

const OK = 0;
const NOT_A_FILE = 8;
const NOT_THERE = 52;

/** Shared memory; pages that are not isolated have none. */
const Shared = globalThis.SharedArrayBuffer ?? class {};
/** Milliseconds of a yield. */
const NAP = 0.05;

/** Thrown where the program ends itself. */
export class Exit extends Error {}

/**
 * The imports `wasi_snapshot_preview1` of a module.
 * @param {WebAssembly.Module} module
 * @param {() => WebAssembly.Memory} memory
 * @param {Record<string, string>} env
 * @param {(text: string) => void} print gets what is written to standard output and standard error
 */
export function wasi(module, memory, env, print) {
    const view = () => new DataView(memory().buffer);
    const bytes = (at, len) => new Uint8Array(memory().buffer, at >>> 0, len >>> 0);
    const variables = Object.entries(env).map(([key, value]) => new TextEncoder().encode(`${key}=${value}\0`));
    const nothing = (count, size) => {
        view().setUint32(count, 0, true);
        view().setUint32(size, 0, true);
        return OK;
    };
    const nap = new Int32Array(new Shared(4));
    const known = {
        args_get: () => OK,
        args_sizes_get: nothing,
        environ_sizes_get(count, size) {
            view().setUint32(count, variables.length, true);
            view().setUint32(size, variables.reduce((sum, v) => sum + v.length, 0), true);
            return OK;
        },
        environ_get(list, text) {
            for (const [i, variable] of variables.entries()) {
                view().setUint32(list + 4 * i, text, true);
                bytes(text, variable.length).set(variable);
                text += variable.length;
            }
            return OK;
        },
        clock_time_get(clock, _precision, at) {
            const ms = clock === 0 ? Date.now() : performance.timeOrigin + performance.now();
            view().setBigUint64(at, BigInt(Math.round(ms * 1e6)), true);
            return OK;
        },
        random_get(at, len) {
            // Shared memory is not filled directly.
            for (let from = 0; from < len; from += 65536) {
                const part = new Uint8Array(Math.min(65536, len - from));
                bytes(at + from, part.length).set(crypto.getRandomValues(part));
            }
            return OK;
        },
        fd_write(_file, list, count, written) {
            let text = "";
            let all = 0;
            for (let i = 0; i < count; i++) {
                const [at, len] = [view().getUint32(list + 8 * i, true), view().getUint32(list + 8 * i + 4, true)];
                text += new TextDecoder().decode(bytes(at, len).slice());
                all += len;
            }
            view().setUint32(written, all, true);
            print(text);
            return OK;
        },
        fd_prestat_get: () => NOT_A_FILE,
        fd_close: () => OK,
        sched_yield() {
            // A thread yields when it has looked long enough for what another one is at: it leaves its processor for a moment.
            if (memory().buffer instanceof Shared) Atomics.wait(nap, 0, 0, NAP);
            return OK;
        },
        proc_exit(code) {
            throw new Exit(`the engine ended with ${code}`);
        },
    };
    const imports = {};
    for (const { module: from, name } of WebAssembly.Module.imports(module)) {
        if (from === "wasi_snapshot_preview1") imports[name] = known[name] ?? (() => NOT_THERE);
    }
    return imports;
}
