//! Pages within a budget.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::keeper::Keeper;
use super::layout::PageLayout;
use super::page::{EncodedHead, HeadPage, Memory};

/// The budget has no room for the pages that are wanted. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key-value cache is full: {wanted} pages of {positions} positions are wanted, {free} of {budget} are free")]
pub struct OutOfPages {
    /// Pages wanted.
    pub wanted: usize,
    /// Pages that nobody holds.
    pub free: usize,
    /// All pages.
    pub budget: usize,
    /// Positions of a page.
    pub positions: usize,
}

/// Pages of one layout, with a limit on the number in use. Clones share the budget.
#[derive(Clone)]
pub struct PagePool(Arc<Shared>);

struct Shared {
    layout: PageLayout,
    budget: usize,
    state: Mutex<PageAllocator>,
    keeper: OnceLock<Arc<dyn Keeper>>,
}

/// The allocator of a pool's pages, behind the lock.
#[derive(Default)]
struct PageAllocator {
    /// Number of pages that are held.
    held: usize,
    /// Memory of pages that are not held any more.
    spare: Vec<Memory>,
    /// Numbers of pages that are not held any more.
    numbers: Vec<u32>,
    /// The first number that no page has had.
    unused: u32,
}

/// A page. Who holds the only reference may write.
pub(super) struct Page {
    /// Taken when the page goes.
    memory: Option<Memory>,
    /// Its number among the pages that are held, below the budget: where a device keeps what it has of the page.
    number: u32,
    home: PagePool,
}

fn unsupported(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

impl PagePool {
    /// At most `budget` pages, whose memory is taken from the system when they are first needed.
    pub fn new(layout: PageLayout, budget: usize) -> PagePool {
        PagePool(Arc::new(Shared { layout, budget, state: Mutex::default(), keeper: OnceLock::new() }))
    }

    /// Says which device keeps the layers that are elsewhere; the first that says so does.
    pub fn kept_by(&self, keeper: Arc<dyn Keeper>) {
        self.0.keeper.get_or_init(|| keeper);
    }

    /// The device that keeps layers that are elsewhere; `None` where all are here.
    ///
    /// # Errors
    /// It keeps states too, which it has in an order of its own.
    pub(super) fn keeper(&self) -> io::Result<Option<&dyn Keeper>> {
        self.are_saved()?;
        match self.0.keeper.get() {
            _ if self.layout().elsewhere == 0 => Ok(None),
            Some(keeper) => Ok(Some(&**keeper)),
            None => Err(unsupported("no GPU has begun that keeps keys and values")),
        }
    }

    /// Says whether sequences can be written to files.
    ///
    /// # Errors
    /// They cannot: a device keeps states, which it has in an order of its own.
    pub fn are_saved(&self) -> io::Result<()> {
        match self.layout().state_elsewhere {
            0 => Ok(()),
            _ => Err(unsupported("states of recurrent layers on a GPU are not saved; use --device cpu")),
        }
    }

    /// Layout of the pages.
    pub fn layout(&self) -> &PageLayout {
        &self.0.layout
    }

    /// Pages that may be held.
    pub fn budget(&self) -> usize {
        self.0.budget
    }

    /// Pages that nobody holds.
    pub fn free(&self) -> usize {
        self.0.budget - self.state().held
    }

    /// Gives memory that no page uses back to the system.
    pub fn release_spare(&self) {
        let spare = std::mem::take(&mut self.state().spare);
        drop(spare);
    }

    /// `n` pages with anything in them, all or none.
    pub(super) fn take(&self, n: usize) -> Result<Vec<Arc<Page>>, OutOfPages> {
        let (spare, numbers) = {
            let mut state = self.state();
            let free = self.0.budget - state.held;
            if n > free {
                return Err(OutOfPages { wanted: n, free, budget: self.0.budget, positions: self.0.layout.positions });
            }
            state.held += n;
            let kept = state.spare.len().saturating_sub(n);
            let spare = state.spare.split_off(kept);
            let again = state.numbers.len().saturating_sub(n);
            let mut numbers = state.numbers.split_off(again);
            while numbers.len() < n {
                numbers.push(state.unused);
                state.unused += 1;
            }
            (spare, numbers)
        };
        let fresh = n - spare.len();
        let fresh = (0..fresh).map(|_| Memory::new(&self.0.layout));
        let page = |(memory, number)| Arc::new(Page { memory: Some(memory), number, home: self.clone() });
        let memories = spare.into_iter().chain(fresh);
        Ok(memories.zip(numbers).map(page).collect())
    }

    fn state(&self) -> MutexGuard<'_, PageAllocator> {
        self.0.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Page {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// To read.
    pub fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("a page has its memory until it goes")
    }

    /// To write; the borrow proves that nobody else holds the page.
    pub fn memory_mut(&mut self) -> &mut Memory {
        self.memory.as_mut().expect("a page has its memory until it goes")
    }

    /// Keys and values of one head of a layer.
    pub fn head(&self, layer: usize, head: usize) -> HeadPage<'_> {
        self.memory().head(self.home.layout(), layer, head)
    }

    /// Encoded keys and values of one head of a layer.
    pub fn encoded(&self, layer: usize, head: usize) -> EncodedHead<'_> {
        self.memory().encoded(self.home.layout(), layer, head)
    }

    /// Takes over the first `positions` of `other`.
    pub fn copy_beginning(&mut self, other: &Page, positions: usize) {
        let home = self.home.clone();
        self.memory_mut().copy_beginning(home.layout(), other.memory(), positions);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let mut state = self.home.state();
        state.held -= 1;
        state.numbers.push(self.number);
        state.spare.extend(self.memory.take());
    }
}
