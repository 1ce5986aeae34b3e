//! The options of llama.cpp's programs that a tool here has no option of its own for, and what becomes of them.
//!
//! An option that a tool has is the tool's, whatever stands here. Of the others some change nothing in trine and are
//! accepted with a note, and the rest are refused with a reason: none is silently dropped, and none is read as
//! something else.

use std::sync::LazyLock;

use trine::sample::OPTIONS;

/// The values of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// No value.
    Nothing,
    /// A word, whatever it begins with.
    Value,
    /// Two words.
    Two,
    /// A word that does not begin with a dash, or nothing.
    Maybe,
}

/// Treatment of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It changes nothing here. The note says why.
    Harmless(&'static str),
    /// With one of these values, or without one, it changes nothing; any other is refused. A note, the values and a
    /// reason.
    HarmlessFor(&'static str, &'static [&'static str], &'static str),
    /// It cannot be honoured. The sentence says why, and what can be done instead.
    Refused(&'static str),
}

/// One option by all its names.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    /// All spellings, short ones first.
    pub names: &'static [&'static str],
    /// Its values.
    pub takes: Takes,
    /// Its treatment.
    pub fate: Fate,
}

pub(super) const fn harmless(names: &'static [&'static str], takes: Takes, note: &'static str) -> Foreign {
    Foreign { names, takes, fate: Fate::Harmless(note) }
}

pub(super) const fn refused(names: &'static [&'static str], takes: Takes, why: &'static str) -> Foreign {
    Foreign { names, takes, fate: Fate::Refused(why) }
}

pub(super) const fn harmless_for(
    names: &'static [&'static str],
    takes: Takes,
    note: &'static str,
    values: &'static [&'static str],
    why: &'static str,
) -> Foreign {
    Foreign { names, takes, fate: Fate::HarmlessFor(note, values, why) }
}

const SEVERAL_DEVICES: &str =
    "the model runs on the processor, or with --device cuda:0,cuda:1 of rgen, rperplexity, rbench and rserve on GPUs";
pub(super) const NO_DEVICE: &str = "the model runs on the processor alone, all of it";
const ANY_BITS: &str = "speed alone depends on it, and trine places its threads itself (taskset binds them)";
const ONE_CACHE: &str = "keys and values stand in pages that sequences share";
pub(super) const FLASH: &str = "attention is fast without it and has the bits of llama.cpp's -fa off, of -fa on where values are kept in a quantized type";
const NOT_LOGGED: &str = "messages go to standard error, and no log is written";
const NO_NETWORK: &str =
    "this tool takes files alone; trine pull fetches one by name where trine is built with the feature hub";
const NO_PRESETS: &str = "name the model: -hf USER/REPO:QUANT";
const FILES_OWN: &str =
    "the model's own numbers are used; rconvert and rquantize --override-kv write others into a file";
const NO_DRAFTS: &str = "this tool drafts nothing; rgen and rserve do";
const OWN_DRAFTS: &str = "drafts change no text, and how long they are and whether they pay is measured";
const LIKE_MODEL: &str = "a draft model runs as the model does";
const NO_HEADS: &str = "drafts come from a second model (-md), from the model's own heads (--spec-type draft-mtp), from an EAGLE-3 or DFlash drafter (--spec-type draft-eagle3 or draft-dflash, -md), from the text itself (--spec-type ngram-simple) or from fewer bits of the same any-precision file (--draft-bits)";
const NO_MEDIA: &str = "trine reads text alone";
const NO_ADAPTERS: &str =
    "this tool works with a model as it is; rgen, rperplexity and rserve apply adapters and control vectors";
const NO_GRAMMAR: &str = "this tool does not constrain what it writes";
const NO_PROMPT: &str =
    "this tool has no prompt; rgen keeps prompts in files, and rserve what they have in common in memory";
const NO_DRAWS: &str = "this tool draws no tokens";
const FROM_FILES: &str = "texts come from a file, with -f, in the tools that read them";
const NOT_INTERACTIVE: &str = "rgen writes in turns with -i, and chats with -cnv";
const SERVER: &str = "it belongs to a server; rserve --help lists the options of this one";
const OTHER_PROGRAM: &str = "it belongs to a program of llama.cpp that trine has no tool for";

use Takes::{Maybe, Nothing, Two, Value};

/// All of them, those of the sampler by the names that tools with a sampler read.
pub fn table() -> &'static [Foreign] {
    static ALL: LazyLock<Vec<Foreign>> = LazyLock::new(|| {
        let sampler = OPTIONS.iter().filter(|option| !option.flags.is_empty());
        let sampler = sampler.map(|option| harmless(option.flags, Value, NO_DRAWS));
        TABLE.iter().copied().chain(sampler).collect()
    });
    &ALL
}

#[rustfmt::skip]
const TABLE: &[Foreign] = &[
    // the machine
    harmless(&["-tb", "--threads-batch"], Value, "prompts are read by the threads of -t"),
    harmless(&["-C", "--cpu-mask"], Value, ANY_BITS),
    harmless(&["-Cr", "--cpu-range"], Value, ANY_BITS),
    harmless(&["--cpu-strict"], Value, ANY_BITS),
    harmless(&["--prio"], Value, ANY_BITS),
    harmless(&["--poll"], Value, ANY_BITS),
    harmless(&["-Cb", "--cpu-mask-batch"], Value, ANY_BITS),
    harmless(&["-Crb", "--cpu-range-batch"], Value, ANY_BITS),
    harmless(&["--cpu-strict-batch"], Value, ANY_BITS),
    harmless(&["--prio-batch"], Value, ANY_BITS),
    harmless(&["--poll-batch"], Value, ANY_BITS),
    harmless(&["--numa"], Value, ANY_BITS),
    harmless(&["--mmap"], Nothing, "files are mapped unless --no-mmap is there"),
    harmless_for(&["-lm", "--load-mode"], Value, "no result depends on it; files are mapped unless --no-mmap is there, and --mlock keeps a model in memory", &["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"],
        "it is auto, none, mmap, mlock, mmap+mlock or dio"),
    harmless_for(&["-lzm", "--lazy-mode"], Value, "all weights are there from the beginning", &["off", "none"], "weights are not loaded one by one"),
    harmless(&["--mlock"], Nothing, "no result depends on it; rgen, rperplexity, rimatrix and rserve lock memory"),
    harmless(&["--repack"], Nothing, "weights are packed unless --no-repack is there"),
    harmless(&["-nr"], Nothing, "say --no-repack; this time it changes nothing of the result"),
    harmless(&["--no-host"], Nothing, NO_DEVICE),
    harmless(&["-ngl", "--gpu-layers", "--n-gpu-layers"], Value, "the model runs on the processor, or with --device cuda of rgen, rperplexity, rbench and rserve on a GPU"),
    harmless(&["-sm", "--split-mode"], Value, SEVERAL_DEVICES),
    harmless(&["-ts", "--tensor-split"], Value, SEVERAL_DEVICES),
    harmless(&["-mg", "--main-gpu"], Value, SEVERAL_DEVICES),
    harmless_for(&["-dev", "--device"], Value, NO_DEVICE, &["none", "cpu", "CPU"], "the processor is the only device"),
    refused(&["--list-devices"], Nothing, "--device cuda:N names the GPU of a number or says what is in its way; rbench --roofline tells what it or the processor allows"),
    harmless(&["-ot", "--override-tensor"], Value, NO_DEVICE),
    harmless(&["-cmoe", "--cpu-moe"], Nothing, NO_DEVICE),
    harmless(&["-ncmoe", "--n-cpu-moe"], Value, NO_DEVICE),
    harmless(&["-ncffn", "--n-cpu-ffn"], Value, NO_DEVICE),
    harmless(&["-kvo", "--kv-offload", "-nkvo", "--no-kv-offload"], Nothing, NO_DEVICE),
    harmless(&["--op-offload", "--no-op-offload"], Nothing, NO_DEVICE),
    harmless(&["-bs", "--backend-sampling"], Nothing, NO_DEVICE),
    harmless(&["-fit", "--fit"], Value, NO_DEVICE),
    harmless(&["-fitt", "--fit-target"], Value, NO_DEVICE),
    harmless(&["-fitc", "--fit-ctx"], Value, NO_DEVICE),
    refused(&["-fitp", "--fit-print"], Value, OTHER_PROGRAM),
    refused(&["--rpc"], Value, "the work is not shared with other machines"),
    refused(&["--server-base"], Value, "this tool asks no server; rbench --serve does"),
    // attention and its memory
    harmless_for(&["-fa", "--flash-attn"], Maybe, FLASH, &["auto", "-1", "on", "1", "true", "enabled", "off", "0", "false", "disabled"], "it is on, off or auto"),
    harmless_for(&["-ctk", "--cache-type-k"], Value, "keys are F16", &["f16"], "this tool keeps keys and values as F16; rgen, rperplexity, rbench and rserve have other types"),
    harmless_for(&["-ctv", "--cache-type-v"], Value, "values are F16", &["f16"], "this tool keeps keys and values as F16; rgen, rperplexity, rbench and rserve have other types"),
    harmless(&["--swa-full"], Nothing, ONE_CACHE),
    harmless(&["-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"], Nothing, ONE_CACHE),
    harmless(&["--kv-unified-per-slot"], Value, ONE_CACHE),
    harmless(&["-dt", "--defrag-thold"], Value, ONE_CACHE),
    harmless(&["-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"], Value, ONE_CACHE),
    harmless(&["-cms", "--checkpoint-min-step"], Value, ONE_CACHE),
    harmless(&["-cram", "--cache-ram"], Value, ONE_CACHE),
    harmless(&["--no-context-shift"], Nothing, "nothing is taken out of a context unless rgen or rserve are asked to"),
    refused(&["--context-shift"], Nothing, "rgen and rserve can; give a larger -c"),
    harmless(&["--keep"], Value, "nothing is taken out of a context"),
    refused(&["-gan", "--grp-attn-n"], Value, FILES_OWN),
    refused(&["-gaw", "--grp-attn-w"], Value, FILES_OWN),
    refused(&["--rope-scaling"], Value, FILES_OWN),
    refused(&["--rope-scale"], Value, FILES_OWN),
    refused(&["--rope-freq-base"], Value, FILES_OWN),
    refused(&["--rope-freq-scale"], Value, FILES_OWN),
    refused(&["--yarn-orig-ctx"], Value, FILES_OWN),
    refused(&["--yarn-ext-factor"], Value, FILES_OWN),
    refused(&["--yarn-attn-factor"], Value, FILES_OWN),
    refused(&["--yarn-beta-slow"], Value, FILES_OWN),
    refused(&["--yarn-beta-fast"], Value, FILES_OWN),
    refused(&["--override-kv"], Value, FILES_OWN),
    refused(&["--attention"], Value, FILES_OWN),
    refused(&["--pooling"], Value, "rgen --embedding and rserve make vectors of texts"),
    // where a model comes from, and what is added to it
    refused(&["-hf", "-hfr", "--hf-repo"], Value, NO_NETWORK),
    refused(&["-hff", "--hf-file"], Value, NO_NETWORK),
    refused(&["-hfv", "-hfrv", "--hf-repo-v", "-hffv", "--hf-file-v"], Value, NO_MEDIA),
    refused(&["-hft", "--hf-token"], Value, NO_NETWORK),
    refused(&["-mu", "--model-url"], Value, NO_NETWORK),
    refused(&["-dr", "--docker-repo"], Value, "registries of containers are not asked; -hf fetches from a hub of models"),
    harmless(&["--offline"], Nothing, "this tool opens no connection"),
    refused(&["--gpt-oss-20b-default", "--gpt-oss-120b-default", "--vision-gemma-4b-default", "--vision-gemma-12b-default"], Nothing, NO_PRESETS),
    refused(&["--embd-gemma-default", "--fim-qwen-1.5b-default", "--fim-qwen-3b-default", "--fim-qwen-7b-default", "--fim-qwen-7b-spec"], Nothing, NO_PRESETS),
    refused(&["--fim-qwen-14b-spec", "--fim-qwen-30b-default"], Nothing, NO_PRESETS),
    refused(&["-cl", "--cache-list"], Nothing, "trine list shows the models that are here"),
    harmless(&["--check-tensors"], Nothing, "rinspect --check-tensors looks at weights; a text ends where logits are no numbers"),
    refused(&["--lora"], Value, NO_ADAPTERS),
    refused(&["--lora-scaled"], Value, NO_ADAPTERS),
    refused(&["--lora-init-without-apply"], Nothing, "give --lora-scaled FILE:0; requests to rserve name the factors that they want in lora"),
    refused(&["--control-vector"], Value, NO_ADAPTERS),
    refused(&["--control-vector-scaled"], Value, NO_ADAPTERS),
    refused(&["--control-vector-layer-range"], Two, NO_ADAPTERS),
    refused(&["-mm", "--mmproj"], Value, NO_MEDIA),
    refused(&["-mmu", "--mmproj-url"], Value, NO_MEDIA),
    harmless(&["--no-mmproj", "--no-mmproj-auto", "--mmproj-auto", "--mmproj-offload", "--no-mmproj-offload"], Nothing, NO_MEDIA),
    refused(&["--image", "--audio", "--video"], Value, NO_MEDIA),
    harmless(&["-mmdev", "--mmproj-device", "--image-min-tokens", "--image-max-tokens", "--mtmd-batch-max-tokens"], Value, NO_MEDIA),
    harmless(&["--video-fps", "--video-timestamp-interval", "--video-ffmpeg-dir"], Value, NO_MEDIA),
    // drafts
    refused(&["-md", "--model-draft", "--spec-draft-model"], Value, NO_DRAFTS),
    refused(&["-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"], Value, NO_DRAFTS),
    harmless(&["-td", "--threads-draft", "--spec-draft-threads"], Value, LIKE_MODEL),
    harmless(&["-tbd", "--threads-batch-draft", "--spec-draft-threads-batch"], Value, LIKE_MODEL),
    harmless(&["-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"], Value, LIKE_MODEL),
    harmless(&["-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"], Value, LIKE_MODEL),
    harmless(&["-devd", "--device-draft", "--spec-draft-device"], Value, LIKE_MODEL),
    harmless(&["-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "--spec-draft-ngl"], Value, LIKE_MODEL),
    harmless(&["--draft-min", "--draft-n-min", "--spec-draft-n-min"], Value, OWN_DRAFTS),
    refused(&["--draft-max", "--draft-n", "--draft", "--spec-draft-n-max"], Value, NO_DRAFTS),
    harmless(&["--draft-p-min", "--spec-draft-p-min"], Value, OWN_DRAFTS),
    harmless(&["--draft-p-split", "--spec-draft-p-split"], Value, OWN_DRAFTS),
    refused(&["--mtp", "--dflash", "--eagle3"], Nothing, NO_HEADS),
    harmless(&["-Cd", "--cpu-mask-draft", "--spec-draft-cpu-mask"], Value, LIKE_MODEL),
    harmless(&["-Crd", "--cpu-range-draft", "--spec-draft-cpu-range"], Value, LIKE_MODEL),
    harmless(&["-Cbd", "--cpu-mask-batch-draft", "--spec-draft-cpu-mask-batch"], Value, LIKE_MODEL),
    harmless(&["-Crbd", "--cpu-range-batch-draft", "--spec-draft-cpu-range-batch"], Value, LIKE_MODEL),
    harmless(&["--cpu-strict-draft", "--spec-draft-cpu-strict", "--prio-draft", "--spec-draft-prio", "--poll-draft", "--spec-draft-poll"], Value, LIKE_MODEL),
    harmless(&["--cpu-strict-batch-draft", "--spec-draft-cpu-strict-batch", "--prio-batch-draft", "--spec-draft-prio-batch", "--poll-batch-draft", "--spec-draft-poll-batch"], Value, LIKE_MODEL),
    harmless(&["-otd", "--override-tensor-draft", "--spec-draft-override-tensor"], Value, LIKE_MODEL),
    harmless(&["-cmoed", "--cpu-moe-draft", "--spec-draft-cpu-moe"], Nothing, LIKE_MODEL),
    harmless(&["-ncmoed", "--n-cpu-moe-draft", "--spec-draft-ncmoe", "--spec-draft-n-cpu-moe"], Value, LIKE_MODEL),
    refused(&["--spec-synth-len", "--spec-synth-rates"], Value, NO_HEADS),
    harmless(&["--spec-draft-backend-sampling", "--no-spec-draft-backend-sampling"], Nothing, NO_DEVICE),
    refused(&["-lcs", "--lookup-cache-static"], Value, NO_HEADS),
    refused(&["-lcd", "--lookup-cache-dynamic"], Value, NO_HEADS),
    harmless_for(&["--spec-type"], Value, OWN_DRAFTS, &["none"], NO_HEADS),
    refused(&["--spec-default"], Nothing, NO_HEADS),
    refused(&["--spec-ngram-mod-n-min", "--spec-ngram-mod-n-max", "--spec-ngram-mod-n-match"], Value, NO_HEADS),
    refused(&["--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m", "--spec-ngram-simple-min-hits"], Value, NO_HEADS),
    refused(&["--spec-ngram-map-k-size-n", "--spec-ngram-map-k-size-m", "--spec-ngram-map-k-min-hits"], Value, NO_HEADS),
    refused(&["--spec-ngram-map-k4v-size-n", "--spec-ngram-map-k4v-size-m", "--spec-ngram-map-k4v-min-hits"], Value, NO_HEADS),
    refused(&["--spec-ngram-size-n", "--spec-ngram-size-m", "--spec-ngram-min-hits"], Value, NO_HEADS),
    // texts
    refused(&["-p", "--prompt", "-f", "--file"], Value, FROM_FILES),
    harmless(&["--no-escape"], Nothing, "a text is taken as it stands"),
    refused(&["-e", "--escape"], Nothing, "a text is taken as it stands"),
    harmless(&["-n", "--predict", "--n-predict"], Value, "this tool writes no text"),
    refused(&["-o", "--output", "--output-file"], Value, "what is written goes to standard output: > FILE"),
    refused(&["-bf", "--binary-file"], Value, "give a text with -f"),
    harmless(&["--display-prompt"], Nothing, "the prompt is shown unless --no-display-prompt is there"),
    harmless(&["--verbose-prompt"], Nothing, "no log is written; rtokenize shows the tokens of a prompt"),
    harmless(&["-ptc", "--print-token-count"], Value, "tokens are counted at the end"),
    refused(&["-sp", "--special"], Nothing, "control tokens are not part of the text; --json lists all tokens"),
    refused(&["--prompt-cache"], Value, NO_PROMPT),
    refused(&["--prompt-cache-all", "--prompt-cache-ro"], Nothing, NO_PROMPT),
    refused(&["-r", "--reverse-prompt"], Value, NOT_INTERACTIVE),
    refused(&["-i", "--interactive", "-if", "--interactive-first", "-mli", "--multiline-input"], Nothing, NOT_INTERACTIVE),
    refused(&["--in-prefix", "--in-suffix"], Value, NOT_INTERACTIVE),
    refused(&["--in-prefix-bos"], Nothing, NOT_INTERACTIVE),
    refused(&["--spm-infill"], Nothing, "a text is continued at its end"),
    refused(&["--grammar", "--grammar-file"], Value, NO_GRAMMAR),
    refused(&["-j", "--json-schema", "-jf", "--json-schema-file"], Value, NO_GRAMMAR),
    // how tokens are sampled
    harmless(&["-s", "--seed"], Value, NO_DRAWS),
    harmless(&["--samplers", "--sampler-seq", "--sampling-seq"], Value, NO_DRAWS),
    harmless(&["--dry-sequence-breaker", "-l", "--logit-bias"], Value, NO_DRAWS),
    harmless(&["--ignore-eos"], Nothing, NO_DRAWS),
    // of earlier versions
    harmless_for(&["--tfs"], Value, "tail-free sampling is off", &["1", "1.0"], "llama.cpp has no tail-free sampling any more, nor has trine"),
    harmless(&["--no-penalize-nl"], Nothing, "line breaks are penalized like all tokens where penalties are on"),
    harmless(&["-nommq", "--no-mul-mat-q", "-mmq", "--mul-mat-q"], Nothing, NO_DEVICE),
    harmless(&["--low-vram", "--no-low-vram"], Nothing, NO_DEVICE),
    refused(&["--memory-f32"], Nothing, "say -ctk f32 -ctv f32"),
    refused(&["--lora-base"], Value, "adapters are added to the model that runs: --lora"),
    refused(&["-eps", "--eps", "--rms-norm-eps"], Value, FILES_OWN),
    refused(&["--mtest"], Nothing, "memory is taken when it is used"),
    refused(&["--random-prompt"], Nothing, "give a prompt with -p"),
    refused(&["-ins", "--instruct"], Nothing, "rgen chats with -cnv, by the model's own template"),
    refused(&["-cml", "--chatml"], Nothing, "rgen and rserve have --chat-template chatml"),
    refused(&["-gqa", "--gqa"], Value, "files in GGUF say it themselves"),
    // chats
    harmless(&["--jinja"], Nothing, "chat templates are Jinja templates"),
    refused(&["--no-jinja"], Nothing, "chat templates are rendered as they are; --chat-template NAME writes what llama.cpp's own templates write"),
    refused(&["--chat-template"], Value, "this tool does not chat; rgen and rserve do"),
    refused(&["--chat-template-kwargs"], Value, "this tool does not chat; rgen does, and requests to rserve say it"),
    harmless_for(&["--reasoning-format"], Value, "thoughts are shown as the model writes them", &["none", "auto"], "thoughts are shown as the model writes them"),
    harmless_for(&["-rea", "--reasoning"], Value, "the template decides about thoughts", &["auto"], "this tool does not chat; rgen does, and requests to rserve say it with chat_template_kwargs"),
    harmless_for(&["--reasoning-budget"], Value, "thoughts are not cut short", &["-1"], "thoughts are not cut short; --reasoning off of rgen asks for none, and /set n bounds a whole answer"),
    harmless(&["--reasoning-budget-message"], Value, "thoughts are not cut short"),
    harmless_for(&["--reasoning-effort"], Value, "templates have their own default", &["default"], "this tool does not chat; rgen does, and requests to rserve say it"),
    harmless(&["--reasoning-preserve", "--no-reasoning-preserve"], Nothing, "a chat keeps what the model wrote"),
    harmless(&["--skip-chat-parsing", "--no-skip-chat-parsing"], Nothing, "text is shown as the model writes it"),
    // the terminal
    harmless(&["-co", "--color"], Maybe, "text has no colours"),
    harmless(&["--simple-io"], Nothing, "lines are read as they come"),
    harmless(&["--warmup", "--no-warmup"], Nothing, "weights are read when the model is loaded"),
    harmless(&["--perf", "--no-perf", "--show-timings", "--no-show-timings"], Nothing, "speeds stand in the last line on standard error"),
    harmless(&["--log-disable", "--log-prefix", "--no-log-prefix", "--log-timestamps", "--no-log-timestamps"], Nothing, NOT_LOGGED),
    harmless(&["--log-colors"], Maybe, NOT_LOGGED),
    harmless(&["-v", "--verbose", "--log-verbose"], Nothing, NOT_LOGGED),
    harmless(&["-lv", "--verbosity", "--log-verbosity"], Value, NOT_LOGGED),
    harmless(&["--no-log-jsonl"], Nothing, NOT_LOGGED),
    refused(&["--log-jsonl"], Nothing, "no log is written; --json prints one object for the run"),
    refused(&["--log-prompts-dir"], Value, "no log is written"),
    refused(&["--log-file"], Value, "no log is written; redirect standard error: 2> FILE"),
    // programs that have more options of their own
    harmless(&["-np", "--parallel", "-ns", "--sequences"], Value, "one text is written"),
    harmless(&["-cb", "--cont-batching", "-nocb", "--no-cont-batching"], Nothing, "one text is written"),
    harmless_for(&["--ppl-stride"], Value, "chunks follow one another", &["0"], "chunks follow one another"),
    refused(&["--hellaswag", "--winogrande", "--multiple-choice"], Nothing, "rperplexity scores models"),
    refused(&["--hellaswag-tasks", "--winogrande-tasks", "--multiple-choice-tasks"], Value, "rperplexity scores models"),
    harmless_for(&["--ppl-output-type"], Value, "every chunk's value is shown", &["0"], "use --json"),
    refused(&["--host", "--port", "--path", "--api-key", "--api-prefix"], Value, SERVER),
    refused(&["--embedding", "--embeddings"], Nothing, "vectors of texts are not made by this tool"),
    refused(&["--rerank", "--reranking"], Nothing, "rserve answers /v1/rerank, and rgen --rerank FILE ranks lines"),
    refused(&["--split", "--merge", "--no-tensor-first-split"], Nothing, "rquantize splits files and merges them"),
    refused(&["--split-max-tensors", "--split-max-size"], Value, "rquantize splits files and merges them"),
    harmless(&["--max-buffer-size"], Value, "a few megabytes of a tensor are in memory at a time"),
    refused(&["--delete-splits"], Nothing, "files that are read are not touched; delete the set when the merged file is there"),
];
