//! Models that are there: in the hub's cache, in that of earlier versions of llama.cpp, and in ollama's store.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use trine_formats::limited::read_regular;

use crate::cache::Repo;
use crate::choose::{self, Candidate};
use crate::{HubError, Name, Places, api};

/// The type of the layer of an ollama manifest that is the model.
const MODEL_LAYER: &str = "application/vnd.ollama.image.model";

/// The registry and the account that ollama leaves out of names.
const REGISTRY: &str = "registry.ollama.ai";
const LIBRARY: &str = "library";
/// The tag that ollama adds to names without one.
const LATEST: &str = "latest";

/// The largest manifest that is read, in bytes, and the most folders of them.
const LARGEST: u64 = 1 << 20;

/// Whose store a model is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// The hub's cache, which trine fills too.
    Hub,
    /// The cache of earlier versions of llama.cpp.
    LlamaCpp,
    /// The store of ollama.
    Ollama,
}

impl Store {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Store::Hub => "hub",
            Store::LlamaCpp => "llama.cpp",
            Store::Ollama => "ollama",
        }
    }
}

/// A model that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Its name, which [`find`] finds.
    pub name: String,
    /// The file; of a split one the first shard.
    pub path: PathBuf,
    /// Bytes of all its shards.
    pub size: u64,
    /// Store that holds the file.
    pub store: Store,
}

/// The name that earlier versions of llama.cpp give a file of a repository.
pub(crate) fn llama_cpp_name(name: &Name, path: &str) -> String {
    format!("{}_{}_{}", name.user, name.repo, path.replace('/', "_"))
}

/// All models, those of the hub first, sorted by name.
pub fn installed(places: &Places) -> Vec<Installed> {
    let mut out = Vec::new();
    for (name, repo) in Repo::all(&places.hub) {
        let Some(commit) = repo.commit() else { continue };
        let files = repo.files(&commit);
        let candidates = choose::candidates(files.iter().map(|(path, size)| (path.as_str(), *size)));
        out.extend(
            candidates
                .iter()
                .map(|c| one(c, format!("{}:{}", name.both(), c.tag()), &repo.snapshot(&commit), Store::Hub)),
        );
    }
    let entries = fs::read_dir(&places.llama_cpp).into_iter().flatten().flatten();
    let files = entries
        .filter_map(|e| Some((e.file_name().into_string().ok()?, e.metadata().ok().filter(|m| m.is_file())?.len())));
    let mut files: Vec<(String, u64)> = files.collect();
    files.sort();
    let candidates = choose::candidates(files.iter().map(|(path, size)| (path.as_str(), *size)));
    out.extend(candidates.iter().map(|c| one(c, c.paths[0].clone(), &places.llama_cpp, Store::LlamaCpp)));
    for store in &places.ollama {
        let mut names = Vec::new();
        ollama(store, &mut names);
        names.sort_by(|a, b| a.name.cmp(&b.name));
        out.extend(names);
    }
    out
}

fn one(candidate: &Candidate, name: String, folder: &Path, store: Store) -> Installed {
    Installed { name, path: folder.join(&candidate.paths[0]), size: candidate.size, store }
}

/// Models of an ollama store: `manifests/REGISTRY/ACCOUNT/MODEL/TAG` names the blobs.
fn ollama(store: &Path, out: &mut Vec<Installed>) {
    let manifests = store.join("manifests");
    for (registry, at) in folders(&manifests) {
        for (account, at) in folders(&at) {
            for (model, at) in folders(&at) {
                for (tag, at) in folders(&at) {
                    let Some((path, size)) = model_of(store, &at) else { continue };
                    let name = match (registry.as_str(), account.as_str()) {
                        (REGISTRY, LIBRARY) => format!("{model}:{tag}"),
                        (REGISTRY, account) => format!("{account}/{model}:{tag}"),
                        (registry, account) => format!("{registry}/{account}/{model}:{tag}"),
                    };
                    out.push(Installed { name, path, size, store: Store::Ollama });
                }
            }
        }
    }
}

fn folders(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path()))).collect()
}

/// The blob that a manifest calls the model, and its size.
fn model_of(store: &Path, manifest: &Path) -> Option<(PathBuf, u64)> {
    let value: Value = serde_json::from_slice(&read_regular(manifest, LARGEST).ok()?).ok()?;
    let layer = value["layers"].as_array()?.iter().find(|layer| layer["mediaType"] == MODEL_LAYER)?;
    let hash = layer["digest"].as_str()?.strip_prefix("sha256:").filter(|hash| api::is_hash(hash))?;
    let path = store.join("blobs").join(format!("sha256-{hash}"));
    let size = fs::metadata(&path).ok().filter(|m| m.is_file())?.len();
    Some((path, size))
}

/// The models that a name can mean, the likeliest first: a whole name, one without its type, one without its account,
/// a file.
pub fn find(places: &Places, name: &str) -> Vec<Installed> {
    let all = installed(places);
    let wanted = name.strip_prefix("hf.co/").unwrap_or(name).to_ascii_lowercase();
    let rules: [&dyn Fn(&Installed) -> bool; 5] = [
        &|m| m.name.eq_ignore_ascii_case(name) || m.name.to_ascii_lowercase() == wanted,
        &|m| m.store == Store::Ollama && m.name.to_ascii_lowercase() == format!("{wanted}:{LATEST}"),
        &|m| repo_of(m).is_some_and(|(both, _)| both == wanted),
        &|m| {
            repo_of(m).is_some_and(|(both, tag)| {
                let repo = both.split_once('/').map_or(both.as_str(), |(_, repo)| repo);
                repo == wanted || format!("{repo}:{tag}") == wanted
            })
        },
        &|m| {
            let file = m.path.file_name().map(|f| f.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
            file == wanted || file.strip_suffix(".gguf") == Some(&wanted)
        },
    ];
    let found = rules.iter().map(|rule| all.iter().filter(|m| rule(m)).cloned().collect::<Vec<_>>());
    let mut found = found.into_iter().find(|found| !found.is_empty()).unwrap_or_default();
    // As where a repository is fetched without naming a type.
    found.sort_by_key(|m| !m.name.to_ascii_uppercase().ends_with(":Q4_K_M"));
    found
}

/// Account and repository of a model of the hub's cache, and its type, in small letters.
fn repo_of(model: &Installed) -> Option<(String, String)> {
    let name = model.name.to_ascii_lowercase();
    let (both, tag) = name.split_once(':').filter(|_| model.store == Store::Hub)?;
    Some((both.to_owned(), tag.to_owned()))
}

/// Removes a model of the hub's cache, `USER/REPO:QUANT`, or all that is there of `USER/REPO`. Gives back how many
/// bytes were freed.
///
/// # Errors
/// The cache has nothing by this name; the system's error.
pub fn remove(places: &Places, name: &Name) -> Result<u64, HubError> {
    let repo = Repo::new(&places.hub, name);
    let before = bytes(&repo.root.join("blobs"));
    let nothing = || HubError::NotFound { what: name.to_string(), host: format!("'{}'", places.hub.display()) };
    let Some(tag) = &name.tag else {
        if !repo.root.is_dir() {
            return Err(nothing());
        }
        fs::remove_dir_all(&repo.root).map_err(HubError::io("remove", &repo.root))?;
        return Ok(before);
    };
    let mut found = false;
    for commit in repo.commits() {
        let files = repo.files(&commit);
        let candidates = choose::candidates(files.iter().map(|(path, size)| (path.as_str(), *size)));
        for path in candidates.iter().filter(|c| c.tag().eq_ignore_ascii_case(tag)).flat_map(|c| &c.paths) {
            let link = repo.snapshot(&commit).join(path);
            fs::remove_file(&link).map_err(HubError::io("remove", &link))?;
            found = true;
        }
    }
    if !found {
        return Err(nothing());
    }
    remove_unnamed(&repo)?;
    Ok(before - bytes(&repo.root.join("blobs")))
}

/// Removes whole blobs that no commit has a name for.
fn remove_unnamed(repo: &Repo) -> Result<(), HubError> {
    let real = |path: PathBuf| fs::canonicalize(path).ok();
    let named: Vec<PathBuf> = repo
        .commits()
        .iter()
        .flat_map(|commit| {
            repo.files(commit)
                .into_iter()
                .filter_map(|(path, _)| real(repo.snapshot(commit).join(path)))
                .collect::<Vec<_>>()
        })
        .collect();
    for (name, path) in folders(&repo.root.join("blobs")) {
        if api::is_hash(&name) && !real(path.clone()).is_some_and(|path| named.contains(&path)) {
            fs::remove_file(&path).map_err(HubError::io("remove", path))?;
        }
    }
    Ok(())
}

fn bytes(folder: &Path) -> u64 {
    folders(folder).iter().filter_map(|(_, path)| Some(fs::symlink_metadata(path).ok()?.len())).sum()
}
