//! The GGUF files of a folder, by their names.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use trine::formats::gguf::ModelFile;

use crate::error::ApiError;
use crate::service::Card;

/// Most files that are listed, and most names in the message of one that is not there.
const MOST: usize = 4096;
const MOST_TOLD: usize = 32;

/// A model of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name of its file without the ending, or what the names of its shards have in common.
    pub name: String,
    /// Its file, or its first shard.
    pub path: PathBuf,
    /// Bytes of its files.
    pub size: u64,
    /// Time at which its file was written.
    pub modified: SystemTime,
}

/// The models of a folder. It is read again whenever somebody asks, so files may come and go.
#[derive(Debug)]
pub struct Catalog {
    folder: PathBuf,
    /// Headers that were read, with the state of the file.
    cards: Mutex<HashMap<PathBuf, (Entry, Card)>>,
}

impl Catalog {
    /// The models of `folder`.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn open(folder: &Path) -> Result<Catalog> {
        let context = || format!("--models: cannot read the folder '{}'", folder.display());
        fs::read_dir(folder).with_context(context)?;
        let catalog = Catalog { folder: folder.to_owned(), cards: Mutex::default() };
        if catalog.entries().len() > MOST {
            bail!("--models: '{}' has more than {MOST} GGUF files", folder.display());
        }
        Ok(catalog)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All models, in the order of their names. What cannot be looked at, is hidden, or belongs to another file
    /// (`mmproj`) is passed over.
    pub fn entries(&self) -> Vec<Entry> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut entries: HashMap<String, Entry> = HashMap::new();
        for file in files.take(16 * MOST) {
            let path = file.path();
            let Some(stem) = stem(&path) else {
                continue;
            };
            let (name, shard) = unsharded(stem);
            // Links are followed.
            let Some(about) = fs::metadata(&path).ok().filter(fs::Metadata::is_file) else {
                continue;
            };
            let modified = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let name = name.to_owned();
            let entry = entries.entry(name.clone());
            let entry = entry.or_insert(Entry { name, path: path.clone(), size: 0, modified });
            entry.size += about.len();
            if shard == Some(1) {
                (entry.path, entry.modified) = (path, modified);
            }
        }
        let mut entries: Vec<Entry> = entries.into_values().collect();
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        entries.truncate(MOST);
        entries
    }

    /// The model that a request means: by its name, or by the name with `:latest` or with bits behind it.
    ///
    /// # Errors
    /// There is none, or none is named and there are several.
    pub fn find(&self, name: Option<&str>) -> Result<Entry, ApiError> {
        let mut entries = self.entries();
        let Some(name) = name else {
            return match entries.pop().filter(|_| entries.is_empty()) {
                Some(only) => Ok(only),
                None => Err(ApiError::field("model", format!("is required; {}", told(&entries)))),
            };
        };
        let exact = entries.iter().position(|e| e.name == name);
        let plain = name.rsplit_once(':').filter(|(_, tag)| *tag == "latest" || is_width(tag)).map(|(plain, _)| plain);
        let found = exact.or_else(|| entries.iter().position(|e| Some(e.name.as_str()) == plain));
        match found {
            Some(at) => Ok(entries.swap_remove(at)),
            None => {
                let message = format!("the model '{name}' is not here; {}", told(&entries));
                Err(ApiError::new(404, "not_found_error", message))
            }
        }
    }

    /// The header of a model's file; `None` where it cannot be read.
    pub fn card(&self, entry: &Entry) -> Option<Card> {
        let known = self.cards.lock().unwrap_or_else(PoisonError::into_inner).get(&entry.path).cloned();
        if let Some((_, card)) = known.filter(|(known, _)| known == entry) {
            return Some(card);
        }
        let card = Card::of(&header(entry).ok()?);
        let mut cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        if cards.len() >= MOST {
            cards.clear();
        }
        cards.insert(entry.path.clone(), (entry.clone(), card.clone()));
        Some(card)
    }
}

/// The header of a model's file.
///
/// # Errors
/// The file cannot be read.
pub fn header(entry: &Entry) -> Result<ModelFile, ApiError> {
    trine::open_file(&entry.path, true).map_err(|e| ApiError::server(format!("cannot read '{}': {e}", entry.name)))
}

/// The names that there are, for the message of an error.
fn told(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "there is none".to_owned();
    }
    let names: Vec<&str> = entries.iter().take(MOST_TOLD).map(|e| e.name.as_str()).collect();
    let more = if entries.len() > MOST_TOLD { " and others" } else { "" };
    format!("there are: {}{more}", names.join(", "))
}

/// The name of a model's file without its ending.
fn stem(path: &Path) -> Option<&str> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
    (!stem.is_empty() && !stem.starts_with('.') && !stem.starts_with("mmproj")).then_some(stem)
}

/// `model-00002-of-00003` is the second shard of `model`.
fn unsharded(stem: &str) -> (&str, Option<u32>) {
    let parts = stem.rsplit_once("-of-").filter(|(_, all)| digits(all));
    let parts = parts.and_then(|(rest, _)| rest.rsplit_once('-')).filter(|(name, n)| digits(n) && !name.is_empty());
    parts.map_or((stem, None), |(name, n)| (name, n.parse().ok()))
}

fn digits(text: &str) -> bool {
    text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_width(tag: &str) -> bool {
    tag.strip_suffix("bit").is_some_and(|bits| bits.parse::<u8>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        let folder = trine_testkit::folder();
        for (file, bytes) in [
            ("b.gguf", 3),
            ("a-00001-of-00002.gguf", 5),
            ("a-00002-of-00002.gguf", 7),
            ("mmproj-b.gguf", 1),
            (".hidden.gguf", 1),
            ("b.gguf.part", 1),
            ("notes.txt", 1),
        ] {
            fs::write(folder.path().join(file), vec![0; bytes]).unwrap();
        }
        fs::create_dir(folder.path().join("folder.gguf")).unwrap();
        let catalog = Catalog::open(folder.path()).unwrap();
        let all: Vec<(String, u64)> = catalog.entries().into_iter().map(|e| (e.name, e.size)).collect();
        assert_eq!(all, [("a".to_owned(), 12), ("b".to_owned(), 3)]);
        let found = |name| catalog.find(name).map(|e| e.name).map_err(|e| (e.status, e.message));
        assert_eq!(catalog.find(Some("a")).unwrap().path, folder.path().join("a-00001-of-00002.gguf"));
        for name in ["b", "b:latest", "b:4bit"] {
            assert_eq!(found(Some(name)), Ok("b".to_owned()));
        }
        for name in ["c", "../b", "b.gguf", "b:7b", "", "notes"] {
            let message = format!("the model '{name}' is not here; there are: a, b");
            assert_eq!(found(Some(name)), Err((404, message)));
        }
        assert_eq!(found(None).map_err(|e| e.0), Err(400));
        fs::remove_file(folder.path().join("b.gguf")).unwrap();
        assert_eq!(found(None), Ok("a".to_owned()));
        // No header, no description.
        assert_eq!(catalog.card(&catalog.entries()[0]).map(|c| c.size), None);
        assert!(Catalog::open(&folder.path().join("nowhere")).is_err());
    }
}
