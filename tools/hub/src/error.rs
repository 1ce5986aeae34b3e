//! Why a model could not be had, in one line each.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a model could not be had.
#[derive(Debug, Error)]
pub enum HubError {
    /// The text names no repository.
    #[error("'{0}' names no repository: give USER/REPO or USER/REPO:QUANT, such as ggml-org/gemma-3-1b-it-GGUF:Q4_K_M")]
    NotAName(String),
    /// The text is no address.
    #[error("'{0}' is no address: it begins with http:// or https:// and names a host and a file")]
    NotAnAddress(String),
    /// The answer of the hub cannot be understood.
    #[error("the answer of {host} is not what a model hub says: {why}")]
    Nonsense {
        /// The host.
        host: String,
        /// The first thing that is wrong.
        why: String,
    },
    /// No connection is to be opened, and the file is not there.
    #[error("{what} is not in the cache, and no connection is opened (--offline or HF_HUB_OFFLINE); {hint}")]
    Offline {
        /// The repository or the address.
        what: String,
        /// How the file can be had otherwise.
        hint: String,
    },
    /// The hub cannot be reached.
    #[error("cannot reach {host}: {why}; {hint}")]
    NoNetwork {
        /// The host.
        host: String,
        /// The error of the connection.
        why: String,
        /// How the file can be had otherwise.
        hint: String,
    },
    /// Whoever wants the repository has to accept its licence on its page first.
    #[error("{repo} is gated: accept its terms at {page}, then give a token of your account with -hft or HF_TOKEN")]
    Gated {
        /// The repository.
        repo: String,
        /// Its page.
        page: String,
    },
    /// The token is refused, or there is none.
    #[error("{what}: {host} answers {status}: {advice}")]
    Denied {
        /// The repository or the address.
        what: String,
        /// The host.
        host: String,
        /// 401 or 403.
        status: u16,
        /// A way out.
        advice: &'static str,
    },
    /// The hub does not have it.
    #[error("{what}: {host} has nothing by this name (404)")]
    NotFound {
        /// The repository or the address.
        what: String,
        /// The host.
        host: String,
    },
    /// An answer with a status that has no case of its own.
    #[error("{what}: {host} answers {status}{said}")]
    Status {
        /// The repository or the address.
        what: String,
        /// The host.
        host: String,
        /// Its answer.
        status: u16,
        /// The answer's own words, behind a colon, or nothing.
        said: String,
    },
    /// The repository has no model in this form.
    #[error("{repo} has no GGUF file; repositories of GGUF files often have names that end in -GGUF")]
    NoGguf {
        /// The repository.
        repo: String,
    },
    /// The repository has no file of this type.
    #[error("{repo} has no {tag}; it has {have}")]
    NoSuchTag {
        /// The repository.
        repo: String,
        /// The type that was asked for.
        tag: String,
        /// The types that there are.
        have: String,
    },
    /// The repository has no file of this name.
    #[error("{repo} has no file '{file}'; its GGUF files are {have}")]
    NoSuchFile {
        /// The repository.
        repo: String,
        /// The file that was asked for.
        file: String,
        /// The files that there are.
        have: String,
    },
    /// All files are too large.
    #[error("{repo} has nothing of at most {limit}: the smallest is {smallest}")]
    TooLarge {
        /// The repository.
        repo: String,
        /// The limit.
        limit: String,
        /// The smallest, with its size.
        smallest: String,
    },
    /// The disk is too small.
    #[error("{need} are needed in '{folder}', and {free} are free; HF_HUB_CACHE names another folder")]
    NoSpace {
        /// Bytes of the file that are missing.
        need: String,
        /// Bytes that the disk has.
        free: String,
        /// The folder of the cache.
        folder: PathBuf,
    },
    /// The bytes are not those that the hub promised.
    #[error(
        "{file} came with SHA-256 {found}, and {expected} was promised: it is thrown away; try again, or ask who serves it"
    )]
    WrongHash {
        /// The file.
        file: String,
        /// The hash of what came.
        found: String,
        /// The hash that the hub names.
        expected: String,
    },
    /// The file on the server is another one since the download began.
    #[error("{0} changed on the server while it was fetched; run the same command again")]
    Changed(String),
    /// The connection broke again and again.
    #[error("{file}: {why}; what came is kept: the same command goes on from there")]
    Broken {
        /// The file.
        file: String,
        /// The last error.
        why: String,
    },
    /// TLS cannot be had.
    #[error("{0}")]
    Tls(String),
    /// The system refuses.
    #[error("cannot {what} '{path}'")]
    Io {
        /// The attempt.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl HubError {
    /// For `map_err`: the system refuses to do `what` at `path`.
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> HubError {
        let path = path.into();
        move |source| HubError::Io { what, path, source }
    }
}
