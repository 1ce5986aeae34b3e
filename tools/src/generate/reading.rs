//! A long prompt on its way into the context, which a bar shows in a terminal.

use std::borrow::BorrowMut;
use std::io::{self, IsTerminal as _};

use anyhow::Result;
use trine::{Context, Generation};

use crate::progress;

/// Tokens between two looks of the bar.
const PART: usize = 256;
/// Prompts of fewer tokens are read without a bar.
const LONG: usize = 2 * PART;

/// Reads a long prompt up to its last tokens, with a bar where standard error is a terminal. The rest is for whoever
/// asks for text.
///
/// # Errors
/// A token that the model does not have.
pub fn with_bar<C: BorrowMut<Context>>(generation: &mut Generation<C>) -> Result<()> {
    let total = generation.prompt().len();
    if total < LONG || !io::stderr().is_terminal() {
        return Ok(());
    }
    // What the context has already is found out before the bar is there.
    let mut going = generation.read_part(0)?;
    let read = |generation: &Generation<C>| generation.context().tokens().len();
    if !going || total - read(generation) < LONG {
        return Ok(());
    }
    let bar = progress::bar(total as u64, "{pos}/{len} tokens read, ETA {eta}");
    bar.set_position(read(generation) as u64);
    bar.reset_eta();
    while going && total - read(generation) > PART {
        going = generation.read_part(PART)?;
        bar.set_position(read(generation) as u64);
    }
    bar.finish_and_clear();
    Ok(())
}
