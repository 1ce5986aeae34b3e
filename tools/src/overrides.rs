//! Metadata that is read as if the file said something else, for one run.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use trine::quant::{KvOverride, KvValue};
use trine_formats::gguf::{ModelFile, Value};

/// Values that replace those of a model's file.
#[derive(Args, Clone, Debug, Default)]
pub struct OverrideArgs {
    /// Read a key of the metadata as this, any number of times or with commas between them; TYPE is int, float, bool or
    /// str: tokenizer.ggml.add_bos_token=bool:false
    #[arg(long, value_name = "KEY=TYPE:VALUE", value_delimiter = ',', value_parser = KvOverride::parse)]
    pub override_kv: Vec<KvOverride>,

    /// How positions are scaled to longer contexts: none, linear or yarn
    #[arg(long, value_name = "KIND", value_enum, hide_possible_values = true)]
    pub rope_scaling: Option<RopeScaling>,

    /// By which factor contexts are longer
    #[arg(long, value_name = "N", conflicts_with = "rope_freq_scale")]
    pub rope_scale: Option<f32>,

    /// The base of the rotations
    #[arg(long, value_name = "N")]
    pub rope_freq_base: Option<f32>,

    /// The inverse of the factor
    #[arg(long, value_name = "N")]
    pub rope_freq_scale: Option<f32>,

    /// YaRN: the context that the model was trained with
    #[arg(long, value_name = "N")]
    pub yarn_orig_ctx: Option<u32>,

    /// YaRN: how much of high frequencies is left as it is, from 0 to 1
    #[arg(long, value_name = "N")]
    pub yarn_ext_factor: Option<f32>,

    /// YaRN: the turns below which frequencies are scaled
    #[arg(long, value_name = "N")]
    pub yarn_beta_slow: Option<f32>,

    /// YaRN: the turns above which they are not
    #[arg(long, value_name = "N")]
    pub yarn_beta_fast: Option<f32>,
}

/// Names of the ways to scale positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum RopeScaling {
    None,
    Linear,
    Yarn,
}

impl OverrideArgs {
    /// Changes what `file` is taken to say.
    ///
    /// # Errors
    /// A number that no model can have.
    pub fn apply(&self, file: &mut ModelFile) -> Result<()> {
        for o in &self.override_kv {
            let value = match &o.value {
                KvValue::Int(n) if *n < 0 => Value::I64(*n),
                _ => o.to_value(),
            };
            file.set_meta(&o.key, value);
        }
        let rope = self.rope()?;
        if rope.is_empty() {
            return Ok(());
        }
        let Some(arch) = file.meta().get_str("general.architecture")?.map(str::to_owned) else {
            return Ok(());
        };
        for (key, value) in rope {
            file.set_meta(&format!("{arch}.rope.{key}"), value);
        }
        Ok(())
    }

    /// Keys behind the architecture's name, and what they are to say.
    fn rope(&self) -> Result<Vec<(&'static str, Value)>> {
        let kind = self.rope_scaling.map(|kind| {
            Value::str(match kind {
                RopeScaling::None => "none",
                RopeScaling::Linear => "linear",
                RopeScaling::Yarn => "yarn",
            })
        });
        let factor = match self.rope_freq_scale {
            Some(scale) => Some(inverse(scale)?),
            None => self.rope_scale,
        };
        let float = |value: Option<f32>| value.map(Value::F32);
        let keys = [
            ("scaling.type", kind),
            ("scaling.factor", float(factor)),
            ("freq_base", float(self.rope_freq_base)),
            ("scaling.original_context_length", self.yarn_orig_ctx.map(Value::U32)),
            ("asked.yarn_ext_factor", float(self.yarn_ext_factor)),
            ("asked.yarn_beta_slow", float(self.yarn_beta_slow)),
            ("asked.yarn_beta_fast", float(self.yarn_beta_fast)),
        ];
        Ok(keys.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
    }
}

/// The factor whose inverse, as the engine takes it, is `scale` to the last bit.
fn inverse(scale: f32) -> Result<f32> {
    let near = 1.0 / scale;
    let found = [near, near.next_up(), near.next_down()].into_iter().find(|f| 1.0 / f == scale);
    match found.filter(|f| f.is_finite() && *f > 0.0) {
        Some(factor) => Ok(factor),
        None => bail!("--rope-freq-scale {scale} is the inverse of no factor; give --rope-scale"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses_come_back() {
        for factor in [1.0f32, 2.0, 3.0, 8.0, 10.0, 40.0] {
            let scale = 1.0 / factor;
            assert_eq!(1.0 / inverse(scale).unwrap(), scale, "{factor}");
        }
        assert!(inverse(0.0).is_err() && inverse(f32::NAN).is_err());
    }
}
