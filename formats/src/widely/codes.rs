//! Code words: sixteen columns of one stream to 32 bits.

use super::{MAX_STAGES, TILE};

/// Columns of a word.
pub const CHUNK: usize = 16;

/// The part of a matrix that shares scales.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scope {
    /// The whole matrix.
    #[default]
    Tensor,
    /// A complex row.
    Row,
    /// A tile of 64 complex rows and 64 complex columns.
    Tile64,
}

/// Extents of a widely linear matrix, in complex rows and columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Complex rows, half as many as real ones.
    pub rows: usize,
    /// Complex columns, half as many as real ones.
    pub columns: usize,
    /// Stages of `U` and of `W`, 1 to [`MAX_STAGES`].
    pub stages: usize,
    /// The part that shares scales.
    pub scope: Scope,
}

impl Shape {
    /// The shape of a real matrix; `None` where a side is odd or empty, or the stages are none that exist.
    pub fn of_real(rows: usize, columns: usize, stages: usize, scope: Scope) -> Option<Shape> {
        let halves = rows.is_multiple_of(2) && columns.is_multiple_of(2);
        (halves && rows > 0 && columns > 0 && (1..=MAX_STAGES).contains(&stages)).then_some(Shape {
            rows: rows / 2,
            columns: columns / 2,
            stages,
            scope,
        })
    }

    /// Words that a row of one stream has.
    pub fn chunks(&self) -> usize {
        self.columns.div_ceil(CHUNK)
    }

    /// Streams: the stages of `U` and then those of `W`.
    pub fn streams(&self) -> usize {
        2 * self.stages
    }

    /// Words of a row of all streams.
    pub fn row_words(&self) -> usize {
        self.chunks() * self.streams()
    }

    /// Tiles side by side in a row, where tiles have scales; otherwise the one group that a row lies in.
    pub fn tiles(&self) -> usize {
        match self.scope {
            Scope::Tile64 => self.columns.div_ceil(TILE),
            Scope::Tensor | Scope::Row => 1,
        }
    }

    /// Chunks that share their scales in a row.
    pub fn chunks_of_tile(&self) -> usize {
        match self.scope {
            Scope::Tile64 => TILE / CHUNK,
            Scope::Tensor | Scope::Row => self.chunks(),
        }
    }

    /// Groups with scales of their own.
    pub fn groups(&self) -> usize {
        match self.scope {
            Scope::Tensor => 1,
            Scope::Row => self.rows,
            Scope::Tile64 => self.rows.div_ceil(TILE) * self.tiles(),
        }
    }

    /// Scales of one group: of both axes, of every stage, of `U` and of `W`.
    pub fn group_scales(&self) -> usize {
        2 * self.streams()
    }

    /// The scales of tile `tile` of row `row` among `scales`, which are those of all groups: `[U, W][stage][axis]`.
    pub fn scales_of<'s>(&self, scales: &'s [f32], row: usize, tile: usize) -> &'s [f32] {
        let group = match self.scope {
            Scope::Tensor => 0,
            Scope::Row => row,
            Scope::Tile64 => row / TILE * self.tiles() + tile,
        };
        &scales[group * self.group_scales()..][..self.group_scales()]
    }

    /// Extents of the codes' tensor, fastest first.
    pub fn codes_extents(&self) -> [u64; 3] {
        [self.streams(), self.chunks(), self.rows].map(|n| n as u64)
    }

    /// Extents of the scales' tensor, fastest first.
    pub fn scale_extents(&self) -> [u64; 4] {
        [2, self.stages, 2, self.groups()].map(|n| n as u64)
    }
}

/// True if a code stands for a multiple of i.
pub fn axis_is_imaginary(code: u8) -> bool {
    code & 2 != 0
}

/// True if a code stands for +1 or +i.
pub fn is_positive(code: u8) -> bool {
    code & 1 != 0
}

/// Puts the codes of one row and stream into their words of a row, `[chunk][stream]`; what follows the last column
/// becomes code 1.
///
/// # Panics
/// When `words` are not [`Shape::row_words`] or `codes` not as many as columns.
pub fn pack_row(shape: &Shape, stream: usize, codes: &[u8], words: &mut [u32]) {
    assert_eq!(words.len(), shape.row_words(), "words of a row");
    assert_eq!(codes.len(), shape.columns, "codes of a row");
    let words = words.iter_mut().skip(stream).step_by(shape.streams());
    for (word, codes) in words.zip(codes.chunks(CHUNK)) {
        let codes = codes.iter().copied().chain(std::iter::repeat(1));
        let bits = codes.take(CHUNK).enumerate();
        *word = bits.fold(0, |word, (j, code)| word | u32::from(code & 3) << (2 * j));
    }
}

/// The codes of one stream of a row from its words, `[chunk][stream]`.
pub fn unpack_row(shape: &Shape, stream: usize, words: &[u32]) -> impl Iterator<Item = u8> {
    let words = words[stream..].iter().step_by(shape.streams());
    let codes = words.flat_map(|&word| (0..CHUNK).map(move |j| (word >> (2 * j) & 3) as u8));
    codes.take(shape.columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_and_what_follows_them_is_plus_one() {
        let shape = Shape::of_real(2, 42, 2, Scope::Tensor).expect("even sides");
        assert_eq!((shape.chunks(), shape.row_words()), (2, 8));
        let codes: Vec<u8> = (0..21).map(|i| (i * 7 % 4) as u8).collect();
        let mut words = vec![0; 8];
        pack_row(&shape, 2, &codes, &mut words);
        assert!(unpack_row(&shape, 2, &words).eq(codes.iter().copied()));
        assert_eq!(words[6] >> 10, 0x15_5555, "the rest of the last word");
        assert_eq!([words[0], words[1], words[3], words[4]], [0; 4]);
    }

    #[test]
    fn groups_are_the_matrix_a_row_or_a_tile() {
        let shape = |scope| Shape::of_real(260, 150, 2, scope).expect("even sides");
        let [tensor, row, tile] = [Scope::Tensor, Scope::Row, Scope::Tile64].map(shape);
        assert_eq!([tensor.groups(), row.groups(), tile.groups()], [1, 130, 6]);
        let scales: Vec<f32> = (0..130 * 8).map(|i| i as f32).collect();
        assert_eq!(tensor.scales_of(&scales, 129, 0)[0], 0.0);
        assert_eq!(row.scales_of(&scales, 129, 0)[0], 129.0 * 8.0);
        assert_eq!(tile.scales_of(&scales, 129, 1)[0], 5.0 * 8.0);
        assert_eq!(Shape::of_real(3, 4, 1, Scope::Row), None);
        assert_eq!(Shape::of_real(4, 4, 5, Scope::Row), None);
    }
}
