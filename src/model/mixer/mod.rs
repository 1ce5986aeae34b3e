//! What mixes the positions of a sequence in a block: attention of one kind or another, a recurrent layer, or both.

mod attention;
mod convolution;
mod delta;
mod latent;
mod lightning;
mod mamba;

use super::config::Config;
use super::load::Loader;
use super::pass::Pass;
use crate::arch::rules::Recurrence;
use crate::kernels::Floats;
use crate::ops;
use attention::Attention;
use convolution::GatedConvolution;
use delta::DeltaNet;
use latent::LatentAttention;
use lightning::LightningAttention;
use mamba::Mamba;

/// What mixes the positions of a sequence in a block.
pub enum Mixer {
    /// Every head has keys and values of its own, or some heads share them.
    Attention(Box<Attention>),
    /// Keys and values of all heads are made of one narrow vector.
    Latent(Box<LatentAttention>),
    /// A convolution over a few positions between two gates.
    Convolution(Box<GatedConvolution>),
    /// A state that decays, and what every position adds to it.
    Mamba(Box<Mamba>),
    /// A square state for every head, corrected by every position.
    Delta(Box<DeltaNet>),
    /// Linear attention in blocks of positions.
    Lightning(Box<LightningAttention>),
    /// Two that see the same; what they give is added up.
    Both(Box<[Mixer; 2]>),
}

impl Mixer {
    /// That of block number `layer`; `None` where a tensor is missing, which is noted.
    pub fn load(loader: &mut Loader<'_>, c: &Config, layer: usize) -> Option<Mixer> {
        let parts = c.mixing.blocks[layer];
        let attention = parts.attends.then(|| Mixer::attention(loader, c, layer));
        let recurrent = parts.recurs.then(|| Mixer::recurrent(loader, c, layer));
        match (attention, recurrent) {
            (Some(attention), Some(recurrent)) => Some(Mixer::Both(Box::new([attention?, recurrent?]))),
            (one, other) => one.or(other)?,
        }
    }

    fn attention(loader: &mut Loader<'_>, c: &Config, layer: usize) -> Option<Mixer> {
        Some(match c.latent {
            Some(sizes) => Mixer::Latent(Box::new(LatentAttention::load(loader, c, sizes, layer)?)),
            None => Mixer::Attention(Box::new(Attention::load(loader, c, layer)?)),
        })
    }

    fn recurrent(loader: &mut Loader<'_>, c: &Config, layer: usize) -> Option<Mixer> {
        Some(match c.mixing.kind? {
            Recurrence::Convolution => Mixer::Convolution(Box::new(GatedConvolution::load(loader, c, layer)?)),
            kind @ (Recurrence::DeltaNeighbours
            | Recurrence::DeltaTurns
            | Recurrence::Kimi
            | Recurrence::Bounded
            | Recurrence::BoundedByRate) => Mixer::Delta(Box::new(DeltaNet::load(loader, c, kind, layer)?)),
            Recurrence::Lightning => Mixer::Lightning(Box::new(LightningAttention::load(loader, c, layer)?)),
            kind @ (Recurrence::Mamba | Recurrence::Mamba2 | Recurrence::Plamo) => {
                Mixer::Mamba(Box::new(Mamba::load(loader, c, kind, layer)?))
            }
        })
    }

    /// What it gives for every row of `x`, `[tokens][n_embd]`; what later positions need is stored.
    pub fn apply(&self, x: &[f32], pass: &mut Pass<'_, '_>) -> Floats {
        match self {
            Mixer::Attention(attention) => attention.apply(x, pass),
            Mixer::Latent(attention) => attention.apply(x, pass),
            Mixer::Convolution(convolution) => convolution.apply(x, pass),
            Mixer::Mamba(mamba) => mamba.apply(x, pass),
            Mixer::Delta(delta) => delta.apply(x, pass),
            Mixer::Lightning(attention) => attention.apply(x, pass),
            Mixer::Both(both) => {
                let mut y = both[0].apply(x, pass);
                ops::add(&mut y, &both[1].apply(x, pass));
                y
            }
        }
    }
}

/// The three parts of rows of so many columns.
fn columns(x: &[f32], widths: [usize; 3]) -> [Vec<f32>; 3] {
    let mut from = 0;
    let all: usize = widths.iter().sum();
    widths.map(|width| {
        let rows = x.chunks_exact(all);
        let part = rows.flat_map(|row| &row[from..from + width]);
        let part = part.copied().collect();
        from += width;
        part
    })
}
