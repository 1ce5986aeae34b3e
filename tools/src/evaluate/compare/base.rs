//! The reference's log-probabilities: where they are, and how they get there.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IntoInnerError, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use trine::eval::base_file::{self, BaseReader, BaseWriter};
use trine::eval::kld::{self, Uncertain};
use trine::eval::perplexity::perplexity;
use trine::eval::{Chunks, EvalError};

use super::super::args::Args;
use super::super::{OPTION, first_difference, go_on, open_base};
use super::PLOT;
use super::speed::Timed;
use super::subject::Vocabulary;
use crate::outfile::OutFile;
use crate::progress::{Steps, human_bytes};

/// The text in chunks and the place of the base file.
pub struct Plan {
    /// The chunks to evaluate.
    pub chunks: Chunks,
    target: Target,
    n_vocab: usize,
    bos: Option<u32>,
}

enum Target {
    /// A file that is there and fits.
    There(PathBuf, File),
    /// A file to be written, and whether it stays.
    New { out: OutFile, stays: bool },
}

impl Plan {
    /// Cuts the text and decides where the base file is.
    ///
    /// # Errors
    /// A text that is too short, a file that does not fit it, a folder that cannot be written.
    pub fn new(args: &Args, vocabulary: &Vocabulary) -> Result<Plan> {
        let named = args.kl_divergence_base.as_deref();
        let n_vocab = vocabulary.tokenizer.n_vocab();
        let bos = vocabulary.tokenizer.text_bos();
        let cut = |n_ctx| Chunks::new(vocabulary.tokens.clone(), n_ctx, bos, args.chunks);
        let there = named.filter(|p| p.exists());
        let (chunks, target) = match there {
            Some(path) => {
                let unfit = || {
                    let shown = path.display();
                    format!(
                        "'{shown}' is not the base file of this comparison; remove it or give another name to --kl-divergence-base"
                    )
                };
                if !path.is_file() {
                    bail!("'{}' is not a regular file; it is written and read", path.display());
                }
                let (input, length) = open_base(path)?;
                let file = input.get_ref().try_clone().with_context(unfit)?;
                let base = BaseReader::new(input, length, n_vocab, bos, None).with_context(unfit)?;
                let chunks = cut(args.ctx_size.unwrap_or(base.chunks().n_ctx()))?;
                fits(base.chunks(), &chunks).with_context(unfit)?;
                (chunks, Target::There(path.to_owned(), file))
            }
            None => {
                let chunks = cut(args.ctx_size.unwrap_or(512))?;
                let out = match (named, &args.plot) {
                    (Some(path), _) => OutFile::create(path, OPTION)?,
                    (None, Some(plot)) => {
                        let mut beside = plot.clone().into_os_string();
                        beside.push(".kld");
                        OutFile::create(Path::new(&beside), PLOT)?
                    }
                    (None, None) => OutFile::create(&std::env::temp_dir().join("rperplexity.kld"), OPTION)?,
                };
                let stays = named.is_some();
                (chunks, Target::New { out, stays })
            }
        };
        Ok(Plan { chunks, target, n_vocab, bos })
    }

    /// The message before the work begins.
    pub fn describe(&self) -> String {
        let bytes = base_file::size(&self.chunks, self.n_vocab);
        let size = human_bytes(u64::try_from(bytes).unwrap_or(u64::MAX));
        match &self.target {
            Target::There(path, _) => {
                format!("the reference's log-probabilities are read from '{}'", path.display())
            }
            Target::New { out, stays: true } => {
                format!("the reference's log-probabilities take {size} of disk, in '{}'", out.path().display())
            }
            Target::New { out, .. } => format!(
                "the reference's log-probabilities take {size} of disk until the end, in '{}'; --kl-divergence-base FILE keeps them",
                out.unfinished().display()
            ),
        }
    }

    /// Evaluates the reference, all of it where its log-probabilities have to be written, else a few chunks to see that
    /// it is the model that the file is from.
    ///
    /// # Errors
    /// Non-finite logits, a file that cannot be written or is another model's, Ctrl-C.
    pub fn evaluate(self, reference: &mut Timed) -> Result<Base> {
        let base = |path: &Path, file, temporary| Base {
            path: path.to_owned(),
            file,
            _temporary: temporary,
            count: self.chunks.count(),
            n_vocab: self.n_vocab,
            bos: self.bos,
        };
        match self.target {
            Target::There(path, file) => {
                let base = base(&path, file, None);
                base.check(reference)?;
                Ok(base)
            }
            Target::New { out, stays } => {
                let named = out.path().to_owned();
                let in_file = || format!("cannot write '{}'", named.display());
                let out = write(out, reference, &self.chunks, self.n_vocab).map_err(|e| match e {
                    EvalError::Write(e) => anyhow::Error::new(e).context(in_file()),
                    e => e.into(),
                })?;
                let file = File::open(out.unfinished()).with_context(in_file)?;
                if !stays {
                    let path = out.unfinished().to_owned();
                    return Ok(base(&path, file, Some(out)));
                }
                out.keep().with_context(in_file)?;
                note!("log-probabilities saved to '{}'", named.display());
                Ok(base(&named, file, None))
            }
        }
    }
}

/// Fails unless the file's chunks begin with `wanted`.
fn fits(there: &Chunks, wanted: &Chunks) -> Result<()> {
    if there.n_ctx() != wanted.n_ctx() {
        bail!("it was made with a context of {}, not {}", there.n_ctx(), wanted.n_ctx());
    }
    if let Some(at) =
        first_difference(&there.tokens()[..there.tokens().len().min(wanted.tokens().len())], wanted.tokens())
    {
        bail!("it was made from another text or tokenizer: token {at} differs");
    }
    if there.count() < wanted.count() {
        bail!("it has {} chunks, the comparison {}: --chunks {0} would fit", there.count(), wanted.count());
    }
    Ok(())
}

fn write(out: OutFile, reference: &mut Timed, chunks: &Chunks, n_vocab: usize) -> Result<OutFile, EvalError> {
    let buffered = BufWriter::with_capacity(1 << 20, out);
    let mut writer = BaseWriter::new(buffered, chunks, n_vocab).map_err(EvalError::Write)?;
    let mut progress = Steps::new("chunk", chunks.count());
    let result = perplexity(reference, chunks, Some(&mut writer), &mut |done, _| {
        progress.tick(done);
        go_on()
    });
    progress.finish();
    result?;
    let finish = || -> io::Result<OutFile> {
        let buffered = writer.finish()?;
        buffered.into_inner().map_err(IntoInnerError::into_error)
    };
    finish().map_err(EvalError::Write)
}

/// The reference's log-probabilities; dropped, it removes a temporary file.
pub struct Base {
    path: PathBuf,
    /// Opened once: whatever takes its name meanwhile, all passes read the same file.
    file: File,
    _temporary: Option<OutFile>,
    count: usize,
    n_vocab: usize,
    bos: Option<u32>,
}

/// Chunks that a reference is evaluated on to see whether the file is its own.
const CHECKED: usize = 3;

/// Nats that the reference may differ from the file's model by, on average. Rounding to 16 bits makes 1e-6; the other
/// sums of another program may make more than [`SAME_BITS`], and so does quantizing; [`SAME_MODEL`] is another model.
const SAME_BITS: f64 = 1e-5;
const SAME_MODEL: f64 = 1e-3;

impl Base {
    /// The chunks from the first on, at most `limit` of them.
    ///
    /// # Errors
    /// It cannot be opened or is no longer what it was.
    pub fn open(&self, limit: usize) -> Result<BaseReader<BufReader<File>>> {
        let again = || -> io::Result<(BufReader<File>, u64)> {
            let mut file = self.file.try_clone()?;
            file.seek(SeekFrom::Start(0))?;
            let length = file.metadata()?.len();
            Ok((BufReader::with_capacity(1 << 20, file), length))
        };
        let (input, length) = again().with_context(|| format!("'{}'", self.path.display()))?;
        let limit = Some(self.count.min(limit));
        BaseReader::new(input, length, self.n_vocab, self.bos, limit)
            .with_context(|| format!("'{}'", self.path.display()))
    }

    /// All chunks.
    ///
    /// # Errors
    /// As of [`Base::open`].
    pub fn whole(&self) -> Result<BaseReader<BufReader<File>>> {
        self.open(self.count)
    }

    /// ln of the reference's perplexity.
    ///
    /// # Errors
    /// It cannot be read; Ctrl-C.
    pub fn log_ppl(&self) -> Result<Uncertain> {
        let value = kld::log_ppl_base(&mut self.whole()?, &mut |_, _| go_on());
        value.map_err(|e| self.unreadable(e))
    }

    /// An error of the evaluation, with the file's name where it is about the file.
    pub fn unreadable(&self, e: EvalError) -> anyhow::Error {
        match e {
            e @ EvalError::Base(_) => anyhow!(e).context(format!("'{}'", self.path.display())),
            e => e.into(),
        }
    }

    fn check(&self, reference: &mut Timed) -> Result<()> {
        let mut some = self.open(CHECKED)?;
        let found = kld::divergence(reference, &mut some, &mut |_, _| go_on());
        let kld = found.map_err(|e| self.unreadable(e))?.kld().value;
        let shown = self.path.display();
        if kld > SAME_MODEL {
            bail!(
                "'{shown}' was made from another model than the reference -m: they differ by {kld:.6} nats; remove it or give another name to --kl-divergence-base"
            );
        }
        if kld > SAME_BITS {
            note!(
                "warning: '{shown}' was made by another program or from another quantization than the reference -m: they differ by {kld:.6} nats"
            );
        }
        Ok(())
    }
}
