//! Takes rows apart that lie interleaved: a group of 4, 8 or 16 rows becomes as many rows of the type that it was made of.
//!
//! A group has the scales of its rows, then its blocks, column after column. A block holds the bits of a block of every
//! row in another order, so that taking it apart is a list of moves of bits. Nothing is rounded. Bits that meet at a place
//! are added without carry: the signs of some types are stored as differences of neighbours.

mod moves;

use self::moves::INTERLEAVED;
use super::super::{TypeId, TypeInfo};

pub use self::moves::Interleaved;

impl Interleaved {
    /// The entry of a type, if its rows are interleaved.
    pub fn of(ty: TypeId) -> Option<&'static Interleaved> {
        INTERLEAVED.iter().find(|i| i.id == ty)
    }

    fn infos(&self) -> Option<(&'static TypeInfo, &'static TypeInfo)> {
        Some((self.id.info()?, self.base.info()?))
    }

    /// Bytes of a group of rows of `columns` weights, and of the rows that it becomes; `None` for rows that are no whole
    /// number of blocks.
    pub fn group_bytes(&self, columns: usize) -> Option<(usize, usize)> {
        let (info, base) = self.infos()?;
        let of_group = |info: &TypeInfo| {
            let row = usize::try_from(info.row_bytes(columns as u64)?).ok()?;
            row.checked_mul(self.rows)
        };
        Some((of_group(info)?, of_group(base)?))
    }

    /// Takes a group apart.
    ///
    /// # Panics
    /// The lengths are not those of [`Interleaved::group_bytes`].
    pub fn take_apart(&self, columns: usize, group: &[u8], out: &mut [u8]) {
        assert_eq!(self.group_bytes(columns), Some((group.len(), out.len())), "{}: bytes of a group", self.id);
        let Some((info, base)) = self.infos() else {
            return;
        };
        let (heads, blocks) = group.split_at(self.rows * info.head);
        out.fill(0);
        let row_bytes = out.len() / self.rows;
        for (k, row) in out.chunks_exact_mut(row_bytes.max(1)).enumerate() {
            let (head, row) = row.split_at_mut(base.head);
            head[..info.head].copy_from_slice(&heads[k * info.head..][..info.head]);
            let blocks = blocks.chunks_exact(self.rows * info.bytes);
            for (from, to) in blocks.zip(row.chunks_exact_mut(info.bytes)) {
                self.moves.iter().for_each(|m| m.run(k, from, to));
            }
            if let [_, _, _, _, sum @ ..] = head
                && self.base == TypeId::Q8_KV
            {
                // the sum of the codes, which interleaved rows do not have
                let codes: i32 = row.iter().map(|code| i32::from(*code as i8)).sum();
                sum.copy_from_slice(&codes.to_le_bytes());
            }
        }
    }
}
