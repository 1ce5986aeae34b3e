//! Adding up matrices, as llama-imatrix does with its `--in-file`.

use super::{Entry, Imatrix, ImatrixError};

impl Imatrix {
    /// An empty matrix for chunks of `chunk_size` tokens, to be filled and written.
    pub fn new(chunk_size: u32) -> Imatrix {
        Imatrix { chunk_size, ..Imatrix::default() }
    }

    /// Adds the sums, counts and data sets of `other`; the sums in `f32`, value by value.
    ///
    /// A legacy matrix knows neither sums nor counts: each of its calls is taken as one chunk of this
    /// matrix's `chunk_size` tokens. The number of chunks becomes what the largest count says.
    ///
    /// # Errors
    /// A weight of another size or number of experts in the two; counts or chunks that overflow. This
    /// matrix may hold a part of the other then.
    pub fn merge(&mut self, other: &Imatrix) -> Result<(), ImatrixError> {
        let chunk_size = self.chunk_size;
        for (name, theirs) in &other.entries {
            let refuse = |what: String| Err(ImatrixError::Entry { name: name.clone(), what });
            let ours = self
                .entries
                .entry(name.clone())
                .or_insert_with(|| Entry { sums: vec![0.0; theirs.sums.len()], counts: vec![0; theirs.counts.len()] });
            if ours.sums.len() != theirs.sums.len() {
                return refuse(format!(
                    "{} columns in one file, {} in another; are they of one model?",
                    ours.sums.len(),
                    theirs.sums.len()
                ));
            }
            let factor = if other.legacy { chunk_size as f32 } else { 1.0 };
            for (a, b) in ours.sums.iter_mut().zip(&theirs.sums) {
                *a += b * factor;
            }
            match (ours.counts.len(), theirs.counts.len()) {
                // The legacy form has one count, which stands for every expert; a single count of ours
                // is spread in the same way.
                (1, n) if n > 1 => ours.counts = vec![ours.counts[0]; n],
                (n, m) if n == m || other.legacy && m == 1 => {}
                (n, m) => return refuse(format!("{n} experts in one file, {m} in another")),
            }
            let factor = if other.legacy { i64::from(chunk_size) } else { 1 };
            let spread = theirs.counts.iter().cycle();
            for (a, &b) in ours.counts.iter_mut().zip(spread) {
                match b.checked_mul(factor).and_then(|b| a.checked_add(b)) {
                    Some(sum) => *a = sum,
                    None => return refuse("the counts overflow".to_owned()),
                }
            }
        }
        self.datasets.extend(other.datasets.iter().cloned());
        self.count_chunks()
    }

    /// Sets the number of chunks to what the largest count says.
    ///
    /// # Errors
    /// More chunks than the file can store.
    pub fn count_chunks(&mut self) -> Result<(), ImatrixError> {
        let counts = self.entries.values().flat_map(|e| &e.counts);
        let most = counts.copied().max().unwrap_or(0).max(0);
        let chunks = most / i64::from(self.chunk_size.max(1));
        self.chunk_count = i32::try_from(chunks)
            .map(i32::cast_unsigned)
            .map_err(|_| ImatrixError::NoData("its counts are beyond any text; the file is damaged"))?;
        Ok(())
    }
}
