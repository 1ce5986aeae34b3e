//! A checkpoint's folder: its JSON files and where every tensor lies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;
use trine_formats::safetensors::{self, Tensor};

use super::error::{ConvertError, Problems};

/// Largest JSON file that is read. Tokenizers of 260 000 tokens take 35 MB.
const MAX_JSON: u64 = 512 << 20;
const INDEX: &str = "model.safetensors.index.json";

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
    pub shards: Vec<PathBuf>,
    /// All tensors: by file, then by name, which is the order of the reference converter.
    pub tensors: Vec<Source>,
}

impl Folder {
    /// Looks at a folder; with `weights`, finds all tensors.
    pub fn open(path: &Path, weights: bool) -> Result<Folder, ConvertError> {
        if !path.is_dir() {
            return Err(match fs::metadata(path) {
                Err(source) => ConvertError::Io {
                    action: "open",
                    path: path.to_owned(),
                    source,
                },
                Ok(_) => ConvertError::NotAFolder(path.to_owned()),
            });
        }
        let mut folder = Folder {
            path: path.to_owned(),
            shards: Vec::new(),
            tensors: Vec::new(),
        };
        if weights {
            folder.find_tensors()?;
        }
        Ok(folder)
    }

    /// The bytes of a file of the folder; `None` when it is not there.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ConvertError> {
        read_file(&self.path.join(name))
    }

    /// A JSON file of the folder; `None` when it is not there.
    pub fn json(&self, name: &str) -> Result<Option<Value>, ConvertError> {
        let Some(bytes) = self.read(name)? else {
            return Ok(None);
        };
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(e) => Err(ConvertError::Json {
                path: self.path.join(name),
                why: e.to_string(),
            }),
        }
    }

    fn find_tensors(&mut self) -> Result<(), ConvertError> {
        let index = self.path.join(INDEX);
        let map = match self.read(INDEX)? {
            Some(bytes) => {
                let map = safetensors::parse_index(&bytes).map_err(|source| {
                    ConvertError::Safetensors {
                        path: index.clone(),
                        source,
                    }
                })?;
                Some(map.into_iter().collect::<BTreeMap<String, String>>())
            }
            None => None,
        };
        let names: BTreeSet<String> = match &map {
            Some(map) => map.values().cloned().collect(),
            None => self.shard_names()?,
        };
        let mut problems = Problems::default();
        for name in &names {
            let path = self.path.join(name);
            if path.is_file() {
                self.shards.push(path);
            } else {
                problems.push(format!("there is no file '{name}'"));
            }
        }
        if !problems.is_empty() {
            return Err(ConvertError::Index {
                path: index,
                problems,
            });
        }
        let mut seen = BTreeMap::new();
        for (shard, path) in self.shards.iter().enumerate() {
            for tensor in read_header(path)? {
                if let Some(other) = seen.insert(tensor.name.clone(), shard) {
                    problems.push(format!(
                        "tensor '{}' is in '{}' and in '{}'",
                        tensor.name,
                        self.shards[other].display(),
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
        if problems.is_empty() {
            Ok(())
        } else {
            Err(ConvertError::Index {
                path: index,
                problems,
            })
        }
    }

    /// Files named `model*.safetensors`.
    fn shard_names(&self) -> Result<BTreeSet<String>, ConvertError> {
        let failed = |source| ConvertError::Io {
            action: "list",
            path: self.path.clone(),
            source,
        };
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

fn read_header(path: &Path) -> Result<Vec<Tensor>, ConvertError> {
    let io = |source| ConvertError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let bad = |source| ConvertError::Safetensors {
        path: path.to_owned(),
        source,
    };
    let (_, tensors) = safetensors::open(path, io, bad)?;
    Ok(tensors)
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>, ConvertError> {
    let failed = |source| ConvertError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    };
    match fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
        Ok(m) if m.len() > MAX_JSON => {
            return Err(ConvertError::TooLarge {
                path: path.to_owned(),
                len: m.len(),
                max: MAX_JSON,
            });
        }
        Ok(_) => {}
    }
    fs::read(path).map(Some).map_err(failed)
}

/// The open files of a folder.
pub(super) struct Files {
    files: Vec<(PathBuf, File)>,
}

impl Files {
    pub fn open(paths: &[PathBuf]) -> Result<Files, ConvertError> {
        let open = |path: &PathBuf| match File::open(path) {
            Ok(file) => Ok((path.clone(), file)),
            Err(source) => Err(ConvertError::Io {
                action: "open",
                path: path.clone(),
                source,
            }),
        };
        let files = paths.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Files { files })
    }

    /// Reads `into.len()` bytes from `offset` on.
    pub fn read(&mut self, shard: usize, offset: u64, into: &mut [u8]) -> Result<(), ConvertError> {
        let (path, file) = &mut self.files[shard];
        let read = file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| file.read_exact(into));
        read.map_err(|source| ConvertError::Io {
            action: "read",
            path: path.clone(),
            source,
        })
    }
}
