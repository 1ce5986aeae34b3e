// A thread of the engine.

import { imports, serve } from "./engine.js";
import { parent } from "./host.js";

parent.listen(async ({ module, memory, env, table, place }) => {
    const instance = await WebAssembly.instantiate(module, imports(module, () => memory, env, () => {}, table));
    parent.post("ready");
    serve(instance, table, place);
});
