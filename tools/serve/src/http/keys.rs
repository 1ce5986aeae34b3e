//! Keys that requests must show.

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use trine_tools::text;

use crate::args::Args;

/// The keys of a server, as digests: how long a comparison takes tells nothing of a key, not even its length.
#[derive(Clone, Default)]
pub struct Keys {
    digests: Vec<[u8; 32]>,
}

impl Keys {
    /// The keys that the options and the file give.
    ///
    /// # Errors
    /// The file cannot be read, or others can read it.
    pub fn gather(args: &Args) -> Result<Keys> {
        let mut keys = args.api_key.clone();
        if let Some(path) = &args.api_key_file {
            #[cfg(unix)]
            check_mode(path)?;
            let from = format!("'{}'", path.display());
            let lines = text::utf8(text::read_file(path)?, &from)?;
            keys.extend(lines.lines().map(|l| l.trim().to_owned()));
            if keys.iter().all(String::is_empty) {
                bail!("{from} has no keys: write one a line");
            }
        }
        Ok(Keys::new(keys.iter().map(String::as_str)))
    }

    fn new<'a>(keys: impl Iterator<Item = &'a str>) -> Keys {
        let keys = keys.filter(|k| !k.is_empty());
        Keys { digests: keys.map(|k| Sha256::digest(k).into()).collect() }
    }

    /// True if there are none, so that everybody may ask.
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// True if there are several, so that there are several parties.
    pub fn are_several(&self) -> bool {
        self.digests.len() > 1
    }

    /// The name of the party that shows `key`: the beginning of its digest. All keys are looked at, whichever fits.
    pub fn tenant(&self, key: &str) -> Option<String> {
        let shown: [u8; 32] = Sha256::digest(key).into();
        let mut found = Choice::from(0);
        let mut tenant = [0; 4];
        for digest in &self.digests {
            let equal = digest.ct_eq(&shown);
            found |= equal;
            for (t, d) in tenant.iter_mut().zip(digest) {
                t.conditional_assign(d, equal);
            }
        }
        bool::from(found).then(|| text::hex(&tenant))
    }
}

/// A file of keys is not for everybody. Its group may read it: what systemd hands to a service looks like that.
#[cfg(unix)]
fn check_mode(path: &std::path::Path) -> Result<()> {
    use anyhow::Context as _;
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
        let keys = Keys::new(["one", "", "two"].into_iter());
        assert!(keys.are_several());
        let (one, two) = (keys.tenant("one"), keys.tenant("two"));
        assert!(one.is_some() && two.is_some() && one != two);
        for wrong in ["", "on", "onee", "three", "one,two"] {
            assert_eq!(keys.tenant(wrong), None, "{wrong}");
        }
        assert_eq!(Keys::default().tenant(""), None);
    }
}
