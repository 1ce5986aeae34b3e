//! Where the rows of a tensor of the output lie in the checkpoint: in one tensor, or in slices of several.

use std::ops::Range;
use std::sync::Arc;

use super::error::ConvertError;
use super::folder::Files;

/// Rows of a matrix of a tensor of the checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    /// Its name.
    pub tensor: Arc<str>,
    /// The file that holds it.
    pub shard: usize,
    /// Where the matrix begins in the file.
    pub offset: u64,
    /// The first row, counted in the matrix.
    pub first: u64,
    pub rows: u64,
    /// Rows from one to the next; 0 for rows that are stored nowhere and are zeros.
    pub every: u64,
    /// The matrix is stored with a row per column, and has so many rows in all.
    pub transposed: Option<u64>,
}

/// All rows, in the order of the output.
#[derive(Clone, Debug)]
pub(super) struct Slices {
    all: Vec<Slice>,
    /// The row of the output with which each begins.
    starts: Vec<u64>,
}

impl Slices {
    pub fn new(all: Vec<Slice>) -> Slices {
        let mut next = 0;
        let starts = all.iter().map(|p| {
            let start = next;
            next += p.rows;
            start
        });
        Slices { starts: starts.collect(), all }
    }

    /// True if the rows are those of one tensor, in its order.
    pub fn are_one(&self) -> bool {
        let first = &self.all[0];
        self.all.len() == 1 && first.first == 0 && first.every == 1 && first.transposed.is_none()
    }

    /// Adds the rows of others behind these.
    pub fn append(&mut self, others: Slices) {
        let all = std::mem::take(&mut self.all);
        *self = Slices::new(all.into_iter().chain(others.all).collect());
    }

    fn at(&self, row: u64) -> usize {
        self.starts.partition_point(|s| *s <= row).max(1) - 1
    }

    /// The tensor that an element of the output comes from, and its row and column there.
    pub fn origin(&self, row: u64, column: u64) -> (&str, u64, u64) {
        let i = self.at(row);
        let slice = &self.all[i];
        let row = slice.first + (row - self.starts[i]) * slice.every;
        let (row, column) = if slice.transposed.is_some() { (column, row) } else { (row, column) };
        (&slice.tensor, row, column)
    }

    /// Where data begins whose layout is not rows of floats.
    pub fn start(&self) -> (usize, u64) {
        (self.all[0].shard, self.all[0].offset)
    }

    /// Reads rows of `columns` elements of `size` bytes into `raw`, whose length they have.
    pub fn read(
        &self,
        files: &Files,
        rows: Range<u64>,
        (columns, size): (u64, u64),
        raw: &mut [u8],
    ) -> Result<(), ConvertError> {
        let row_bytes = columns * size;
        let (mut row, mut raw) = (rows.start, raw);
        while row < rows.end {
            let i = self.at(row);
            let slice = &self.all[i];
            let within = row - self.starts[i];
            let n = (slice.rows - within).min(rows.end - row);
            let (now, later) = raw.split_at_mut((n * row_bytes) as usize);
            slice.read(files, within, (columns, size), now)?;
            raw = later;
            row += n;
        }
        Ok(())
    }
}

impl Slice {
    /// Rows of zeros for a tensor.
    pub fn zeros(tensor: &str, rows: u64) -> Slice {
        Slice { tensor: tensor.into(), shard: 0, offset: 0, first: 0, rows, every: 0, transposed: None }
    }

    /// Reads rows from the `within`-th of the slice on.
    fn read(
        &self,
        files: &Files,
        within: u64,
        (columns, size): (u64, u64),
        raw: &mut [u8],
    ) -> Result<(), ConvertError> {
        let first = self.first + within * self.every;
        let row_bytes = columns * size;
        if self.every == 0 {
            raw.fill(0);
            return Ok(());
        }
        if let Some(of) = self.transposed {
            return self.read_columns(files, first, (columns, size, of), raw);
        }
        if self.every == 1 {
            return files.read(self.shard, self.offset + first * row_bytes, raw);
        }
        for (n, row) in raw.chunks_mut(row_bytes as usize).enumerate() {
            let row_there = first + n as u64 * self.every;
            files.read(self.shard, self.offset + row_there * row_bytes, row)?;
        }
        Ok(())
    }

    fn read_columns(
        &self,
        files: &Files,
        first: u64,
        (columns, size, of): (u64, u64, u64),
        raw: &mut [u8],
    ) -> Result<(), ConvertError> {
        let bytes = size as usize;
        let rows = raw.len() as u64 / (columns * size);
        // every row's element in a column, and what lies between
        let mut column = vec![0; (((rows - 1) * self.every + 1) * size) as usize];
        for c in 0..columns {
            let offset = self.offset + (c * of + first) * size;
            files.read(self.shard, offset, &mut column)?;
            let into = raw[c as usize * bytes..].chunks_mut(columns as usize * bytes);
            for (to, from) in into.zip(column.chunks(bytes).step_by(self.every as usize)) {
                to[..bytes].copy_from_slice(from);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::Folder;
    use super::*;

    #[test]
    fn rows_are_found_in_their_slices() {
        let slice = |tensor: &str, first, rows| Slice {
            tensor: tensor.into(),
            shard: 0,
            offset: 0,
            first,
            rows,
            every: 1,
            transposed: None,
        };
        let mut slices = Slices::new(vec![slice("a", 4, 2), slice("b", 0, 3)]);
        assert!(!slices.are_one());
        slices.append(Slices::new(vec![slice("c", 0, 1)]));
        let origins: Vec<_> = (0..6).map(|r| slices.origin(r, 9)).collect();
        assert_eq!(origins, [("a", 4, 9), ("a", 5, 9), ("b", 0, 9), ("b", 1, 9), ("b", 2, 9), ("c", 0, 9)]);
        let turned = Slice { transposed: Some(7), ..slice("t", 0, 7) };
        assert_eq!(Slices::new(vec![turned]).origin(5, 2), ("t", 2, 5));
    }

    /// Twelve bytes as four rows of three, then six as two rows, in the files of a folder.
    fn folder() -> (tempfile::TempDir, Folder) {
        let header = concat!(
            r#"{"a":{"dtype":"U8","shape":[4,3],"data_offsets":[0,12]},"#,
            r#""b":{"dtype":"U8","shape":[2,3],"data_offsets":[12,18]}}"#
        );
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.extend(0..18u8);
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("model.safetensors"), file).expect("a file");
        let mut folder = Folder::open(dir.path()).expect("a folder");
        folder.find_tensors().expect("tensors");
        (dir, folder)
    }

    #[test]
    fn rows_are_read_across_slices_and_columns_as_rows() {
        let (_dir, folder) = folder();
        let slice = |n: usize, first, rows| {
            let source = &folder.tensors[n];
            Slice {
                tensor: source.tensor.name.as_str().into(),
                shard: source.shard,
                offset: source.tensor.offset,
                first,
                rows,
                every: 1,
                transposed: None,
            }
        };
        let read = |slices: &Slices, rows: Range<u64>, columns: u64| {
            let mut raw = vec![0; ((rows.end - rows.start) * columns) as usize];
            let read = slices.read(&folder.shards, rows, (columns, 1), &mut raw);
            read.expect("bytes");
            raw
        };
        let both = Slices::new(vec![slice(0, 1, 2), slice(1, 0, 2)]);
        let all = [3, 4, 5, 6, 7, 8, 12, 13, 14, 15, 16, 17];
        assert_eq!(read(&both, 0..4, 3), all);
        assert_eq!(read(&both, 1..3, 3), all[3..9]);
        assert_eq!(read(&both, 3..4, 3), all[9..]);
        let turned = Slices::new(vec![Slice { transposed: Some(3), ..slice(0, 0, 3) }]);
        assert_eq!(read(&turned, 0..1, 4), [0, 3, 6, 9]);
        assert_eq!(read(&turned, 1..3, 4), [1, 4, 7, 10, 2, 5, 8, 11]);
        let odd = Slices::new(vec![Slice { every: 2, ..slice(0, 1, 2) }]);
        assert_eq!(read(&odd, 0..2, 3), [3, 4, 5, 9, 10, 11]);
        let odd = Slices::new(vec![Slice { every: 2, transposed: Some(3), ..slice(0, 0, 2) }]);
        assert_eq!(read(&odd, 0..2, 4), [0, 3, 6, 9, 2, 5, 8, 11]);
    }
}
