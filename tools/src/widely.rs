//! The options of widely linear matrices.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use trine::quant::widely::Options;
use trine_formats::temp_file::TempFile;
use trine_formats::widely::{OutputForm, Profile, Scope, TieRule};

/// Heading of the options in help.
const HEADING: &str = "Widely linear matrices (Fairy2i)";

/// The options of widely linear matrices.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = HEADING)]
pub struct WidelyArgs {
    /// Stages of every matrix, one bit per weight each [default: 2, the published model's]
    #[arg(long, value_name = "1-4", value_parser = clap::value_parser!(u8).range(1..=4))]
    pub wl_stages: Option<u8>,

    /// The part that has scales of its own: the whole matrix, a row, or a tile of 64 x 64 [default: tensor]
    #[arg(long, value_name = "tensor|row|tile64", value_enum, hide_possible_values = true)]
    pub wl_scope: Option<ScopeArg>,

    /// Rounding: to bfloat16 after every step, as the training script does, or nothing [default: script-bf16
    /// where all matrices are BF16, else f32]
    #[arg(long, value_name = "script-bf16|f32", value_enum, hide_possible_values = true)]
    pub wl_profile: Option<ProfileArg>,

    /// Where elements go whose real and imaginary parts are of equal magnitude: as their phase says, or to the
    /// imaginary axis [default: phase]
    #[arg(long, value_name = "phase|tile64", value_enum, hide_possible_values = true)]
    pub wl_tie: Option<TieArg>,

    /// The output matrix: quantized too, dense as it is, or whichever gives the text of --wl-text the lower perplexity,
    /// which takes three conversions [default: wl]
    #[arg(long, value_name = "wl|dense|auto", value_enum, hide_possible_values = true)]
    pub wl_lm_head: Option<OutputArg>,

    /// The text for --wl-lm-head auto
    #[arg(long, value_name = "FILE")]
    pub wl_text: Option<PathBuf>,
}

macro_rules! names {
    ($($arg:ident = $ty:ident { $($value:ident = $is:ident, $name:literal;)+ })*) => { $(
        #[doc = concat!("Names of [`", stringify!($ty), "`] on the command line.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        #[allow(missing_docs)]
        pub enum $arg {
            $(#[value(name = $name)] $value),+
        }

        impl From<$arg> for $ty {
            fn from(arg: $arg) -> $ty {
                match arg {
                    $($arg::$value => $ty::$is),+
                }
            }
        }
    )* };
}

names! {
    ScopeArg = Scope { Tensor = Tensor, "tensor"; Row = Row, "row"; Tile64 = Tile64, "tile64"; }
    ProfileArg = Profile { ScriptBf16 = ScriptBf16, "script-bf16"; F32 = F32, "f32"; }
    TieArg = TieRule { Phase = Phase, "phase"; Tile64 = Tile64, "tile64"; }
}

/// `--wl-lm-head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum OutputArg {
    Wl,
    Dense,
    Auto,
}

impl WidelyArgs {
    /// The first option that was given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.wl_stages.is_some(), "--wl-stages"),
            (self.wl_scope.is_some(), "--wl-scope"),
            (self.wl_profile.is_some(), "--wl-profile"),
            (self.wl_tie.is_some(), "--wl-tie"),
            (self.wl_lm_head.is_some(), "--wl-lm-head"),
            (self.wl_text.is_some(), "--wl-text"),
        ];
        given.into_iter().find(|g| g.0).map(|g| g.1)
    }

    /// Options of the converter and of the quantizer.
    pub fn options(&self) -> Options {
        Options {
            stages: self.wl_stages.unwrap_or(2).into(),
            scope: self.wl_scope.map(Scope::from).unwrap_or_default(),
            tie: self.wl_tie.map(TieRule::from).unwrap_or_default(),
            profile: self.wl_profile.map(Profile::from),
            output: match self.wl_lm_head {
                Some(OutputArg::Dense) => OutputForm::Dense,
                Some(OutputArg::Wl | OutputArg::Auto) | None => OutputForm::Widely,
            },
        }
    }

    /// Finds out which form of the output matrix `--wl-lm-head auto` means: `make` writes the file of a form to a path
    /// beside `out`, where its perplexity is measured. `None` where the form was said.
    ///
    /// # Errors
    /// `--wl-text` is missing, or the text too short; what `make` says.
    pub fn choose_output(
        &self,
        out: &Path,
        make: &mut dyn FnMut(OutputForm, &Path) -> Result<()>,
    ) -> Result<Option<Choice>> {
        let text = match (self.wl_lm_head, &self.wl_text) {
            (Some(OutputArg::Auto), Some(text)) => text,
            (Some(OutputArg::Auto), None) => {
                bail!("--wl-lm-head auto measures perplexities: give a text with --wl-text FILE")
            }
            (_, Some(_)) => bail!("--wl-text is for --wl-lm-head auto"),
            _ => return Ok(None),
        };
        let place = || format!("--wl-text '{}'", text.display());
        let text = std::fs::read_to_string(text).with_context(place)?;
        let mut ppl = [0.0; 2];
        for (form, ppl) in [OutputForm::Widely, OutputForm::Dense].into_iter().zip(&mut ppl) {
            let (temp, _) = TempFile::create(out)?;
            make(form, temp.path())?;
            let model = trine::open(temp.path())?;
            *ppl = model.perplexity(&text, CONTEXT).with_context(place)?.ppl();
            note!("output matrix {}: perplexity {ppl:.4}", form.name());
        }
        let [widely, dense] = ppl;
        Ok(Some(Choice { form: if widely <= dense { OutputForm::Widely } else { OutputForm::Dense }, ppl }))
    }
}

/// Tokens of the chunks whose perplexity is measured.
const CONTEXT: usize = 512;

/// The choice that `--wl-lm-head auto` made.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The form with the lower perplexity.
    pub form: OutputForm,
    /// The perplexities of the quantized and of the dense form.
    pub ppl: [f64; 2],
}

impl Choice {
    /// The keys that record it.
    pub fn keys(&self) -> [(&'static str, f32); 2] {
        let [widely, dense] = self.ppl.map(|ppl| ppl as f32);
        [("fairy2i.wl.lm_head_ppl.wl", widely), ("fairy2i.wl.lm_head_ppl.dense", dense)]
    }
}

/// The name of the target.
pub const TARGET: &str = "FAIRY2I";

/// Refuses an option that was given and has no meaning here.
///
/// # Errors
/// The option was given.
pub fn refuse(option: Option<&str>) -> Result<()> {
    match option {
        Some(option) => bail!("{option} has no meaning for widely linear matrices"),
        None => Ok(()),
    }
}

/// Refuses options of widely linear matrices for other targets.
///
/// # Errors
/// Such an option was given.
pub fn refuse_elsewhere(args: &WidelyArgs) -> Result<()> {
    match args.given() {
        Some(option) => bail!("{option} is for widely linear matrices: the type {TARGET}"),
        None => Ok(()),
    }
}
