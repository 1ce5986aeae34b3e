//! The cache of the hub's own client: `models--USER--REPO` with the folders `blobs` (bytes by their hash), `snapshots`
//! (names of a commit, which lead to blobs) and `refs` (the commit of a branch).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use trine_formats::limited::read_regular;
use trine_formats::temp_file::TempFile;

use crate::name::Name;
use crate::{HubError, Watcher, api};

/// The branch that is meant where none is named.
const BRANCH: &str = "main";

/// The most files of a snapshot that are looked at, and how deep its folders may be.
const FILES: usize = 10_000;
const DEPTH: usize = 8;

/// The folder of a repository.
#[derive(Debug)]
pub struct Repo {
    /// The folder itself.
    pub root: PathBuf,
    locks: PathBuf,
}

impl Repo {
    /// The folder that a repository has in a cache, whether it is there or not.
    pub fn new(cache: &Path, name: &Name) -> Repo {
        Repo { root: cache.join(name.folder()), locks: cache.join(".locks").join(name.folder()) }
    }

    /// All repositories of a cache, by name.
    pub fn all(cache: &Path) -> Vec<(Name, Repo)> {
        let entries = fs::read_dir(cache).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| {
            let folder = entry.file_name().into_string().ok()?;
            let name = Name::parse(&folder.strip_prefix("models--")?.replacen("--", "/", 1)).ok()?;
            let repo = Repo::new(cache, &name);
            Some((name, repo))
        });
        let mut all: Vec<(Name, Repo)> = named.collect();
        all.sort_by_key(|(name, _)| name.both());
        all
    }

    /// Where the bytes of this hash belong.
    pub fn blob(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(etag)
    }

    /// Where they are until they are whole.
    pub fn incomplete(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(format!("{etag}.incomplete"))
    }

    /// The folder of a commit's names.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// Waits until nobody else writes these bytes: the same lock that the hub's own client takes. Systems without locks
    /// go on without.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn lock(&self, etag: &str, file: &str, watcher: &dyn Watcher) -> Result<File, HubError> {
        make_folder(&self.locks)?;
        let path = self.locks.join(format!("{etag}.lock"));
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let lock = open.map_err(HubError::io("open", &path))?;
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            watcher.say(&format!("another process fetches {file}; waiting for it"));
            // Where waiting is not possible the download begins at once, and is still checked.
            let _ = lock.lock();
        }
        Ok(lock)
    }

    /// Gives the bytes of a hash their name in a commit.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn name(&self, commit: &str, file: &api::File) -> Result<PathBuf, HubError> {
        let path = self.snapshot(commit).join(&file.path);
        let blob = self.blob(&file.etag);
        if fs::metadata(&path).is_ok_and(|m| m.len() == file.size) {
            return Ok(path);
        }
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        // A link that leads nowhere, or to what another commit had.
        let _ = fs::remove_file(&path);
        let up = "../".repeat(file.path.split('/').count() + 1);
        let target = format!("{up}blobs/{}", file.etag);
        match link(Path::new(&target), &blob, &path) {
            // Another process was faster.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(path),
            made => made.map(|()| path.clone()).map_err(HubError::io("make the link", path)),
        }
    }

    /// Remembers the newest commit.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn remember(&self, commit: &str) -> Result<(), HubError> {
        let path = self.root.join("refs").join(BRANCH);
        if self.commit_of(&path).as_deref() == Some(commit) {
            return Ok(());
        }
        make_folder(&self.root.join("refs"))?;
        write_small(&path, commit.as_bytes())
    }

    /// The commit that was newest when the hub was asked last; `None` where nothing was fetched.
    pub fn commit(&self) -> Option<String> {
        let refs = self.root.join("refs");
        let main = self.commit_of(&refs.join(BRANCH));
        main.or_else(|| {
            let entries = fs::read_dir(&refs).into_iter().flatten().flatten();
            entries.filter_map(|entry| self.commit_of(&entry.path())).min()
        })
    }

    fn commit_of(&self, path: &Path) -> Option<String> {
        let text = String::from_utf8(read_regular(path, 100).ok()?).ok()?;
        let commit = text.trim();
        api::is_hash(commit).then(|| commit.to_owned())
    }

    /// Files of a commit whose bytes are there: paths in the repository and sizes, sorted.
    pub fn files(&self, commit: &str) -> Vec<(String, u64)> {
        let mut out = Vec::new();
        walk(&self.snapshot(commit), "", 0, &mut out);
        out.sort();
        out
    }

    /// The commits that have names here.
    pub fn commits(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.join("snapshots")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| api::is_hash(name)).collect()
    }
}

fn walk(folder: &Path, before: &str, depth: usize, out: &mut Vec<(String, u64)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if before.is_empty() { name } else { format!("{before}/{name}") };
        // Links lead to the bytes.
        match fs::metadata(entry.path()) {
            Ok(meta) if meta.is_dir() && depth < DEPTH => walk(&entry.path(), &path, depth + 1, out),
            Ok(meta) if meta.is_file() && out.len() < FILES => out.push((path, meta.len())),
            _ => {}
        }
    }
}

/// Makes a folder and those above it.
///
/// # Errors
/// The system's error.
pub fn make_folder(folder: &Path) -> Result<(), HubError> {
    fs::create_dir_all(folder).map_err(HubError::io("make the folder", folder))
}

/// Writes a small file that appears when it is whole.
///
/// # Errors
/// The system's error.
pub fn write_small(path: &Path, bytes: &[u8]) -> Result<(), HubError> {
    let whole = || -> io::Result<()> {
        let (temporary, mut file) = TempFile::create(path).map_err(|e| e.source)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        temporary.keep(path)
    };
    whole().map_err(HubError::io("write", path))
}

#[cfg(unix)]
fn link(target: &Path, _: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

/// Links need a right that few users have; a second name of the same bytes needs none.
#[cfg(windows)]
fn link(target: &Path, blob: &Path, path: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, path).or_else(|_| fs::hard_link(blob, path))
}

#[cfg(not(any(unix, windows)))]
fn link(_: &Path, blob: &Path, path: &Path) -> io::Result<()> {
    fs::hard_link(blob, path)
}
