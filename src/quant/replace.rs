//! Tensors whose data is given, such as matrices with tuned scales: everything else of the model is copied, and the
//! tensors stay in the order of the file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;
use trine_formats::gguf::Value;

use super::copy;
use super::metadata;
use super::plan::{Draft, Fault, Method, Plan};
use super::row::Reason;
use super::work::Run;

/// The name that rows have whose data is given.
const NAME: &str = "replacing";

/// Bytes that are written at a time.
const CHUNK: usize = 1 << 22;

/// Data of tensors, and keys that say where it comes from.
#[derive(Debug, Default)]
pub struct Replacement {
    /// The new data of tensors, by name: of the same type and shape as the old.
    pub tensors: BTreeMap<String, Vec<u8>>,
    /// Keys of the new file.
    pub keys: Vec<(&'static str, Value)>,
}

/// Data that does not fit.
#[derive(Debug, Error)]
#[error("tensor {0} is not in the file, or has another size there")]
pub struct Unfit(String);

/// Writes given data in the place of a model's.
#[derive(Debug)]
pub struct Replacing(Arc<Replacement>);

impl Replacing {
    pub(super) fn new(given: &Arc<Replacement>) -> Replacing {
        Replacing(given.clone())
    }
}

impl Method for Replacing {
    fn name(&self) -> &'static str {
        NAME
    }

    fn plan(&mut self, draft: &mut Draft<'_>) -> Result<(), Fault> {
        let given = &self.0;
        let mut left: BTreeMap<&str, &Vec<u8>> = given.tensors.iter().map(|(name, data)| (&name[..], data)).collect();
        draft.plan.rows.sort_by_key(|row| (row.source.shard, row.source.offset));
        for row in &mut draft.plan.rows {
            row.keep_together();
            (row.method, row.reason) = (copy::NAME, Reason::Kept("copied"));
            match left.remove(&row.name[..]) {
                None => {}
                Some(data) if data.len() as u64 == row.bytes => {
                    (row.method, row.reason) = (NAME, Reason::Option("--tune"));
                }
                Some(_) => return Err(Unfit(row.name.clone()).into()),
            }
        }
        if let Some(name) = left.keys().next() {
            return Err(Unfit((*name).to_owned()).into());
        }
        let mut meta = metadata::of_one_file(draft.meta);
        for (key, value) in &given.keys {
            meta.set(key, value.clone());
        }
        metadata::set(&mut meta, draft.asked.overrides);
        draft.one_file(meta);
        draft.plan.warnings.extend(draft.asked.warnings());
        Ok(())
    }

    fn make(&mut self, rows: Range<usize>, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        for index in rows {
            let data = &self.0.tensors[&plan.rows[index].name];
            for (number, part) in data.chunks(CHUNK).enumerate() {
                run.output(index).write((number * CHUNK) as u64, part)?;
                run.news.tell(|i| &plan.rows[i].name, index, part.len() as u64);
            }
        }
        Ok(())
    }
}
