//! Tensors of a file that a model has no place for.

use std::collections::HashSet;
use std::ops::Range;

use super::Arch;

/// Names that a message spells out.
const SHOWN: usize = 8;

impl Arch {
    /// What is wrong with a file whose tensors `names` are not all among those `used`. A tensor without a place is an error:
    /// the architecture would compute something else than the file was made for. Not meant are tensors that the reference
    /// loads and never uses: factors of projections whose graph has none, those of activations, what serves other uses of a
    /// model, and the blocks `further`, which predict further tokens.
    pub(crate) fn leftover<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        used: &HashSet<String>,
        further: Range<usize>,
    ) -> Option<String> {
        let ignored = |name: &str| {
            let in_block = name.strip_prefix("blk.").and_then(|n| n.split_once('.'));
            match in_block {
                Some((number, name)) => {
                    number.parse().is_ok_and(|n: usize| further.contains(&n))
                        || name.ends_with(".input_scale")
                        || name.ends_with(".scale")
                        || self.ignored.contains(&name)
                }
                None => self.ignored.contains(&name),
            }
        };
        let mut left: Vec<&str> = names
            .filter(|n| !used.contains(*n) && !ignored(n))
            .collect();
        left.dedup();
        let more = match left.len() {
            0 => return None,
            n if n > SHOWN => format!(" and {} more", n - SHOWN),
            _ => String::new(),
        };
        left.truncate(SHOWN);
        Some(format!(
            "the architecture has no place for {}{more}",
            left.join(", ")
        ))
    }
}
