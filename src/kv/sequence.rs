//! A sequence of positions, and the part of a pass that appends to it.

use std::ops::Range;
use std::sync::Arc;

use super::budget::{OutOfPages, Page, PagePool};
use super::layout::PageLayout;
use super::page::{EncodedHead, HeadPage, Memory};
use super::placement::Placement;
use super::source::Source;
use super::state::{State, StateElsewhere};
use crate::kernels::halves::{F16Encoding, Line};

/// Positions of one text: pages, and how many positions of them count.
///
/// Models with recurrent layers have a state beside the pages, that after the last position. It cannot be cut back:
/// what asks for a part of such a sequence gets an empty one, whose positions have to be evaluated again.
pub struct Sequence {
    home: PagePool,
    pub(super) pages: Vec<Arc<Page>>,
    len: usize,
    /// The recurrent state after the last position.
    pub(super) state: State,
    /// Which of the pages is a copy, and of what, until a device has copied what it has of that too.
    copied: Option<(usize, Arc<Page>)>,
    placement: Placement,
    /// The text that an encoder has read for it, where positions attend to one.
    source: Option<Arc<Source>>,
}

/// A state of a sequence to return to: its positions and its recurrent state.
#[derive(Clone)]
pub struct Mark {
    len: usize,
    state: State,
}

impl Mark {
    /// Positions of the sequence then.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there were none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A page that somebody holds, for other sequences to begin with.
#[derive(Clone)]
pub struct PageRef(Arc<Page>);

impl PageRef {
    /// A reference to a page that was just filled.
    pub(super) fn of(page: Arc<Page>) -> PageRef {
        PageRef(page)
    }

    /// True if there are other references to the page.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl PagePool {
    /// An empty sequence.
    pub fn sequence(&self) -> Sequence {
        self.sequence_of(Vec::new(), 0)
    }

    /// A sequence of the first `len` positions of `pages`, which are this pool's and follow each other.
    ///
    /// # Panics
    /// When the pages are more or fewer than `len` positions need.
    pub fn sequence_of(&self, pages: Vec<PageRef>, len: usize) -> Sequence {
        let needed = len.div_ceil(self.layout().positions);
        assert_eq!(pages.len(), needed, "pages of {len} positions");
        Sequence {
            home: self.clone(),
            pages: pages.into_iter().map(|page| page.0).collect(),
            len,
            state: State::default(),
            copied: None,
            placement: Placement::default(),
            source: None,
        }
    }
}

impl Sequence {
    /// Positions.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Pages it holds, shared ones included.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Bytes of its recurrent state, shared or not.
    pub fn state_bytes(&self) -> usize {
        self.layout().state * usize::from(self.len > 0) * size_of::<f32>()
    }

    /// Where its pages come from.
    pub fn home(&self) -> &PagePool {
        &self.home
    }

    /// Layout of its pages.
    pub fn layout(&self) -> &PageLayout {
        self.home.layout()
    }

    /// The next position stands at `cell` of a cache that it shares with other sequences, and those after it follow:
    /// see [`Placement`]. Without this, cells are counted like positions.
    ///
    /// # Panics
    /// When the cell is not behind those of the positions before.
    pub fn continue_at_cell(&mut self, cell: usize) {
        self.placement.continue_at(self.len, cell);
    }

    /// Placement of its positions in the pages.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// How many of the first `len` positions can be kept: all, or none where a recurrent state stands after later ones.
    fn kept(&self, len: usize) -> usize {
        match len.min(self.len) {
            part if part < self.len && self.layout().state > 0 => 0,
            len => len,
        }
    }

    /// Another sequence that begins with the first `len` positions of this one, or with all of them, and holds the same
    /// pages. Whichever of the two is continued first copies the page that is not full. With a recurrent state a part
    /// of the positions is none.
    pub fn fork(&self, len: usize) -> Sequence {
        let len = self.kept(len);
        let pages = &self.pages[..len.div_ceil(self.layout().positions)];
        let mut placement = self.placement.clone();
        placement.truncate(len);
        let copied = self.copied.clone();
        Sequence {
            home: self.home.clone(),
            pages: pages.to_vec(),
            len,
            state: self.state_at(len),
            copied: copied.filter(|(at, _)| *at < pages.len()),
            placement,
            source: self.source.clone(),
        }
    }

    /// The text that an encoder has read for it.
    pub fn source(&self) -> Option<&Source> {
        self.source.as_deref()
    }

    /// From now on its positions attend to `source`, or to their own alone. Positions that attended to another text are
    /// forgotten.
    pub fn set_source(&mut self, source: Option<Arc<Source>>) {
        self.truncate(0);
        self.source = source;
    }

    /// The pages of all its positions, for other sequences to begin with.
    pub fn page_refs(&self) -> Vec<PageRef> {
        let pages = self.len.div_ceil(self.layout().positions);
        self.pages[..pages].iter().cloned().map(PageRef).collect()
    }

    /// Forgets every position from `len` on; with a recurrent state all of them, unless there are no more. The
    /// positions that are left.
    pub fn truncate(&mut self, len: usize) -> usize {
        self.len = self.kept(len);
        self.release_reserved();
        self.state = self.state_at(self.len);
        self.placement.truncate(self.len);
        self.len
    }

    /// The present state of the sequence, to return to.
    pub fn mark(&self) -> Mark {
        Mark { len: self.len, state: self.state.clone() }
    }

    /// Goes back to `mark`, whose positions it still begins with.
    pub fn restore(&mut self, mark: Mark) {
        self.len = mark.len;
        self.state = mark.state;
        self.release_reserved();
    }

    /// Lets go of the positions from `len` on. A recurrent state that stands after later ones goes back to `before`, a mark
    /// of this sequence at or before `len`.
    pub fn take_back(&mut self, len: usize, before: &Mark) {
        match self.kept(len) == len.min(self.len) {
            true => {
                self.truncate(len);
            }
            false => self.restore(before.clone()),
        }
    }

    /// The recurrent state where `len` positions are kept.
    fn state_at(&self, len: usize) -> State {
        if len > 0 { self.state.clone() } else { State::default() }
    }

    /// The part of the recurrent state that a device keeps, once there is one.
    pub fn state_elsewhere(&self) -> Option<&Arc<StateElsewhere>> {
        self.state.elsewhere.as_ref()
    }

    /// From now on a device keeps that part here.
    pub fn set_state_elsewhere(&mut self, state: Arc<StateElsewhere>) {
        self.state.elsewhere = Some(state);
    }

    /// The numbers of the recurrent state that are here, for writing; shared ones are copied first.
    pub fn state_mut(&mut self) -> &mut [f32] {
        let numbers = self.layout().state_here();
        let state = self.state.here.get_or_insert_with(|| Arc::new(vec![0.0; numbers]));
        Arc::make_mut(state).as_mut_slice()
    }

    /// Pages that [`Sequence::reserve`] takes for `more` positions.
    pub fn pages_for(&self, more: usize) -> usize {
        if more == 0 {
            return 0;
        }
        let positions = self.layout().positions;
        let new = (self.len + more).div_ceil(positions).saturating_sub(self.pages.len());
        new + usize::from(self.is_end_shared())
    }

    /// True if the next position falls into a shared page.
    fn is_end_shared(&self) -> bool {
        let last = self.pages.get(self.len / self.layout().positions);
        last.is_some_and(|page| Arc::strong_count(page) > 1)
    }

    /// Makes room for `more` positions in pages that nobody else holds.
    ///
    /// # Errors
    /// The budget is spent; the sequence is as it was.
    pub fn reserve(&mut self, more: usize) -> Result<(), OutOfPages> {
        let mut fresh = self.home.take(self.pages_for(more))?;
        if more > 0 && self.is_end_shared() {
            let at = self.len / self.layout().positions;
            let filled = self.len % self.layout().positions;
            if let Some(mut page) = fresh.pop() {
                let own = Arc::get_mut(&mut page).expect("the pool gave it to nobody else");
                own.copy_beginning(&self.pages[at], filled);
                let before = std::mem::replace(&mut self.pages[at], page);
                // A copy that a device does not have yet is no page to copy there: the first one still is.
                let source = self.copied.take().map_or(before, |(_, page)| page);
                self.copied = (self.layout().elsewhere > 0).then_some((at, source));
            }
        }
        self.pages.append(&mut fresh);
        Ok(())
    }

    /// The numbers of its pages, those that are reserved included.
    pub fn page_numbers(&self) -> Vec<u32> {
        self.pages.iter().map(|page| page.number()).collect()
    }

    /// The numbers of a page and of its copy, which the last [`Sequence::reserve`] put in its place, where a device
    /// still has to copy what it has of the one into the other. The page is kept until [`Sequence::advance`].
    pub fn copied_page(&self) -> Option<(u32, u32)> {
        let (at, from) = self.copied.as_ref()?;
        Some((from.number(), self.pages.get(*at)?.number()))
    }

    /// The number under which a device has the beginning of page `i`: that of another one while it is still to be copied.
    pub(super) fn number_elsewhere(&self, i: usize) -> u32 {
        match &self.copied {
            Some((at, from)) if *at == i => from.number(),
            _ => self.pages[i].number(),
        }
    }

    /// Lets go of pages beyond the last position.
    pub fn release_reserved(&mut self) {
        let pages = self.len.div_ceil(self.layout().positions);
        self.pages.truncate(pages);
        self.copied = self.copied.take().filter(|(at, _)| *at < pages);
    }

    /// Counts `more` positions that were reserved and stored.
    pub fn advance(&mut self, more: usize) {
        self.len += more;
        self.copied = None;
        debug_assert!(self.len <= self.pages.len() * self.layout().positions);
    }

    /// Keys and values of one head of a layer where `tile` of the sequence lies, and that tile's number in the page.
    pub fn tile(&self, layer: usize, head: usize, tile: usize) -> (HeadPage<'_>, usize) {
        let tiles = self.layout().tiles();
        (self.pages[tile / tiles].head(layer, head), tile % tiles)
    }

    /// Encoded keys and values of one head of a layer in page number `page` of the sequence.
    pub fn encoded(&self, layer: usize, page: usize, head: usize) -> EncodedHead<'_> {
        self.pages[page].encoded(layer, head)
    }

    /// The pages of `positions`, to be written: of each the positions within it, the lines of all heads of `layer`, and
    /// the forms of their tiles.
    pub(super) fn writable(
        &mut self,
        layer: usize,
        positions: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, &mut [Line], &mut [F16Encoding])> {
        let home = self.home.clone();
        self.own(positions).map(move |(positions, memory)| {
            let (lines, forms) = memory.layer_mut(home.layout(), layer);
            (positions, lines, forms)
        })
    }

    /// The same of encoded pages: of each the positions within it, and the bytes of all heads of `layer`.
    pub(super) fn writable_bytes(
        &mut self,
        layer: usize,
        positions: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, &mut [u8])> {
        let home = self.home.clone();
        let own = self.own(positions);
        own.map(move |(positions, memory)| (positions, memory.encoded_mut(home.layout(), layer)))
    }

    /// The pages of `positions`, which nobody else holds, each with the positions within it.
    fn own(&mut self, positions: Range<usize>) -> impl Iterator<Item = (Range<usize>, &mut Memory)> {
        let n = self.layout().positions;
        let pages = positions.start / n..positions.end.div_ceil(n);
        let first = pages.start * n;
        let from_page = move |i: usize| {
            let begin = first + i * n;
            positions.start.max(begin) - begin..positions.end.min(begin + n) - begin
        };
        let own = self.pages[pages].iter_mut().enumerate();
        own.map(move |(i, page)| {
            let page = Arc::get_mut(page).expect("pages were reserved for the sequence alone");
            (from_page(i), page.memory_mut())
        })
    }
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sequence of {} positions", self.len)
    }
}

/// Rows of a pass that follow each other at the end of one sequence.
pub struct SequenceRows<'a> {
    /// The sequence, with room for them; its length grows after the pass.
    pub seq: &'a mut Sequence,
    /// Rows of the pass.
    pub rows: Range<usize>,
}

impl SequenceRows<'_> {
    /// Position of the first row.
    pub fn first(&self) -> usize {
        self.seq.len()
    }

    /// Positions of all rows.
    pub fn positions(&self) -> Range<usize> {
        self.first()..self.first() + self.rows.len()
    }
}
