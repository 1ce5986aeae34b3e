//! The options of rquantize for any-precision targets: `AP3-8`, `SQ4`.

use std::path::PathBuf;

use clap::Args;
use trine::quant::anyprec::outliers::{Rule, Shares};
use trine::quant::anyprec::{Method, Options, Sensitivity};

/// Heading of the options of this kind of target in help.
const HEADING: &str = "Any-precision targets (AP3-8, AP4, AP, SQ4 ...)";

/// The options of any-precision targets.
#[derive(Args, Debug)]
#[command(next_help_heading = HEADING)]
pub struct AnyPrecArgs {
    /// Bits of the clusters that are found first (AP3-8: 3); wider codes split them
    #[arg(long, value_name = "N")]
    pub seed_bits: Option<u8>,

    /// Bits of the widest code (AP3-8: 8; AP: 8, 6 or 5 by the length of the rows)
    #[arg(long, visible_alias = "upper", value_name = "N")]
    pub parent_bits: Option<u8>,

    /// Widths the model can run at; without it all from the seed's to the parent's. Each costs tables
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub widths: Option<Vec<u8>>,

    /// Groups of columns with tables of their own in each row
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub row_groups: u32,

    /// Let the rows of each matrix share N tables of each width, every row with a factor of its own: 16 take next to
    /// nothing, where tables of each row are as large as the codes of short rows
    #[arg(long, value_name = "N")]
    pub tables: Option<u32>,

    /// Sensitivities of all weights: safetensors files with squared gradients, in the names and the order
    /// of rows of the Hugging Face checkpoint or of the GGUF file. May be repeated, one per shard. Without
    /// it those of --imatrix count, and without that all weights alike
    #[arg(long, value_name = "FILE", conflicts_with = "imatrix")]
    pub sensitivity: Vec<PathBuf>,

    /// The files of --sensitivity hold gradients, which are to be squared
    #[arg(long, requires = "sensitivity")]
    pub sens_is_gradient: bool,

    /// Keep the most sensitive and the largest weights as they are: 0.05 % and 0.4 % (SQ: 0.45 %)
    #[arg(long)]
    pub outliers: bool,

    /// Share of the most sensitive in percent; implies --outliers
    #[arg(long, value_name = "PERCENT")]
    pub outlier_sensitive: Option<f64>,

    /// Share of the largest in percent; implies --outliers
    #[arg(long, value_name = "PERCENT")]
    pub outlier_magnitude: Option<f64>,

    /// Find the best clusters at N bits (without it at the narrowest width): wider codes split them, narrower ones
    /// join them in pairs. AP3-8 --best-at 4 is better at 4 bits and above and worse at 3
    #[arg(long, value_name = "N", conflicts_with = "compat")]
    pub best_at: Option<u8>,

    /// Cluster as the any-precision authors' program does, bit for bit: by chance, and a little worse. SEED
    /// is its random state
    #[arg(long, value_name = "SEED", num_args = 0..=1, default_missing_value = "0", require_equals = true)]
    pub compat: Option<u32>,

    /// Take one width out of an any-precision file: rquantize --width 4 IN.gguf OUT.gguf
    #[arg(long, value_name = "N")]
    pub width: Option<u8>,
}

impl AnyPrecArgs {
    /// The first option that was given, without `--width`.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.seed_bits.is_some(), "--seed-bits"),
            (self.parent_bits.is_some(), "--parent-bits"),
            (self.widths.is_some(), "--widths"),
            (self.row_groups != 1, "--row-groups"),
            (self.tables.is_some(), "--tables"),
            (!self.sensitivity.is_empty(), "--sensitivity"),
            (self.outliers, "--outliers"),
            (self.outlier_sensitive.is_some(), "--outlier-sensitive"),
            (self.outlier_magnitude.is_some(), "--outlier-magnitude"),
            (self.best_at.is_some(), "--best-at"),
            (self.compat.is_some(), "--compat"),
        ];
        given.into_iter().find(|g| g.0).map(|g| g.1)
    }

    /// As the quantizer takes them; `rule` is the target's.
    pub fn options(&self, rule: Rule, sensitivity: Sensitivity) -> Options {
        let usual = Shares::default_of(rule);
        let asked = self.outliers || self.outlier_sensitive.is_some() || self.outlier_magnitude.is_some();
        Options {
            seed_bits: self.seed_bits,
            parent_bits: self.parent_bits,
            widths: self.widths.clone(),
            groups: self.row_groups,
            tables: self.tables,
            method: match (self.compat, self.best_at) {
                (Some(seed), _) => Method::Compat { seed },
                (None, Some(bits)) => Method::BestAt(bits),
                (None, None) => Method::Exact,
            },
            outliers: asked.then(|| Shares {
                sensitive: self.outlier_sensitive.unwrap_or(usual.sensitive),
                magnitude: self.outlier_magnitude.unwrap_or(usual.magnitude),
            }),
            sensitivity,
        }
    }
}
