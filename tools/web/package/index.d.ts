/** Language models in GGUF files, in a worker of the page, with the bits that trine computes everywhere. */

/** A file of a model: its URL, or the file itself. */
export type Source = string | URL | Blob | ArrayBuffer | Uint8Array;

/** News of a model that is being loaded, or of a prompt that is being read. */
export interface Progress {
    stage: "downloading" | "reading";
    /** The file; of a prompt nothing. */
    file?: string;
    /** Bytes, or tokens of a prompt, that are there. */
    done: number;
    /** All of them, where that is known. */
    all?: number;
    /** True if the file comes from the cache. */
    cached?: boolean;
}

export interface LoadOptions {
    /**
     * Threads, 1 to 64. More than one need a page that is cross-origin isolated, or Node.js; elsewhere there is one. Without it: half of
     * the processors that the browser tells of, 2 of them at least and 8 at most. The results are bit-identical.
     */
    threads?: number;
    /** Tokens of the context; without it as many as the model was trained with. */
    nCtx?: number;
    /** The instruction set; without it the best that there is. The results are bit-identical. */
    isa?: "scalar" | "scalar4" | "simd128";
    /** Files from URLs are kept in the origin's private file system. "reload" fetches them again, "off" keeps nothing. */
    cache?: "on" | "reload" | "off";
    onProgress?: (progress: Progress) => void;
    signal?: AbortSignal;
}

/** Facts of a loaded model. */
export interface ModelInfo {
    name: string | null;
    architecture: string | null;
    nCtx: number;
    nVocab: number;
    threads: number;
    isa: string;
    /** True if the model was made to chat. */
    chatTemplate: boolean;
    /** The engine's version. */
    version: string;
}

export interface Message {
    role: "system" | "user" | "assistant" | "tool";
    content: string;
}

/** A text, tokens, or a conversation. */
export type Prompt = string | number[] | Message[];

/** Options of a text, by llama-server's names; without them it is sampled as there, from a seed that is always the same. */
export interface TextOptions {
    max_tokens?: number;
    seed?: number;
    stop?: string[];
    ignore_eos?: boolean;
    /** Bits per weight of an any-precision model. */
    bits?: number;
    /** 0 always takes the most likely token. */
    temperature?: number;
    top_k?: number;
    top_p?: number;
    min_p?: number;
    typical_p?: number;
    repeat_penalty?: number;
    repeat_last_n?: number;
    frequency_penalty?: number;
    presence_penalty?: number;
    /** The chat template, or llama.cpp's name of one; without it the model's own. */
    template?: string;
    /** Ends the text where it is. */
    signal?: AbortSignal;
    onProgress?: (progress: Progress) => void;
}

/** What is certain of the text after another token. */
export interface Chunk {
    text: string;
    token: number | null;
}

/** How a text ended. */
export interface End {
    end: "eos" | "stop" | "length" | "context" | "cancelled";
    promptTokens?: number;
    promptSeconds?: number;
    /** Tokens behind the first one, and how long they took. */
    textTokens?: number;
    textSeconds?: number;
}

/** The proof of what was computed. */
export interface Logits {
    /** A line for each token: position, token and SHA-256 of its logits, as `rgen --logits-sha256` prints them. */
    lines: string;
    /** The SHA-256 of these lines. */
    sha256: string;
}

/** A model in workers of its own. Requests are answered one after the other. */
export class Model {
    private constructor();
    /** Loads a model; of a split one all files in their order. Every error is one sentence. */
    static load(from: Source | Source[], options?: LoadOptions): Promise<Model>;
    readonly info: ModelInfo;
    /** Continues a text, tokens or a conversation. Who stops asking ends it. */
    generate(prompt: Prompt, options?: TextOptions): AsyncGenerator<Chunk, End, void>;
    /** The whole text at once. */
    complete(prompt: Prompt, options?: TextOptions): Promise<End & { text: string; tokens: number[] }>;
    /** The tokens of a text, with that which the model's texts begin with; texts of control tokens become these tokens. */
    tokenize(text: string): Promise<number[]>;
    detokenize(tokens: Iterable<number>): Promise<string>;
    /** The text that a conversation becomes. */
    render(messages: Message[], template?: string): Promise<string>;
    /** The vector of a text, of length 1. */
    embed(text: string, options?: { bits?: number }): Promise<Float32Array>;
    /** Hashes of all logits of a prompt. */
    logits(prompt: string | Iterable<number>, options?: { bits?: number }): Promise<Logits>;
    /** Ends the workers and gives their memory back. */
    close(): void;
}

/** Deletes the files of all models that were kept. */
export function clearCache(): Promise<void>;
