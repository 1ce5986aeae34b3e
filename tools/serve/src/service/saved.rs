//! Texts of places in files, from which this server or another one goes on later; `rgen --prompt-cache` reads them too.

use std::fs;
use std::io::{self, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};
use trine::formats::limited::open_regular;
use trine::step::{Room, SavedError, Setting, read_saved, write_saved};
use trine_tools::generate::prompt_cache::kind;
use trine_tools::load::ModelArgs;
use trine_tools::outfile::OutFile;
use trine_tools::text::hex;

use crate::engine::{Handle, SlotText};
use crate::error::ApiError;

const OPTION: &str = "--slot-save-path";
/// Longest name of a file in bytes.
const LONGEST: usize = 255;

/// Where texts of places are kept.
pub struct SavedSlots {
    folder: PathBuf,
    /// The model, for what the bits in a file depend on.
    model: ModelArgs,
}

/// A place, and whose prompts are shared with it.
pub struct Place<'a> {
    /// Its number.
    pub slot: usize,
    /// See [`crate::engine::Request::cache`].
    pub salt: &'a str,
    /// How the weights are read for the text.
    pub setting: Setting,
}

/// A file that was written or read.
pub struct Moved {
    /// Tokens.
    pub tokens: usize,
    /// Bytes of the file.
    pub bytes: u64,
    /// Time that it took.
    pub time: Duration,
}

impl SavedSlots {
    /// In a folder, of the model that `model` names.
    ///
    /// # Errors
    /// It is no folder.
    pub fn new(folder: &Path, model: &ModelArgs) -> Result<SavedSlots> {
        if !folder.is_dir() {
            bail!("{OPTION}: '{}' is no folder", folder.display());
        }
        Ok(SavedSlots { folder: folder.to_owned(), model: model.clone() })
    }

    /// The path of a file of those who share prompts with `place`. Others have files of their own, in another folder: whoever
    /// could read one could ask what the text was.
    ///
    /// # Errors
    /// A name that leads elsewhere, or that some system does not have.
    fn path(&self, place: &Place<'_>, name: &str) -> Result<PathBuf, ApiError> {
        let odd = |c: char| c.is_control() || "/\\:*?\"<>|".contains(c);
        if name.is_empty()
            || name.len() > LONGEST
            || name.starts_with('.')
            || name.ends_with(['.', ' '])
            || name.contains(odd)
        {
            return Err(ApiError::field("filename", "Invalid filename: give a name without a folder"));
        }
        match place.salt.trim_matches('\0') {
            "" => Ok(self.folder.join(name)),
            _ => Ok(self.folder.join(format!("of-{}", hex(&Sha256::digest(place.salt)[..16]))).join(name)),
        }
    }

    /// All that the bits of a text with this setting depend on beside its tokens.
    fn kind(&self, engine: &Handle, setting: &Setting) -> Result<String, ApiError> {
        let mut model = self.model.clone();
        if let Some(scales) = &setting.adapters {
            let named = model.adapters.adapters.iter_mut();
            named.zip(scales.iter()).for_each(|((_, scale), asked)| *scale = *asked);
        }
        let kind = kind(&model, engine.model(), setting.width()).map_err(|e| ApiError::server(format!("{e:#}")))?;
        Ok(format!("{kind}\n{}", engine.form()))
    }

    /// Writes the text that a place had last into the file `name`.
    ///
    /// # Errors
    /// There is none; the name is none; it cannot be written.
    pub fn save(&self, engine: &Handle, place: &Place<'_>, name: &str) -> Result<Moved, ApiError> {
        let begun = Instant::now();
        let path = self.path(place, name)?;
        let Some(SlotText { setting, tokens, sequence }) = engine.slot_text(place.slot, place.salt) else {
            return Err(ApiError::invalid(format!(
                "slot {} holds no text that is still in the cache: nothing was saved",
                place.slot
            )));
        };
        let kind = self.kind(engine, &setting)?;
        let write = || -> Result<u64> {
            let folder = path.parent().filter(|folder| *folder != self.folder);
            folder.map_or(Ok(()), fs::create_dir_all)?;
            let mut file = BufWriter::with_capacity(1 << 20, OutFile::create(&path, OPTION)?);
            write_saved(&kind, &tokens, &sequence, &mut file)?;
            file.flush()?;
            let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            let bytes = fs::metadata(file.unfinished())?.len();
            file.keep()?;
            Ok(bytes)
        };
        let bytes = write().map_err(|e| ApiError::server(format!("cannot write '{name}': {e:#}")))?;
        Ok(Moved { tokens: tokens.len(), bytes, time: begun.elapsed() })
    }

    /// Gives a place the text of the file `name`.
    ///
    /// # Errors
    /// There is no such file; it was made with something else, or is damaged; there is no room for it.
    pub fn restore(&self, engine: &Handle, place: &Place<'_>, name: &str) -> Result<Moved, ApiError> {
        let begun = Instant::now();
        let path = self.path(place, name)?;
        let failed =
            |why: &dyn std::fmt::Display| ApiError::invalid(format!("Unable to restore slot from '{name}': {why}"));
        let file = open_regular(&path).map_err(|e| failed(&e))?;
        let bytes = file.metadata().map_err(|e| failed(&e))?.len();
        let room = Room {
            kind: &self.kind(engine, &place.setting)?,
            n_ctx: engine.options().n_ctx(),
            n_vocab: engine.model().tokenizer().n_vocab(),
            pages: engine.pages(),
        };
        let mut file = BufReader::with_capacity(1 << 20, file);
        let read = read_saved(&room, &mut |pages| engine.make_room(pages), &mut file);
        let (mut tokens, sequence) = read.map_err(|e| match e {
            SavedError::Io(e) if e.kind() == ErrorKind::OutOfMemory => ApiError::unavailable(e.to_string(), 1),
            e => failed(&e),
        })?;
        tokens.truncate(sequence.len());
        let moved = Moved { tokens: tokens.len(), bytes, time: begun.elapsed() };
        let text = SlotText { setting: place.setting.clone(), tokens, sequence };
        match engine.set_slot_text(place.slot, place.salt, text) {
            true => Ok(moved),
            false => Err(ApiError::unavailable("the server ends", 1)),
        }
    }
}
