//! Tensors whose bytes are copied, whatever they mean.

use std::ops::Range;

use super::plan::{Draft, Fault, Method, Plan};
use super::work::Run;

/// The name that rows have whose bytes are copied.
pub const NAME: &str = "copy";

/// Bytes that are copied at a time.
const CHUNK: u64 = 1 << 22;

/// Copies bytes. Nobody looks at them: a tensor may be of a type that trine does not know.
#[derive(Debug)]
pub struct Copying;

impl Method for Copying {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Its rows are taken by those who plan the others.
    fn plan(&mut self, _: &mut Draft<'_>) -> Result<(), Fault> {
        Ok(())
    }

    fn make(&mut self, rows: Range<usize>, plan: &Plan, run: &mut Run<'_>) -> Result<(), Fault> {
        let mut buffer = Vec::new();
        for index in rows {
            let row = &plan.rows[index];
            for at in (0..row.bytes).step_by(CHUNK as usize) {
                let n = CHUNK.min(row.bytes - at);
                let reader = &run.readers[row.source.shard];
                let data = reader.read_at(&row.source.name, row.source.offset + at, n as usize, &mut buffer)?;
                run.output(index).write(at, data)?;
                run.news.tell(|i| &plan.rows[i].name, index, n);
            }
        }
        Ok(())
    }
}
