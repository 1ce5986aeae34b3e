//! The best file of a given size: a type for every tensor, so that least is lost.
//!
//! A [`Size`] is shared among the tensors by what each of them gains from more bits: each is encoded in all types that
//! its shape allows (or a part of its rows, `measure`), and `choose` takes the types whose errors sum to least. The
//! error of a tensor is that of its products, relative to them: columns count by their importance where a matrix
//! (`--imatrix`) has weights for it, and where it has a Hessian (`--gptq`) it is rounded with error feedback. How much an error says of the logits depends on the role of the tensor: each counts
//! as its role does on the models where that was measured (`roles`), or on the model itself ([`Allocator::probes`]). Nothing
//! is drawn: the same model, importance and size give the same types on any machine.
//!
//! A file of a given divergence is found the same way: [`Allocator`] holds the losses of all tensors in all types, and
//! [`Search`] says which total to try next until what is measured is what was wanted.
//!
//! The types are those that the program loads which the file is for ([`Recipe::reader`]): ik_llama.cpp's are offered for it
//! and for trine alone.
//!
//! The result is a list of rules as `--tensor-type` takes them, which llama-quantize reads too.

mod choose;
mod divergence;
mod measure;
mod roles;

use std::collections::BTreeMap;

use thiserror::Error;
use trine_formats::gguf::{ModelFile, Program};
use trine_formats::types::TypeId;

use super::category::Category;
use super::codec::{bytes_of, can_write, is_quantized};
use super::error::{PlanError, QuantError};
use super::ftype::{Ftype, GUESSED, Target, guessed_id};
use super::gptq;
use super::plan::Plan;
use super::recipe::{Fallback, Recipe, TensorRule};
use super::row::{Reason, Row};
use super::work::{RunError, RunOptions};
use crate::progress::Progress;
use choose::Offer;
pub use divergence::{Measured, Search};

/// Types that need no importance, in the order of their size.
const TYPES: &[TypeId] = &[
    TypeId::IQ2_KS,
    TypeId::IQ2_K,
    TypeId::Q2_K,
    TypeId::IQ2_KL,
    TypeId::IQ3_KS,
    TypeId::Q3_K,
    TypeId::IQ3_K,
    TypeId::IQ3_S,
    TypeId::IQ4_XS,
    TypeId::IQ4_KS,
    TypeId::Q4_0,
    TypeId::IQ4_NL,
    TypeId::Q4_K,
    TypeId::IQ4_K,
    TypeId::Q4_1,
    TypeId::IQ5_KS,
    TypeId::Q5_0,
    TypeId::Q5_K,
    TypeId::IQ5_K,
    TypeId::Q5_1,
    TypeId::Q6_K,
    TypeId::IQ6_K,
    TypeId::Q8_0,
    TypeId::F16,
];

/// Types whose codebooks are of no use without importance.
const WEIGHTED_TYPES: &[TypeId] =
    &[TypeId::IQ1_S, TypeId::IQ1_M, TypeId::IQ2_XXS, TypeId::IQ2_XS, TypeId::IQ2_S, TypeId::IQ3_XXS];

/// Attempts to find the share of the tensors in a file of a given size: what lies between them is a few bytes for each.
const ATTEMPTS: u64 = 32;
/// Tensors begin at multiples of so many bytes.
const ALIGNMENT: u64 = 32;

/// The size that a file is to have at most.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Size {
    /// Bits of tensor data for each weight, tensors included that are not quantized.
    BitsPerWeight(f64),
    /// Bytes of the whole file.
    File(u64),
}

/// The types of a file.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// The file type that most weights have.
    pub ftype: Ftype,
    /// A rule for each tensor that was free.
    pub rules: Vec<TensorRule>,
    /// The error of products relative to them, the root of the mean square over these tensors.
    pub error: f64,
    /// The mean of the squares, each as its tensor's role counts: the divergence of the file is nearly proportional to
    /// it.
    pub loss: f64,
}

/// No types for such a file.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum AllocateError {
    #[error(
        "the smallest file of this model has {least} ({bits:.2} bits per weight), more than the {asked} that are asked for{hint}"
    )]
    TooSmall { least: String, bits: f64, asked: String, hint: &'static str },
    #[error("no tensor of the model can be quantized: nothing is to be chosen")]
    Nothing,
    #[error(transparent)]
    Quant(#[from] QuantError),
}

impl From<RunError> for AllocateError {
    fn from(error: RunError) -> AllocateError {
        AllocateError::Quant(error.into())
    }
}

impl From<PlanError> for AllocateError {
    fn from(error: PlanError) -> AllocateError {
        AllocateError::Quant(error.into())
    }
}

/// Chooses the types of a file for `model` that is at most of a size. The recipe's target means nothing; tensors that
/// its rules and options name have the type that they name.
///
/// # Errors
/// A size that no file has; what [`Plan::new`] refuses; I/O; values that are not finite.
pub fn allocate(
    model: &ModelFile,
    recipe: &Recipe,
    size: Size,
    options: &RunOptions,
    progress: &mut dyn Progress,
) -> Result<Allocation, AllocateError> {
    Allocator::new(model, recipe, options, progress)?.for_size(size)
}

/// The losses of a model's tensors in all types that they may have, from which types are chosen.
pub struct Allocator<'a> {
    model: &'a ModelFile,
    recipe: &'a Recipe,
    plan: Plan,
    /// The numbers of the rows whose types are free.
    free: Vec<usize>,
    /// Their types, the losses of each, and these as they count.
    types: Vec<Vec<TypeId>>,
    losses: Vec<Vec<f64>>,
    offers: Vec<Vec<Offer>>,
    /// How often the tensors count, all together.
    counts: f64,
    /// True if roles were measured: these counts are divergences then.
    is_measured: bool,
}

impl<'a> Allocator<'a> {
    /// Measures the losses; the recipe's target means nothing.
    ///
    /// # Errors
    /// As [`Plan::new`]; a model with nothing to choose; I/O; values that are not finite.
    pub fn new(
        model: &'a ModelFile,
        recipe: &'a Recipe,
        options: &RunOptions,
        progress: &mut dyn Progress,
    ) -> Result<Allocator<'a>, AllocateError> {
        // The largest of the block types fits nearly every row, so its plan tells which tensors are free at all.
        let largest = Recipe { target: Target::Ftype(Ftype::Q8_0), fallback: Fallback::Always, ..recipe.clone() };
        let plan = Plan::new(model, &largest)?;
        plan.check()?;
        let free: Vec<usize> = (0..plan.rows.len()).filter(|&row| is_free(&plan.rows[row])).collect();
        let rows: Vec<&Row> = free.iter().map(|&row| &plan.rows[row]).collect();
        let types: Vec<Vec<TypeId>> = rows.iter().map(|row| types_of(row, recipe.reader)).collect();
        if free.is_empty() {
            return Err(AllocateError::Nothing);
        }
        let losses = measure::losses(model, &rows, &types, recipe, options, progress)?;
        let output = output_of(&plan.rows);
        let count = |row: &&Row| match Category::of(&row.name) {
            role if Some(role) == output => roles::OUTPUT,
            role => roles::count(role),
        };
        let counts: Vec<f64> = rows.iter().map(count).collect();
        let mut allocator =
            Allocator { model, recipe, free, types, losses, offers: Vec::new(), counts: 0.0, is_measured: false, plan };
        allocator.count(&counts);
        Ok(allocator)
    }

    /// Lets each free tensor's losses count so often.
    fn count(&mut self, counts: &[f64]) {
        self.counts = counts.iter().sum();
        let of_tensor = |(i, &counts): (usize, &f64)| -> Vec<Offer> {
            let shape = &self.plan.rows[self.free[i]].shape;
            let offer = |(&ty, &loss): (&TypeId, &f64)| Offer { bytes: bytes_of(ty, shape), loss: loss * counts };
            self.types[i].iter().zip(&self.losses[i]).map(offer).collect()
        };
        self.offers = counts.iter().enumerate().map(of_tensor).collect();
    }

    /// The types of a file that is at most of a size.
    ///
    /// # Errors
    /// A size that no file has.
    pub fn for_size(&self, size: Size) -> Result<Allocation, AllocateError> {
        let plan = &self.plan;
        let fixed = plan.bytes() - self.free.iter().map(|&row| plan.rows[row].bytes).sum::<u64>();
        let too_small = || {
            let least = choose::least(&self.offers) + fixed;
            let bits = least as f64 * 8.0 / plan.weights().max(1) as f64;
            let (least, asked) = match size {
                Size::BitsPerWeight(asked) => (format!("{bits:.2} bits"), format!("{asked} bits per weight")),
                Size::File(asked) => (format!("about {least} bytes"), format!("{asked} bytes")),
            };
            let hint = if self.recipe.importance.is_some() { "" } else { "; with --imatrix smaller types can be had" };
            AllocateError::TooSmall { least, bits, asked, hint }
        };
        let asked = match size {
            Size::BitsPerWeight(bits) => (bits / 8.0 * plan.weights() as f64) as u64,
            Size::File(bytes) => bytes,
        };
        // The header and what lies between tensors depend a little on the types.
        let mut beside = fixed;
        for attempt in 0..ATTEMPTS {
            let budget = asked.checked_sub(beside).ok_or_else(too_small)?;
            let chosen = choose::choose(&self.offers, budget).ok_or_else(too_small)?;
            let allocation = self.allocation(&chosen);
            let Size::File(_) = size else { return Ok(allocation) };
            let bytes = self.file_bytes(&allocation)?;
            match bytes.checked_sub(asked) {
                None | Some(0) => return Ok(allocation),
                // Other types may need as much again, so every attempt leaves a little more.
                Some(excess) => beside += excess + attempt * ALIGNMENT,
            }
        }
        Err(too_small())
    }

    /// The types of the smallest file whose [loss](Allocation::loss) is `loss` at most; of the best one where none is.
    pub fn for_loss(&self, loss: f64) -> Allocation {
        self.allocation(&choose::within(&self.offers, loss * self.counts))
    }

    /// Files to measure, one for each role that the free tensors have: its tensors in the types nearest to `bits` for each
    /// weight, all others as they are. Roles that lose nothing in these have none.
    pub fn probes(&self, bits: f64) -> Vec<Probe> {
        let mut roles = Vec::new();
        for role in (0..self.free.len()).map(|i| self.role(i)) {
            if !roles.contains(&role) {
                roles.push(role);
            }
        }
        roles.into_iter().filter_map(|role| self.probe(role, bits)).collect()
    }

    /// The role of free tensor number `i`.
    fn role(&self, i: usize) -> Category {
        Category::of(&self.plan.rows[self.free[i]].name)
    }

    /// The bits for each weight of a file of this size, were all its bytes those of tensors.
    pub fn bits(&self, size: Size) -> f64 {
        match size {
            Size::BitsPerWeight(bits) => bits,
            Size::File(bytes) => bytes as f64 * 8.0 / self.plan.weights().max(1) as f64,
        }
    }

    /// The file to measure for a role.
    fn probe(&self, role: Category, bits: f64) -> Option<Probe> {
        let mut loss = 0.0;
        let choice = |i: usize| {
            let (types, losses) = (&self.types[i], &self.losses[i]);
            let (far, same) = (|at: &usize| (self.bits_of(i, *at) - bits).abs(), types.len() - 1);
            let lossy = (0..same).filter(|&at| losses[at].is_finite());
            let near = lossy.min_by(|a, b| far(a).total_cmp(&far(b)).then(losses[*a].total_cmp(&losses[*b])));
            if self.role(i) == role { near.unwrap_or(same) } else { same }
        };
        let chosen: Vec<usize> = (0..self.free.len()).map(choice).collect();
        for (losses, &at) in self.losses.iter().zip(&chosen) {
            loss += losses[at];
        }
        (loss > 0.0).then(|| Probe { role, loss, allocation: self.allocation(&chosen) })
    }

    /// The bits for each weight of free tensor number `i` in its type number `at`.
    fn bits_of(&self, i: usize, at: usize) -> f64 {
        self.offers[i][at].bytes as f64 * 8.0 / self.plan.rows[self.free[i]].weights().max(1) as f64
    }

    /// Lets the tensors of each role count by the divergence that was measured of its probe: the losses of an allocation
    /// then sum to its divergence. Roles that were not measured count as the mean of those that were.
    pub fn weigh(&mut self, measured: &[(Probe, f64)]) {
        let of_role = |role: Category| {
            let (probe, divergence) = measured.iter().find(|(probe, _)| probe.role == role)?;
            Some(divergence.max(0.0) / probe.loss)
        };
        let known: Vec<f64> = (0..self.free.len()).filter_map(|i| of_role(self.role(i))).collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let counts: Vec<f64> = (0..self.free.len()).map(|i| of_role(self.role(i)).unwrap_or(mean)).collect();
        if counts.iter().sum::<f64>() > 0.0 {
            self.count(&counts);
            self.is_measured = true;
        }
    }

    /// A search for the divergence `wanted` by the losses of allocations.
    pub fn search(&self, wanted: f64) -> Search {
        Search::new(wanted, self.is_measured.then_some(self.counts))
    }

    /// The bytes of the file with these types.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn file_bytes(&self, allocation: &Allocation) -> Result<u64, AllocateError> {
        let layouts = Plan::new(self.model, &allocation.recipe(self.recipe))?.layouts()?;
        Ok(layouts.iter().map(|layout| layout.file_bytes()).sum())
    }

    fn allocation(&self, chosen: &[usize]) -> Allocation {
        let mut weights: BTreeMap<u32, u64> = BTreeMap::new();
        let mut rules = Vec::with_capacity(self.free.len());
        let (mut loss, mut counted) = (0.0, 0.0);
        for (i, (&row, &choice)) in self.free.iter().zip(chosen).enumerate() {
            let (row, ty) = (&self.plan.rows[row], self.types[i][choice]);
            loss += self.losses[i][choice];
            counted += self.offers[i][choice].loss;
            if is_quantized(ty) {
                *weights.entry(ty.0).or_default() += row.weights();
            }
            rules.push(TensorRule::named(&row.name, ty));
        }
        let most = weights.iter().max_by_key(|(_, weights)| **weights);
        let most = most.map(|(&ty, _)| guessed_id(TypeId(ty)) & !GUESSED);
        let ftype = Ftype::ALL.iter().copied().find(|ftype| Some(*ftype as u32) == most);
        let ftype = ftype.filter(|ftype| is_quantized(ftype.default_type())).unwrap_or(Ftype::Q8_0);
        let error = (loss / self.free.len().max(1) as f64).sqrt();
        Allocation { ftype, rules, error, loss: counted / self.counts.max(f64::MIN_POSITIVE) }
    }
}

/// A file in which the tensors of one role alone err.
#[derive(Clone, Debug)]
pub struct Probe {
    role: Category,
    /// The errors of its tensors' products relative to them, squared and summed over the tensors.
    loss: f64,
    /// The types.
    pub allocation: Allocation,
}

impl Probe {
    /// The role, for people.
    pub fn role(&self) -> &'static str {
        self.role.name()
    }
}

impl Allocation {
    /// A recipe with these types in the place of its target; its own rules count first.
    pub fn recipe(&self, recipe: &Recipe) -> Recipe {
        let mut recipe = Recipe { target: Target::Ftype(self.ftype), ..recipe.clone() };
        recipe.rules.extend(self.rules.iter().cloned());
        recipe
    }

    /// The rules as `--tensor-type-file` takes them, of this program and of llama-quantize.
    pub fn text(&self) -> String {
        self.rules.iter().map(|rule| format!("{}={}\n", rule.pattern, rule.ty)).collect()
    }
}

/// The role of the tensor that logits are computed with: token embeddings have it where there is no other.
fn output_of(rows: &[Row]) -> Option<Category> {
    let all = [Category::Output, Category::TokenEmbd];
    all.into_iter().find(|category| rows.iter().any(|row| Category::of(&row.name) == *category))
}

/// True of a tensor whose type nothing but the file type decides.
fn is_free(row: &Row) -> bool {
    matches!(row.reason, Reason::Default | Reason::Mixture | Reason::Fallback(_)) && row.moves.is_none()
}

/// The types that a tensor may have: those that the program it is for loads, that its rows are whole blocks of and that its
/// method makes, and the one that it has.
fn types_of(row: &Row, reader: Option<Program>) -> Vec<TypeId> {
    let is_fed = row.method == gptq::NAME;
    let weighted = if row.weighted || is_fed { WEIGHTED_TYPES } else { &[] };
    let fits = |ty: &TypeId| {
        let block = ty.info().map_or(0, |info| info.block as u64);
        let loads = reader.is_none_or(|program| program.loads(*ty));
        loads
            && block > 0
            && row.columns().is_multiple_of(block)
            && can_write(*ty)
            && *ty != row.from
            && (!is_fed || !is_quantized(*ty) || gptq::takes(*ty))
    };
    let all = weighted.iter().chain(TYPES).copied().filter(fits);
    all.chain([row.from]).collect()
}
