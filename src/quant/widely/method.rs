//! The method: plans matrices of either kind, and makes a few megabytes of weights at a time.

use std::ops::Range;

use trine_formats::types::TypeId;
use trine_formats::widely::{Header, tile64};

use super::content::{Content, Contents, NAME};
use super::{codes, dense, fork, make};
use crate::quant::plan::{Draft, Fault, Method, Plan};
use crate::quant::work::Run;
use crate::widely::Options;

/// Makes matrices widely linear, or dense again. Weights that are not finite and a model that is damaged are errors.
#[derive(Debug)]
pub struct Widely {
    target: MatrixTarget,
    header: Option<Header>,
    /// The sources of the plan's rows.
    contents: Vec<Content>,
    /// Scales of the matrix whose words were made last.
    scales: Vec<f32>,
}

/// Target of the conversion: widely linear codes, or dense rows of a type.
#[derive(Clone, Copy, Debug)]
enum MatrixTarget {
    Codes(Options),
    Dense(TypeId),
}

impl Widely {
    fn of(target: MatrixTarget) -> Widely {
        Widely { target, header: None, contents: Vec::new(), scales: Vec::new() }
    }

    pub(in crate::quant) fn new(options: &Options) -> Widely {
        Widely::of(MatrixTarget::Codes(*options))
    }

    pub(in crate::quant) fn dense(ty: TypeId) -> Widely {
        Widely::of(MatrixTarget::Dense(ty))
    }

    /// The keys about the matrices; for a model that becomes dense, those of the source. `None` before there is a plan.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// True if matrices become dense.
    pub fn is_dense(&self) -> bool {
        matches!(self.target, MatrixTarget::Dense(_))
    }

    /// Real weights of the widely linear matrices, and the bits that codes and scales take for each.
    pub fn bits(&self) -> (u64, f64) {
        let (mut weights, mut bits) = (0, 0);
        for content in &self.contents {
            if let Content::Codes { shape, .. } | Content::Dense { shape, .. } | Content::Tiles { shape } = content {
                let complex = (shape.rows * shape.columns) as u64;
                weights += 4 * complex;
                bits += 4 * shape.stages as u64 * complex;
                bits += 32 * (shape.groups() * shape.group_scales()) as u64;
            }
        }
        (weights, bits as f64 / weights.max(1) as f64)
    }
}

impl Method for Widely {
    fn name(&self) -> &'static str {
        NAME
    }

    fn plan(&mut self, draft: &mut Draft<'_>) -> Result<(), Fault> {
        let Contents { header, meta, rows, notes } = match self.target {
            MatrixTarget::Dense(ty) => dense::plan(draft, ty)?,
            MatrixTarget::Codes(_) if tile64::is_in(draft.meta) => fork::plan(draft)?,
            MatrixTarget::Codes(options) => codes::plan(draft, &options)?,
        };
        self.header = Some(header);
        (draft.plan.rows, self.contents) = rows.into_iter().unzip();
        draft.plan.notes.extend(notes);
        draft.one_file(meta);
        Ok(())
    }

    fn make(&mut self, rows: Range<usize>, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        let (pool, Some(header)) = (run.pool, &self.header) else {
            return Ok(());
        };
        let (contents, scales) = (&self.contents, &mut self.scales);
        pool.install(|| {
            let mut rows = rows;
            rows.try_for_each(|index| make::row(&header.rule, contents[index], index, plan, scales, run))
        })?;
        Ok(())
    }
}
