//! In which types a model's keys and values can be kept.

use super::ModelError;
use super::config::{Config, OfLayer};
use crate::arch::rules::ScoreCap;
use crate::kv::{self, CacheTypes};

impl Config {
    /// True of keys and of values that are rotated where they are quantized. The reference leaves models out that have
    /// both recurrent layers and sliding windows, and keys or values whose heads are no whole 64s in the first layer.
    pub(super) fn turns_quantized(&self) -> [bool; 2] {
        let recurs = self.mixing.state() > 0 && self.window.is_some();
        let OfLayer { head_dim, value_dim, .. } = self.layer(0);
        [head_dim, value_dim].map(|size| !recurs && size.is_multiple_of(kv::LEAST_TURNED))
    }

    /// That keys and values can be kept in these types.
    ///
    /// # Errors
    /// A type that is none of those, blocks that do not divide heads, and what the model computes in a way that needs
    /// half floats.
    pub(super) fn check_cache(&self, types: CacheTypes) -> Result<(), ModelError> {
        if types == CacheTypes::HALVES {
            return Ok(());
        }
        let refused = |why: String| Err(ModelError::Cache(why));
        let name = self.arch.name;
        if self.latent.is_some() || self.compressed.is_some() {
            return refused(format!(
                "models with latent attention keep keys and values as f16 here, and this one is of architecture '{name}'"
            ));
        }
        if types.is_online() && matches!(self.arch.attention.softcap, ScoreCap::Scaled(..)) {
            return refused(format!(
                "values of type {} need flash attention, which models of architecture '{name}' do not have in llama.cpp",
                types.values
            ));
        }
        let of_layer =
            |OfLayer { head_dim, value_dim, .. }| [("keys", types.keys, head_dim), ("values", types.values, value_dim)];
        for (what, ty, size) in self.cached_layers().map(|layer| self.layer(layer)).flat_map(of_layer) {
            let info = ty.info().filter(|_| CacheTypes::ALL.contains(&ty));
            let Some(info) = info else {
                return refused(format!("{what} cannot be kept as {ty}"));
            };
            if !size.is_multiple_of(info.block) {
                return refused(format!(
                    "{what} cannot be kept as {ty}: heads of {size} numbers are no whole blocks of {}",
                    info.block
                ));
            }
        }
        Ok(())
    }
}
