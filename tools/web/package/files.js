// Files of models into the engine's memory: from URLs, with a cache in the origin's private file system, or from bytes.

/** A file that begins otherwise is no model, and the engine says what it looks like. */
const MAGIC = [0x47, 0x47, 0x55, 0x46];
/** Bytes from which the engine knows. */
const HEAD = 4096;
/** Bytes that are read at once from the cache. */
const PART = 8 << 20;
const FOLDER = "trine-models";

/** Where a file is put together whose length may not be known. */
class Target {
    #engine;
    #parts = [];
    #at = 0;
    #room = 0;
    length = 0;

    constructor(engine, expected) {
        this.#engine = engine;
        if (expected > 0) {
            this.#at = engine.alloc(expected);
            this.#room = expected;
        }
    }

    push(bytes) {
        if (this.#room === 0) this.#parts.push(bytes);
        else this.#engine.write(this.#at + this.length, bytes.subarray(0, this.#room - this.length));
        this.length += bytes.length;
    }

    /** Gives the memory back. */
    drop() {
        if (this.#room > 0) this.#engine.free(this.#at, this.#room);
    }

    finish(name) {
        if (this.#room > 0 && this.#room === this.length) return { name, at: this.#at, bytes: this.#room };
        if (this.#room > 0) {
            const [room, length] = [this.#room, this.length];
            this.drop();
            throw new Error(`'${name}': ${length} bytes came instead of ${room}; try again`);
        }
        const at = this.#engine.alloc(this.length);
        let to = at;
        for (const part of this.#parts) {
            this.#engine.write(to, part);
            to += part.length;
        }
        return { name, at, bytes: this.length };
    }
}

/** Loads all files of a model. */
export async function load(engine, sources, cache, progress, aborted) {
    const files = [];
    for (const source of sources) {
        files.push(await (source.url ? fromUrl(engine, source.url, cache, progress, aborted) : fromBytes(engine, source, progress)));
    }
    return files;
}

async function fromBytes(engine, { name, bytes, blob }, progress) {
    const data = bytes ?? new Uint8Array(await blob.arrayBuffer());
    const target = new Target(engine, data.length);
    target.push(data);
    progress({ stage: "reading", file: name, done: data.length, all: data.length, cached: false });
    return target.finish(name);
}

/** The cache's folder; nothing where there is no such file system, or it is full or forbidden. */
async function folder() {
    try {
        return await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
    } catch {
        return undefined;
    }
}

async function keyOf(url) {
    const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(url)));
    return Array.from(hash.subarray(0, 16), (b) => b.toString(16).padStart(2, "0")).join("");
}

/** The whole file of `url` in the cache: a note beside it is written last and says how long it is. */
async function cached(dir, key, url) {
    try {
        const note = JSON.parse(await (await (await dir.getFileHandle(`${key}.json`)).getFile()).text());
        const file = await (await dir.getFileHandle(`${key}.gguf`)).getFile();
        return note.url === url && note.bytes === file.size ? file : undefined;
    } catch {
        return undefined;
    }
}

async function fromUrl(engine, url, cache, progress, aborted) {
    const dir = cache === "off" ? undefined : await folder();
    const key = dir && (await keyOf(url));
    const file = dir && cache !== "reload" ? await cached(dir, key, url) : undefined;
    if (file) {
        const target = new Target(engine, file.size);
        for (let from = 0; from < file.size; from += PART) {
            stopIf(aborted, target);
            target.push(new Uint8Array(await file.slice(from, from + PART).arrayBuffer()));
            progress({ stage: "reading", file: url, done: target.length, all: file.size, cached: true });
        }
        return target.finish(url);
    }
    return download(engine, url, dir && { dir, key }, progress, aborted);
}

function stopIf(aborted, target) {
    if (!aborted()) return;
    target.drop();
    throw new Error("it was cancelled");
}

async function download(engine, url, place, progress, aborted) {
    let answer;
    try {
        answer = await fetch(url);
    } catch (e) {
        throw new Error(`cannot fetch '${url}': the server is not there, or does not let other pages read the file (CORS)`);
    }
    if (!answer.ok) {
        await answer.body?.cancel();
        throw new Error(`cannot fetch '${url}': the server answers ${answer.status} ${answer.statusText}`.trimEnd());
    }
    // Of compressed answers the length is another.
    const length = answer.headers.get("content-encoding") ? 0 : Number(answer.headers.get("content-length") ?? 0);
    const keeper = place && (await Keeper.begin(place, url));
    const reader = answer.body.getReader();
    const head = [];
    let target;
    try {
        for (;;) {
            if (aborted()) throw new Error("it was cancelled");
            const { done, value } = await reader.read().catch((e) => {
                throw new Error(`'${url}' broke off after ${target?.length ?? 0} bytes: ${e.message}`);
            });
            if (done) break;
            if (head.length < HEAD) head.push(...value.subarray(0, HEAD - head.length));
            if (head.length >= MAGIC.length && MAGIC.some((byte, i) => head[i] !== byte)) {
                // A page that says "not found", for example: the engine is given its beginning and says so.
                if (head.length < HEAD) continue;
                break;
            }
            target ??= new Target(engine, length);
            target.push(value);
            keeper?.write(value);
            progress({ stage: "downloading", file: url, done: target.length, all: length || undefined, cached: false });
        }
        if (!target) {
            target = new Target(engine, 0);
            target.push(Uint8Array.from(head));
            await keeper?.drop();
            return target.finish(url);
        }
        const file = target.finish(url);
        await keeper?.finish(file.bytes);
        return file;
    } catch (e) {
        await keeper?.drop();
        throw e;
    } finally {
        reader.cancel().catch(() => {});
    }
}

/** Keeps a file in the cache. What goes wrong here costs the cache and nothing else. */
class Keeper {
    static async begin({ dir, key }, url) {
        const keeper = new Keeper();
        Object.assign(keeper, { dir, key, url, at: 0 });
        try {
            await dir.removeEntry(`${key}.json`).catch(() => {});
            const file = await dir.getFileHandle(`${key}.gguf`, { create: true });
            keeper.handle = await file.createSyncAccessHandle();
            keeper.handle.truncate(0);
            return keeper;
        } catch {
            return undefined;
        }
    }

    write(bytes) {
        if (!this.handle) return;
        try {
            this.at += this.handle.write(bytes, { at: this.at });
        } catch {
            this.drop();
        }
    }

    async finish(bytes) {
        if (!this.handle || this.at !== bytes) return this.drop();
        try {
            this.handle.flush();
            this.handle.close();
            this.handle = undefined;
            const note = await (await this.dir.getFileHandle(`${this.key}.json`, { create: true })).createSyncAccessHandle();
            note.truncate(0);
            note.write(new TextEncoder().encode(JSON.stringify({ url: this.url, bytes })), { at: 0 });
            note.flush();
            note.close();
        } catch {
            await this.drop();
        }
    }

    async drop() {
        this.handle?.close();
        this.handle = undefined;
        await this.dir.removeEntry(`${this.key}.gguf`).catch(() => {});
    }
}

/** Deletes all files of the cache. */
export async function clearCache() {
    const root = await navigator.storage.getDirectory();
    await root.removeEntry(FOLDER, { recursive: true }).catch(() => {});
}
