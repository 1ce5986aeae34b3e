//! Rows of matrices that several devices share.
//!
//! A device has some rows of each matrix, over all columns, and computes everything else like the others. No sum is
//! cut: an output is made by one device, in the order that one device alone would add in, and then it is copied to
//! all. So the results are bit-identical for any number of devices and any shares.

use std::ops::Range;

use trine_formats::types::TypeId;

/// Rows of a tile of any layout.
const TILE: usize = 32;
/// The most rows of a matrix of floats that every device has as a whole: routers.
const ROUTER: usize = 1024;

/// The share of one of several devices in the rows of matrices.
#[derive(Clone, PartialEq, Debug)]
pub struct Share {
    shares: Vec<f32>,
    /// The number of the device.
    pub(super) number: usize,
}

impl Share {
    /// The share of device `number` of several, where these are the shares of all. A share of zero is none.
    pub fn new(shares: &[f32], number: usize) -> Share {
        Share { shares: shares.to_vec(), number }
    }

    /// The first rows of the devices in a matrix, and its end; whole tiles. `None` for a matrix that each of them has as
    /// a whole, because it is small. A matrix of several types has none.
    pub(super) fn bounds(&self, ty: Option<TypeId>, rows: usize) -> Option<Vec<usize>> {
        let tiles = rows.div_ceil(TILE);
        if tiles < 2 || ty == Some(TypeId::F32) && rows <= ROUTER {
            return None;
        }
        let sums = self.shares.iter().scan(0.0, |sum, share| {
            *sum += f64::from(*share);
            Some(*sum)
        });
        let sums: Vec<f64> = sums.collect();
        let all = sums.last().copied().unwrap_or(0.0).max(f64::MIN_POSITIVE);
        let end = |sum: &f64| ((tiles as f64 * (sum / all)).round() as usize * TILE).min(rows);
        let mut bounds: Vec<usize> = std::iter::once(0).chain(sums.iter().map(end)).collect();
        // Rows belong to a device whatever the shares are.
        *bounds.last_mut()? = rows;
        Some(bounds)
    }

    /// The rows of the device.
    pub(super) fn rows(&self, ty: Option<TypeId>, rows: usize) -> Option<Range<usize>> {
        let bounds = self.bounds(ty, rows)?;
        Some(*bounds.get(self.number)?..*bounds.get(self.number + 1)?)
    }
}

/// Outputs of a product that are to be exchanged.
pub(super) struct Pending {
    /// The value.
    pub to: usize,
    /// The number of the memory that they are in, and the first byte.
    pub at: (usize, usize),
    /// The first rows of the devices, and the end.
    pub bounds: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_at_tiles_by_shares() {
        let bounds = |shares: &[f32], rows| Share::new(shares, 0).bounds(Some(TypeId::Q8_0), rows);
        assert_eq!(bounds(&[1.0, 1.0], 64), Some(vec![0, 32, 64]));
        assert_eq!(bounds(&[3.0, 1.0], 256), Some(vec![0, 192, 256]));
        assert_eq!(bounds(&[1.0, 1.0, 1.0], 100), Some(vec![0, 32, 96, 100]));
        // Whoever has a small share may have no rows.
        assert_eq!(bounds(&[100.0, 1.0], 96), Some(vec![0, 96, 96]));
        assert_eq!(bounds(&[0.0, 1.0], 96), Some(vec![0, 0, 96]));
        // One tile, and routers, are everybody's.
        assert_eq!(bounds(&[1.0, 1.0], 32), None);
        assert_eq!(Share::new(&[1.0, 1.0], 0).bounds(Some(TypeId::F32), 128), None);
        assert_eq!(Share::new(&[1.0, 1.0], 0).bounds(None, 65), Some(vec![0, 64, 65]));
    }
}
