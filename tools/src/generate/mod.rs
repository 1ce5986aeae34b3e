//! `rgen`: text from a model.

pub mod args;
mod chat;
pub mod chat_args;
pub mod draft;
mod embed;
pub mod embed_args;
pub mod grammar;
mod interactive;
mod markdown;
mod output;
pub mod prompt_cache;
mod reading;
mod rerank;
mod reverse;
pub mod sampling;
mod summary;
mod thoughts;
mod timings;

use std::io::{IsTerminal, Write};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use trine::step::StepError;
use trine::{Context, ContextOptions, End, GenerateError, GenerateOptions, Model};

use crate::load::{load, load_for_texts};
use crate::provenance::Provenance;
use crate::{interrupt, shown, signals, text};
use args::Args;
use output::Output;
use prompt_cache::PromptCache;
use reverse::ReversePrompts;
use summary::{summary, widths};
use timings::Timings;

/// Runs the tool.
///
/// # Errors
/// Whatever the user or the model did wrong, in one line.
pub fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    // Before the model is loaded, so that mistakes are told at once.
    let prompt = if args.chats() { None } else { Some(read_prompt(args)?) };
    interrupt::listen();
    let loading = Instant::now();
    let model = match args.tokens {
        Some(_) => load(&args.loading())?,
        None => load_for_texts(&args.loading())?,
    };
    if let (Some(path), Some(Prompt::Text(query))) = (&args.rerank, &prompt) {
        return rerank::run(args, &model, query, path);
    }
    if let (true, Some(Prompt::Text(texts))) = (args.embed.embedding, &prompt) {
        return embed::run(args, &model, texts);
    }
    if !model.weights().makes_logits() {
        bail!("'{}': {}", args.model.model.display(), StepError::NoLogits);
    }
    if model.weights().encoder().is_some()
        && let Some(option) = args.beyond_one_prompt()
    {
        bail!(
            "{option}: the encoder of '{}' reads one prompt, behind which one text is written",
            args.model.model.display()
        );
    }
    let layouts = model.weights().layouts().to_string();
    let timings = Timings::new(start, loading.elapsed(), layouts);
    let n_ctx = context_size(args, &model);
    let mut context =
        model.context(&ContextOptions { n_ctx: Some(n_ctx), n_batch: args.batch_size, n_ubatch: args.ubatch_size });
    let options = args.options(&model, n_ctx)?;
    context.prepare(&options).map_err(|e| explain(args, e))?;
    if let Some(bits) = context.bits() {
        note!("{}", widths(&model, bits));
    }
    let cache = PromptCache::open(&args.cache, &args.model, &mut context)?;
    let prompt = match (prompt, &cache) {
        (None, _) => return chat::run(args, context, options, cache, &timings),
        (Some(Prompt::Text(text)), Some(cache)) if text.is_empty() && !cache.saved().is_empty() => {
            cache.saved().to_vec()
        }
        (Some(prompt), _) => tokens(prompt, &model)?,
    };
    match args.in_turns() {
        true => interactive::run(args, context, options, prompt, cache, &timings),
        false => complete(args, context, &options, prompt, cache, &timings),
    }
}

/// Names the option that asked for what cannot be.
fn explain(args: &Args, error: GenerateError) -> anyhow::Error {
    let option = match &error {
        GenerateError::Width(_) => format!("'{}'", args.model.model.display()),
        GenerateError::Drafts(_) if args.drafts.source.model_draft.is_some() => "--model-draft".to_owned(),
        GenerateError::Drafts(_) if args.drafts.source.spec_type.is_some() => "--spec-type".to_owned(),
        GenerateError::Drafts(_) => "--draft-bits".to_owned(),
        _ => return error.into(),
    };
    anyhow::Error::new(error).context(option)
}

/// How a text ended, as `--json` says it.
fn name(end: End) -> &'static str {
    match end {
        End::Eos => "eos",
        End::Length => "length",
        End::Context => "context",
        End::Cancelled => "interrupted",
        _ => "stop",
    }
}

/// The beginning of the text.
enum Prompt {
    Text(String),
    /// A list of token ids and where it came from.
    Tokens(String, String),
}

fn read_prompt(args: &Args) -> Result<Prompt> {
    if let Some(path) = &args.tokens {
        let from = format!("'{}'", path.display());
        return Ok(Prompt::Tokens(text::utf8(text::read_file(path)?, &from)?, from));
    }
    let (mut bytes, from) = match (&args.prompt, &args.file) {
        (Some(text), _) => (text.clone().into_bytes(), "the prompt".to_owned()),
        (None, Some(path)) => (text::read_file(path)?, format!("'{}'", path.display())),
        // As llama-completion has it, which then begins with BOS; standard input is for the turns.
        (None, None) if args.in_turns() || continues(args) => (Vec::new(), "the prompt".to_owned()),
        (None, None) if !std::io::stdin().is_terminal() => (text::read_stdin()?, "standard input".to_owned()),
        (None, None) => {
            bail!("there is no prompt: give one with -p TEXT, -f FILE or on standard input, or chat with -cnv")
        }
    };
    if args.prompt.is_none() && bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    let bytes = if args.no_escape { bytes } else { text::unescape(&bytes) };
    Ok(Prompt::Text(text::utf8(bytes, &from)?))
}

/// True if a user in a terminal gave no prompt but a file that has one.
fn continues(args: &Args) -> bool {
    let cache = args.cache.prompt_cache.as_ref();
    std::io::stdin().is_terminal() && cache.is_some_and(|path| path.exists())
}

fn tokens(prompt: Prompt, model: &Model) -> Result<Vec<u32>> {
    Ok(match prompt {
        Prompt::Tokens(list, from) => {
            let n_vocab = model.tokenizer().n_vocab();
            text::parse_tokens(&list, n_vocab).context(from)?
        }
        Prompt::Text(text) => model.tokenizer().encode(&text, true, true)?,
    })
}

/// The size of the context: -c, or the length the model was trained with.
fn context_size(args: &Args, model: &Model) -> usize {
    let trained = model.n_ctx_train();
    let n_ctx = if args.ctx_size == 0 { trained } else { args.ctx_size };
    if n_ctx > trained {
        note!("warning: the model was trained on a context of {trained} tokens, {n_ctx} are asked for");
    }
    n_ctx
}

/// Continues the prompt once.
fn complete(
    args: &Args,
    mut context: Context,
    options: &GenerateOptions,
    prompt: Vec<u32>,
    mut cache: Option<PromptCache>,
    timings: &Timings,
) -> Result<()> {
    let model = context.model().clone();
    let mut out = Output::new(args);
    if args.logits_sha256 {
        context.observe(Some(out.observer(interrupt::token())));
    }
    let options =
        &GenerateOptions { shift: args.shift(prompt.len(), &model).filter(|_| args.context_shift), ..options.clone() };
    let mut generation = context.generate(prompt, options)?;
    note!("sampler seed: {}", options.sampler.seed);
    let (source, prompt) = (generation.source().to_vec(), generation.prompt().to_vec());
    if let Some(cache) = &mut cache {
        cache.begin(&mut generation)?;
    }
    let mut reverse = ReversePrompts::new(&args.reverse_prompts(), model.tokenizer())?;
    let mut reached = false;
    reading::with_bar(&mut generation)?;
    if generation.read_prompt()? {
        out.prompt(model.tokenizer(), &prompt)?;
        prompt.iter().for_each(|&id| reverse.read(id));
        reached = reverse.reached(model.tokenizer());
    }
    let mut end = End::Cancelled;
    let mut shifts = 0;
    while !reached && let Some(chunk) = generation.next() {
        let chunk = chunk?;
        out.chunk(&chunk)?;
        end = chunk.end.unwrap_or(end);
        chunk.token.iter().for_each(|&id| reverse.read(id));
        reached = reverse.reached(model.tokenizer());
        let now = generation.context().stats().shifts;
        if now > shifts {
            shifts = now;
            note!("(context full: what came first is forgotten, the rest was read again)");
        }
    }
    drop(generation);
    let done = out.finish()?;
    if let Some(cache) = cache.as_mut().filter(|_| end != End::Cancelled || reached) {
        cache.end(&context, &[&prompt[..], &done.tokens].concat())?;
    }
    if args.json {
        let mut report = json!({
            "model": args.model.model.display().to_string(),
            "seed": options.sampler.seed,
            "n_ctx": context.n_ctx(),
            "prompt": done.prompt,
            "prompt_tokens": prompt,
            "text": done.text,
            "tokens": done.tokens,
            "stop": if reached { "reverse" } else { name(end) },
            "timings": timings.to_json(context.stats()),
        });
        if !source.is_empty() {
            report["source_tokens"] = source.into();
        }
        if let Some(bits) = context.bits() {
            report["bits"] = bits.into();
        }
        if let Some((options, speculator)) = context.drafts() {
            report["draft"] = draft::to_json(options, speculator);
        }
        if args.logits_sha256 {
            report["logits_sha256"] = done.proofs.into();
        }
        let report = Provenance::of_run("rgen.text/1", &model)?.before(report);
        let mut stdout = signals::stdout();
        writeln!(stdout, "{}", shown::json(&report, false))?;
        stdout.flush()?;
    }
    summary(&context, timings);
    if end == End::Cancelled && !reached {
        note!("interrupted");
        std::process::exit(interrupt::EXIT_CODE);
    }
    if end == End::Context {
        note!("the context of {} tokens is full", context.n_ctx());
    }
    Ok(())
}
