//! Facts from the header of a model's file, for lists of models.

use std::time::SystemTime;

use trine::arch::Arch;
use trine::formats::gguf::ModelFile;
use trine_tools::bench::describe::{Description, billions, file_type};

/// Facts from the header of a model's file.
#[derive(Clone, Debug)]
pub struct Card {
    /// Bytes of its files.
    pub size: u64,
    /// Time at which its file was written.
    pub modified: SystemTime,
    /// Its architecture.
    pub family: String,
    /// True if it continues texts; false if it makes vectors of them alone.
    pub completes: bool,
    /// Its number of weights.
    pub n_params: u64,
    /// Number of weights, rounded: `7.2B`.
    pub parameters: String,
    /// Its file type: `Q4_K_M`.
    pub kind: String,
}

impl Card {
    /// From the header of a file.
    pub fn of(file: &ModelFile) -> Card {
        let n_params = Description::of(file).params;
        let shards = file.shards();
        let modified = shards.first().and_then(|s| std::fs::metadata(&s.path).ok()?.modified().ok());
        let family = file.meta().get_str("general.architecture").ok().flatten().unwrap_or_default().to_owned();
        Card {
            completes: Arch::find(&family).is_none_or(|arch| !arch.vectors),
            family,
            size: shards.iter().map(|s| (*s.bytes).as_ref().len() as u64).sum(),
            modified: modified.unwrap_or(SystemTime::UNIX_EPOCH),
            n_params,
            parameters: billions(n_params),
            kind: file_type(file),
        }
    }
}
