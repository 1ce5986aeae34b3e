//! Options that a single program of llama.cpp or bitnet.cpp has, or reads otherwise than all others, and what becomes of them in the
//! tool that does its work. They are looked for before those of [`super::TABLE`].

use super::llama_cpp::Takes::{Nothing, Value};
use super::llama_cpp::{FLASH, Foreign, NO_DEVICE, NO_NETWORK, harmless, harmless_for, refused};

/// The tool, whose options they are, and the options.
pub type OfProgram = (&'static str, &'static str, &'static [Foreign]);

/// All of them.
#[rustfmt::skip]
pub const OF_PROGRAMS: &[OfProgram] = &[
    ("rbench", "llama-bench and llama-batched-bench", &[
        harmless(&["-fa", "--flash-attn"], Value, FLASH),
        harmless(&["-nkvo", "--no-kv-offload"], Value, NO_DEVICE),
        harmless(&["-nopo", "--no-op-offload"], Value, NO_DEVICE),
        harmless(&["--no-host"], Value, NO_DEVICE),
        harmless(&["-dio", "--direct-io"], Value, "weights are in memory before the first test"),
        harmless(&["-c", "--ctx-size"], Value, "a context is as large as its test"),
        harmless_for(&["--repack"], Value, "weights are packed unless --no-repack is there", &["1"], "say --no-repack"),
        harmless_for(&["-embd", "--embeddings"], Value, "texts are measured", &["0"], "texts are measured; rserve makes vectors"),
        refused(&["-oe", "--output-err"], Value, "the result is written once, in the form of -o"),
        refused(&["-tgs"], Nothing, "the texts of --batched are written side by side"),
    ]),
    ("rconvert", "convert_hf_to_gguf.py and bitnet.cpp's setup_env.py", &[
        harmless(&["-md", "--model-dir"], Nothing, "the folder is the first word of the command line that is no option"),
        harmless(&["--use-temp-file", "--no-lazy"], Nothing, "weights are streamed, a few megabytes at a time"),
        harmless(&["-ld", "--log-dir"], Value, "no log is written"),
        harmless(&["-p", "--use-pretuned"], Nothing, "kernels need no tuning"),
        refused(&["--remote"], Nothing, NO_NETWORK),
        refused(&["-hr", "--hf-repo"], Value, "trine opens no connection: download the repository and give its folder"),
        refused(&["--bigendian"], Nothing, "trine writes little-endian files, as nearly all machines read them"),
        refused(&["--quant-embd"], Nothing, "rquantize --token-embedding-type f16 does it in the file that rconvert writes"),
        refused(&["--print-supported-models"], Nothing, "rconvert --help lists the architectures"),
        refused(&["--metadata"], Value, "rquantize --override-kv sets keys of the file that rconvert writes"),
        refused(&["--split-max-tensors", "--split-max-size"], Value, "rquantize splits the file that rconvert writes"),
    ]),
];
