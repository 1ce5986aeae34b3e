//! The method: which matrices get codebooks, and at which widths.

use std::ops::Range;

use trine_formats::anyprec::{ALIGNMENT, AnyPrec, Header};
use trine_formats::gguf::Value;

use super::choose::{check_rows, retype, sensible_parent, widths};
use super::cluster::{Method, Nesting};
use super::codes::Codes;
use super::error::ApError;
use super::make::{Making, Report};
use super::matrices::{NAME, is_block_matrix};
use super::opened::Opened;
use super::places::matrices;
use super::target::{Options, Target};
use crate::quant::gptq::FeedbackReport;
use crate::quant::metadata;
use crate::quant::plan::{self, Draft, Fault, Plan};
use crate::quant::row::Row;
use crate::quant::work::Run;

/// Makes codebooks of the matrices of a model's blocks.
#[derive(Debug)]
pub struct Clusters {
    range: Option<Nesting>,
    codes: Codes,
    sensitivities: Opened,
    making: Option<Making>,
    report: Option<Report>,
}

impl Clusters {
    pub(in crate::quant) fn new(target: Target, options: &Options) -> Clusters {
        Clusters {
            range: target.range,
            codes: Codes { rule: target.rule, options: options.clone(), header: Header::default() },
            sensitivities: Opened::Uniform,
            making: None,
            report: None,
        }
    }

    /// The plan.
    pub fn codes(&self) -> &Codes {
        &self.codes
    }

    /// The result, once there is one.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// The report of error feedback, where there is any.
    pub fn feedback(&self) -> Option<&FeedbackReport> {
        self.sensitivities.report()
    }

    /// True if a row gets codebooks.
    pub fn takes(&self, row: &Row) -> bool {
        row.method == NAME
    }

    fn plan_for(&mut self, draft: &mut Draft<'_>) -> Result<(), ApError> {
        if AnyPrec::is(draft.meta) {
            return Err(ApError::Already);
        }
        let rows = &mut draft.plan.rows;
        retype(rows, &draft.asked)?;
        rows.iter_mut().filter(|r| is_block_matrix(&r.name, &r.shape)).for_each(|r| r.method = NAME);
        let options = &self.codes.options;
        let matrices: Vec<&Row> = rows.iter().filter(|r| r.method == NAME).collect();
        check_rows(&matrices, options, &draft.asked)?;
        let (nesting, bits) = widths(&matrices, self.range, options, &mut draft.plan.notes)?;
        if let Method::BestAt(best) = options.method
            && !nesting.widths().any(|w| w == best)
        {
            let (seed, parent) = (nesting.seed_bits, nesting.parent_bits);
            return Err(ApError::BestAt { best, seed, parent });
        }
        let header = Header {
            seed_bits: nesting.seed_bits,
            parent_bits: nesting.parent_bits,
            bits,
            groups: options.groups,
            tables: options.tables.unwrap_or(0),
            tensors: matrices.iter().map(|r| r.name.clone()).collect(),
            columns: matrices.iter().map(|r| r.columns()).collect(),
            seed_method: match options.method {
                Method::Exact => "dp".to_owned(),
                Method::BestAt(bits) => format!("dp:{bits}"),
                Method::Compat { seed } => format!("kmeans++:{seed}"),
            },
            ..Header::default()
        };
        let (opened, remark) = Opened::new(options, draft.meta, &matrices)?;
        (self.sensitivities, self.codes.header) = (opened, header);
        let mut meta = metadata::of_one_file(draft.meta);
        meta.remove("general.file_type");
        meta.set("general.alignment", Value::U32(ALIGNMENT));
        metadata::set(&mut meta, draft.asked.overrides);
        draft.one_file(meta);
        let tables = self.warning_of_tables(&draft.plan)?;
        draft.plan.warnings.extend(draft.asked.warnings().chain(tables).chain(remark));
        Ok(())
    }

    /// Says so when the tables of a width that was asked for are no longer small beside the planes.
    fn warning_of_tables(&self, plan: &Plan) -> Result<Option<String>, ApError> {
        let Some(narrowest) = matrices(plan).map(Row::columns).min() else {
            return Ok(None);
        };
        let group = narrowest / u64::from(self.codes.header.groups);
        let sensible = sensible_parent(group).max(self.codes.header.seed_bits);
        if self.codes.header.tables > 0 || self.codes.header.parent_bits <= sensible {
            return Ok(None);
        }
        let footprint = self.codes.footprint(plan)?;
        Ok(footprint.widths.last().map(|last| {
            format!(
                "rows have as few as {group} weights to a table: the matrices take {:.2} bits per weight with all their tables, and {:.2} to run at {} bits; up to {sensible} bits the tables stay small",
                last.stored_bits, last.run_bits, self.codes.header.parent_bits
            )
        }))
    }
}

impl plan::Method for Clusters {
    fn name(&self) -> &'static str {
        NAME
    }

    fn plan(&mut self, draft: &mut Draft<'_>) -> Result<(), Fault> {
        Ok(self.plan_for(draft)?)
    }

    /// The matrices are gone through once more where outliers are chosen first.
    fn work_before(&self, plan: &Plan) -> u64 {
        let again = matrices(plan).filter(|_| self.codes.options.outliers.is_some());
        again.map(|r| r.bytes_from).sum()
    }

    fn begin(&mut self, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        self.making = Some(Making::new(&self.codes, &mut self.sensitivities, plan, run)?);
        Ok(())
    }

    fn make(&mut self, rows: Range<usize>, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        let Some(mut making) = self.making.take() else {
            return Ok(());
        };
        for index in rows {
            making.matrix(&self.codes, &mut self.sensitivities, index, plan, run)?;
        }
        self.making = Some(making);
        Ok(())
    }

    fn end(&mut self, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        if let Some(making) = self.making.take() {
            self.report = Some(making.end(&self.codes, &self.sensitivities, plan, run)?);
        }
        Ok(())
    }
}
