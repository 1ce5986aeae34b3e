//! Drafts: where they come from, and their statistics.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use trine::generate::speculate::Speculator;
use trine::{DraftOptions, DraftSource};

use crate::adapters::AdapterArgs;
use crate::load::{ModelArgs, load, positive};

/// Options of several letters.
pub const SHORT: (&str, &str) = ("-md", "--model-draft");

/// The options that say how tokens are drafted.
#[derive(Args)]
#[group(id = "drafts", multiple = true)]
pub struct SourceArgs {
    /// Draft tokens at N bits of the same any-precision file and verify them together. The text is the same;
    /// drafting stops where it does not make it faster
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub draft_bits: Option<u8>,

    /// Draft tokens with a second, smaller model, a GGUF file, also -md. The text is the same. Where the models have
    /// other vocabularies, tokens that stand for the same bytes are the same
    #[arg(long, alias = "spec-draft-model", value_name = "FILE")]
    pub model_draft: Option<PathBuf>,

    /// ngram-simple: draft what followed the last tokens where the text had them before. The text is the same; it helps
    /// where texts repeat themselves, as code does. draft-mtp: draft with the model's own heads for multi-token
    /// prediction, which some models have, or with the Gemma 4 assistant of -md. draft-eagle3, draft-dflash: draft with the EAGLE-3 or DFlash drafter of -md,
    /// which was made for the model. draft-simple: draft with the model of -md, as without this option
    #[arg(long, value_name = "TYPE", hide_possible_values = true)]
    pub spec_type: Option<Spec>,
}

/// The options for drafts of any source.
#[derive(Args)]
pub struct DraftArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub source: SourceArgs,

    /// How many tokens to draft at most before they are verified; how many within that depends on how many were right
    #[arg(
        long,
        visible_alias = "draft-max",
        aliases = ["draft-n", "spec-draft-n-max"],
        value_name = "N",
        default_value = "16",
        value_parser = positive,
        requires = "drafts"
    )]
    pub draft: usize,

    /// Draft even where it does not make the text faster
    #[arg(long, requires = "drafts")]
    pub draft_always: bool,
}

/// Values of `--spec-type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[allow(missing_docs)]
pub enum Spec {
    None,
    DraftSimple,
    DraftMtp,
    DraftEagle3,
    DraftDflash,
    NgramSimple,
}

impl DraftArgs {
    /// As the library takes them; loads the second model, where there is one, as `model` was loaded.
    ///
    /// # Errors
    /// It cannot be loaded; two sources, or none where one is named.
    pub fn options(&self, model: &ModelArgs) -> Result<Option<DraftOptions>> {
        let SourceArgs { draft_bits, model_draft, spec_type } = &self.source;
        let Some(source) = source(*draft_bits, model_draft.as_deref(), *spec_type, model)? else {
            return Ok(None);
        };
        Ok(Some(DraftOptions { source, most: self.draft, always: self.draft_always }))
    }
}

/// The source that the options ask for; loads the second model, where there is one, as `model` was loaded.
///
/// # Errors
/// It cannot be loaded; two sources, or none where one is named.
pub fn source(
    bits: Option<u8>,
    second: Option<&Path>,
    spec: Option<Spec>,
    model: &ModelArgs,
) -> Result<Option<DraftSource>> {
    Ok(Some(match (second, bits, spec.unwrap_or(Spec::None)) {
        (Some(path), None, Spec::None | Spec::DraftSimple) => {
            let args = ModelArgs {
                model: path.to_owned(),
                adapters: AdapterArgs::default(),
                mtp: false,
                drafter: None,
                ..model.clone()
            };
            DraftSource::Model(load(&args)?)
        }
        (None, Some(bits), Spec::None) => DraftSource::Narrow(bits),
        (_, None, Spec::DraftMtp) => DraftSource::Mtp,
        (Some(_), None, Spec::DraftEagle3) => DraftSource::Eagle3,
        (Some(_), None, Spec::DraftDflash) => DraftSource::Dflash,
        (None, None, Spec::DraftEagle3) => bail!("--spec-type draft-eagle3: give the drafter with -md FILE"),
        (None, None, Spec::DraftDflash) => bail!("--spec-type draft-dflash: give the drafter with -md FILE"),
        (None, None, Spec::NgramSimple) => DraftSource::Text,
        (None, None, Spec::None) => return Ok(None),
        (None, None, Spec::DraftSimple) => bail!("--spec-type draft-simple: give the draft model with -md FILE"),
        _ => bail!("drafts come from one source: --draft-bits N, -md FILE, --spec-type draft-mtp or ngram-simple"),
    }))
}

impl SourceArgs {
    /// True if the model's own heads are the only source, and so have to be loaded.
    pub fn by_heads(&self) -> bool {
        by_heads(self.draft_bits, self.model_draft.as_deref(), self.spec_type)
    }

    /// The file of a drafter that is loaded with the model.
    pub fn drafter(&self) -> Option<PathBuf> {
        drafter(self.draft_bits, self.model_draft.as_deref(), self.spec_type)
    }
}

/// True if the options name the model's own heads alone.
pub fn by_heads(bits: Option<u8>, second: Option<&Path>, spec: Option<Spec>) -> bool {
    spec == Some(Spec::DraftMtp) && bits.is_none() && second.is_none()
}

/// The file of a drafter that is loaded with the model, where the options name one alone.
pub fn drafter(bits: Option<u8>, second: Option<&Path>, spec: Option<Spec>) -> Option<PathBuf> {
    let second = second
        .filter(|_| matches!(spec, Some(Spec::DraftEagle3 | Spec::DraftDflash | Spec::DraftMtp)) && bits.is_none());
    second.map(Path::to_owned)
}

/// The source in words.
fn name(source: &DraftSource) -> String {
    match source {
        DraftSource::Narrow(bits) => format!("at {bits} bits"),
        DraftSource::Model(_) => "of the draft model".to_owned(),
        DraftSource::Mtp => "of the model's heads".to_owned(),
        DraftSource::Eagle3 | DraftSource::Dflash => "of the drafter".to_owned(),
        DraftSource::Text => "of the text itself".to_owned(),
    }
}

/// The summary on standard error, below the timings.
pub fn print(options: &DraftOptions, s: &Speculator) {
    let counts = s.counts();
    note!(
        "{:>16} = {} of {} tokens {} ({:.1} %) in {} rounds",
        "draft accepted",
        counts.accepted,
        counts.drafted,
        name(&options.source),
        100.0 * counts.acceptance(),
        counts.rounds
    );
    if let Some((drafted, plain)) = s.pace().off() {
        note!(
            "drafting did not pay here ({:.2} ms per token with it, {:.2} without) and was switched off; --draft-always keeps it",
            1e3 * drafted.as_secs_f64(),
            1e3 * plain.as_secs_f64()
        );
    }
}

/// The summary for `--json`.
pub fn to_json(options: &DraftOptions, s: &Speculator) -> Value {
    let counts = s.counts();
    let mut summary = json!({
        "tokens": options.most,
        "rounds": counts.rounds,
        "drafted": counts.drafted,
        "accepted": counts.accepted,
        "acceptance": counts.acceptance(),
        "switched_off": s.pace().off().is_some(),
    });
    match &options.source {
        DraftSource::Narrow(bits) => summary["bits"] = json!(bits),
        DraftSource::Model(model) => summary["model"] = json!(model.path().display().to_string()),
        DraftSource::Mtp => summary["source"] = json!("mtp"),
        DraftSource::Eagle3 => summary["source"] = json!("eagle3"),
        DraftSource::Dflash => summary["source"] = json!("dflash"),
        DraftSource::Text => summary["source"] = json!("text"),
    }
    summary
}
