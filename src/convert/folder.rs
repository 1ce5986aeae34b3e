//! A checkpoint's folder: its JSON files and where every tensor lies.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use trine_formats::gguf::file::SourceFile;
use trine_formats::limited::read_regular;
use trine_formats::safetensors::{self, Dtype, Tensor};

use super::error::{ConvertError, Problems};
use super::unpack::form::{Loaded, Unpacked};

/// Largest file that is read whole. Tokenizers of 260 000 tokens take 35 MB.
const MAX_TOKENIZER: u64 = 256 << 20;
/// The same of an index; one of 100 000 tensors takes 10 MB.
const MAX_INDEX: u64 = 64 << 20;
/// The same of all other files, which have a few thousand bytes.
const MAX_OTHER: u64 = 16 << 20;
/// The one file of a small checkpoint or of a module.
pub(super) const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Most bytes of a file of this name that are read.
fn most(name: &str) -> u64 {
    match name {
        INDEX => MAX_INDEX,
        "tokenizer.json" | "tokenizer.model" => MAX_TOKENIZER,
        _ => MAX_OTHER,
    }
}

/// A tensor and the file that holds it.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub tensor: Tensor,
    /// Which of [`Folder::shards`].
    pub shard: usize,
}

/// The folder, its headers read and checked against each other.
pub(super) struct Folder {
    pub path: PathBuf,
    /// Files with weights, by name.
    pub shards: Files,
    /// Files that were read.
    read: RefCell<BTreeSet<PathBuf>>,
    /// All tensors: by file, then by name, which is the order of the reference converter.
    pub tensors: Vec<Source>,
}

impl Folder {
    /// Looks at a folder.
    pub fn open(path: &Path) -> Result<Folder, ConvertError> {
        if !path.is_dir() {
            return Err(match fs::metadata(path) {
                Err(source) => ConvertError::Io { action: "open", path: path.to_owned(), source },
                Ok(_) => ConvertError::NotAFolder(path.to_owned()),
            });
        }
        Ok(Folder { path: path.to_owned(), shards: Files::default(), read: RefCell::default(), tensors: Vec::new() })
    }

    /// All files that the output must not replace: those that were read, and whatever else the folder holds, which is
    /// the checkpoint of somebody. GGUF files in it are outputs of earlier runs.
    pub fn inputs(&self) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = self.read.borrow().iter().cloned().collect();
        all.extend(self.shards.paths().map(Path::to_owned));
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let others = entries.map(|e| e.path());
        all.extend(others.filter(|p| p.extension().is_none_or(|e| e != "gguf")));
        all
    }

    /// The bytes of a file of the folder; `None` when it is not there.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ConvertError> {
        let path = self.path.join(name);
        match read_regular(&path, most(name)) {
            Ok(bytes) => {
                self.read.borrow_mut().insert(path);
                Ok(Some(bytes))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ConvertError::Io { action: "read", path, source }),
        }
    }

    /// A JSON file of the folder; `None` when it is not there.
    pub fn json(&self, name: &str) -> Result<Option<Value>, ConvertError> {
        let Some(bytes) = self.read(name)? else {
            return Ok(None);
        };
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(e) => Err(ConvertError::Json { path: self.path.join(name), why: e.to_string() }),
        }
    }

    /// Finds all tensors.
    pub fn find_tensors(&mut self) -> Result<(), ConvertError> {
        let index = self.path.join(INDEX);
        let map = match self.read(INDEX)? {
            Some(bytes) => {
                let map = safetensors::parse_index(&bytes)
                    .map_err(|source| ConvertError::Safetensors { path: index.clone(), source })?;
                Some(map.into_iter().collect::<BTreeMap<String, String>>())
            }
            None => None,
        };
        let names: BTreeSet<String> = match &map {
            Some(map) => map.values().cloned().collect(),
            None => self.shard_names()?,
        };
        let mut problems = Problems::default();
        let mut paths = Vec::with_capacity(names.len());
        for name in &names {
            let path = self.path.join(name);
            if path.is_file() {
                paths.push(path);
            } else {
                problems.push(format!("there is no file '{name}'"));
            }
        }
        if !problems.is_empty() {
            return Err(ConvertError::Index { path: index, problems });
        }
        let mut seen = BTreeMap::new();
        for (shard, path) in paths.iter().enumerate() {
            for tensor in self.shards.open(path)? {
                if let Some(other) = seen.insert(tensor.name.clone(), shard) {
                    problems.push(format!(
                        "tensor '{}' is in '{}' and in '{}'",
                        tensor.name,
                        paths[other].display(),
                        path.display()
                    ));
                }
                self.tensors.push(Source { tensor, shard });
            }
        }
        if let Some(map) = map {
            for (tensor, file) in &map {
                if !seen.contains_key(tensor) {
                    problems.push(format!("tensor '{tensor}' is not in '{file}'"));
                }
            }
            let extra = seen.keys().filter(|t| !map.contains_key(*t));
            extra.for_each(|t| problems.push(format!("tensor '{t}' is not in the index")));
        }
        if problems.is_empty() { Ok(()) } else { Err(ConvertError::Index { path: index, problems }) }
    }

    /// Takes the matrices of projections, by their folders and the names that they get, before all other tensors.
    pub fn find_projections<'a>(
        &mut self,
        modules: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), ConvertError> {
        let mut all = Vec::new();
        for (path, name) in modules {
            let tensors = self.shards.open(&self.path.join(path).join(WEIGHTS))?;
            let shard = self.shards.files.len() - 1;
            for mut tensor in tensors.into_iter().filter(|t| t.name.ends_with(".weight")) {
                tensor.name = tensor.name.replace("linear", name);
                all.push(Source { tensor, shard });
            }
        }
        self.tensors.splice(0..0, all);
        Ok(())
    }

    /// Puts quantized matrices, each with its name and that of its codes, in the place of those, or behind all
    /// other tensors. Leaves out `taken`.
    pub fn unpack(&mut self, found: Vec<(String, String, Unpacked)>, taken: &BTreeSet<String>, behind: bool) {
        let files = self.shards.files.len();
        let mut last = Vec::new();
        for (name, codes, matrix) in found {
            let tensor = Tensor {
                name,
                dtype: Dtype::F32,
                shape: matrix.shape.clone(),
                offset: 0,
                bytes: matrix.rows * matrix.columns * 4,
            };
            let source = Source { tensor, shard: files + self.shards.unpacked.len() };
            self.shards.unpacked.push(matrix);
            let here = self.tensors.iter().position(|s| s.tensor.name == codes);
            match here {
                Some(n) if !behind => self.tensors[n] = source,
                Some(n) => {
                    self.tensors.remove(n);
                    last.push(source);
                }
                None => last.push(source),
            }
        }
        self.tensors.retain(|s| !taken.contains(&s.tensor.name));
        self.tensors.extend(last);
    }

    /// Files named `model*.safetensors`.
    fn shard_names(&self) -> Result<BTreeSet<String>, ConvertError> {
        let failed = |source| ConvertError::Io { action: "list", path: self.path.clone(), source };
        let mut names = BTreeSet::new();
        let mut others = BTreeSet::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.starts_with("model") && name.ends_with(".safetensors") {
                names.insert(name.to_owned());
            } else if name.ends_with(".bin") || name.ends_with(".pth") || name.ends_with(".pt") {
                others.insert(name.to_owned());
            }
        }
        if !names.is_empty() {
            return Ok(names);
        }
        Err(ConvertError::Missing {
            folder: self.path.clone(),
            file: "model*.safetensors".into(),
            hint: if others.is_empty() {
                "are the weights downloaded?"
            } else {
                "it has PyTorch files, which can run code when they are read and are not supported; save the model with safe_serialization=True first"
            },
        })
    }
}

/// The files with the weights of a folder, each opened once: header and data come from the same file, whatever happens
/// to its name.
#[derive(Debug, Default)]
pub(super) struct Files {
    files: Vec<(PathBuf, SourceFile)>,
    /// Quantized matrices, whose floats are read like files behind the others.
    unpacked: Vec<Unpacked>,
    /// The one of them that was read last.
    loaded: Mutex<Option<(usize, Arc<Loaded>)>>,
}

impl Files {
    /// Opens a file and reads its header.
    fn open(&mut self, path: &Path) -> Result<Vec<Tensor>, ConvertError> {
        let io = |source| ConvertError::Io { action: "read", path: path.to_owned(), source };
        let bad = |source| ConvertError::Safetensors { path: path.to_owned(), source };
        let (file, tensors) = safetensors::open(path, io, bad)?;
        self.files.push((path.to_owned(), file));
        Ok(tensors)
    }

    /// Files that are read as they are.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    /// Reads `into.len()` bytes from `offset` on.
    pub fn read(&self, shard: usize, offset: u64, into: &mut [u8]) -> Result<(), ConvertError> {
        if let Some(n) = shard.checked_sub(self.files.len()) {
            self.unpacked[n].read(&*self.load(n)?, offset, into);
            return Ok(());
        }
        let (path, file) = &self.files[shard];
        let read = file.file().read_exact_at(into, offset);
        read.map_err(|source| ConvertError::Io { action: "read", path: path.clone(), source })
    }

    /// The tensors of a quantized matrix; those of the last one stay in memory.
    fn load(&self, n: usize) -> Result<Arc<Loaded>, ConvertError> {
        let mut last = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((loaded, tensors)) if *loaded == n => Ok(Arc::clone(tensors)),
            _ => {
                let tensors = Arc::new(self.unpacked[n].load(|shard, offset, into| self.read(shard, offset, into))?);
                *last = Some((n, Arc::clone(&tensors)));
                Ok(tensors)
            }
        }
    }

    /// Makes sure, when all is read, that nobody wrote to a file meanwhile.
    pub fn unchanged(&self) -> Result<(), ConvertError> {
        self.files.iter().try_for_each(|(path, file)| {
            file.unchanged().map_err(|source| ConvertError::Io { action: "convert", path: path.clone(), source })
        })
    }
}
