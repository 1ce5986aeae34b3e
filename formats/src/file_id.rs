//! Which file a path leads to, whatever links lie between.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Identity of a file under all its names: device, inode and the time it was made, where the system has them. An
/// inode's number is reused after its file is gone; the time tells the two apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileId(Id);

#[cfg(unix)]
type Id = (u64, u64, Option<std::time::SystemTime>);
#[cfg(not(unix))]
type Id = PathBuf;

impl FileId {
    /// The file that `path` leads to.
    ///
    /// # Errors
    /// There is none, or it cannot be looked at.
    #[cfg(unix)]
    pub fn of(path: &Path) -> io::Result<FileId> {
        use std::os::unix::fs::MetadataExt;
        let meta = fs::metadata(path)?;
        Ok(FileId((meta.dev(), meta.ino(), meta.created().ok())))
    }

    /// The file that `path` leads to.
    ///
    /// # Errors
    /// There is none, or it cannot be looked at.
    #[cfg(not(unix))]
    pub fn of(path: &Path) -> io::Result<FileId> {
        fs::canonicalize(path).map(FileId)
    }

    /// True if `file` is open under the name `path`, itself and not through a link.
    #[cfg(unix)]
    pub(crate) fn is_at(file: &fs::File, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let id = |m: fs::Metadata| (m.dev(), m.ino());
        match (file.metadata(), fs::symlink_metadata(path)) {
            (Ok(open), Ok(named)) => id(open) == id(named),
            _ => false,
        }
    }

    /// True if `file` is open under the name `path`, itself and not through a link.
    #[cfg(not(unix))]
    pub(crate) fn is_at(_: &fs::File, path: &Path) -> bool {
        path.exists()
    }
}

/// True if two paths lead to one file, through links too. False if either leads nowhere.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((FileId::of(a), FileId::of(b)), (Ok(a), Ok(b)) if a == b)
}

/// Most links that are followed one after another, as on Linux.
const MAX_LINKS: usize = 40;

/// Where `path` leads to in the end. Unlike [`fs::canonicalize`] it also follows links to files that do not exist yet,
/// which is what programs do that open a file to write it.
///
/// # Errors
/// Links that lead in a circle.
pub fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            // An absolute link takes the place of the whole path.
            Ok(link) => path = path.parent().unwrap_or(Path::new("")).join(link),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many links lead from one to the next"))
}
