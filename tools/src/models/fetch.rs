//! Models from a hub, from an address, and those that are there.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use trine_hub::{Hub, Installed, Limit, Name, Places, Settings, Wanted, find, installed};

use super::options::{Asked, Fetched};
use super::screen::Screen;
use crate::memory;

/// This part of the memory that is free may be a model's file: the cache of keys and values and the rest need the
/// others.
const SHARE: (u64, u64) = (4, 5);

/// Names of models that are shown to those who gave nothing to do.
const SHOWN: usize = 5;

/// The files of the models that are asked for.
///
/// # Errors
/// See [`trine_hub::HubError`].
pub fn fetch(asked: &Asked) -> Result<Fetched> {
    if !asked.is_for_a_model() && asked.draft.is_none() {
        return Ok(Fetched::default());
    }
    let mut settings = Settings::from_env();
    settings.offline |= asked.offline;
    settings.token = asked.token.clone().or(settings.token);
    let hub = Hub::new(Places::from_env(), settings)?;
    let limit = match asked.size {
        Some(bytes) => Some(Limit { bytes: bytes as u64, asked: true }),
        None => memory::available().map(|bytes| Limit { bytes: bytes / SHARE.1 * SHARE.0, asked: false }),
    };
    let screen = Screen::default();
    let mut models = Vec::new();
    for repo in &asked.repos {
        let wanted = Wanted { name: Name::parse(repo)?, file: asked.file.clone(), limit: limit.clone() };
        models.push(hub.fetch(&wanted, &screen)?);
    }
    for url in &asked.urls {
        models.push(hub.fetch_url(url, &screen)?);
    }
    let draft = match &asked.draft {
        Some(repo) => {
            let limit = limit.filter(|limit| !limit.asked);
            Some(hub.fetch(&Wanted { name: Name::parse(repo)?, file: None, limit }, &screen)?)
        }
        None => None,
    };
    Ok(Fetched { models, draft })
}

/// The files that stand for a model's name where there is no such file; `None` where the name is one of a file, or of
/// nothing that is known. `several` says that names may be separated by commas.
///
/// # Errors
/// It looks like a repository, of which nothing is here.
pub fn found(name: &OsStr, several: bool) -> Result<Option<OsString>> {
    let Some(text) = name.to_str().filter(|_| !Path::new(name).exists()) else {
        return Ok(None);
    };
    let parts: Vec<&str> = if several { text.split(',').collect() } else { vec![text] };
    let mut paths = Vec::new();
    let mut is_new = false;
    for part in parts {
        match one(part)? {
            Some(path) => {
                is_new = true;
                paths.push(path.into_os_string());
            }
            None => paths.push(part.into()),
        }
    }
    Ok(is_new.then(|| paths.join(OsStr::new(","))))
}

fn one(name: &str) -> Result<Option<PathBuf>> {
    if name.is_empty() || Path::new(name).exists() {
        return Ok(None);
    }
    let all = find(&Places::from_env(), name);
    if let Some(Installed { name: whole, path, store, .. }) = all.first() {
        let others: Vec<&str> = all[1..].iter().map(|m| m.name.as_str()).collect();
        let beside = if others.is_empty() { String::new() } else { format!("; there are also {}", others.join(", ")) };
        note!("{name}: {whole}, in the store of {}{beside}", store.name());
        return Ok(Some(path.clone()));
    }
    let is_file = Path::new(name).extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
    if !is_file && Name::parse(name).is_ok() {
        bail!("'{name}' is no file, and no model of this name is here: -hf {name} fetches it");
    }
    Ok(None)
}

/// Lines about the models that a tool can be started with by name.
pub fn here(tool: &str) -> Vec<String> {
    let all = installed(&Places::from_env());
    let mut lines = vec![match all.is_empty() {
        true => format!("{tool} -hf USER/REPO fetches a model and runs it."),
        false => format!("{tool} NAME runs a model that is here:"),
    }];
    lines.extend(all.iter().take(SHOWN).map(|model| format!("  {}", model.name)));
    if all.len() > SHOWN {
        lines.push(format!("  and {} more: trine list", all.len() - SHOWN));
    }
    lines
}
