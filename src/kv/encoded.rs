//! Keys and values in types other than half floats: a row of blocks for each position and head, as in files.
//!
//! ```text
//! layer   [KV head]
//! head    keys [position], values [position]
//! ```

use std::ops::Range;

use super::layout::LayerLayout;
use super::sequence::SequenceRows;
use trine_formats::types::EncodeFn;

use crate::kernels::elements::hadamard;
use crate::kernels::{self, Isa};
use crate::pool;

/// One head of one page, and the rows of the pass that go there.
struct Strip<'a> {
    bytes: &'a mut [u8],
    head: usize,
    /// Positions in the page.
    positions: Range<usize>,
    /// Row of the pass that goes to the first of them.
    row: usize,
}

/// Stores the keys and values of a pass, `[rows][heads * elements]`, in the types of their layout, turned where it says
/// so.
pub(super) fn store(
    isa: Isa,
    layout: &LayerLayout,
    layer: usize,
    parts: &mut [SequenceRows<'_>],
    (k, v): (&[f32], &[f32]),
) {
    let encoder = |ty| kernels::encode_rows(ty, isa).expect("checked when loading");
    let (keys, values) = (encoder(layout.types.keys), encoder(layout.types.values));
    let mut strips = Vec::new();
    for part in parts {
        let mut row = part.rows.start;
        let positions = part.positions();
        for (positions, bytes) in part.seq.writable_bytes(layer, positions) {
            let heads = bytes.chunks_mut(layout.head_bytes()).enumerate();
            strips.extend(heads.map(|(head, bytes)| Strip { bytes, head, positions: positions.clone(), row }));
            row += positions.len();
        }
    }
    pool::chunks_mut(&mut strips, 1, |_, strips| {
        for strip in strips {
            let all = layout.positions * layout.key_bytes();
            let (to_keys, to_values) = strip.bytes.split_at_mut(all);
            let put = |x: &[f32], size: usize, turn: Option<usize>, encode: EncodeFn, to: &mut [u8]| {
                let bytes = to.len() / layout.positions;
                let mut own = vec![0f32; size];
                for (position, row) in strip.positions.clone().zip(strip.row..) {
                    let at = (row * layout.n_head + strip.head) * size;
                    own.copy_from_slice(&x[at..][..size]);
                    if let Some(n) = turn {
                        hadamard(isa, &mut own, n);
                    }
                    encode(&own, None, &mut to[position * bytes..][..bytes]);
                }
            };
            put(k, layout.head_dim, layout.key_turn(), keys, to_keys);
            put(v, layout.value_dim, layout.value_turn(), values, to_values);
        }
    });
}
