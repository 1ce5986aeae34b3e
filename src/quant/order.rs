//! The order in which llama.cpp keeps tensors, and the renumbering of layers after pruning.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The layer number in a name that starts with `blk.`, read as C's `sscanf("blk.%d.")` does: white
/// space and a sign are allowed, and what follows the digits does not matter.
pub fn layer(name: &str) -> Option<i32> {
    let rest = name.strip_prefix("blk.")?;
    let rest = rest.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (negative, digits) = match rest.as_bytes().first()? {
        b'-' => (true, &rest[1..]),
        b'+' => (false, &rest[1..]),
        _ => (false, rest),
    };
    let end = digits.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return None;
    }
    // saturates as strtol does, and keeps the low half as an int store does
    let magnitude: i64 = digits[..end].parse().unwrap_or(i64::MAX);
    Some(if negative { magnitude.wrapping_neg() } else { magnitude } as i32)
}

/// Tensors outside the layers first, then layer by layer; by bytes of the name within each.
pub fn compare(a: &str, b: &str) -> Ordering {
    (layer(a).unwrap_or(-1), a).cmp(&(layer(b).unwrap_or(-1), b))
}

/// Layer renumbering: the layers that are pruned, and the new numbers of the others.
#[derive(Debug, Default)]
pub struct Pruning {
    layers: Vec<u32>,
    mapped: BTreeMap<u32, Option<u32>>,
    next: u32,
}

impl Pruning {
    /// `layers` are to go: ascending and distinct.
    pub fn new(layers: &[u32]) -> Pruning {
        Pruning { layers: layers.to_vec(), ..Pruning::default() }
    }

    /// The name of the next tensor, given in llama.cpp's order, or `None` when its layer goes.
    /// New numbers are given out in the order in which layers are met.
    pub fn rename(&mut self, name: &str) -> Option<String> {
        let Some(&first) = self.layers.first() else {
            return Some(name.to_owned());
        };
        let Some((start, end)) = block_number(name) else {
            return Some(name.to_owned());
        };
        let Ok(old) = name[start..end].parse::<u32>() else {
            return Some(name.to_owned());
        };
        let new = *self.mapped.entry(old).or_insert_with(|| {
            if self.layers.binary_search(&old).is_ok() {
                None
            } else if old < first {
                self.next = old + 1;
                Some(old)
            } else {
                self.next += 1;
                Some(self.next - 1)
            }
        });
        new.map(|new| format!("{}{new}{}", &name[..start], &name[end..]))
    }

    /// `block_count` after pruning.
    pub fn n_layers(&self) -> u32 {
        self.next
    }

    /// True if `layer` was met and left out.
    pub fn met(&self, layer: u32) -> bool {
        self.mapped.contains_key(&layer)
    }
}

/// Where the digits of the first `blk.N.` stand in a name.
fn block_number(name: &str) -> Option<(usize, usize)> {
    name.match_indices("blk.").find_map(|(at, prefix)| {
        let start = at + prefix.len();
        let digits = name[start..].bytes().take_while(u8::is_ascii_digit).count();
        let closed = name[start + digits..].starts_with('.');
        (digits > 0 && closed).then_some((start, start + digits))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_names() {
        assert_eq!(layer("blk.10.attn_q.weight"), Some(10));
        assert_eq!(layer("blk.7x"), Some(7));
        assert_eq!(layer("blk.-3."), Some(-3));
        assert_eq!(layer("blk.x."), None);
        assert_eq!(layer("v.blk.1.x"), None);
        assert_eq!(layer("blk."), None);
    }

    #[test]
    fn order_is_by_layer_then_bytes() {
        let mut names = ["blk.10.a", "blk.2.b", "output.weight", "blk.2.a", "rope", "Z", "v.blk.10.a", "v.blk.9.a"];
        names.sort_by(|a, b| compare(a, b));
        let want = ["Z", "output.weight", "rope", "v.blk.10.a", "v.blk.9.a", "blk.2.a", "blk.2.b", "blk.10.a"];
        assert_eq!(names, want);
    }

    #[test]
    fn pruning_renumbers() {
        let mut p = Pruning::new(&[1, 3]);
        let names = ["rope", "blk.0.a", "blk.1.a", "blk.1.b", "blk.2.a", "blk.3.a", "blk.4.a", "blk.4.b"];
        let got: Vec<_> = names.iter().map(|n| p.rename(n)).collect();
        let some = |s: &str| Some(s.to_owned());
        let want = [some("rope"), some("blk.0.a"), None, None, some("blk.1.a"), None, some("blk.2.a"), some("blk.2.b")];
        assert_eq!(got, want);
        assert_eq!(p.n_layers(), 3);
        assert!(p.met(3) && !p.met(9));
    }
}
