//! The bytes of a sequence, for a file from which another run goes on.
//!
//! ```text
//! sequence   pages, then the recurrent state
//! page       [layer][KV head], the positions that the sequence has
//! head       keys [tile], values [tile]: the words of the page, little-endian
//!            or, of other types than half floats, keys [position], values [position]: the bytes of the page
//! state      numbers in single precision, little-endian; as many as the model has, which may be none
//! ```
//!
//! Layers that a device keeps stand where this memory would have them. Which tiles hold an infinity or a NaN is not
//! written: it is found again in what is read.

use std::io::{self, Read, Write};
use std::sync::Arc;

use super::budget::PagePool;
use super::elsewhere::Beside;
use super::sequence::{PageRef, Sequence};

impl Sequence {
    /// Writes all positions, which stand where they do without a [`super::Placement`].
    ///
    /// # Errors
    /// Write errors.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let layout = self.layout();
        let keeper = self.home().keeper()?;
        for (i, page) in self.pages.iter().enumerate() {
            let positions = (self.len() - i * layout.positions).min(layout.positions);
            page.memory().write(layout, positions, out)?;
            if let Some(keeper) = keeper {
                let mut beside = Beside::new(layout, positions);
                beside.fill(&keeper.page(self.number_elsewhere(i), positions)?)?;
                beside.write(out)?;
            }
        }
        for i in 0..layout.state {
            let number = self.state.here.as_ref().map_or(0.0, |state| state[i]);
            out.write_all(&number.to_le_bytes())?;
        }
        Ok(())
    }
}

impl PagePool {
    /// A sequence of `len` positions from what [`Sequence::write`] wrote.
    ///
    /// # Errors
    /// Read errors; the error is of the kind `OutOfMemory` where the budget is spent.
    pub fn read_sequence(&self, len: usize, from: &mut dyn Read) -> io::Result<Sequence> {
        let layout = self.layout();
        let keeper = self.keeper()?;
        let pages = self.take(len.div_ceil(layout.positions));
        let mut pages = pages.map_err(|e| io::Error::new(io::ErrorKind::OutOfMemory, e))?;
        for (i, page) in pages.iter_mut().enumerate() {
            let positions = (len - i * layout.positions).min(layout.positions);
            let page = Arc::get_mut(page).expect("the pool gave it to nobody else");
            page.memory_mut().read(layout, positions, from)?;
            if let Some(keeper) = keeper {
                let mut beside = Beside::new(layout, positions);
                beside.read(from)?;
                keeper.set_page(page.number(), positions, &beside.cells())?;
            }
        }
        let pages = pages.into_iter().map(PageRef::of).collect();
        let mut sequence = self.sequence_of(pages, len);
        if layout.state > 0 {
            let mut bytes = [0; size_of::<f32>()];
            for number in sequence.state_mut() {
                from.read_exact(&mut bytes)?;
                *number = f32::from_le_bytes(bytes);
            }
        }
        Ok(sequence)
    }
}
