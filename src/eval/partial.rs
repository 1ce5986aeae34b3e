//! Results of single chunks in words of 64 bits: what several machines found is put together to what one finds.
//!
//! Sums over the chunks of a text run in text order, each begun anew ([`Estimate::add`]). The sums of a chunk can
//! therefore be computed anywhere, as long as no bit of them is lost on the way.

use super::kld::{Divergence, Sums};
use super::perplexity::Estimate;

/// Sums over the scored positions of a chunk.
pub trait ChunkSums: Default {
    /// Name of the sums in files of partial results.
    const NAME: &'static str;

    /// Scored positions.
    fn count(&self) -> usize;

    /// Adds the sums of the next chunk.
    fn add(&mut self, chunk: &Self);

    /// All of it.
    fn words(&self) -> Vec<u64>;

    /// The sums that gave these words; `None` where none did.
    fn from_words(words: &[u64]) -> Option<Self>;
}

impl ChunkSums for Estimate {
    const NAME: &'static str = "perplexity";

    fn count(&self) -> usize {
        self.count
    }

    fn add(&mut self, chunk: &Estimate) {
        Estimate::add(self, chunk);
    }

    fn words(&self) -> Vec<u64> {
        vec![self.nll.to_bits(), self.nll2.to_bits(), self.count as u64]
    }

    fn from_words(words: &[u64]) -> Option<Estimate> {
        let &[nll, nll2, count] = words else { return None };
        Some(Estimate { nll: f64::from_bits(nll), nll2: f64::from_bits(nll2), count: usize::try_from(count).ok()? })
    }
}

/// Words of [`Sums`].
const SUMS: usize = 12;

impl ChunkSums for Divergence {
    const NAME: &'static str = "divergence";

    fn count(&self) -> usize {
        Divergence::count(self)
    }

    fn add(&mut self, chunk: &Divergence) {
        Divergence::add(self, chunk);
    }

    /// The sums, then a word for each position: the bits of its divergence above those of its change of probability.
    fn words(&self) -> Vec<u64> {
        let s = &self.sums;
        let floats =
            [s.nll, s.nll2, s.nll_base, s.nll_base2, s.nll_nll_base, s.kld, s.kld2, s.p_diff, s.p_diff2, s.p_diff4];
        let counts = [s.same_top, s.count].map(|n| n as u64);
        let positions = self.kld.iter().zip(&self.p_diff);
        let positions = positions.map(|(kld, p)| u64::from(kld.to_bits()) << 32 | u64::from(p.to_bits()));
        floats.map(f64::to_bits).into_iter().chain(counts).chain(positions).collect()
    }

    fn from_words(words: &[u64]) -> Option<Divergence> {
        let (&sums, positions) = words.split_first_chunk::<SUMS>()?;
        let [nll, nll2, nll_base, nll_base2, nll_nll_base, kld, kld2, p_diff, p_diff2, p_diff4, same_top, count] = sums;
        let float = f64::from_bits;
        let (same_top, count) = (usize::try_from(same_top).ok()?, usize::try_from(count).ok()?);
        if positions.len() != count || same_top > count {
            return None;
        }
        Some(Divergence {
            sums: Sums {
                nll: float(nll),
                nll2: float(nll2),
                nll_base: float(nll_base),
                nll_base2: float(nll_base2),
                nll_nll_base: float(nll_nll_base),
                kld: float(kld),
                kld2: float(kld2),
                p_diff: float(p_diff),
                p_diff2: float(p_diff2),
                p_diff4: float(p_diff4),
                same_top,
                count,
            },
            kld: positions.iter().map(|word| f32::from_bits((word >> 32) as u32)).collect(),
            p_diff: positions.iter().map(|&word| f32::from_bits(word as u32)).collect(),
        })
    }
}
