//! From a path to a model.
//!
//! [`open`] and [`open_with`] load a model so that it can run; [`open_file`] reads only its header and maps its bytes,
//! for programs that look at a file or rewrite it. All three find the other shards of a split model by themselves.

mod bytes;
mod error;
mod file;
mod guess;
mod threads;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trine_formats::gguf::{ModelFile, PackingOptions};

use crate::exec::Offload;
use crate::handle::Model;
use crate::kernels::Isa;
use crate::kv::CacheTypes;
use crate::model::{Adapter, Control, DrafterFile, LoadOptions, NumberPath, Weights};
use crate::pool::Pool;
use crate::tokenizer::Tokenizer;

pub use bytes::open_bytes;
pub use error::OpenError;
pub use file::{file_in_memory, open_file};
pub use threads::usable_threads;

/// Options for opening a model. The results are bit-identical under all of them but `number_path`, `adapters`, control
/// vectors, `cache`, and `packing` where a file leaves the meaning of its bytes open.
///
/// ```
/// use trine::OpenOptions;
///
/// let options = OpenOptions {
///     threads: Some(2),
///     mmap: false,
///     ..OpenOptions::default()
/// };
/// let model = trine::open_with("testdata/models/trilm-wt-5.8m-F16.gguf", &options)?;
/// assert_eq!(model.n_ctx_train(), 512);
/// # Ok::<(), trine::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Map the file instead of reading it into memory: starts at once and shares the pages with other processes. The
    /// file must not be cut short while the model is in use.
    pub mmap: bool,
    /// Threads of a forward pass; `None`: one per physical core, and never more than the process may use.
    pub threads: Option<usize>,
    /// Instruction set of the kernels; `None`: what the environment variable `TRINE_ISA` names, or the best there is.
    pub isa: Option<Isa>,
    /// Copy the weights into layouts that the kernels read faster. Without it they are used where the file's bytes
    /// are: slower, but ready sooner.
    pub repack: bool,
    /// How products with any-precision weights are computed, which decides their bits.
    pub number_path: NumberPath,
    /// Properties of I2_S, TL1 and TL2 tensors that files do not state.
    pub packing: PackingOptions,
    /// Files of low-rank weights (LoRA) in GGUF that are added to the model's, each with a factor, in the order in
    /// which they are named. They decide the bits of the result.
    pub adapters: Vec<(PathBuf, f32)>,
    /// Files of control vectors in GGUF, each with a factor: directions that are added to the residual stream. They
    /// decide the bits of the result.
    pub control_vectors: Vec<(PathBuf, f32)>,
    /// The first and the last block behind which directions are added; a number that is not positive: the first or last
    /// there is.
    pub control_blocks: (i32, i32),
    /// Load the head for multi-token prediction that a model has, for drafts by it
    /// ([`DraftSource::Mtp`](crate::DraftSource::Mtp)). It changes no result.
    pub mtp: bool,
    /// A file with a model that drafts for this one from states of its blocks or from its keys, for drafts by it
    /// ([`DraftSource::Eagle3`](crate::DraftSource::Eagle3), [`DraftSource::Dflash`](crate::DraftSource::Dflash),
    /// [`DraftSource::Mtp`](crate::DraftSource::Mtp)). It changes no result.
    pub drafter: Option<PathBuf>,
    /// The types of keys and values. They decide the bits of the result.
    pub cache: CacheTypes,
    /// The GPU that runs the last layers. The results are bit-identical.
    pub offload: Option<Offload>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            mmap: true,
            threads: None,
            isa: None,
            repack: true,
            number_path: NumberPath::default(),
            packing: PackingOptions::default(),
            adapters: Vec::new(),
            control_vectors: Vec::new(),
            control_blocks: (0, 0),
            mtp: false,
            drafter: None,
            cache: CacheTypes::default(),
            offload: None,
        }
    }
}

/// Opens and loads the model that `path` names, a GGUF file or any shard of a split one, with the default options.
///
/// # Errors
/// One line that names the path and says what is wrong and, where there is something, what to do about it.
pub fn open(path: impl AsRef<Path>) -> Result<Model, OpenError> {
    open_with(path, &OpenOptions::default())
}

/// Opens and loads the model that `path` names in the way that `options` say.
///
/// # Errors
/// As [`open`].
pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Model, OpenError> {
    // first, because it is cheap and has nothing to do with the file
    let isa = options.isa.map_or_else(Isa::from_env, Ok)?;
    let file = open_file(path, options.mmap)?;
    load(file, &OpenOptions { isa: Some(isa), ..options.clone() })
}

/// Loads a model whose file is open already; [`OpenOptions::mmap`] is for adapters alone here.
///
/// # Errors
/// As [`open`].
pub fn load(file: ModelFile, options: &OpenOptions) -> Result<Model, OpenError> {
    let isa = options.isa.map_or_else(Isa::from_env, Ok)?;
    let path = file.shards()[0].path.clone();
    let threads = usable_threads(options.threads);
    let adapter = |(path, scale): &(PathBuf, f32)| {
        let file = Arc::new(open_file(path, options.mmap)?);
        Ok(Adapter { file, scale: *scale })
    };
    let adapters: Result<_, OpenError> = options.adapters.iter().map(adapter).collect();
    let vectors: Result<_, OpenError> = options.control_vectors.iter().map(adapter).collect();
    let drafter =
        options.drafter.as_ref().map(|path| open_file(path, options.mmap).map(|file| DrafterFile(Arc::new(file))));
    let options = LoadOptions {
        drafter: drafter.transpose()?,
        isa,
        repack: options.repack,
        number_path: options.number_path,
        packing: options.packing.clone(),
        adapters: adapters?,
        control: Control { vectors: vectors?, blocks: options.control_blocks },
        mtp: options.mtp,
        cache: options.cache,
        offload: options.offload.clone(),
    };
    let weights = Weights::load(&file, &options)
        .map_err(|error| OpenError::Model { path: path.clone(), error: Box::new(error) })?;
    let tokenizer = Tokenizer::from_metadata(file.meta())
        .or_else(|why| match why.leaves_ids() {
            true => Tokenizer::for_ids_only(file.meta(), weights.n_vocab(), &why),
            false => Err(why),
        })
        .map_err(|error| OpenError::Tokenizer { path: path.clone(), error: Box::new(error) })?;
    let (tokens, logits) = (tokenizer.n_vocab(), weights.n_vocab());
    if tokens != logits {
        return Err(OpenError::Vocabulary { path, tokens, logits });
    }
    let pool = Pool::new(threads).map_err(|error| OpenError::Threads { threads, error })?;
    Model::new(file, weights, tokenizer, pool).map_err(|error| OpenError::Gguf { path, error: Box::new(error) })
}
