//! Keys of positions: sections of a head, stretched bases, kinds of scaling.

use serde_json::Value as JsonValue;
use trine_formats::gguf::{Array, Value};

use super::super::error::ConvertError;
use super::super::hparams::number;
use super::super::rope::Kind;
use super::Keys;
use crate::math;

impl Keys<'_> {
    /// `rope.dimension_sections`: how many pairs turn with each of four dimensions of positions.
    pub(super) fn sections(&mut self) -> Result<(), ConvertError> {
        let parameters = self.h.get("rope_parameters").or(self.h.get("rope_scaling"));
        let Some(stated) = parameters.and_then(|p| p.get("mrope_section")) else {
            return Ok(());
        };
        let wrong = || ConvertError::Config(format!("'mrope_section' is {stated}, expected up to four whole numbers"));
        let list = stated.as_array().ok_or_else(wrong)?;
        let numbers = list.iter().map(|n| n.as_i64().and_then(|n| i32::try_from(n).ok()));
        let mut sections = numbers.collect::<Option<Vec<i32>>>().ok_or_else(wrong)?;
        sections.resize(4, 0);
        self.set("rope.dimension_sections", Value::Array(Array::I32(sections)));
        Ok(())
    }

    /// A base of RoPE's frequencies that was stretched for longer contexts (`HunYuanModel.set_gguf_parameters` of the
    /// reference).
    pub(super) fn stretched(&mut self, assumed: f64, context: Option<u32>) -> Result<(), ConvertError> {
        let Some(alpha) = self.rope.alpha else {
            return Ok(());
        };
        let alpha = alpha.unwrap_or(assumed);
        let dim = self.source.sizes.head_dim as f64;
        let base = f64::from(self.rope.theta) * math::pow(alpha, dim / (dim - 2.0));
        self.set("rope.freq_base", Value::F32(base as f32));
        self.set("rope.scaling.type", Value::str("none"));
        self.set("rope.scaling.factor", Value::F32(1.0));
        if let Some(context) = context {
            self.size("rope.scaling.original_context_length", context.into());
            self.size("context_length", context.into());
        }
        Ok(())
    }

    /// Positions of several dimensions, by a base that the engine stretches (`HunyuanVLTextModel.set_gguf_parameters`
    /// of the reference).
    pub(super) fn turned_by_axes(&mut self) -> Result<(), ConvertError> {
        let stated = self.h.get("rope_parameters").or(self.h.get("rope_scaling"));
        let (Some(alpha), Some(stated)) = (self.rope.alpha, stated) else {
            return Ok(());
        };
        let axes = stated.get("xdrope_section").or(stated.get("mrope_section")).and_then(JsonValue::as_array);
        let axes = axes.and_then(|all| all.iter().map(|n| i32::try_from(n.as_i64()?).ok()).collect::<Option<Vec<_>>>());
        let (Some(alpha), Some(axes)) = (alpha, axes) else {
            return Err(ConvertError::Config("'rope_scaling' has no 'alpha' or no 'xdrope_section'".into()));
        };
        let factor = stated.get("factor").map_or(Ok(1.0), |v| number("factor", v))?;
        let context = self.source.sizes.context;
        self.set("rope.scaling.type", Value::str("none"));
        self.set("rope.scaling.factor", Value::F32(factor));
        self.set("rope.scaling.alpha", Value::F32(alpha as f32));
        self.size("rope.scaling.original_context_length", context);
        self.size("context_length", context);
        self.set("rope.dimension_sections", Value::Array(Array::I32(axes)));
        Ok(())
    }

    /// The kind of scaling of positions, and its numbers.
    pub(super) fn rope_scaling(&mut self) {
        let kind = |name| ("type", Value::str(name));
        let values = match &self.rope.kind {
            Kind::None | Kind::Llama3 | Kind::Stretched => return,
            Kind::ByContext { .. } => return,
            Kind::Long => vec![kind("longrope")],
            Kind::Linear { factor } => vec![kind("linear"), ("factor", Value::F32(*factor))],
            Kind::Yarn { factor, original, extra } => {
                let mut values = vec![
                    kind("yarn"),
                    ("factor", Value::F32(*factor)),
                    ("original_context_length", Value::U32(*original)),
                ];
                values.extend(extra.iter().map(|(key, v)| (*key, Value::F32(*v))));
                values
            }
        };
        for (key, value) in values {
            self.set(&format!("rope.scaling.{key}"), value);
        }
    }
}
