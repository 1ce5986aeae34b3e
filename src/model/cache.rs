//! In which types a model's keys and values can be kept.

use super::ModelError;
use super::config::Config;
use crate::arch::rules::ScoreCap;
use crate::kv::CacheTypes;

impl Config {
    /// True if quantized keys and values are rotated. The reference leaves models out that have both recurrent layers
    /// and sliding windows.
    pub(super) fn turns_quantized(&self) -> bool {
        self.mixing.state() == 0 || self.window.is_none()
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
        let parts = [("keys", types.keys, self.head_dim), ("values", types.values, self.value_dim)];
        for (what, ty, size) in parts {
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
