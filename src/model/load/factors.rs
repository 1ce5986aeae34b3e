//! Factors beside matrices: `NAME.scale` and `NAME.input_scale`.

use trine_formats::types::TypeId;

use super::loader::{Loader, full_name};
use crate::arch::factors;

impl Loader<'_> {
    /// The factors on a projection's outputs, where the graph applies them. Every run of a block has its own.
    pub(super) fn factors(&mut self, projection: &str, n: usize) -> Option<Vec<f32>> {
        let name = full_name(Some(self.slot), &format!("{projection}.scale"));
        self.optional_floats(&name, &[n]).filter(|_| self.arch.applies_factors(projection))
    }

    /// The factor on the logits beside an output matrix of type `ty`, where the graph applies it. The reference looks
    /// for one beside NVFP4 alone; next to another type it is left over.
    pub(super) fn output_factor(&mut self, ty: TypeId) -> Option<f32> {
        if ty != TypeId::NVFP4 {
            return None;
        }
        self.optional_floats("output.input_scale", &[1]);
        let scale = self.optional_floats("output.scale", &[1])?;
        let scale = scale.first().copied();
        scale.filter(|_| self.arch.output.factored)
    }

    /// Looks at the shapes of factors that the reference loads and never multiplies by: those on inputs, and those of
    /// projections whose graph has none.
    pub(super) fn check_unused_factors(&mut self) {
        let file = self.file;
        for tensor in file.tensors() {
            let in_block = tensor.name.strip_prefix("blk.");
            let Some((block, name)) = in_block.and_then(|n| n.split_once('.')) else {
                continue;
            };
            let Some((projection, count)) = factors::projection(name) else {
                continue;
            };
            let weight = format!("blk.{block}.{projection}.weight");
            if self.has(&weight) && !self.used.contains(&*tensor.name) {
                let n = self.sizes.extent(count) as usize;
                self.optional_floats(&tensor.name, &[n]);
            }
        }
    }
}
