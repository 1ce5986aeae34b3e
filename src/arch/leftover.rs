//! Tensors of a file that a model has no place for.

use std::collections::HashSet;
use std::ops::Range;

use super::{Arch, factors};

/// Names that a message spells out.
const SHOWN: usize = 8;

impl Arch {
    /// Describes the error of a file whose tensors `names` are not all among those `used`, if there is one. A tensor
    /// without a place is an error: the architecture would compute something else than the file was made for. Exempt
    /// are tensors that the reference loads and never uses: factors of matrices that are there ([`factors`]), tensors
    /// for other uses of a model, and the blocks `further`, which predict further tokens.
    pub(crate) fn leftover<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        used: &HashSet<String>,
        further: Range<usize>,
    ) -> Option<String> {
        let names: Vec<&str> = names.collect();
        let all: HashSet<&str> = names.iter().copied().collect();
        let ignored = |name: &str| {
            // an encoder's blocks, and those of a decoder beside one, are counted from 0 both
            let bare = ["enc.", "dec."].iter().find_map(|half| name.strip_prefix(half)).unwrap_or(name);
            let in_block = bare.strip_prefix("blk.").and_then(|n| n.split_once('.'));
            match in_block {
                Some((number, name)) => {
                    number.parse().is_ok_and(|n: usize| further.contains(&n))
                        || self.ignored.contains(&name)
                        || factors::projection(name).is_some_and(|(projection, _)| {
                            // blocks that run several times have factors for every run
                            self.cycles || all.contains(&*format!("blk.{number}.{projection}.weight"))
                        })
                }
                None => self.ignored.contains(&name),
            }
        };
        let mut left: Vec<&str> = names.into_iter().filter(|n| !used.contains(*n) && !ignored(n)).collect();
        left.dedup();
        let more = match left.len() {
            0 => return None,
            n if n > SHOWN => format!(" and {} more", n - SHOWN),
            _ => String::new(),
        };
        left.truncate(SHOWN);
        Some(format!("{}{more}", left.join(", ")))
    }
}
