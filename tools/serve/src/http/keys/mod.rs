//! Keys that requests must show, and what their holders may do.

mod file;
mod key;
mod limits;
mod usage;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use trine_tools::text;

use crate::args::Args;

pub use key::{Key, Turn};

/// The keys of a server.
#[derive(Debug, Default)]
pub struct Keys {
    /// Keys of the command line and the environment.
    given: Vec<Key>,
    file: Option<PathBuf>,
    all: RwLock<Arc<Vec<Arc<Key>>>>,
}

impl Keys {
    /// The keys that the options and the file give.
    ///
    /// # Errors
    /// The file cannot be read, or others can read it; a line that makes no sense.
    pub fn gather(args: &Args) -> Result<Keys> {
        let given = args.api_key.iter().filter(|key| !key.is_empty()).map(|key| Key::plain(key)).collect();
        let keys = Keys { given, file: args.api_key_file.clone(), all: RwLock::default() };
        keys.read_again()?;
        Ok(keys)
    }

    /// Reads the file again, and returns the number of keys. Where that fails all stays as it was.
    ///
    /// # Errors
    /// As [`Keys::gather`].
    pub fn read_again(&self) -> Result<usize> {
        let mut keys = self.given.clone();
        if let Some(path) = &self.file {
            keys.extend(read(path)?);
        }
        let before = self.all();
        for key in &mut keys {
            if let Some(same) = before.iter().find(|same| same.digest == key.digest) {
                key.usage = same.usage.clone();
            }
        }
        let n = keys.len();
        let all = Arc::new(keys.into_iter().map(Arc::new).collect());
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = all;
        Ok(n)
    }

    fn all(&self) -> Arc<Vec<Arc<Key>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if there are none, so that everybody may ask.
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// True if there are several, so that there are several parties.
    pub fn are_several(&self) -> bool {
        self.all().len() > 1
    }

    /// The key that is shown. All keys are looked at, whichever fits.
    pub fn find(&self, shown: &str) -> Option<Arc<Key>> {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        let (all, mut found, mut at) = (self.all(), Choice::from(0), 0_u64);
        for (i, key) in all.iter().enumerate() {
            let equal = key.digest.ct_eq(&shown);
            found |= equal;
            at.conditional_assign(&(i as u64), equal);
        }
        bool::from(found).then(|| all.get(at as usize).cloned()).flatten()
    }
}

/// The keys of a file.
fn read(path: &Path) -> Result<Vec<Key>> {
    #[cfg(unix)]
    check_mode(path)?;
    let from = format!("'{}'", path.display());
    let keys = file::parse(&text::utf8(text::read_file(path)?, &from)?).with_context(|| from.clone())?;
    if keys.is_empty() {
        bail!("{from} has no keys: write one a line");
    }
    Ok(keys)
}

/// A file of keys is not for everybody. Its group may read it: what systemd hands to a service looks like that.
///
/// # Errors
/// Everybody can read the file, or it is not there.
#[cfg(unix)]
pub fn check_mode(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let shown = path.display();
    let about = std::fs::metadata(path).with_context(|| format!("cannot read '{shown}'"))?;
    if about.permissions().mode() & 0o027 != 0 {
        bail!("everybody can read '{shown}', or its group can change it: chmod 600 takes that away");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_party() {
        let all = ["one", "two"].map(|key| Arc::new(Key::plain(key))).to_vec();
        let keys = Keys { all: RwLock::new(Arc::new(all)), ..Keys::default() };
        assert!(keys.are_several());
        let party = |key| keys.find(key).map(|key| key.party());
        let (one, two) = (party("one"), party("two"));
        assert!(one.is_some() && two.is_some() && one != two);
        for wrong in ["", "on", "onee", "three", "one,two"] {
            assert_eq!(party(wrong), None, "{wrong}");
        }
        assert!(Keys::default().find("").is_none());
    }
}
