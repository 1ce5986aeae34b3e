//! The planner: from the headers of a model and a recipe to a plan. Pure: no data is read.

use trine_formats::gguf::{Metadata, ModelFile};

use super::anyprec::{Clusters, Width};
use super::copy::Copying;
use super::error::PlanError;
use super::ftype::Target;
use super::gptq::Feedback;
use super::lossless::Moves;
use super::plan::{Asked, Draft, Method, Plan};
use super::problem::Refusal;
use super::recipe::Recipe;
use super::replace::Replacing;
use super::rotate::Rotating;
use super::round::Rounding;
use super::row::{StoredTensor, sources};
use super::usual;
use super::widely::Widely;

/// The methods that plan and make what a recipe asks for. Each takes rows of what those before it have planned.
fn methods(recipe: &Recipe) -> Vec<Box<dyn Method>> {
    let rounding = || Box::new(Rounding::new(recipe.encoder, recipe.importance.as_ref()));
    match recipe.target {
        Target::AnyPrecision(target) => vec![rounding(), Box::new(Clusters::new(target, &recipe.anyprec))],
        Target::Width(bits) => vec![rounding(), Box::new(Width::new(bits))],
        Target::Widely => vec![Box::new(Copying), Box::new(Widely::new(&recipe.widely))],
        Target::Dense(ty) => vec![Box::new(Copying), Box::new(Widely::dense(ty))],
        Target::Copy => vec![rounding()],
        Target::Turned(rotation) => vec![rounding(), Box::new(Rotating::new(rotation))],
        Target::Replaced => vec![Box::new(Copying), Box::new(Replacing::new(&recipe.replacement))],
        Target::Ftype(_) | Target::Packed(_) => {
            let mut all: Vec<Box<dyn Method>> = vec![rounding(), Box::new(Moves::new(&recipe.input_packing))];
            all.extend(recipe.gptq.iter().map(|gptq| Box::new(Feedback::new(gptq)) as Box<dyn Method>));
            all
        }
    }
}

impl Plan {
    /// Plans the output of `recipe` for `model`.
    ///
    /// # Errors
    /// A recipe that makes no sense for the model. Requests that cannot be honoured for some tensors
    /// are collected in [`Plan::problems`] instead, so that the plan can still be shown.
    pub fn new(model: &ModelFile, recipe: &Recipe) -> Result<Plan, PlanError> {
        plan(Some(model), model.meta(), sources(model), recipe)
    }

    /// The same from the headers alone: shard, place in its file, and table row of every tensor. Files with
    /// any-precision and widely linear matrices need the model.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn from_headers(meta: &Metadata, sources: Vec<StoredTensor<'_>>, recipe: &Recipe) -> Result<Plan, PlanError> {
        plan(None, meta, sources, recipe)
    }

    /// True if everything asked for can be done.
    ///
    /// # Errors
    /// All problems, in groups.
    pub fn check(&self) -> Result<(), PlanError> {
        match Refusal::new(&self.problems) {
            Some(refusal) => Err(PlanError::Refused(refusal)),
            None => Ok(()),
        }
    }
}

fn plan<'a>(
    model: Option<&'a ModelFile>,
    meta: &'a Metadata,
    sources: Vec<StoredTensor<'a>>,
    recipe: &'a Recipe,
) -> Result<Plan, PlanError> {
    if sources.is_empty() {
        return Err(PlanError::NoTensors);
    }
    let asked = Asked {
        allow_requantize: recipe.allow_requantize,
        embedding_type: recipe.embedding_type,
        output_type: recipe.output_type,
        overrides: &recipe.overrides,
    };
    let mut draft = Draft::new(model, meta, sources, &recipe.prune, asked).map_err(PlanError::NoLayer)?;
    let mut methods = methods(recipe);
    if recipe.target.is_usual() {
        usual::choose(&mut draft, recipe)?;
    }
    for method in &mut methods {
        method.plan(&mut draft)?;
    }
    if recipe.target.is_usual() {
        usual::finish(&mut draft, recipe)?;
    }
    Ok(Plan { methods, ..draft.plan })
}
