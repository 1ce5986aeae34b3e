//! Files to measure, checked before anything takes long.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use trine::{Model, Tokenizer};
use trine_formats::anyprec::Part;
use trine_formats::file_id::is_same_file;
use trine_formats::gguf::ModelFile;

use super::super::args::Args;
use super::super::first_difference;
use crate::inspect::AnyPrecReport;
use crate::load::{ModelArgs, load};

/// A file and the widths of it that are measured.
pub struct Subject {
    /// Path of the file.
    pub path: PathBuf,
    /// Its name in the table.
    pub name: String,
    /// Its name in the plot.
    pub label: String,
    /// Its weights, by the shapes that the model has.
    pub weights: u64,
    /// Its footprints: one for each width of an any-precision file, one of any other file.
    pub footprints: Vec<WidthFootprint>,
}

/// Bytes that a run reads of a file at one width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WidthFootprint {
    /// The width, where there are several.
    pub bits: Option<u8>,
    /// Bytes of the tensors that a run reads: planes up to the width, its tables, sparse weights and copied tensors.
    pub bytes: u64,
    /// Bytes that a run reads of the matrices of the blocks.
    pub block_bytes: u64,
    /// Weights of these matrices.
    pub block_weights: u64,
}

impl WidthFootprint {
    /// Bits per weight of the block matrices; `None` where there are none.
    pub fn block_bits(&self) -> Option<f64> {
        (self.block_weights > 0).then(|| self.block_bytes as f64 * 8.0 / self.block_weights as f64)
    }

    fn of(file: &ModelFile, any_precision: Option<&AnyPrecReport>, bits: Option<u8>) -> WidthFootprint {
        let mut footprint = WidthFootprint { bits, bytes: 0, block_bytes: 0, block_weights: 0 };
        if let Some(report) = any_precision {
            let width = report.widths.iter().find(|w| Some(w.bits) == bits);
            footprint.bytes = width.map_or(0, |w| w.run_bytes);
            footprint.block_bytes = footprint.bytes;
            footprint.block_weights = report.weights;
        }
        for t in file.tensors() {
            if any_precision.is_some() && t.name.contains(Part::INFIX) {
                continue;
            }
            footprint.bytes += t.bytes;
            if t.name.starts_with("blk.") && t.rows() > 1 {
                footprint.block_bytes += t.bytes;
                footprint.block_weights += t.elements();
            }
        }
        footprint
    }
}

/// The options with which `path` is loaded.
pub fn options(args: &Args, path: &Path) -> ModelArgs {
    ModelArgs { model: path.to_owned(), ..args.loading() }
}

/// Loads a file only to see whether it can be run: nothing is copied into other layouts.
pub fn check(args: &Args, path: &Path) -> Result<Model> {
    load(&ModelArgs { threads: Some(1), no_repack: true, ..options(args, path) })
}

impl Subject {
    /// Describes a loaded file at `widths`, those of them that it has; at all where none are given.
    pub fn new(path: &Path, loaded: &Model, widths: &[u8]) -> Subject {
        let file = loaded.file();
        let ap = loaded.weights().any_precision();
        let report = ap.map(|ap| AnyPrecReport::of(ap, file));
        let there = loaded.weights().widths();
        let bits: Vec<Option<u8>> = match (&report, widths) {
            (None, _) => vec![None],
            (Some(_), []) => there.iter().map(|&b| Some(b)).collect(),
            (Some(_), wanted) => {
                let kept = wanted.iter().filter(|b| there.contains(b));
                kept.map(|&b| Some(b)).collect()
            }
        };
        let copied = file.tensors().filter(|t| !t.name.contains(Part::INFIX));
        let weights = match &report {
            None => file.tensors().map(|t| t.elements()).sum(),
            Some(report) => report.weights + copied.map(|t| t.elements()).sum::<u64>(),
        };
        Subject {
            path: path.to_owned(),
            name: String::new(),
            label: String::new(),
            weights,
            footprints: bits.into_iter().map(|bits| WidthFootprint::of(file, report.as_ref(), bits)).collect(),
        }
    }
}

/// The reference's vocabulary and what it makes of the text.
pub struct Vocabulary {
    /// The reference's tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// The text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
}

impl Vocabulary {
    /// Checks that another model means the same by its tokens.
    ///
    /// # Errors
    /// The first difference.
    fn check(&self, path: &Path, other: &Tokenizer) -> Result<()> {
        let shown = path.display();
        let ours = &self.tokenizer;
        let piece = |t: &Tokenizer, id: u32| {
            let text = String::from_utf8_lossy(t.token_text(id)).into_owned();
            format!("\"{}\"", text.escape_debug())
        };
        let (n, m) = (ours.n_vocab(), other.n_vocab());
        let same = |&id: &u32| ours.token_text(id) == other.token_text(id);
        if let Some(id) = (0..n.min(m) as u32).find(|id| !same(id)) {
            bail!(
                "'{shown}' has another vocabulary: its token {id} is {}, the reference's is {}",
                piece(other, id),
                piece(ours, id)
            );
        }
        if n != m {
            bail!("'{shown}' has another vocabulary: {m} tokens, the reference has {n}");
        }
        let name = |id: Option<u32>| id.map_or("no token".to_owned(), |id| format!("token {id}"));
        if ours.text_bos() != other.text_bos() {
            bail!(
                "'{shown}' puts {} in front of a text, the reference puts {}",
                name(other.text_bos()),
                name(ours.text_bos())
            );
        }
        let tokens = other.encode(&self.text, true, false)?;
        let shorter = || first_difference(&tokens, &self.tokens);
        if let Some(at) = first_difference(&self.tokens, &tokens).or_else(shorter) {
            bail!("'{shown}' cuts the text into other tokens than the reference, from token {at} on");
        }
        Ok(())
    }
}

/// Looks at all FILES; `vocabulary` is the reference's.
///
/// # Errors
/// One that cannot be run or does not compare with the reference; a width that none has.
pub fn all(args: &Args, widths: &[u8], vocabulary: &Vocabulary, reference: &Subject) -> Result<Vec<Subject>> {
    let mut subjects: Vec<Subject> = Vec::new();
    let mut found = HashSet::new();
    let mut any_precision = false;
    for path in &args.files {
        let shown = path.display();
        if subjects.iter().any(|s| is_same_file(&s.path, path)) {
            note!("'{shown}' is given twice; it is measured once");
            continue;
        }
        if is_same_file(&reference.path, path) {
            note!("'{shown}' is the reference itself");
        }
        super::stop_if_asked()?;
        let loaded = check(args, path)?;
        vocabulary.check(path, loaded.tokenizer())?;
        let subject = Subject::new(path, &loaded, widths);
        if loaded.weights().any_precision().is_some() {
            any_precision = true;
            found.extend(subject.footprints.iter().filter_map(|f| f.bits));
            let lacks = |b: &&u8| !loaded.weights().widths().contains(b);
            for bits in widths.iter().filter(lacks) {
                note!("'{shown}' has no {bits} bits; they are left out there");
            }
        }
        if subject.weights != reference.weights {
            note!(
                "'{shown}' has {} weights, the reference {}; bits/weight count the latter",
                subject.weights,
                reference.weights
            );
        }
        subjects.push(subject);
    }
    if !widths.is_empty() && !any_precision {
        bail!("--bits is for any-precision files, and there is none among FILES");
    }
    if let Some(bits) = widths.iter().find(|b| !found.contains(b)) {
        bail!("{bits} bits are in none of the any-precision files; rinspect lists what they have");
    }
    Ok(subjects)
}

/// Names the files, the reference's last: by file name where these differ, else by path; and without the beginning that
/// all share for the plot.
pub fn name(subjects: &mut [Subject], reference: &mut Subject) {
    let mut all: Vec<&mut Subject> = subjects.iter_mut().chain([reference]).collect();
    let file_name = |p: &Path| {
        let name = p.file_name().unwrap_or(p.as_os_str());
        name.to_string_lossy().into_owned()
    };
    let mut paths: HashSet<PathBuf> = HashSet::new();
    let mut names = HashSet::new();
    let mut distinct = true;
    for s in &all {
        if paths.insert(s.path.clone()) {
            distinct &= names.insert(file_name(&s.path));
        }
    }
    for s in &mut all {
        s.name = match distinct {
            true => file_name(&s.path),
            false => s.path.display().to_string(),
        };
    }
    let stem = |name: &str| name.strip_suffix(".gguf").unwrap_or(name).to_owned();
    let stems: Vec<String> = all.iter().map(|s| stem(&s.name)).collect();
    let shared = shared_beginning(&stems);
    for (s, stem) in all.into_iter().zip(&stems) {
        s.label = stem[shared..].to_owned();
    }
}

/// Length of the longest beginning that all names have and that ends at a separator; 0 where it would leave nothing.
fn shared_beginning(names: &[String]) -> usize {
    let Some((first, rest)) = names.split_first() else {
        return 0;
    };
    // not at '_', which is in the middle of Q4_K_M
    let ends = first.match_indices(['-', '.', '/', ' ']);
    let mut ends = ends.map(|(i, s)| i + s.len());
    let shared = |&n: &usize| rest.iter().all(|r| r.starts_with(&first[..n]));
    let longest = ends.rfind(shared).unwrap_or(0);
    let differ = rest.iter().any(|r| r != first);
    let left = names.iter().all(|n| n.len() > longest);
    if differ && left { longest } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::shared_beginning;

    #[test]
    fn labels_leave_out_what_all_names_begin_with() {
        let label = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            let n = shared_beginning(&names);
            names.iter().map(|m| m[n..].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(label(&["m-F16", "m-Q4_K_M", "m-ap"]), ["F16", "Q4_K_M", "ap"]);
        assert_eq!(label(&["q4", "q8"]), ["q4", "q8"]);
        assert_eq!(label(&["m-Q4_0", "m-Q4_1"]), ["Q4_0", "Q4_1"]);
        assert_eq!(label(&["m-", "m-a"]), ["m-", "m-a"]);
        assert_eq!(label(&["m-a", "m-a"]), ["m-a", "m-a"]);
    }
}
