//! Architectures that llama.cpp has and trine does not run, for messages and for docs/models.md.

/// An architecture that trine does not run.
#[derive(Clone, Copy, Debug)]
pub struct Missing {
    /// The name in `general.architecture`.
    pub name: &'static str,
    /// The operations of the architecture that the interpreter lacks.
    pub what: &'static str,
}

const DRAFTER: &str = "the model that it drafts for (--spec-type draft-eagle3 -md FILE)";
const BLOCK_DRAFTER: &str = "the model that it drafts for (--spec-type draft-dflash -md FILE)";
const ASSISTANT: &str = "the model that it drafts for (--spec-type draft-mtp -md FILE)";
const OTHER: &str = "operations that no other model has";

/// All of them, by what is missing.
#[rustfmt::skip]
pub static MISSING: &[Missing] = &[
    of("eagle3", DRAFTER),
    of("dflash", BLOCK_DRAFTER),
    of("gemma4-assistant", ASSISTANT),
    of("wavtokenizer-dec", OTHER),
];

const fn of(name: &'static str, what: &'static str) -> Missing {
    Missing { name, what }
}

impl Missing {
    /// The architecture of this name, where llama.cpp has it and trine does not.
    pub fn find(name: &str) -> Option<&'static Missing> {
        MISSING.iter().find(|m| m.name == name)
    }
}
