//! Matrices that the keys of a rotation name.

use std::collections::BTreeSet;

use trine_formats::rotated::{KINDS, OUTPUT, Rotated, block_and_kind};

use crate::arch::{Arch, Extent, Role};

/// The matrices of a model that a rotation can name: those that its program multiplies by.
pub struct Nameable<'m> {
    /// The architecture's description.
    pub arch: &'static Arch,
    /// Tensors that the program multiplies by.
    pub multiplied: &'m BTreeSet<String>,
}

impl Nameable<'_> {
    /// True of a matrix that every rotation names: the output matrix, and those that PrismML's programs rotate too.
    pub fn always(&self, name: &str) -> bool {
        let known = name == OUTPUT || block_and_kind(name).is_some_and(|(_, kind)| KINDS.contains(&kind));
        known && self.multiplied.contains(name)
    }

    /// True of a matrix that is named where its rows are whole blocks: a projection by the architecture's description.
    /// One with a row for each head, expert or stream alone is left in its basis, as its products decide much with few
    /// weights.
    pub fn where_it_fits(&self, name: &str) -> bool {
        let Some((_, kind)) = block_and_kind(name) else {
            return false;
        };
        let mut tensors = [false, true].into_iter().flat_map(|experts| self.arch.block_tensors(experts));
        let described = tensors.any(|t| {
            let own = t.gguf.strip_prefix("enc.").unwrap_or(t.gguf);
            let projects =
                matches!(t.role, Role::ByRows | Role::ByColumns) && t.shape.first().is_some_and(|&e| is_wide(e));
            own.strip_suffix(".weight") == Some(kind) && projects
        });
        described && Rotated::can_name(name) && self.multiplied.contains(name)
    }
}

/// False of extents that count heads, experts or streams.
fn is_wide(extent: Extent) -> bool {
    use Extent::{
        Experts, Heads, KvHeads, One, OtherStreams, StateGroups, StateHeads, StreamMixes, StreamPairs, Streams,
        TwiceStateHeads, TwiceStreams, Two,
    };
    let counts = [
        One,
        Two,
        Heads,
        KvHeads,
        Experts,
        StateHeads,
        TwiceStateHeads,
        StateGroups,
        Streams,
        TwiceStreams,
        StreamMixes,
        StreamPairs,
        OtherStreams,
    ];
    !counts.contains(&extent)
}
