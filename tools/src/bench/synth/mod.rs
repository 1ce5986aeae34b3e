//! Models of any size made on the spot: the shape of a real one, random weights, the types that
//! `rquantize` would give each tensor.

mod content;
mod data;
mod shape;
mod size;
mod widely;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use rayon::prelude::*;
use trine::quant::{Ftype, Plan, Problem, Recipe, Target};
use trine_formats::gguf::write::{Layout, NewTensor, Writer};
use trine_formats::gguf::{Gguf, Limits, Metadata, ModelFile, Shard, TensorInfo};

use crate::memory;
use crate::progress::{byte_bar, human_bytes};
use content::Content;
pub use data::{random_bytes, random_rows};
use shape::Shape;
pub use widely::stages;

/// `ARCH:SIZE:TYPE`: a model to make up.
#[derive(Clone, Debug)]
pub struct Spec {
    shape: Shape,
    kind: Kind,
}

/// Form of the matrices.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Types that rquantize makes; the weights may be -s, 0 and +s only.
    Usual { target: Target, ternary: bool },
    /// Widely linear, of this number of stages.
    Widely(usize),
}

/// Models to make up, one behind the other with commas between them.
#[derive(Clone, Debug)]
pub struct Specs(Vec<Spec>);

impl Specs {
    /// All models of some lists.
    pub fn all(lists: &[Specs]) -> Vec<&Spec> {
        lists.iter().flat_map(|list| &list.0).collect()
    }
}

impl FromStr for Specs {
    type Err = String;

    /// A size may have commas of its own: a model ends with the part that has its second colon.
    fn from_str(text: &str) -> Result<Specs, String> {
        let (mut specs, mut pending) = (Vec::new(), String::new());
        for part in text.split(',') {
            if !pending.is_empty() {
                pending.push(',');
            }
            pending.push_str(part);
            if pending.matches(':').count() >= 2 || !pending.contains(':') {
                specs.push(std::mem::take(&mut pending).parse()?);
            }
        }
        if !pending.is_empty() {
            specs.push(pending.parse()?);
        }
        Ok(Specs(specs))
    }
}

impl FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Spec, String> {
        let form = "write ARCH:SIZE:TYPE, such as llama:700m:TQ2_0";
        let parts: Vec<&str> = text.split(':').collect();
        let [arch, size, ty] = parts[..] else {
            return Err(format!("'{text}' is no model: {form}"));
        };
        let shape = Shape::parse(arch, size)?;
        if shape.arch.widely_linear {
            let kind = Kind::Widely(widely::stages(ty)?);
            return Ok(Spec { shape, kind });
        }
        let (ty, ternary) = match ty.rsplit_once('-') {
            Some((ty, word)) if word.eq_ignore_ascii_case("ternary") => (ty, true),
            _ => (ty, false),
        };
        let target = Target::parse(ty).filter(|t| t.is_usual() && *t != Target::Copy);
        let target = target.ok_or_else(|| {
            let names: Vec<&str> = Target::names().filter(|n| *n != "COPY").collect();
            format!("'{ty}' is no file type; give one of {}", names.join(" "))
        })?;
        let ternary = ternary || always_ternary(target);
        let kind = Kind::Usual { target, ternary };
        Ok(Spec { shape, kind })
    }
}

impl std::fmt::Display for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            Kind::Widely(stages) => write!(f, "{}:W{stages}", self.shape),
            Kind::Usual { target, ternary } => {
                let word = if ternary && !always_ternary(target) { "-ternary" } else { "" };
                write!(f, "{}:{}{word}", self.shape, target.name())
            }
        }
    }
}

/// Types whose matrices are ternary in practice.
fn always_ternary(target: Target) -> bool {
    match target {
        Target::Packed(_) => true,
        Target::Ftype(ty) => matches!(ty, Ftype::TQ1_0 | Ftype::TQ2_0 | Ftype::Q2_0),
        _ => false,
    }
}

/// A model that is planned and not yet made.
struct PlannedModel {
    content: Vec<Content>,
    layout: Layout,
}

impl Spec {
    /// Bytes of its file.
    ///
    /// # Errors
    /// A type whose blocks do not fit the shape.
    pub fn bytes(&self) -> Result<u64> {
        Ok(self.plan()?.layout.file_bytes())
    }

    /// Transformer blocks.
    pub fn layers(&self) -> u64 {
        self.shape.size.layers
    }

    fn plan(&self) -> Result<PlannedModel> {
        match self.kind {
            Kind::Usual { target, ternary } => self.plan_usual(target, ternary),
            Kind::Widely(stages) => {
                let (meta, tensors) = widely::plan(&self.shape, stages);
                let (table, content): (Vec<NewTensor>, Vec<Content>) = tensors.into_iter().unzip();
                let layout = Layout::new(&meta, &table)?;
                Ok(PlannedModel { content, layout })
            }
        }
    }

    fn plan_usual(&self, target: Target, ternary: bool) -> Result<PlannedModel> {
        let meta = self.shape.metadata();
        let tensors = self.shape.tensors();
        let source = Layout::new(&meta, &tensors)?;
        let infos: Vec<&TensorInfo> = source.tensors().iter().collect();
        let sources = infos.iter().map(|t| (0, t.offset, *t)).collect();
        let mut plan = Plan::from_headers(&meta, sources, &Recipe::new(target))?;
        // Synthetic weights have no importance matrix, and the loss in the types that need it does not matter.
        let needs_importance = |p: &Problem| matches!(p, Problem::NoImportance { .. });
        plan.problems.retain(|problem| !needs_importance(problem));
        plan.check().with_context(|| format!("{self} cannot be made"))?;
        let rows = plan.rows;
        let out: &Metadata = plan.shards.first().map_or(&meta, |s| &s.meta);
        let tensors: Vec<NewTensor> =
            rows.iter().map(|r| NewTensor::new(r.name.clone(), r.shape.clone(), r.to)).collect();
        Ok(PlannedModel {
            layout: Layout::new(out, &tensors)?,
            content: rows
                .into_iter()
                .map(|row| {
                    let kind = data::kind(&row, ternary);
                    Content::Weights(row, kind)
                })
                .collect(),
        })
    }

    /// Makes the model in memory.
    ///
    /// # Errors
    /// A type whose blocks do not fit the shape; too little memory.
    pub fn build(&self) -> Result<ModelFile> {
        let job = self.plan()?;
        let size = job.layout.file_bytes();
        check_memory(self, size)?;
        let mut bytes = job.layout.header().to_vec();
        let room = usize::try_from(size)?.saturating_sub(bytes.len());
        let reserved = bytes.try_reserve_exact(room);
        reserved.with_context(|| format!("{self} takes {}", human_bytes(size)))?;
        let start = bytes.len() as u64;
        job.each(&mut |info, data| {
            bytes.resize(usize::try_from(start + info.offset)?, 0);
            bytes.extend_from_slice(&data);
            Ok(())
        })?;
        bytes.resize(usize::try_from(size)?, 0);
        let gguf = Gguf::parse(&bytes, &Limits::default())?;
        let path = PathBuf::from(self.to_string());
        Ok(ModelFile::new(vec![Shard { path, gguf, bytes: Arc::new(bytes) }])?)
    }

    /// Makes the model as a file, tensor by tensor.
    ///
    /// # Errors
    /// As [`Spec::build`]; what cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let job = self.plan()?;
        let mut writer = Writer::create(path, job.layout.clone(), &[])?;
        job.each(&mut |info, data| Ok(writer.tensor(&info.name, &data)?))?;
        writer.finish()?;
        Ok(())
    }
}

impl PlannedModel {
    /// Hands all tensors to `sink`, in the order of the file.
    fn each(&self, sink: &mut dyn FnMut(&TensorInfo, Vec<u8>) -> Result<()>) -> Result<()> {
        let bar: ProgressBar = byte_bar(self.layout.file_bytes());
        bar.set_message("making up weights");
        // A few at a time: one per thread.
        let batch = rayon::current_num_threads().max(1);
        let infos = self.layout.tensors();
        for (content, infos) in self.content.chunks(batch).zip(infos.chunks(batch)) {
            let made: Vec<Result<Vec<u8>>> = content.par_iter().map(Content::make).collect();
            for (info, data) in infos.iter().zip(made) {
                bar.inc(info.bytes);
                sink(info, data?)?;
            }
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// Refuses a model that the machine would have to swap for.
fn check_memory(spec: &Spec, size: u64) -> Result<()> {
    let Some(available) = memory::available() else {
        return Ok(());
    };
    if size > available / 10 * 9 {
        bail!(
            "{spec} takes {} and {} are free; choose a smaller size or --save it to a file",
            human_bytes(size),
            human_bytes(available)
        );
    }
    Ok(())
}
