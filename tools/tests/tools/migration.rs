//! `docs/migration.md`: what becomes of llama.cpp's options, made from the table that the tools read.

use std::fmt::Write as _;

use trine_tools::args::{Fate, Foreign, OF_PROGRAMS, Takes, has, table};
use trine_tools::commands::{Tool, all};

const HEAD: &str = "\
# From llama.cpp

| llama.cpp | trine |
|---|---|
| `llama-cli`, `llama-completion` | `rgen`; `-cnv` chats |
| `llama-server` | `rserve` |
| `llama-quantize` | `rquantize` |
| `llama-gguf-split` | `rquantize --split-max-size`, `--split`, `--merge` |
| `llama-perplexity` | `rperplexity` |
| `llama-imatrix` | `rimatrix` |
| `llama-bench` | `rbench` |
| `llama-batched-bench` | `rbench --batched` |
| `llama-tokenize` | `rtokenize` |
| `llama-embedding` | `rgen --embedding`; `rserve`, with `/v1/embeddings` |
| `convert_hf_to_gguf.py` | `rconvert` |
| `gguf-dump` | `rinspect` |
| bitnet.cpp's `setup_env.py` and `run_inference.py` | `rconvert` and `rquantize`, then `rgen` |
| `llama-mtmd-cli`, `llama-tts`, `llama-export-lora`, `llama-cvector-generator`, `rpc-server` | none |

Options have llama.cpp's names, long and short, with `-` or `_` between words, and mean what they mean there. An
option that trine does not need is accepted, and a line on standard error says why. An option that trine cannot honour
is refused, and the line says what to do instead. None is ignored in silence, and none is read as another one.

## What differs

- Texts, logits and files have the bits of llama.cpp built for plain x86-64, which other builds of llama.cpp do not
  have: [Determinism](determinism.md).
- A chat starts with `-cnv`, `-sys`, `-st` or a template option, and in a terminal without a prompt. A prompt alone is
  continued, also by a model with a chat template.
- `-hf` and `-mu` fetch into the hub's own cache, which llama.cpp shares: [Models by name](models-by-name.md). Without them no tool
  opens a connection.
- `rquantize` stops with a list where a tensor's rows do not fit the type. `--fallback` takes llama.cpp's silent
  choice. K-quants take it without being asked, and say so.
- TQ1_0 and TQ2_0 of weights that are not ternary need `--force`, after the loss was shown.
- An unknown pre-tokenizer is an error, not a warning.

The options of `rserve` stand in [rserve](server.md). The tables below are made from the tools themselves
(`tools/src/args/llama_cpp.rs`; `TRINE_WRITE_DOCS=1 cargo test --release --workspace --test tools migration`). The
second column names the tools that have an option with llama.cpp's meaning; the third is for the others.

";

const OF_PROGRAMS_HEAD: &str = "
## Options of single programs

| option | tool | whose | what becomes of it |
|---|---|---|---|
";

fn names(option: &Foreign) -> String {
    let value = match option.takes {
        Takes::Nothing => "",
        Takes::Value => " X",
        Takes::Two => " X Y",
        Takes::Maybe => " [X]",
    };
    let names = option.names.iter().map(|name| format!("`{name}{value}`"));
    names.collect::<Vec<_>>().join(", ")
}

/// The tools that have an option of their own by some of the names, and those names where they are not all.
fn owners(option: &Foreign, tools: &[Tool]) -> String {
    let owner = |tool: &Tool| {
        let mut names = option.names.iter().copied();
        let own: Vec<&str> = names.by_ref().filter(|name| has(&tool.command(), tool.short, name)).collect();
        let tool = tool.name;
        match own.len() {
            0 => None,
            n if n == option.names.len() => Some(tool.to_owned()),
            _ => Some(format!("{tool} (`{}`)", own.join("`, `"))),
        }
    };
    tools.iter().filter_map(owner).collect::<Vec<_>>().join(", ")
}

fn page() -> String {
    let tools = all();
    let mut page = HEAD.to_owned();
    page += "## Accepted, because they change nothing\n\n| option | tools that have it | why it changes nothing in the others |\n|---|---|---|\n";
    for option in table() {
        match option.fate {
            Fate::Harmless(why) => {
                let _ = writeln!(page, "| {} | {} | {why} |", names(option), owners(option, &tools));
            }
            Fate::HarmlessFor(why, values, _) => {
                let values = values.join("`, `");
                let _ = writeln!(page, "| {}: `{values}` | {} | {why} |", names(option), owners(option, &tools));
            }
            _ => {}
        }
    }
    page +=
        "\n## Refused\n\n| option | tools that have it | why the others refuse it, and what instead |\n|---|---|---|\n";
    for option in table() {
        match option.fate {
            Fate::Refused(why) => {
                let _ = writeln!(page, "| {} | {} | {why} |", names(option), owners(option, &tools));
            }
            Fate::HarmlessFor(_, _, why) => {
                let _ = writeln!(page, "| {}: other values | {} | {why} |", names(option), owners(option, &tools));
            }
            _ => {}
        }
    }
    page += OF_PROGRAMS_HEAD;
    for (tool, programs, options) in OF_PROGRAMS {
        for option in *options {
            let becomes = match option.fate {
                Fate::Harmless(why) => format!("accepted: {why}"),
                Fate::HarmlessFor(why, values, otherwise) => {
                    format!("accepted with `{}`: {why}; otherwise refused: {otherwise}", values.join("`, `"))
                }
                Fate::Refused(why) => format!("refused: {why}"),
            };
            let _ = writeln!(page, "| {} | {tool} | {programs} | {becomes} |", names(option));
        }
    }
    page
}

#[test]
fn every_option_is_either_had_or_judged_by_its_own_name() {
    let mut seen = std::collections::HashSet::new();
    for option in table() {
        for name in option.names {
            assert!(seen.insert(name), "{name} stands twice in the table");
            assert!(name.starts_with('-') && !name.contains('_'), "{name}");
        }
    }
    // What a pasted line of llama-perplexity, llama-gguf-split and llama-completion has is had by the right tool.
    let tools = all();
    let of = |name: &str| {
        let tool = tools.iter().find(|t| t.name == name);
        tool.expect("a tool of this name")
    };
    for (tool, names) in [
        ("rperplexity", &["--hellaswag", "--winogrande-tasks", "-bf", "-np", "-ub"][..]),
        ("rquantize", &["--split-max-size", "--merge", "--override-kv"]),
        ("rgen", &["--grammar", "-j", "--override-kv", "--samplers", "--lora", "-ctk"]),
        ("rperplexity", &["-ctv", "--lora-scaled", "--control-vector"]),
    ] {
        for name in names {
            assert!(has(&of(tool).command(), of(tool).short, name), "{tool} {name}");
        }
    }
    assert!(!has(&of("rgen").command(), of("rgen").short, "--hellaswag"));
}

#[test]
fn docs_are_made_from_the_table() {
    trine_testkit::is_written("docs/migration.md", &page());
}
