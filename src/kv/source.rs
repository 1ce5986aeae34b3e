//! Keys and values of a text that a sequence attends to beside its own positions.

/// The keys and values that an encoder made of a text for the blocks of a model, in single precision.
#[derive(Debug)]
pub struct Source {
    positions: usize,
    /// Keys, `[elements][positions]`, and values, `[positions][elements]`, of each block.
    layers: Vec<[Vec<f32>; 2]>,
}

impl Source {
    /// The keys and values in `rows`, one for each position, which have for one block after the other as many elements of
    /// keys as `widths` says, and then of values.
    ///
    /// # Panics
    /// The rows have other sizes.
    pub fn new(rows: &[f32], widths: &[usize]) -> Source {
        let all: usize = widths.iter().map(|width| 2 * width).sum();
        assert_eq!(rows.len() % all, 0, "rows of keys and values");
        let of = |at: usize, width: usize| rows.chunks_exact(all).map(move |row| &row[at..at + width]);
        let mut at = 0;
        let layer = |&width: &usize| {
            let keys = (0..width).flat_map(|element| of(at, width).map(move |row| row[element])).collect();
            let values = of(at + width, width).flatten().copied().collect();
            at += 2 * width;
            [keys, values]
        };
        Source { layers: widths.iter().map(layer).collect(), positions: rows.len() / all }
    }

    /// Positions of the text.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Keys, `[elements][positions]`, and values, `[positions][elements]`, of a block.
    pub fn layer(&self, layer: usize) -> [&[f32]; 2] {
        let [keys, values] = &self.layers[layer];
        [keys, values]
    }
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn keys_stand_by_element_and_values_by_position() {
        // two positions, blocks of two elements and of one
        let rows = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0];
        let source = Source::new(&rows, &[2, 1]);
        assert_eq!(source.positions(), 2);
        assert_eq!(source.layer(0), [&[1.0, 11.0, 2.0, 12.0][..], &[3.0, 4.0, 13.0, 14.0]]);
        assert_eq!(source.layer(1), [&[5.0, 15.0][..], &[6.0, 16.0]]);
    }
}
