//! Files that appear under their names only when they are whole.
//!
//! Output goes to a temporary file beside the target (`NAME.PID.trine.part`) that is synced and renamed at the end.
//! Dropped before, a [`TempFile`] removes it; [`abandon`] does so for a program that is about to end.
//!
//! A temporary file is locked for as long as it is open. The system takes the lock back however the program ends, so
//! the file of a program that was killed is known by being free, whichever process has its number now. The next
//! [`TempFile`] for the same target removes it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::file_id::FileId;

/// How the names of temporary files end. No other program has this ending.
const ENDING: &str = ".trine.part";
/// Longest part of the target's name that is taken into the temporary one: names have 255 bytes at most.
const MAX_STEM: usize = 200;
/// Names that are tried before it is given up.
const MAX_NAMES: u32 = 10_000;

/// Temporary and finished files of this process.
struct Registry {
    /// Temporary files that are neither kept nor dropped.
    unfinished: Vec<PathBuf>,
    /// Names under which whole files were put.
    kept: Vec<PathBuf>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { unfinished: Vec::new(), kept: Vec::new() });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The files that a program leaves behind when it ends early. While this exists no temporary file can be made and none
/// gets its final name, so the list stays true until the program has ended.
pub struct Abandoned {
    /// Temporary files that were removed.
    pub removed: Vec<PathBuf>,
    /// Names under which whole files were put before.
    pub kept: Vec<PathBuf>,
    _lock: MutexGuard<'static, Registry>,
}

/// Removes all temporary files. To be called from a thread, such as a signal handler's, just before the process exits:
/// writers still at work will fail, or wait for the end.
pub fn abandon() -> Abandoned {
    take_all(registry())
}

/// The same for a program that had a fault, where the thread that holds the lock may be the one that never goes on:
/// what cannot be had within `time` is left to the next program.
pub fn abandon_within(time: Duration) -> Option<Abandoned> {
    let start = Instant::now();
    loop {
        match REGISTRY.try_lock() {
            Ok(all) => return Some(take_all(all)),
            Err(TryLockError::Poisoned(e)) => return Some(take_all(e.into_inner())),
            Err(TryLockError::WouldBlock) if start.elapsed() > time => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn take_all(mut all: MutexGuard<'static, Registry>) -> Abandoned {
    let unfinished = std::mem::take(&mut all.unfinished);
    let removed = unfinished.into_iter().filter(|p| fs::remove_file(p).is_ok()).collect();
    Abandoned { removed, kept: all.kept.clone(), _lock: all }
}

/// A temporary file could not be made.
#[derive(Debug, Error)]
#[error("cannot create '{path}'")]
pub struct CreateError {
    /// Its name.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// A file under a temporary name that goes away unless it is kept.
#[derive(Debug)]
pub struct TempFile {
    path: PathBuf,
    /// True once the file has its final name: the temporary one may be another file's from then on.
    is_kept: bool,
}

impl TempFile {
    /// Creates a temporary file beside `target`, with the access rights that `target` has where it exists, and removes
    /// those that programs left behind which were killed while they wrote `target`.
    ///
    /// # Errors
    /// A target without a name, or with one that the system does not take; a folder that is missing or cannot be
    /// written.
    pub fn create(target: &Path) -> Result<(TempFile, File), CreateError> {
        let failed = |path: &Path, source| CreateError { path: path.to_owned(), source };
        let Some(name) = target.file_name() else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it has no file name");
            return Err(failed(target, source));
        };
        // The name that the file gets in the end has to be possible, which is better known before the work.
        let existing = match fs::metadata(target) {
            Ok(meta) => Some(meta),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(target, e)),
        };
        let stem = stem(name);
        remove_orphans(target, &stem);
        for n in 0..MAX_NAMES {
            let path = target.with_file_name(temporary_name(&stem, n));
            // Registered under the lock, so that no moment is left in which an end would leave the file.
            let mut all = registry();
            match new_file(&path, existing.as_ref()) {
                Ok(file) if is_ours(&file, &path) => {
                    all.unfinished.push(path.clone());
                    return Ok((TempFile { path, is_kept: false }, file));
                }
                // Another process took it for an orphan before it was locked.
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed(&path, e)),
            }
        }
        let source = io::Error::new(io::ErrorKind::AlreadyExists, "all temporary names are taken");
        Err(failed(target, source))
    }

    /// Where the bytes are until the file is kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file, which must be synced and still be open, the name `target`.
    ///
    /// # Errors
    /// The system's error; the temporary file is removed then.
    pub fn keep(self, target: &Path) -> io::Result<()> {
        TempFile::keep_all(vec![(self, target.to_owned())]).map_err(|(_, e)| e)
    }

    /// Gives several files their names. A program that is asked to end meanwhile does so before the first or after the
    /// last.
    ///
    /// # Errors
    /// The system's error, and the file's path; temporary files that are left are removed then.
    pub fn keep_all(mut files: Vec<(TempFile, PathBuf)>) -> Result<(), (PathBuf, io::Error)> {
        let mut all = registry();
        let mut failed = None;
        for (temp, target) in &mut files {
            match fs::rename(&temp.path, &*target) {
                Ok(()) => {
                    temp.is_kept = true;
                    all.unfinished.retain(|p| *p != temp.path);
                    if !all.kept.contains(&*target) {
                        all.kept.push(target.clone());
                    }
                }
                Err(e) => {
                    failed = Some((target.clone(), e));
                    break;
                }
            }
        }
        drop(all);
        for (_, target) in &files {
            sync_directory(target);
        }
        failed.map_or(Ok(()), Err)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let mut all = registry();
        let before = all.unfinished.len();
        all.unfinished.retain(|p| *p != self.path);
        if all.unfinished.len() < before {
            // What cannot be removed now could not be removed later either.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Prefix of temporary names for a target called `name`: as much of it as leaves room for the ending.
fn stem(name: &OsStr) -> OsString {
    if name.len() <= MAX_STEM {
        return name.to_owned();
    }
    let text = name.to_string_lossy();
    let end = (0..=MAX_STEM).rfind(|&i| text.is_char_boundary(i));
    text[..end.unwrap_or(0)].into()
}

fn temporary_name(stem: &OsStr, n: u32) -> OsString {
    let mut name = stem.to_owned();
    name.push(format!(".{}", std::process::id()));
    if n > 0 {
        name.push(format!(".{n}"));
    }
    name.push(ENDING);
    name
}

/// True if `name` is a [`temporary_name`] of any process.
fn is_temporary(name: &OsStr, stem: &OsStr) -> bool {
    let rest = name.as_encoded_bytes().strip_prefix(stem.as_encoded_bytes());
    let numbers = rest.and_then(|r| r.strip_suffix(ENDING.as_bytes()));
    let Some(numbers) = numbers.and_then(|r| r.strip_prefix(b".")) else {
        return false;
    };
    let mut parts = numbers.split(|&b| b == b'.');
    parts.clone().count() <= 2 && parts.all(|p| !p.is_empty() && p.iter().all(u8::is_ascii_digit))
}

/// Removes temporary files for `target` whose programs have ended.
fn remove_orphans(target: &Path, stem: &OsStr) {
    let Ok(entries) = fs::read_dir(directory(target)) else {
        return; // what is wrong with the folder is told when the file is made
    };
    for entry in entries.flatten() {
        let regular = || entry.file_type().is_ok_and(|t| t.is_file());
        if !is_temporary(&entry.file_name(), stem) || !regular() {
            continue;
        }
        let path = entry.path();
        if let Ok(file) = OpenOptions::new().read(true).write(true).open(&path)
            && file.try_lock().is_ok()
            && FileId::is_at(&file, &path)
        {
            // What cannot be removed is in nobody's way: names are counted on.
            let _ = fs::remove_file(&path);
        }
    }
}

/// Locks a new file; `false` when another process has taken it away already.
fn is_ours(file: &File, path: &Path) -> bool {
    match file.try_lock() {
        Ok(()) => FileId::is_at(file, path),
        Err(fs::TryLockError::WouldBlock) => false,
        // A file system without locks: nobody else can lock it either, so nobody removes it.
        Err(fs::TryLockError::Error(_)) => true,
    }
}

/// A new file with the rights and, where we may, the owner of the one that it is going to replace.
#[cfg(unix)]
fn new_file(path: &Path, existing: Option<&fs::Metadata>) -> io::Result<File> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let Some(existing) = existing else {
        return options.open(path);
    };
    let file = options.mode(0o600).open(path)?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (existing.uid(), existing.gid()) {
        // Only the administrator may; for others the file is theirs from now on, as with any program that renames.
        let _ = fchown(&file, Some(existing.uid()), Some(existing.gid()));
    }
    // Where there are no such rights, as on FAT, the file has those of the file system.
    let _ = file.set_permissions(fs::Permissions::from_mode(existing.mode() & 0o777));
    Ok(file)
}

#[cfg(not(unix))]
fn new_file(path: &Path, _: Option<&fs::Metadata>) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

fn directory(target: &Path) -> &Path {
    let named = target.parent().filter(|d| !d.as_os_str().is_empty());
    named.unwrap_or(Path::new("."))
}

/// Makes the rename itself durable, where directories can be synced; elsewhere the system does.
fn sync_directory(target: &Path) {
    if let Ok(dir) = File::open(directory(target)) {
        let _ = dir.sync_all();
    }
}
