// The types of the package, as a program uses them: `tsc --noEmit --strict` reads this file and does not run it.

import { Model, clearCache, type Chunk, type End, type Logits, type ModelInfo, type Progress } from "@trine/web";

export async function example(): Promise<End> {
    const model: Model = await Model.load(["a-00001-of-00002.gguf", new URL("https://example.org/b.gguf")], {
        threads: 2,
        isa: "simd128",
        cache: "reload",
        onProgress: (progress: Progress) => progress.done,
        signal: AbortSignal.timeout(1000),
    });
    const info: ModelInfo = model.info;
    for await (const chunk of model.generate([{ role: "user", content: info.architecture ?? "" }], { max_tokens: 8, stop: ["\n"] })) {
        const { text, token }: Chunk = chunk;
        console.log(text, token);
    }
    const vector: Float32Array = await model.embed("text", { bits: 4 });
    const logits: Logits = await model.logits(await model.tokenize("text"));
    // @ts-expect-error: an option that there is not
    await model.complete("text", { warmth: 1 });
    // @ts-expect-error: a model is loaded, not made
    new Model();
    await clearCache();
    console.log(vector.length, logits.sha256);
    return model.complete([1, 2, 3], { temperature: 0 });
}
