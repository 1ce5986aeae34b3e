//! `--prompt-cache`: what was evaluated of a prompt, in a file for the next run.
//!
//! The file is trine's own (`src/generate/saved.rs` has its bytes): llama.cpp's has no room for what the numbers in it
//! stand on. Here the hashes of all files, the types of keys and values and whatever else decides bits are part of it,
//! and a file that was made otherwise is refused, so that a text never depends on whether there was one.

use std::borrow::BorrowMut;
use std::io::{BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use sha2::{Digest, Sha256};
use trine::{Context, Generation, Model};
use trine_formats::limited::open_regular;

use crate::load::ModelArgs;
use crate::outfile::OutFile;
use crate::provenance::{files, hash_file};
use crate::{text, version};

/// The options of the cache.
#[derive(Args)]
pub struct PromptCacheArgs {
    /// Keep what was evaluated of the prompt in FILE, and go on from there in later runs whose prompts begin alike.
    /// Without a prompt the one in the file is continued. No text and no logits depend on it
    #[arg(long, value_name = "FILE")]
    pub prompt_cache: Option<PathBuf>,

    /// Keep the generated text too, and in a chat the whole of it
    #[arg(
        long,
        requires = "prompt_cache",
        conflicts_with_all = ["prompt_cache_ro", "interactive", "interactive_first"]
    )]
    pub prompt_cache_all: bool,

    /// Go on from the file and leave it as it is
    #[arg(long, requires = "prompt_cache")]
    pub prompt_cache_ro: bool,
}

impl PromptCacheArgs {
    /// True if a file is to be used.
    pub(super) fn is_asked_for(&self) -> bool {
        self.prompt_cache.is_some()
    }
}

/// A cache in use.
pub struct PromptCache {
    path: PathBuf,
    /// Everything but its tokens that the bits in the file depend on.
    kind: String,
    /// True if generated text is kept.
    all: bool,
    read_only: bool,
    /// The tokens in the file.
    saved: Vec<u32>,
}

impl PromptCache {
    /// Reads the file that was asked for into `context`, if it is there.
    ///
    /// # Errors
    /// A file that is no such cache, was made with something else or is damaged; one that cannot be read or written.
    pub fn open(args: &PromptCacheArgs, model: &ModelArgs, context: &mut Context) -> Result<Option<PromptCache>> {
        let Some(path) = &args.prompt_cache else {
            return Ok(None);
        };
        context.is_saved().context(OPTION)?;
        if !args.prompt_cache_ro {
            OutFile::probe(path, OPTION)?;
        }
        let kind = kind(model, context.model(), context.bits())?;
        let mut cache = PromptCache {
            path: path.clone(),
            kind,
            all: args.prompt_cache_all,
            read_only: args.prompt_cache_ro,
            saved: Vec::new(),
        };
        cache.read(context)?;
        Ok(Some(cache))
    }

    fn read(&mut self, context: &mut Context) -> Result<()> {
        let shown = self.path.display();
        let file = match open_regular(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                note!("prompt cache: '{shown}' is not there yet");
                return Ok(());
            }
            Err(e) => return Err(e).with_context(|| format!("cannot read '{shown}'")),
        };
        if file.metadata().is_ok_and(|m| m.len() == 0) {
            note!("prompt cache: '{shown}' is empty");
            return Ok(());
        }
        let loaded = context.load(&self.kind, &mut BufReader::with_capacity(1 << 20, file));
        self.saved = loaded
            .with_context(|| format!("cannot go on from '{shown}' (remove it, or give {OPTION} another name)"))?;
        Ok(())
    }

    /// The tokens of the file, which a run without a prompt continues.
    pub fn saved(&self) -> &[u32] {
        &self.saved
    }

    /// Evaluates the prompt up to its last token and keeps that, unless the file has it.
    ///
    /// # Errors
    /// A token that the model does not have; a file that cannot be written.
    pub fn begin<C: BorrowMut<Context>>(&mut self, generation: &mut Generation<C>) -> Result<()> {
        let prompt = generation.prompt().to_vec();
        let pairs = self.saved.iter().zip(&prompt);
        let same = pairs.take_while(|(a, b)| a == b).count();
        let before = generation.context().stats().reused;
        let read = generation.read_beginning()?;
        let reused = generation.context().stats().reused - before;
        if !self.saved.is_empty() {
            note!("prompt cache: {reused} of {} tokens were evaluated before", prompt.len());
            let recurrent = generation.context().model().weights().is_recurrent();
            if recurrent && reused < same.min(prompt.len() - 1) {
                note!(
                    "prompt cache: this model has a recurrent state, which cannot be cut back to where the prompts part"
                );
            }
        }
        if read && !self.read_only && same < prompt.len() {
            self.write(generation.context(), &prompt)?;
        }
        Ok(())
    }

    /// Keeps the whole text, where that was asked for. `tokens` are those in the context and the last one behind them.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn end(&mut self, context: &Context, tokens: &[u32]) -> Result<()> {
        if !self.all || tokens.is_empty() {
            return Ok(());
        }
        if !tokens.starts_with(context.tokens()) {
            note!("prompt cache: the context was shifted, so the text is not kept");
            return Ok(());
        }
        self.write(context, tokens)?;
        note!("prompt cache: {} tokens are kept", tokens.len());
        Ok(())
    }

    fn write(&mut self, context: &Context, tokens: &[u32]) -> Result<()> {
        let failed = || format!("cannot write '{}'", self.path.display());
        let mut file = BufWriter::with_capacity(1 << 20, OutFile::create(&self.path, OPTION)?);
        context.save(&self.kind, tokens, &mut file).and_then(|()| file.flush()).with_context(failed)?;
        let file = file.into_inner().map_err(|e| e.into_error());
        file.and_then(OutFile::keep).with_context(failed)?;
        self.saved = tokens.to_vec();
        Ok(())
    }
}

const OPTION: &str = "--prompt-cache";

/// All that decides bits beside the tokens, a line for each. What a run has that another has not is told by the line.
///
/// # Errors
/// A file that cannot be read.
pub fn kind(args: &ModelArgs, model: &Model, bits: Option<u8>) -> Result<String> {
    let name = |ty: trine_formats::types::TypeId| ty.info().map_or("?", |t| t.name);
    let shards = files(model.file());
    let mut lines = vec![
        format!("trine {}", version::VERSION),
        format!("a model of SHA-256 {}", sums(&shards)?),
        format!("keys as {}", name(args.cache_type_k)),
        format!("values as {}", name(args.cache_type_v)),
    ];
    let adapters = &args.adapters;
    for (what, list) in [("adapter", &adapters.adapters), ("control vector", &adapters.control_vectors)] {
        let mut all = Vec::new();
        for (path, scale) in list {
            all.push(format!("{} times {scale}", sums(&[path])?));
        }
        lines.push(format!("{what}s: [{}]", all.join(", ")));
    }
    let (first, last) = adapters.blocks;
    lines.push(format!("control vectors behind blocks {first} to {last}"));
    lines.push(match bits {
        Some(bits) => format!("{bits} bits"),
        None => "the bits of the file".to_owned(),
    });
    lines.push(format!("the number path {:?}", args.number_path));
    lines.push(format!("the options {:?}", args.packing));
    lines.push(format!("the options {:?}", args.overrides));
    Ok(lines.join("\n"))
}

/// The SHA-256 of some files, one after the other.
fn sums(paths: &[impl AsRef<Path>]) -> Result<String> {
    let mut hash = Sha256::new();
    for path in paths {
        let path = path.as_ref();
        let read = hash_file(&mut hash, path);
        read.with_context(|| format!("cannot read '{}'", path.display()))?;
    }
    Ok(text::hex(&hash.finalize()))
}
