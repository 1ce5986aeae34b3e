// A thread of the engine.

import { imports, serve } from "./engine.js";
import { parent } from "./host.js";

parent.listen(async ({ module, memory, env, table, place }) => {
    let said = "";
    const print = (text) => (said = (said + text).slice(-4096));
    try {
        const instance = await WebAssembly.instantiate(module, imports(module, () => memory, env, print, table));
        parent.post({ ready: true });
        serve(instance, table, place);
    } catch (e) {
        // The engine waits for this thread and never hears of it; the page does.
        parent.post({ failed: said.trim() || e.message });
    }
});
