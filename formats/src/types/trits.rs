//! `k` base-3 digits in `p` bits, decoded without division: the packing of which TQ1_0 is the case 5 in 8.
//!
//! ```text
//! codes d_0 .. d_(k-1) of -1, 0, +1      N = sum of (d_j + 1) * 3^(k-1-j), 0 <= N < 3^k
//!
//! packed    b = ceil(N * 2^p / 3^k)                         0 <= b < 2^p
//! unpacked  digit = 3 b >> p,  b = 3 b mod 2^p              k times, first digit first
//! ```
//!
//! `b / 2^p` is the fraction `0.d_0 d_1 ..` in base 3, rounded up by less than `2^-p`. As long as that is
//! less than a step of the last digit, `3^-k`, every digit comes out: the packing is lossless if and only
//! if `2^p > 3^k`. (Below that there are fewer `b` than `N`; equal the two are never.) A block of fewer than
//! `k` digits is the same as one with zero digits (codes of -1) behind it, in this form and in that with
//! its own `3^k`. Source: the TriTera paper, section 3.2 and appendices E and F.2.

use thiserror::Error;

/// A packing of `k` trits in `p` bits, `2^p > 3^k`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TritPacking {
    trits: u32,
    bits: u32,
    /// `3^k`.
    states: u64,
}

/// Why trits cannot be packed or unpacked.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum TritError {
    #[error("{trits} trits do not fit into {bits} bits: 2^{bits} must be more than 3^{trits}")]
    TooManyTrits { trits: u32, bits: u32 },
    #[error("blocks of {bits} bits are not supported: 1 to 32 are")]
    Bits { bits: u32 },
    #[error("element {at}: {code} is not -1, 0 or +1")]
    NotTernary { at: usize, code: i8 },
    #[error("{found} bytes were given, {expected} are needed")]
    Length { found: usize, expected: usize },
}

impl TritPacking {
    /// `trits` in `bits`.
    ///
    /// # Errors
    /// No trits or no bits, more than 32 bits, a packing that would lose something.
    pub fn new(trits: u32, bits: u32) -> Result<TritPacking, TritError> {
        if !(1..=32).contains(&bits) {
            return Err(TritError::Bits { bits });
        }
        match 3u64.checked_pow(trits) {
            Some(states) if trits > 0 && states < 1 << bits => Ok(TritPacking { trits, bits, states }),
            _ => Err(TritError::TooManyTrits { trits, bits }),
        }
    }

    /// Digits per block.
    pub fn trits(self) -> usize {
        self.trits as usize
    }

    /// Bits per block.
    pub fn bits(self) -> usize {
        self.bits as usize
    }

    /// Bits per digit; `log2(3)`, about 1.585, is the least that any packing needs.
    pub fn bits_per_trit(self) -> f64 {
        f64::from(self.bits) / f64::from(self.trits)
    }

    /// The block of the number `n < 3^k` whose base-3 digits are the codes plus one.
    pub fn block(self, n: u64) -> u32 {
        debug_assert!(n < self.states);
        ((n << self.bits).div_ceil(self.states)) as u32
    }

    /// The digits 0, 1, 2 of a block, defined for every `p` bits; bits above them are ignored.
    pub fn digits(self, block: u32) -> impl Iterator<Item = u8> {
        let mask = (1u64 << self.bits) - 1;
        let mut rest = u64::from(block) & mask;
        (0..self.trits).map(move |_| {
            let next = 3 * rest;
            rest = next & mask;
            (next >> self.bits) as u8
        })
    }

    /// Bytes of `n` packed codes.
    pub fn bytes(self, n: usize) -> usize {
        (n.div_ceil(self.trits()) * self.bits()).div_ceil(8)
    }

    /// Packs codes of -1, 0, +1 into blocks one after the other, lowest bit first. The digits that the last
    /// block lacks are 0.
    ///
    /// # Errors
    /// A code that is not ternary.
    pub fn encode(self, codes: &[i8]) -> Result<Vec<u8>, TritError> {
        if let Some(at) = codes.iter().position(|c| !(-1..=1).contains(c)) {
            let code = codes[at];
            return Err(TritError::NotTernary { at, code });
        }
        let mut out = Vec::with_capacity(self.bytes(codes.len()));
        let (mut pending, mut filled) = (0u64, 0);
        for chunk in codes.chunks(self.trits()) {
            let digits = chunk.iter().map(|&c| (c + 1) as u64);
            let padded = digits.chain(std::iter::repeat(0)).take(self.trits());
            let n = padded.fold(0, |n, d| 3 * n + d);
            pending |= u64::from(self.block(n)) << filled;
            filled += self.bits;
            while filled >= 8 {
                out.push(pending as u8);
                pending >>= 8;
                filled -= 8;
            }
        }
        if filled > 0 {
            out.push(pending as u8);
        }
        Ok(out)
    }

    /// Unpacks `n` codes.
    ///
    /// # Errors
    /// Any other number of bytes than [`TritPacking::bytes`] says.
    pub fn decode(self, bytes: &[u8], n: usize) -> Result<Vec<i8>, TritError> {
        let (found, expected) = (bytes.len(), self.bytes(n));
        if found != expected {
            return Err(TritError::Length { found, expected });
        }
        let mut out = Vec::with_capacity(n.next_multiple_of(self.trits()));
        let (mut pending, mut filled) = (0u64, 0);
        for &byte in bytes {
            pending |= u64::from(byte) << filled;
            filled += 8;
            while filled >= self.bits && out.len() < n {
                out.extend(self.digits(pending as u32).map(|d| d as i8 - 1));
                pending >>= self.bits;
                filled -= self.bits;
            }
        }
        out.truncate(n);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TypeId;

    fn digits_of(mut n: u64, k: u32) -> Vec<u8> {
        let mut out = vec![0; k as usize];
        for d in out.iter_mut().rev() {
            *d = (n % 3) as u8;
            n /= 3;
        }
        out
    }

    #[test]
    fn every_packing_of_up_to_8_bits_is_lossless_exactly_when_there_is_room() {
        for p in 1..=8 {
            for k in 1..=9 {
                let states = 3u64.pow(k);
                let packing = TritPacking::new(k, p);
                assert_eq!(packing.is_ok(), 1 << p > states, "{k} in {p}");
                // The paper's own formula, whether it fits or not.
                let block = |n: u64| {
                    let raised = (n << p) + (states - 1);
                    raised / states
                };
                let mut distinct: Vec<u64> = (0..states).map(block).collect();
                distinct.retain(|&b| b < 1 << p);
                distinct.dedup();
                assert_eq!(distinct.len() as u64 == states, packing.is_ok());
                let Ok(packing) = packing else { continue };
                for n in 0..states {
                    assert_eq!(u64::from(packing.block(n)), block(n));
                    let digits: Vec<u8> = packing.digits(packing.block(n)).collect();
                    assert_eq!(digits, digits_of(n, k), "{n} of {k} in {p}");
                }
            }
        }
    }

    #[test]
    fn every_block_decodes_to_digits() {
        for (k, p) in [(5, 8), (1, 2), (10, 16), (3, 5)] {
            let packing = TritPacking::new(k, p).unwrap();
            for block in 0..1 << p {
                assert!(packing.digits(block).all(|d| d < 3));
            }
        }
    }

    #[test]
    fn the_largest_packings_of_9_to_32_bits() {
        for p in 9..=32 {
            let most = (1..).take_while(|&k| 3u64.pow(k) < 1 << p).count() as u32;
            let packing = TritPacking::new(most, p).unwrap();
            assert_eq!(TritPacking::new(most + 1, p), Err(TritError::TooManyTrits { trits: most + 1, bits: p }));
            let states = 3u64.pow(most);
            let step = if p == 16 { 1 } else { states / 5000 + 1 };
            for n in (0..states).step_by(step as usize).chain([states - 1]) {
                let digits: Vec<u8> = packing.digits(packing.block(n)).collect();
                assert_eq!(digits, digits_of(n, most), "{n} of {most} in {p}");
            }
        }
        assert!(TritPacking::new(1, 0).is_err() && TritPacking::new(1, 33).is_err());
        assert!(TritPacking::new(0, 8).is_err() && TritPacking::new(u32::MAX, 32).is_err());
    }

    #[test]
    fn streams_of_any_length_come_back() {
        let codes: Vec<i8> = (0..97u32).map(|i| ((i * i + i / 7) % 3) as i8 - 1).collect();
        for (k, p) in [(1, 2), (2, 4), (3, 5), (5, 8), (10, 16), (17, 27), (20, 32)] {
            let packing = TritPacking::new(k, p).unwrap();
            for n in 0..codes.len() {
                let bytes = packing.encode(&codes[..n]).unwrap();
                assert_eq!(bytes.len(), packing.bytes(n));
                assert_eq!(packing.decode(&bytes, n).unwrap(), codes[..n], "{k} in {p}");
            }
        }
        let packing = TritPacking::new(5, 8).unwrap();
        let bad = TritError::NotTernary { at: 1, code: 2 };
        assert_eq!(packing.encode(&[0, 2]), Err(bad));
        assert!(packing.decode(&[0], 6).is_err() && packing.decode(&[0, 0], 5).is_err());
    }

    /// TQ1_0 stores byte `m` of a group of `B` from weight `s` with the trits of weights `s + t * B + m`.
    #[test]
    fn tq1_0_is_five_in_eight() {
        let packing = TritPacking::new(5, 8).unwrap();
        assert_eq!(packing.bits_per_trit(), 1.6);
        let info = TypeId::TQ1_0.info().unwrap();
        let (encode, decode) = (info.encode.unwrap(), info.decode.unwrap());
        for first in 0..243u64 {
            let codes: Vec<i8> = (0..256u64).map(|e| ((first + e * e / 3 + e / 5) % 3) as i8 - 1).collect();
            let x: Vec<f32> = codes.iter().map(|&c| f32::from(c)).collect();
            let mut row = vec![0; info.bytes];
            encode(&x, None, &mut row);
            for (at, len, trits, s) in [(0, 32, 5, 0), (32, 16, 5, 160), (48, 4, 4, 240)] {
                for m in 0..len {
                    let group: Vec<i8> = (0..trits).map(|t| codes[s + t * len + m]).collect();
                    assert_eq!([row[at + m]][..], packing.encode(&group).unwrap());
                }
            }
        }
        // All 256 bytes, those that are never written too, decode alike.
        for byte in 0..=255u8 {
            let mut row = vec![byte; info.bytes];
            row[52..].copy_from_slice(&[0x00, 0x3C]);
            let mut out = vec![0.0; 256];
            decode(&row, &mut out);
            let digits: Vec<f32> = packing.digits(byte.into()).map(|d| f32::from(d) - 1.0).collect();
            let read: Vec<f32> = (0..5).map(|t| out[t * 32]).collect();
            assert_eq!(read, digits);
        }
    }
}
