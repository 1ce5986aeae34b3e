//! Is a matrix ternary? That is: are its values `-s`, `0` and `+s`, and how far does one `s` reach?

use serde_json::{Value, json};
use trine_formats::gguf::{Metadata, PackingOptions, TensorView};

/// Spans that one scale may cover inside a row, smallest first; the smallest is the unit of the check.
const SPANS: [usize; 4] = [32, 64, 128, 256];

/// How far one scale reaches in a ternary matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Spans of this many weights of a row.
    Block(usize),
    /// Whole rows.
    Row,
    /// The whole tensor.
    Tensor,
}

impl std::fmt::Display for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reach::Block(n) => write!(f, "block of {n}"),
            Reach::Row => f.write_str("row"),
            Reach::Tensor => f.write_str("tensor"),
        }
    }
}

/// A matrix that is ternary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ternary {
    /// The weights that share a scale.
    pub reach: Reach,
    /// The scale, when there is only one.
    pub scale: Option<f32>,
    /// Share of weights that are zero.
    pub zeros: f64,
}

impl Ternary {
    /// As JSON: `{"scale_per": "row", "scale": null, "zeros": 0.31}`.
    pub fn json(&self) -> Value {
        json!({ "scale_per": self.reach.to_string(), "scale": self.scale.map(super::shortest), "zeros": self.zeros })
    }
}

/// The magnitude that all non-zero values so far share.
#[derive(Clone, Copy, PartialEq)]
enum Magnitude {
    Zero,
    One(f32),
    Many,
}

impl Magnitude {
    fn join(self, other: Magnitude) -> Magnitude {
        match (self, other) {
            (Magnitude::Zero, m) | (m, Magnitude::Zero) => m,
            (Magnitude::One(a), Magnitude::One(b)) if a == b => self,
            _ => Magnitude::Many,
        }
    }

    fn of(values: &[f32]) -> Magnitude {
        let one = |&v: &f32| {
            if v == 0.0 { Magnitude::Zero } else { Magnitude::One(v.abs()) }
        };
        values.iter().map(one).fold(Magnitude::Zero, Magnitude::join)
    }
}

/// The answer for one tensor: `None` when it is no matrix or its type cannot be decoded, otherwise
/// whether it is ternary. A matrix that is not is left at the first row that shows it.
pub fn check(tensor: &TensorView) -> Option<Option<Ternary>> {
    let info = tensor.info.ty.info()?;
    let decode = info.decode?;
    let (columns, rows) = (tensor.info.columns(), tensor.info.rows());
    if rows < 2 || columns == 0 {
        return None;
    }
    let row_bytes = usize::try_from(info.row_bytes(columns)?).ok()?;
    let mut row = vec![0f32; usize::try_from(columns).ok()?];
    let mut whole = Magnitude::Zero;
    let mut rows_hold = true;
    let mut spans_hold = [true; SPANS.len()];
    let mut zeros = 0u64;
    for bytes in tensor.data.chunks_exact(row_bytes) {
        decode(bytes, &mut row);
        zeros += row.iter().filter(|&&v| v == 0.0).count() as u64;
        let units: Vec<Magnitude> = row.chunks(SPANS[0]).map(Magnitude::of).collect();
        for (holds, span) in spans_hold.iter_mut().zip(SPANS) {
            let join = |group: &[Magnitude]| group.iter().fold(Magnitude::Zero, |a, &b| a.join(b));
            *holds &= units.chunks(span / SPANS[0]).all(|group| join(group) != Magnitude::Many);
        }
        if !spans_hold[0] {
            return Some(None);
        }
        let of_row = units.into_iter().fold(Magnitude::Zero, Magnitude::join);
        rows_hold &= of_row != Magnitude::Many;
        whole = whole.join(of_row);
    }
    let (reach, scale) = match whole {
        Magnitude::Zero => (Reach::Tensor, Some(0.0)),
        Magnitude::One(s) => (Reach::Tensor, Some(s)),
        Magnitude::Many if rows_hold => (Reach::Row, None),
        Magnitude::Many => {
            let span = SPANS.iter().zip(spans_hold).filter(|(_, holds)| *holds).map(|(s, _)| *s).max();
            (Reach::Block(span.unwrap_or(SPANS[0])), None)
        }
    };
    let zeros = zeros as f64 / (columns as f64 * rows as f64);
    Some(Some(Ternary { reach, scale, zeros }))
}

/// Looks through a tensor of I2_S, TL1 or TL2, which is ternary by its type.
///
/// # Errors
/// The problem, with the tensor's name: a layout that is not known, codes without a meaning, a scale that is no number.
pub fn check_packed(tensor: &TensorView, meta: &Metadata, options: &PackingOptions) -> Result<Ternary, String> {
    let codes = tensor.ternary_codes(meta, options);
    let (codes, scale) = codes.map_err(|e| e.to_string())?;
    if !scale.is_finite() {
        return Err(format!("tensor '{}': its scale is {scale}", tensor.info.name));
    }
    let zeros = codes.iter().filter(|&&c| c == 0).count();
    Ok(Ternary { reach: Reach::Tensor, scale: Some(scale), zeros: zeros as f64 / codes.len().max(1) as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_formats::gguf::{Blob, TensorInfo};
    use trine_formats::types::TypeId;

    fn matrix(columns: usize, values: &[f32]) -> Option<Option<Ternary>> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let info = TensorInfo {
            name: "m".into(),
            shape: vec![columns as u64, (values.len() / columns) as u64],
            ty: TypeId::F32,
            offset: 0,
            bytes: bytes.len() as u64,
        };
        check(&TensorView { info, data: Blob::from_vec(bytes) })
    }

    fn reach(columns: usize, values: &[f32]) -> Option<Reach> {
        matrix(columns, values).unwrap().map(|t| t.reach)
    }

    #[test]
    fn the_reach_of_one_scale_is_found() {
        let whole = matrix(2, &[0.5, -0.5, 0.0, 0.5]).unwrap().unwrap();
        assert_eq!(whole, Ternary { reach: Reach::Tensor, scale: Some(0.5), zeros: 0.25 });
        assert_eq!(reach(2, &[0.0, -0.0, 0.0, 0.0]), Some(Reach::Tensor));
        assert_eq!(reach(2, &[0.5, -0.5, 0.25, 0.0]), Some(Reach::Row));
        assert_eq!(reach(2, &[0.5, -0.25, 0.25, 0.0]), None);
        assert_eq!(reach(2, &[f32::NAN, 1.0, 1.0, 1.0]), None);
        for span in SPANS {
            let values: Vec<f32> = (0..1024).map(|i| 1.0 + (i / span) as f32).collect();
            assert_eq!(reach(512, &values), Some(Reach::Block(span)));
        }
        let values: Vec<f32> = (0..1024).map(|i| 1.0 + (i / 16) as f32).collect();
        assert_eq!(reach(512, &values), None);
    }

    #[test]
    fn vectors_are_not_judged() {
        assert_eq!(matrix(4, &[1.0; 4]), None);
    }
}
