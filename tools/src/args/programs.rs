//! Options that a single program of llama.cpp or bitnet.cpp has, or reads otherwise than all others, and what becomes
//! of them in the tool that does its work. They are looked for before those of [`super::table`].

use super::llama_cpp::Takes::{Nothing, Value};
use super::llama_cpp::{FLASH, Foreign, NO_DEVICE, harmless, harmless_for, refused, table};

/// The tool, whose options they are, and the options.
pub type OfProgram = (&'static str, &'static str, &'static [Foreign]);

const ASKED: &str = "each request says how its tokens are chosen, in llama-server's fields";
const NO_TOOLS: &str = "tools are run by who asks, never by the server";

/// The options of all programs.
#[rustfmt::skip]
pub const OF_PROGRAMS: &[OfProgram] = &[
    ("rbench", "llama-bench and llama-batched-bench", &[
        harmless(&["-fa", "--flash-attn"], Value, FLASH),
        harmless(&["-nkvo", "--no-kv-offload"], Value, NO_DEVICE),
        harmless(&["-nopo", "--no-op-offload"], Value, NO_DEVICE),
        harmless(&["--no-host"], Value, NO_DEVICE),
        harmless(&["-dio", "--direct-io"], Value, "weights are in memory before the first test"),
        harmless(&["-lm", "--load-mode"], Value, "weights are in memory before the first test"),
        harmless(&["--no-mmap"], Nothing, "weights are in memory before the first test; -mmp 0 reads files without mapping them"),
        harmless(&["-c", "--ctx-size"], Value, "a context is as large as its test"),
        harmless_for(&["--repack"], Value, "weights are packed unless --no-repack is there", &["1"], "say --no-repack"),
        harmless_for(&["-embd", "--embeddings"], Value, "texts are measured", &["0"], "texts are measured; rserve makes vectors"),
        refused(&["-oe", "--output-err"], Value, "the result is written once, in the form of -o"),
        refused(&["-rpc", "--rpc"], Value, "the work is not shared with other machines"),
        refused(&["-tgs"], Nothing, "the texts of --batched are written side by side"),
    ]),
    ("rimatrix", "llama-imatrix", &[
        harmless(&["--ppl"], Nothing, "perplexity is shown unless --no-ppl is there"),
    ]),
    ("rserve", "llama-server", &[
        harmless(&["--embedding", "--embeddings"], Nothing, "/v1/embeddings answers beside all others; --pooling says how"),
        refused(&["-p", "--prompt", "-f", "--file"], Value, "requests bring their prompts"),
        harmless(&["-b", "--batch-size"], Value, "prompts are cut as -ub and those who wait want it"),
        harmless(&["-e", "--escape", "--no-escape"], Nothing, "requests are JSON, which has escapes of its own"),
        harmless(&["--cache-prompt", "--no-cache-prompt", "--cache-idle-slots", "--no-cache-idle-slots"], Nothing, "the KV cache of common prefixes is kept while there is room, and the results are bit-identical"),
        harmless(&["--cache-reuse", "-sps", "--slot-prompt-similarity"], Value, "the KV cache of common prefixes is kept while there is room, and the results are bit-identical"),
        harmless(&["--threads-http"], Value, "connections share a few threads that wait"),
        harmless(&["--prefill-assistant", "--no-prefill-assistant"], Nothing, "a request says whether its last message is continued"),
        harmless(&["--models-autoload", "--no-agent", "-no-ag"], Nothing, "models of --models are loaded when they are asked for, and no tool is run"),
        refused(&["--no-models-autoload"], Nothing, "models of --models are loaded when they are asked for; -m serves one alone"),
        refused(&["--models-preset"], Value, "the options count for all models of --models"),
        refused(&["--models-max"], Value, "--models-memory bounds how many models of --models are loaded"),
        refused(&["--dry-sequence-breaker", "-l", "--logit-bias"], Value, ASKED),
        refused(&["--ignore-eos"], Nothing, ASKED),
        refused(&["--grammar", "--grammar-file", "-j", "--json-schema", "-jf", "--json-schema-file"], Value, "each request brings the form of its text: grammar, json_schema or response_format"),
        refused(&["-sp", "--special"], Nothing, "control tokens are not part of the text"),
        harmless(&["--rerank", "--reranking"], Nothing, "/v1/rerank answers beside all others"),
        refused(&["--path"], Value, "the page that is served is the program's own"),
        refused(&["--api-prefix"], Value, "a proxy in front can serve it below another path"),
        harmless(&["-cb", "--cont-batching", "-nocb", "--no-cont-batching"], Nothing, "requests run side by side, and no answer depends on which"),
        refused(&["--embd-normalize"], Value, "a request says how its vectors are normalized"),
        refused(&["--ui-config", "--webui-config", "--ui-config-file", "--webui-config-file"], Value, "the page has its own settings"),
        refused(&["--ui-mcp-proxy", "--webui-mcp-proxy", "-ag", "--agent"], Nothing, NO_TOOLS),
        harmless(&["--no-ui-mcp-proxy", "--no-webui-mcp-proxy"], Nothing, NO_TOOLS),
        refused(&["--tools", "--tools-runtime", "--mcp-servers-config", "--mcp-servers-json"], Value, NO_TOOLS),
        refused(&["--reuse-port", "--props"], Nothing, "one process has the port, and its settings stay: options say what counts where a request does not"),
        refused(&["--media-path"], Value, "trine reads text alone"),
        refused(&["--sleep-idle-seconds"], Value, "one model stays in memory; those of --models leave after --model-idle"),
        refused(&["--cors-methods", "--cors-headers"], Value, "what the API needs is allowed"),
        refused(&["--cors-credentials", "--no-cors-credentials"], Nothing, "what the API needs is allowed"),
    ]),
    ("rconvert", "convert_hf_to_gguf.py and bitnet.cpp's setup_env.py", &[
        harmless(&["-md", "--model-dir"], Nothing, "the folder is the first word of the command line that is no option"),
        harmless(&["--use-temp-file", "--no-lazy"], Nothing, "weights are streamed, a few megabytes at a time"),
        harmless(&["-ld", "--log-dir"], Value, "no log is written"),
        harmless(&["-p", "--use-pretuned"], Nothing, "kernels need no tuning"),
        refused(&["--remote"], Nothing, "checkpoints are not fetched: download the repository, for instance with hf download, and give its folder"),
        refused(&["-hr", "--hf-repo"], Value, "checkpoints are not fetched: download the repository, for instance with hf download, and give its folder"),
        refused(&["--mistral-format"], Nothing, "checkpoints are read in the form of Hugging Face: config.json and its tokenizer"),
        harmless(&["--disable-mistral-community-chat-template"], Nothing, "templates come from the checkpoint alone"),
        refused(&["--mtp", "--no-mtp", "--no-nextn", "--fp8-as-q8", "--fuse-gate-up-exps", "--fuse-qkv", "--dspark"], Nothing, "tensors are those that convert_hf_to_gguf.py makes without it"),
        refused(&["--bigendian"], Nothing, "trine writes little-endian files, as nearly all machines read them"),
        refused(&["--quant-embd"], Nothing, "rquantize --token-embedding-type f16 does it in the file that rconvert writes"),
        refused(&["--print-supported-models"], Nothing, "rconvert --help lists the architectures"),
        refused(&["--metadata"], Value, "rquantize --override-kv sets keys of the file that rconvert writes"),
        refused(&["--split-max-tensors", "--split-max-size"], Value, "rquantize splits the file that rconvert writes"),
    ]),
];

/// The option of a name, for the tool of this name.
pub fn find(tool: &str, name: &str) -> Option<&'static Foreign> {
    let own = OF_PROGRAMS.iter().filter(|(of, _, _)| *of == tool);
    let own = own.flat_map(|(_, _, options)| options.iter());
    own.chain(table()).find(|o| o.names.contains(&name))
}
