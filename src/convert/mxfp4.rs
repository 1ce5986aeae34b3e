//! Experts in MXFP4: codes and scales of a checkpoint become blocks of the type without being decoded
//! (`ModelBase.repack_mxfp4_blocks` of the reference).

use super::error::ConvertError;
use super::folder::Files;

/// Weights of a block, and its bytes.
pub(super) const BLOCK: u64 = 32;
const BYTES: usize = 17;

/// The matrices of the experts of a block of the model.
#[derive(Clone, Debug)]
pub(super) struct Experts {
    /// For every expert where codes and scales lie: file and offset.
    pub places: Vec<[(usize, u64); 2]>,
    pub rows: u64,
    pub columns: u64,
}

impl Experts {
    /// Bytes that are read.
    pub fn work(&self) -> u64 {
        self.places.len() as u64 * self.rows * self.columns / BLOCK * BYTES as u64
    }

    /// The blocks of expert after expert, for `write`.
    pub fn write(
        &self,
        files: &Files,
        write: &mut dyn FnMut(&[u8]) -> Result<(), ConvertError>,
    ) -> Result<(), ConvertError> {
        let blocks = (self.rows * self.columns / BLOCK) as usize;
        let (mut codes, mut scales) = (vec![0; blocks * 16], vec![0; blocks]);
        let mut out = vec![0; blocks * BYTES];
        for [(codes_in, codes_at), (scales_in, scales_at)] in &self.places {
            files.read(*codes_in, *codes_at, &mut codes)?;
            files.read(*scales_in, *scales_at, &mut scales)?;
            for ((out, codes), scale) in out.chunks_exact_mut(BYTES).zip(codes.chunks_exact(16)).zip(&scales) {
                out[0] = *scale;
                // two neighbours in a byte become an element and that 16 places behind it
                let code = |n: usize| codes[n / 2] >> (4 * (n % 2)) & 0x0F;
                for (n, byte) in out[1..].iter_mut().enumerate() {
                    *byte = code(n) | code(n + 16) << 4;
                }
            }
            write(&out)?;
        }
        Ok(())
    }
}
