//! The screens of `-h` and `--help`: everyday options first, all others below headings and in `--help` alone.

use clap::{Arg, Command};

/// Options of one tool or, without a name, of all tools that have them, by their long names.
type Row = (&'static str, &'static [&'static str]);

/// The options that `-h` shows. A tool that is not here shows all.
#[rustfmt::skip]
const EVERYDAY: &[Row] = &[
    ("rbench", &["model", "hf-repo", "synthetic", "n-prompt", "n-gen", "prompt-gen", "n-depth", "threads", "device",
                 "n-gpu-layers", "bits", "repetitions", "output", "batched", "roofline", "profile", "compare-llama", "serve",
                 "kernels"]),
    ("rconvert", &["outfile", "outtype", "ternary", "fairy2i", "model-name", "dry-run", "json", "threads", "verbose"]),
    ("rgen", &["model", "hf-repo", "threads", "device", "n-gpu-layers", "prompt", "file", "predict", "bits", "ctx-size", "seed",
               "temp", "top-k", "top-p", "min-p", "repeat-penalty", "reverse-prompt", "lora", "grammar", "json-schema",
               "conversation", "system-prompt", "single-turn", "chat-template", "prompt-cache", "json"]),
    ("rimatrix", &["model", "threads", "file", "output", "ctx-size", "chunks", "process-output", "in-file", "resume",
                   "show-statistics", "json", "fisher", "hessian"]),
    ("rinspect", &["json", "diff", "program", "tensors", "hash", "check-tensors"]),
    ("rperplexity", &["model", "hf-repo", "threads", "device", "n-gpu-layers", "file", "bits", "ctx-size", "chunks",
                      "score", "kl-divergence-base", "kl-divergence", "compare", "plot", "hellaswag", "winogrande",
                      "multiple-choice", "questions", "json"]),
    ("rquantize", &["imatrix", "method", "gptq", "sequential", "tensor-type", "token-embedding-type", "output-tensor-type", "pure",
                    "fallback",
                    "force", "allow-requantize", "dry-run", "verify", "width", "split-max-size", "merge", "json",
                    "verbose"]),
    ("rserve", &["model", "hf-repo", "models", "threads", "device", "n-gpu-layers", "alias", "chat-template", "host",
                 "port", "api-key-file", "parallel", "ctx-size", "kv-memory", "predict", "seed", "temp", "top-k", "top-p",
                 "min-p", "lora", "bits", "metrics", "no-ui"]),
    ("rtokenize", &["model", "prompt", "file", "stdin", "ids", "json", "no-bos", "no-parse-special", "no-escape",
                    "show-count"]),
];

/// Headings of `--help`, and the options below them where a tool does not show them every day.
#[rustfmt::skip]
const HEADINGS: &[(&str, Row)] = &[
    ("Models by name", ("", &["hf-repo", "hf-file", "hf-token", "model-url", "size", "offline"])),
    ("Loading the model", ("", &["threads", "no-mmap", "mmap", "mlock", "no-repack", "number-path", "tl-tiles",
                                 "i2s-layout", "input-tl-tiles", "input-i2s-layout"])),
    ("Several GPUs", ("", &["split-mode", "tensor-split", "main-gpu"])),
    ("Adapters", ("", &["lora", "lora-scaled", "control-vector", "control-vector-scaled",
                        "control-vector-layer-range"])),
    ("KV cache", ("", &["cache-type-k", "cache-type-v"])),
    ("Metadata", ("rquantize", &["override-kv"])),
    ("Overrides of the file", ("", &["override-kv", "rope-scaling", "rope-scale", "rope-freq-base", "rope-freq-scale",
                                     "yarn-orig-ctx", "yarn-ext-factor", "yarn-beta-slow", "yarn-beta-fast"])),
    ("Context", ("rgen", &["batch-size", "ubatch-size", "context-shift", "no-context-shift", "keep"])),
    ("Context", ("rperplexity", &["batch-size", "ubatch-size"])),
    ("Context", ("rimatrix", &["batch-size", "ubatch-size"])),
    ("Context", ("rserve", &["context-shift", "keep"])),
    ("Any-precision", ("rserve", &["widths"])),
    ("Drafts", ("", &["draft-bits", "model-draft", "hf-repo-draft", "spec-type", "draft", "draft-always"])),
    ("Text", ("", &["tokens", "escape", "no-escape", "no-display-prompt", "escape-control", "binary-file",
                    "from-chunk", "parse-special"])),
    ("Prompt cache", ("", &["prompt-cache-all", "prompt-cache-ro"])),
    ("Turns", ("", &["interactive", "interactive-first", "in-prefix", "in-suffix", "in-prefix-bos",
                     "multiline-input"])),
    ("Grammars and schemas", ("", &["grammar-file", "json-schema-file"])),
    ("Several models", ("rserve", &["models-memory", "model-idle"])),
    ("Server", ("rserve", &["tags", "pooling", "strict-model", "slots", "no-slots", "slot-save-path", "ui", "metrics-public",
                            "log-format", "log-file", "verbose", "reasoning-format", "reasoning-budget",
                            "sse-ping-interval", "drain-delay", "drain-timeout"])),
    ("Chat", ("", &["no-conversation", "system-prompt-file", "chat-template-file", "chat-template-kwargs", "reasoning",
                    "reasoning-effort", "color", "no-color", "show-timings", "simple-io", "no-history"])),
    ("Vectors", ("rgen", &["embedding", "pooling", "embd-normalize", "embd-output-format", "embd-separator"])),
    ("Results", ("", &["rerank", "logits-sha256", "no-ppl", "ppl-output-type", "ppl-stride", "no-speed", "csv",
                       "dot"])),
    ("Access", ("rserve", &["api-key", "insecure-no-auth", "allowed-hosts", "cors-origins", "ssl-cert-file",
                            "ssl-key-file"])),
    ("Limits", ("rserve", &["max-queue", "max-queue-tokens", "queue-timeout", "request-timeout", "stall-timeout",
                            "max-body", "max-bodies", "max-request-memory", "max-unread", "max-choices", "max-connections",
                            "shared-prefix-cache", "ubatch-size",
                            "target-step-ms", "prefill-chunk"])),
    ("Parts", ("rperplexity", &["from-chunk", "partial", "join"])),
    ("Tasks", ("", &["hellaswag-tasks", "winogrande-tasks", "multiple-choice-tasks", "questions-tasks",
                     "parallel"])),
    ("Mixtures of types", ("", &["leave-output-tensor", "tensor-type-file", "include-weights", "exclude-weights",
                                 "prune-layers"])),
    ("Files of a size", ("rquantize", &["target-bpw", "target-size", "target-kld", "kld-text", "kld-chunks", "for", "recipe"])),
    ("Rotations", ("rquantize", &["rotate", "unrotate"])),
    ("Split files", ("", &["keep-split", "split", "split-max-tensors", "no-tensor-first-split"])),
    ("Files", ("", &["output-format", "output-frequency", "save-frequency"])),
    ("Checkpoints", ("", &["trilm-parts", "packed-scale", "fallback", "pre", "vocab-only",
                        "target-model-dir", "sentence-transformers-dense-modules"])),
    ("Runs", ("rbench", &["save", "batch-size", "ubatch-size", "no-warmup", "delay", "progress", "compare-ik", "reproduce"])),
    ("Several texts at once", ("", &["npp", "ntg", "npl", "pps"])),
    ("Servers", ("", &["clients", "rate", "requests", "prompt-tokens", "new-tokens", "shared-tokens", "model-name",
                       "interrupt", "label", "plot", "beside", "key"])),
    ("Kernels", ("", &["types", "method"])),
    ("Sampling", ("", &["samplers", "sampler-seq", "dry-sequence-breaker", "logit-bias", "ignore-eos"])),
];

/// Gives the options of a tool their headings, and shortens the help of the everyday ones for `-h`.
pub fn arranged(command: Command) -> Command {
    let tool = command.get_name().to_owned();
    let Some((_, everyday)) = EVERYDAY.iter().find(|(name, _)| *name == tool) else {
        return command;
    };
    command.mut_args(|arg| match arg.get_long() {
        None => brief(arg),
        Some(long) if everyday.contains(&long) => brief(arg).help_heading(None),
        Some(long) => match heading(&tool, long) {
            Some(heading) => arg.help_heading(heading).hide_short_help(true),
            None => arg.hide_short_help(true),
        },
    })
}

fn heading(tool: &str, long: &str) -> Option<&'static str> {
    let is_for = |(whose, options): &Row| (whose.is_empty() || *whose == tool) && options.contains(&long);
    HEADINGS.iter().find(|(_, row)| is_for(row)).map(|(heading, _)| *heading)
}

/// The most characters of an option's help in `-h`, where a shorter part says what it is.
const BRIEF: usize = 70;

/// The option with the beginning of its help for `-h`.
fn brief(arg: Arg) -> Arg {
    let Some(help) = arg.get_help().cloned() else { return arg };
    let text = help.to_string();
    let ends =
        |marks: &[&str]| -> Vec<usize> { marks.iter().flat_map(|m| text.match_indices(m)).map(|m| m.0).collect() };
    let (good, any) = (ends(&[". ", "; ", ", "]), ends(&[". ", "; ", ", ", ": "]));
    let longest = good.into_iter().filter(|end| *end <= BRIEF).max();
    match longest.or(any.into_iter().min()) {
        Some(end) if text.len() > BRIEF => {
            let long = arg.get_long_help().cloned().unwrap_or(help);
            arg.help(text[..end].to_owned()).long_help(long)
        }
        _ => arg,
    }
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::{EVERYDAY, HEADINGS};
    use crate::commands::all;

    fn has(command: &Command, long: &str) -> bool {
        command.get_arguments().any(|arg| arg.get_long() == Some(long))
    }

    #[test]
    fn rows_name_options_that_there_are() {
        let tools: Vec<Command> = all().iter().map(|tool| tool.command()).collect();
        let rows = EVERYDAY.iter().chain(HEADINGS.iter().map(|(_, row)| row));
        // The options of the server are those of another crate, whose test looks at its screen.
        for (tool, options) in rows.filter(|(tool, _)| *tool != "rserve") {
            for option in *options {
                let mut whose = tools.iter().filter(|c| tool.is_empty() || c.get_name() == *tool);
                assert!(whose.any(|c| has(c, option)), "{tool}: no --{option}");
            }
        }
    }
}
