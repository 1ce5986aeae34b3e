//! `rgen`: text from a model.

pub mod args;
mod chat;
mod draft;
mod engine;
mod output;
mod timings;

use std::io::{IsTerminal, Write};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::load::{Loaded, load};
use crate::{interrupt, text};
use args::Args;
use engine::{Engine, Stop};
use output::Output;

/// Runs the tool.
///
/// # Errors
/// Whatever the user or the model did wrong, in one line.
pub fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    args.check()?;
    // Before the model is loaded, so that mistakes are told at once.
    let prompt = if args.conversation {
        None
    } else {
        Some(read_prompt(args)?)
    };
    interrupt::listen()?;
    let loaded = load(&args.model)?;
    let n_ctx = context_size(args, &loaded);
    let seed = args.seed();
    let mut engine = Engine::new(args, &loaded, n_ctx, seed, start)?;
    if let Some(bits) = engine.bits() {
        note!("{}", widths(&loaded, bits));
    }
    let Some(prompt) = prompt else {
        return chat::run(args, &loaded, &mut engine);
    };
    let prompt_tokens = tokens(&prompt, &loaded)?;
    complete(args, &loaded, &mut engine, &prompt_tokens)
}

/// What the text begins with.
enum Prompt {
    Text(String),
    /// A list of token ids and where it came from.
    Tokens(String, String),
}

fn read_prompt(args: &Args) -> Result<Prompt> {
    if let Some(path) = &args.tokens {
        let from = format!("'{}'", path.display());
        return Ok(Prompt::Tokens(
            text::utf8(text::read_file(path)?, &from)?,
            from,
        ));
    }
    let (mut bytes, from) = match (&args.prompt, &args.file) {
        (Some(text), _) => (text.clone().into_bytes(), "the prompt".to_owned()),
        (None, Some(path)) => (text::read_file(path)?, format!("'{}'", path.display())),
        (None, None) if !std::io::stdin().is_terminal() => {
            (text::read_stdin()?, "standard input".to_owned())
        }
        (None, None) => bail!(
            "there is no prompt: give one with -p TEXT, -f FILE or on standard input, or chat with -cnv"
        ),
    };
    if args.prompt.is_none() && bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    let bytes = if args.no_escape {
        bytes
    } else {
        text::unescape(&bytes)
    };
    Ok(Prompt::Text(text::utf8(bytes, &from)?))
}

fn tokens(prompt: &Prompt, loaded: &Loaded) -> Result<Vec<u32>> {
    match prompt {
        Prompt::Tokens(list, from) => {
            text::parse_tokens(list, loaded.model.n_vocab()).with_context(|| from.clone())
        }
        Prompt::Text(text) => {
            let ids = loaded.tokenizer.encode(text, true, true)?;
            if ids.is_empty() {
                bail!("the prompt is empty, and this model has no BOS token to start from");
            }
            Ok(ids)
        }
    }
}

/// The size of the context: -c, or the length the model was trained with.
fn context_size(args: &Args, loaded: &Loaded) -> usize {
    let trained = loaded.model.config().n_ctx_train;
    let n_ctx = if args.ctx_size == 0 {
        trained
    } else {
        args.ctx_size
    };
    if n_ctx > trained {
        note!(
            "warning: the model was trained on a context of {trained} tokens, {n_ctx} are asked for"
        );
    }
    n_ctx
}

/// At which width an any-precision model runs, and at which it could.
fn widths(loaded: &Loaded, bits: u8) -> String {
    let list = |widths: &[u8]| {
        let widths: Vec<String> = widths.iter().map(u8::to_string).collect();
        widths.join(", ")
    };
    let there = loaded.model.widths();
    let mut text = format!("any-precision: {bits} bits, of {}", list(there));
    if let Some(anyprec) = loaded.model.any_precision().filter(|a| !a.is_whole()) {
        let made = list(&anyprec.header().bits);
        text += &format!("; the file ends early, it was made for {made}");
    }
    text
}

/// Continues the prompt once.
fn complete(args: &Args, loaded: &Loaded, engine: &mut Engine, prompt: &[u32]) -> Result<()> {
    engine.check_room(prompt.len(), args.predict != 0)?;
    note!("sampler seed: {}", engine.seed());
    let mut out = Output::new(args, &loaded.tokenizer);
    let mut stop = engine.prompt(prompt, &mut out)?;
    if stop.is_none() {
        out.prompt(prompt)?;
        stop = Some(engine.generate(args.predict, &mut out)?);
    }
    let stop = stop.unwrap_or(Stop::Interrupted);
    let done = out.finish()?;
    if args.json {
        let mut report = json!({
            "model": args.model.model.display().to_string(),
            "seed": engine.seed(),
            "n_ctx": engine.n_ctx(),
            "prompt": done.prompt,
            "prompt_tokens": prompt,
            "text": done.text,
            "tokens": done.tokens,
            "stop": stop.name(),
            "timings": engine.timings.to_json(),
        });
        if let Some(bits) = engine.bits() {
            report["bits"] = bits.into();
        }
        if let Some(speculator) = engine.speculator() {
            report["draft"] = draft::to_json(speculator, args.draft);
        }
        if args.logits_sha256 {
            report["logits_sha256"] = done.proofs.into();
        }
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{report}")?;
        stdout.flush()?;
    }
    engine.timings.print();
    if let Some(speculator) = engine.speculator() {
        draft::print(speculator);
    }
    if stop == Stop::Interrupted {
        note!("interrupted");
        std::process::exit(interrupt::EXIT_CODE);
    }
    if stop == Stop::Context {
        note!("the context of {} tokens is full", engine.n_ctx());
    }
    Ok(())
}
