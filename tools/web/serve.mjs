// A server of files for pages: `node serve.mjs [PORT]` shows the page of this folder, so that `http://localhost:PORT` runs models.
// Pages are cross-origin isolated, which browsers ask for before they share memory between threads.

import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".wasm": "application/wasm",
};

/**
 * Serves folders by their names, on a port that is free unless one is asked for.
 * @param {Record<string, string>} folders
 * @param {{ port?: number, isolated?: boolean, posted?: (body: string) => void, start?: string }} options `posted` gets what is sent to /result
 */
export async function serve(folders, { port = 0, isolated = true, posted, start } = {}) {
    const server = createServer(async (request, response) => {
        const path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
        if (isolated) {
            response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
            response.setHeader("Cross-Origin-Embedder-Policy", "require-corp");
        }
        if (request.method === "POST" && path === "/result" && posted) {
            const parts = [];
            for await (const part of request) parts.push(part);
            response.end();
            posted(Buffer.concat(parts).toString());
            return;
        }
        if (path === "/" && start) {
            response.writeHead(302, { Location: start }).end();
            return;
        }
        const [, name, ...rest] = normalize(path).split("/");
        const file = Object.hasOwn(folders, name) ? join(folders[name], ...rest) : undefined;
        const found = file && (await stat(file).catch(() => undefined));
        if (!found?.isFile()) {
            response.writeHead(404).end("nothing is here");
            return;
        }
        response.setHeader("Content-Type", TYPES[extname(file)] ?? "application/octet-stream");
        response.setHeader("Content-Length", found.size);
        response.setHeader("Cache-Control", "no-cache");
        if (request.method === "HEAD") response.end();
        else createReadStream(file).pipe(response);
    });
    await new Promise((done) => server.listen(port, "127.0.0.1", done));
    return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
    const folder = (path) => new URL(path, import.meta.url).pathname;
    const folders = { package: folder("./package"), page: folder("./page"), models: folder("../../testdata/models") };
    const server = await serve(folders, { port: Number(process.argv[2] ?? 8000), start: "/page/index.html" });
    console.log(`open ${server.url}`);
}
