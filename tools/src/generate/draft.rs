//! Statistics of the drafts.

use serde_json::{Value, json};
use trine::generate::speculate::Speculator;

/// The summary on standard error, below the timings.
pub fn print(s: &Speculator) {
    let counts = s.counts();
    note!(
        "{:>16} = {} of {} tokens at {} bits ({:.1} %) in {} rounds",
        "draft accepted",
        counts.accepted,
        counts.drafted,
        s.draft_bits(),
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
pub fn to_json(s: &Speculator, most: usize) -> Value {
    let counts = s.counts();
    json!({
        "bits": s.draft_bits(),
        "tokens": most,
        "rounds": counts.rounds,
        "drafted": counts.drafted,
        "accepted": counts.accepted,
        "acceptance": counts.acceptance(),
        "switched_off": s.pace().off().is_some(),
    })
}
