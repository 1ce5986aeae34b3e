//! From a name to the path of a whole file.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use ureq::http::Method;

use crate::api::{self, Listing};
use crate::cache::{Repo, make_folder, write_small};
use crate::choose::{self, Candidate, Choice};
use crate::download::{self, Source};
use crate::installed::llama_cpp_name;
use crate::space::{free, human};
use crate::web::{Web, WebError};
use crate::{HubError, Limit, Name, Places, Settings, Watcher, url};

/// Bytes that are read of an unfinished file at a time.
const BLOCK: usize = 1 << 20;

/// Bytes that the disk has to have free beside the file.
const SPARE: u64 = 16 << 20;

/// The file that is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The repository, and perhaps the type.
    pub name: Name,
    /// Path of the file in the repository, where the user names it.
    pub file: Option<String>,
    /// The most bytes that it may have.
    pub limit: Option<Limit>,
}

/// A hub and the folders for what comes from it.
pub struct Hub {
    places: Places,
    settings: Settings,
    /// `None` if no connection is to be opened.
    web: Option<Web>,
}

/// A file to download.
struct Download<'a> {
    url: String,
    name: &'a str,
    size: u64,
    sha256: Option<&'a str>,
    etag: Option<String>,
    incomplete: PathBuf,
    target: PathBuf,
}

impl Hub {
    /// # Errors
    /// Certificates cannot be read.
    pub fn new(places: Places, settings: Settings) -> Result<Hub, HubError> {
        let web = if settings.offline { None } else { Some(Web::new(&settings)?) };
        Ok(Hub { places, settings, web })
    }

    /// The path of the file, fetched where it is not there yet; of a split one the path of the first shard.
    ///
    /// # Errors
    /// See [`HubError`].
    pub fn fetch(&self, wanted: &Wanted, watcher: &dyn Watcher) -> Result<PathBuf, HubError> {
        let Some(web) = &self.web else {
            return self
                .local(wanted, watcher)?
                .ok_or_else(|| HubError::Offline { what: wanted.name.to_string(), hint: self.hint(wanted) });
        };
        let listing = match api::listing(web, &self.settings.endpoint, &wanted.name) {
            Ok(listing) => listing,
            Err(WebError::Final(e)) => return Err(e),
            Err(WebError::Connection(why)) => {
                let host = url::host(&self.settings.endpoint);
                let Ok(Some(path)) = self.local(wanted, watcher) else {
                    return Err(HubError::NoNetwork { host, why, hint: self.hint(wanted) });
                };
                watcher.say(&format!("cannot reach {host} ({why}): taking what is in the cache"));
                return Ok(path);
            }
        };
        let repo = wanted.name.both();
        let candidates = choose::candidates(listing.files.iter().map(|f| (f.path.as_str(), f.size)));
        let choice = wanted.choose(&candidates)?;
        if let Some(why) = &choice.why {
            watcher.say(why);
        }
        if let Some(path) = self.in_llama_cpp(&wanted.name, &listing, &choice.candidate) {
            return Ok(path);
        }
        let cache = Repo::new(&self.places.hub, &wanted.name);
        let mut first = None;
        for path in &choice.candidate.paths {
            let Some(file) = listing.files.iter().find(|f| f.path == *path) else { continue };
            let endpoint = &self.settings.endpoint;
            let job = Download {
                url: format!("{endpoint}/{repo}/resolve/{}/{}", listing.commit, url::encode(path)),
                name: path,
                size: file.size,
                sha256: file.sha256(),
                etag: None,
                incomplete: cache.incomplete(&file.etag),
                target: cache.blob(&file.etag),
            };
            // Names that lead to whole bytes are those that other programs made.
            let named = cache.snapshot(&listing.commit).join(path);
            if fs::metadata(&named).is_ok_and(|m| m.len() == file.size) {
                first.get_or_insert(named);
                continue;
            }
            if !job.is_there() {
                let _lock = cache.lock(&file.etag, path, watcher)?;
                self.bring(web, &job, watcher)?;
            }
            first.get_or_insert(cache.name(&listing.commit, file)?);
        }
        cache.remember(&listing.commit)?;
        first.ok_or(HubError::NoGguf { repo })
    }

    /// The path of the file at an address, fetched where it is not there yet. Files of a hub's repository lie where
    /// [`Hub::fetch`] puts them.
    ///
    /// # Errors
    /// See [`HubError`].
    pub fn fetch_url(&self, address: &str, watcher: &dyn Watcher) -> Result<PathBuf, HubError> {
        if let Some(wanted) = self.repository_of(address) {
            return self.fetch(&wanted, watcher);
        }
        let wrong = || HubError::NotAnAddress(address.to_owned());
        let path = url::path(address);
        let (before, name) = path.rsplit_once('/').filter(|(_, name)| api::is_inside(name)).ok_or_else(wrong)?;
        let origin = url::origin(address).ok_or_else(wrong)?;
        let key = hex(&Sha256::digest(format!("{origin}{before}")));
        let folder = self.places.urls.join(&key[..16]);
        let mut first = None;
        for name in choose::all_shards(name) {
            let address =
                format!("{origin}{before}/{name}{}", &address[address.find(path).unwrap_or(0) + path.len()..]);
            let target = self.one_of_an_address(&address, &folder, &name, watcher)?;
            first.get_or_insert(target);
        }
        first.ok_or_else(wrong)
    }

    fn one_of_an_address(
        &self,
        address: &str,
        folder: &Path,
        name: &str,
        watcher: &dyn Watcher,
    ) -> Result<PathBuf, HubError> {
        let target = folder.join(name);
        let is_there = target.is_file();
        let hint = || format!("elsewhere: curl -L -O '{address}'");
        let Some(web) = &self.web else {
            return match is_there {
                true => Ok(target),
                false => Err(HubError::Offline { what: format!("'{address}'"), hint: hint() }),
            };
        };
        let answer = match web.ask(Method::HEAD, address, &[]) {
            Ok(answer) => answer,
            Err(WebError::Connection(why)) if is_there => {
                watcher.say(&format!("cannot reach {} ({why}): taking what is in the cache", url::host(address)));
                return Ok(target);
            }
            Err(WebError::Connection(why)) => {
                return Err(HubError::NoNetwork { host: url::host(address), why, hint: hint() });
            }
            Err(WebError::Final(e)) => return Err(e),
        };
        if answer.status() != 200 {
            return Err(api::refusal(web, &answer, &format!("'{address}'"), address));
        }
        let size = answer.told("x-linked-size").or_else(|| answer.header("content-length"));
        let size: u64 = size.and_then(|size| size.parse().ok()).ok_or_else(|| HubError::Nonsense {
            host: url::host(&answer.url),
            why: "it does not say how long the file is".to_owned(),
        })?;
        let linked = answer.told("x-linked-etag").map(|tag| tag.trim_matches('"').to_ascii_lowercase());
        let sha256 = linked.filter(|tag| tag.len() == 64 && api::is_hash(tag));
        let etag = answer.header("etag").map(str::to_owned);
        let state = sha256.clone().or_else(|| etag.clone()).unwrap_or_default();
        let beside = folder.join(format!("{name}.etag"));
        let known = fs::read_to_string(&beside).unwrap_or_default();
        if fs::metadata(&target).is_ok_and(|m| m.len() == size) && known == state {
            return Ok(target);
        }
        make_folder(folder)?;
        let version = hex(&Sha256::digest(format!("{state} {size}")));
        let job = Download {
            url: address.to_owned(),
            name,
            size,
            sha256: sha256.as_deref(),
            etag: etag.filter(|_| sha256.is_none()),
            incomplete: folder.join(format!("{name}.{}.incomplete", &version[..8])),
            target: target.clone(),
        };
        let _ = fs::remove_file(&target);
        self.bring(web, &job, watcher)?;
        write_small(&beside, state.as_bytes())?;
        Ok(target)
    }

    /// The repository and the file of an address such as `ENDPOINT/USER/REPO/resolve/main/FILE`.
    fn repository_of(&self, address: &str) -> Option<Wanted> {
        let endpoint = url::origin(&self.settings.endpoint);
        let origin = url::origin(address)?;
        if Some(&origin) != endpoint.as_ref() {
            return None;
        }
        let mut parts = url::path(address).trim_start_matches('/').splitn(5, '/');
        let (user, repo, kind, branch, file) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_file = matches!(kind, "resolve" | "blob") && branch == "main" && !file.contains('%');
        let name = Name::parse(&format!("{user}/{repo}")).ok().filter(|_| is_file)?;
        Some(Wanted { name, file: Some(file.to_owned()), limit: None })
    }

    /// Its parts in the caches; `None` where they have nothing that is meant.
    fn local(&self, wanted: &Wanted, watcher: &dyn Watcher) -> Result<Option<PathBuf>, HubError> {
        let cache = Repo::new(&self.places.hub, &wanted.name);
        let commit = cache.commit();
        let files = commit.as_ref().map(|commit| cache.files(commit)).unwrap_or_default();
        let candidates = choose::candidates(files.iter().map(|(path, size)| (path.as_str(), *size)));
        let chosen = match wanted.choose(&candidates) {
            Ok(choice) => commit.map(|commit| (cache.snapshot(&commit), choice)),
            Err(HubError::NoGguf { .. } | HubError::NoSuchTag { .. } | HubError::NoSuchFile { .. }) => None,
            Err(e) => return Err(e),
        };
        let chosen = match chosen {
            Some(chosen) => Some(chosen),
            None => self.local_in_llama_cpp(wanted),
        };
        Ok(chosen.map(|(folder, Choice { candidate, why })| {
            why.iter().for_each(|why| watcher.say(why));
            folder.join(&candidate.paths[0])
        }))
    }

    fn local_in_llama_cpp(&self, wanted: &Wanted) -> Option<(PathBuf, Choice)> {
        let start = llama_cpp_name(&wanted.name, "");
        let entries = fs::read_dir(&self.places.llama_cpp).into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| name.starts_with(&start))?;
            Some((name, entry.metadata().ok()?.len()))
        });
        let mut files: Vec<(String, u64)> = files.collect();
        files.sort();
        let candidates = choose::candidates(files.iter().map(|(path, size)| (path.as_str(), *size)));
        let file = wanted.file.as_ref().map(|file| llama_cpp_name(&wanted.name, file));
        let choice = Wanted { file, ..wanted.clone() }.choose(&candidates).ok()?;
        Some((self.places.llama_cpp.clone(), choice))
    }

    /// The path of a file that an earlier version of llama.cpp has fetched, with all its shards.
    fn in_llama_cpp(&self, name: &Name, listing: &Listing, candidate: &Candidate) -> Option<PathBuf> {
        let mut first = None;
        for path in &candidate.paths {
            let at = self.places.llama_cpp.join(llama_cpp_name(name, path));
            let size = listing.files.iter().find(|f| f.path == *path)?.size;
            if !fs::metadata(&at).is_ok_and(|m| m.is_file() && m.len() == size) {
                return None;
            }
            first.get_or_insert(at);
        }
        first
    }

    /// How somebody with a network can have the file.
    fn hint(&self, wanted: &Wanted) -> String {
        let repo = wanted.name.both();
        match (&wanted.file, &wanted.name.tag) {
            (Some(file), _) => {
                format!(
                    "elsewhere: curl -L -O {}/{repo}/resolve/main/{}, and here -m FILE",
                    self.settings.endpoint,
                    url::encode(file)
                )
            }
            (None, Some(tag)) => {
                format!("elsewhere: hf download {repo} --include '*{tag}*.gguf' --local-dir ., and here -m FILE")
            }
            (None, None) => format!("elsewhere: hf download {repo} --include '*.gguf' --local-dir ., and here -m FILE"),
        }
    }

    /// Fetches a file, or the rest of it. Bytes of an earlier run that turn out to be wrong are fetched anew, once.
    fn bring(&self, web: &Web, job: &Download<'_>, watcher: &dyn Watcher) -> Result<(), HubError> {
        // Another process may have been faster while this one waited.
        if job.is_there() {
            return Ok(());
        }
        let folder = job.incomplete.parent().unwrap_or(Path::new("."));
        make_folder(folder)?;
        loop {
            let (was_there, done) = self.attempt(web, job, folder, watcher)?;
            match done {
                Err(HubError::WrongHash { .. }) if was_there > 0 => {
                    watcher.say(&format!("{}: what an earlier run left is damaged; fetching it anew", job.name));
                }
                other => return other,
            }
        }
    }

    /// Says how many bytes were there before, and what came of the rest.
    fn attempt(
        &self,
        web: &Web,
        job: &Download<'_>,
        folder: &Path,
        watcher: &dyn Watcher,
    ) -> Result<(u64, Result<(), HubError>), HubError> {
        let failed = |what| HubError::io(what, &job.incomplete);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&job.incomplete);
        let mut out = open.map_err(failed("write"))?;
        let mut hash = Sha256::new();
        let mut have = out.metadata().map_err(failed("look at"))?.len();
        if have > job.size {
            out.set_len(0).map_err(failed("write"))?;
            have = 0;
        }
        let missing = job.size - have;
        if let Some(free) = free(folder).filter(|free| *free < missing.saturating_add(SPARE)) {
            let (need, free) = (human(missing + SPARE), human(free));
            return Err(HubError::NoSpace { need, free, folder: folder.to_owned() });
        }
        watcher.begin(job.name, job.size, have);
        read_into(&mut out, &mut hash, have).map_err(failed("read"))?;
        let source = Source {
            web,
            url: job.url.clone(),
            name: job.name.to_owned(),
            size: job.size,
            etag: job.etag.clone(),
            piece: self.settings.piece,
            pause: self.settings.pause,
        };
        let fetched = download::fetch(&source, &mut out, &mut hash, have, watcher);
        watcher.end();
        let throw_away = || {
            let _ = out.set_len(0);
            let _ = fs::remove_file(&job.incomplete);
        };
        if let Err(e) = fetched {
            if matches!(e, HubError::Changed(_)) {
                throw_away();
            }
            return Ok((have, Err(e)));
        }
        let found = hex(&hash.finalize());
        if let Some(expected) = job.sha256.filter(|expected| *expected != found) {
            throw_away();
            let (file, expected) = (job.name.to_owned(), expected.to_owned());
            return Ok((have, Err(HubError::WrongHash { file, found, expected })));
        }
        out.sync_all().map_err(failed("write"))?;
        drop(out);
        fs::rename(&job.incomplete, &job.target).map_err(HubError::io("give its name to", &job.target))?;
        Ok((have, Ok(())))
    }
}

impl Download<'_> {
    /// True if the whole file has its name already.
    fn is_there(&self) -> bool {
        fs::metadata(&self.target).is_ok_and(|m| m.is_file() && m.len() == self.size)
    }
}

impl Wanted {
    fn choose(&self, candidates: &[Candidate]) -> Result<Choice, HubError> {
        let repo = self.name.both();
        match &self.file {
            Some(file) => choose::by_file(&repo, candidates, file),
            None => choose::choose(&repo, candidates, self.name.tag.as_deref(), self.limit.as_ref()),
        }
    }
}

/// Bytes in hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes the first `have` bytes of a file and stands behind them.
fn read_into(file: &mut File, hash: &mut Sha256, have: u64) -> std::io::Result<()> {
    let mut left = have;
    let mut block = vec![0; BLOCK.min(usize::try_from(have).unwrap_or(BLOCK)).max(1)];
    file.seek(SeekFrom::Start(0))?;
    while left > 0 {
        let most = block.len().min(usize::try_from(left).unwrap_or(block.len()));
        let n = file.read(&mut block[..most])?;
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        hash.update(&block[..n]);
        left -= n as u64;
    }
    Ok(())
}
