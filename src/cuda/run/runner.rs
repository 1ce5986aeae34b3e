//! A program with its memory on a device.

use std::any::Any;
use std::sync::Arc;

use super::loaded::Loaded;
use super::meeting::Meeting;
use super::prepared::Prepared;
use super::staged::Staged;
use super::{Angles, Failure, Input, Part, Passes};
use crate::device::Device;
use crate::program::{Caches, Exchange, Kind, Limits, Program, fixed};

/// A program with memory of its own beside the weights.
pub(super) struct Runner<D: Device> {
    loaded: Arc<Loaded<D>>,
    program: Program,
    /// Memories by number; `None` for those of the weights.
    own: Vec<Option<D::Buffer>>,
    /// The device's multiprocessors.
    multiprocessors: usize,
    /// The factors of adapters, as they were told.
    told: Vec<Option<u32>>,
    /// Tokens and width of the last pass.
    last: (usize, u8),
    /// The launches of passes, by their tokens, their width and their caches.
    body: Prepared<(usize, u8, Caches), D>,
    /// The launches of logits, by their rows and their width.
    head: Prepared<(usize, u8), D>,
    /// True for each value that the next pass is given and that another device has left here.
    handed: Vec<bool>,
    /// Where it waits for the device that it hands values to.
    meeting: Meeting<D>,
}

/// The launches of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Launches {
    /// Those of a pass.
    Body,
    /// Those of its logits.
    Head,
}

impl<D: Device> Runner<D> {
    /// Takes the program's memory, whose weights are there.
    ///
    /// # Errors
    /// More memory than the device has, and what it says.
    pub fn new(loaded: Arc<Loaded<D>>, program: Program) -> Result<Runner<D>, Failure> {
        if !loaded.has(&program) {
            let what = "the GPU holds the weights of another model";
            return Err(Failure(what.to_owned()));
        }
        let table = program.table();
        loaded.check(table, table.total() - table.weights)?;
        let mut device = loaded.device();
        let own = program.memories().iter().map(|memory| match memory.kind {
            Kind::Weights => Ok(None),
            Kind::Zeros => {
                let mut buffer = device.allocate(memory.bytes.max(1))?;
                device.upload(&mut buffer, 0, &vec![0; memory.bytes])?;
                Ok(Some(buffer))
            }
            _ => device.allocate(memory.bytes.max(1)).map(Some),
        });
        let own = own.collect::<Result<Vec<_>, _>>().map_err(Failure::of)?;
        let multiprocessors = device.multiprocessors();
        drop(device);
        let (body, head) = (Prepared::new(), Prepared::new());
        let (handed, meeting) = (vec![false; program.given().len()], Meeting::default());
        Ok(Runner {
            loaded,
            program,
            own,
            multiprocessors,
            told: Vec::new(),
            last: (0, 0),
            body,
            head,
            handed,
            meeting,
        })
    }

    /// The device and its weights.
    pub fn loaded(&self) -> Arc<Loaded<D>> {
        self.loaded.clone()
    }

    /// A memory of its own.
    ///
    /// # Errors
    /// It holds weights.
    pub fn buffer(&mut self, memory: usize) -> Result<&mut D::Buffer, Failure> {
        let holds = || Failure(format!("memory {memory} holds weights"));
        self.own.get_mut(memory).and_then(Option::as_mut).ok_or_else(holds)
    }

    /// Makes the launches of a pass, and gives the device what they read.
    ///
    /// # Errors
    /// Those of [`Passes::pass`].
    pub fn prepare_pass(
        &mut self,
        input: Input<'_>,
        parts: &[Part<'_>],
        width: u8,
        angles: &Angles<'_>,
    ) -> Result<(), Failure> {
        let tokens = self.check(input, parts)?;
        if self.told.len() != self.program.factors() {
            return Err(Failure("a pass that was told no factors of adapters".to_owned()));
        }
        let longest = parts.iter().map(|part| part.first + part.tokens).max().unwrap_or(0);
        let caches = Caches::new(longest, self.multiprocessors);
        self.body.prepare((tokens, width, caches), || self.program.body(tokens, width, caches))?;
        self.last = (tokens, width);
        self.give(input, parts, angles)
    }

    /// Makes the launches of logits, and gives the device the numbers of their rows.
    ///
    /// # Errors
    /// Those of [`Passes::logits`].
    pub fn prepare_logits(&mut self, rows: &[usize]) -> Result<(), Failure> {
        if self.program.logits().is_none() {
            return Err(Failure("logits of a part of a model that makes none".to_owned()));
        }
        let ((tokens, width), most) = (self.last, self.program.limits().wanted);
        if rows.is_empty() || rows.len() > most {
            let count = rows.len();
            let what = format!("logits of {count} rows, where there is memory for 1 to {most}");
            return Err(Failure(what));
        }
        if let Some(row) = rows.iter().find(|&&row| row >= tokens) {
            let what = format!("logits of row {row}, where the last pass had {tokens}");
            return Err(Failure(what));
        }
        self.head.prepare((rows.len(), width), || self.program.logits_of(rows.len(), width))?;
        let numbers = rows.iter().map(|&row| (row as u32).to_le_bytes());
        self.fill(fixed::WANTED, numbers)
    }

    /// Number of the stretches of launches that are prepared.
    pub fn stretches(&self, launches: Launches) -> usize {
        match launches {
            Launches::Body => self.body.count(),
            Launches::Head => self.head.count(),
        }
    }

    /// The exchange behind a stretch.
    pub fn exchange(&self, launches: Launches, number: usize) -> Option<&Exchange> {
        match launches {
            Launches::Body => self.body.exchange(number),
            Launches::Head => self.head.exchange(number),
        }
    }

    /// Starts a stretch on the device, which is its own.
    ///
    /// # Errors
    /// The device's error.
    pub fn start(&mut self, launches: Launches, number: usize, device: &mut D) -> Result<(), Failure> {
        let Runner { loaded, own, body, head, .. } = self;
        let buffer = |memory: usize| own[memory].as_ref().or_else(|| loaded.weights(memory));
        match launches {
            Launches::Body => body.start(number, device, buffer),
            Launches::Head => head.start(number, device, buffer),
        }
    }

    /// Starts all stretches of a program that has no exchanges.
    fn run(&mut self, launches: Launches) -> Result<(), Failure> {
        let loaded = self.loaded();
        let mut device = loaded.device();
        (0..self.stretches(launches)).try_for_each(|number| self.start(launches, number, &mut device))
    }

    /// The logits that its last launches have made, of so many rows.
    ///
    /// # Errors
    /// The device's error.
    pub fn read_logits(&self, rows: usize) -> Result<Vec<f32>, Failure> {
        let memory = self.program.logits().ok_or_else(|| Failure("a program without logits".to_owned()))?;
        self.read(memory, rows * self.program.vocabulary())
    }

    /// Writes dwords at the start of a memory of its own.
    fn fill(&mut self, memory: usize, dwords: impl Iterator<Item = [u8; 4]>) -> Result<(), Failure> {
        let bytes: Vec<u8> = dwords.flatten().collect();
        let Some(buffer) = &mut self.own[memory] else {
            return Err(Failure(format!("memory {memory} holds weights")));
        };
        let done = self.loaded.device().upload(buffer, 0, &bytes);
        done.map_err(Failure::of)
    }

    /// The first byte of a slot, and its bytes.
    fn slot(&self, number: usize) -> Result<(usize, usize), Failure> {
        let (slots, bytes) = (self.program.limits().slots, 4 * self.program.state());
        if number >= slots {
            return Err(Failure(format!("slot {number}, where there are {slots}")));
        }
        Ok((number * bytes, bytes))
    }

    /// For each memory of keys or values, its number, its heads, and the bytes of a cell.
    fn cells_of(&self) -> Vec<(usize, usize, usize)> {
        let Limits { page, pages, .. } = self.program.limits();
        let size = |(memory, heads): (usize, usize)| self.program.memories()[memory].bytes / (pages * heads * page);
        self.program.cells().map(|of| (of.0, of.1, size(of))).collect()
    }

    /// The first byte of each head in a page, and the bytes of some positions of it.
    fn heads(
        &self,
        number: u32,
        positions: usize,
        (heads, size): (usize, usize),
    ) -> Result<(impl Iterator<Item = usize> + use<D>, usize), Failure> {
        let Limits { page, pages, .. } = self.program.limits();
        let number = number as usize;
        if number >= pages || positions > page {
            return Err(Failure(format!("{positions} positions of page {number}, where there are {pages} of {page}")));
        }
        let starts = (0..heads).map(move |head| (number * heads + head) * page * size);
        Ok((starts, positions * size))
    }

    /// Reads floats from the start of a memory of its own.
    fn read(&self, memory: usize, count: usize) -> Result<Vec<f32>, Failure> {
        self.read_at(memory, 0, count)
    }

    /// The same from a byte on.
    fn read_at(&self, memory: usize, at: usize, count: usize) -> Result<Vec<f32>, Failure> {
        let Some(buffer) = &self.own[memory] else {
            return Err(Failure(format!("memory {memory} holds weights")));
        };
        let mut bytes = vec![0; 4 * count];
        let done = self.loaded.device().download(buffer, at, &mut bytes);
        done.map_err(Failure::of)?;
        let numbers = bytes.as_chunks::<4>().0;
        Ok(numbers.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// Checks a pass against the limits; its tokens.
    fn check(&self, input: Input<'_>, parts: &[Part<'_>]) -> Result<usize, Failure> {
        let refused = |what: String| Err(Failure(what));
        let limits = self.program.limits();
        let tokens = parts.iter().fold(0usize, |n, p| n.saturating_add(p.tokens));
        if tokens == 0 || tokens > limits.tokens || parts.len() > limits.tokens {
            return refused(format!(
                "a pass of {tokens} tokens of {} sequences, where there is memory for 1 to {}",
                parts.len(),
                limits.tokens
            ));
        }
        for part in parts {
            let end = part.first.saturating_add(part.tokens);
            if end > limits.context || part.pages.len() < end.div_ceil(limits.page) {
                return refused(format!(
                    "{end} positions in {} pages of {}, where there is memory for {}",
                    part.pages.len(),
                    limits.page,
                    limits.context
                ));
            }
            if part.slot.number >= limits.slots {
                return refused(format!("slot {}, where there are {}", part.slot.number, limits.slots));
            }
            let outside = |page: &&u32| **page as usize >= limits.pages;
            if let Some(page) = part.pages.iter().find(outside) {
                return refused(format!("page {page}, where there are {}", limits.pages));
            }
        }
        let given = self.program.given();
        let Input { tokens: ids, rows } = input;
        let there = |x: &[f32], handed: bool| x.is_empty() && handed;
        let fits = given.len() == rows.len()
            && given
                .zip(rows)
                .zip(&self.handed)
                .all(|(((_, columns), x), &handed)| x.len() == tokens * columns || there(x, handed));
        let ids = if self.program.reads_tokens() { ids } else { &[] };
        if !fits || self.program.reads_tokens() && ids.len() != tokens {
            return refused(format!("a pass of {tokens} tokens that is given something else"));
        }
        let vocabulary = self.program.vocabulary();
        match ids.iter().find(|&&id| id as usize >= vocabulary) {
            Some(id) => refused(format!("token {id}, where the vocabulary has {vocabulary}")),
            None => Ok(tokens),
        }
    }

    /// Uploads what a pass is given: tokens or rows, where the tokens stand, and the angles there.
    fn give(&mut self, input: Input<'_>, parts: &[Part<'_>], angles: &Angles<'_>) -> Result<(), Failure> {
        let memories: Vec<usize> = self.program.given().map(|(memory, _)| memory).collect();
        for (memory, x) in memories.into_iter().zip(input.rows) {
            // Nothing where another device has left it.
            if !x.is_empty() {
                self.fill(memory, x.iter().map(|x| x.to_le_bytes()))?;
            }
        }
        self.handed.fill(false);
        let count = parts.iter().map(|part| part.tokens).sum();
        let mut staged = Staged { program: &self.program, tokens: count, bytes: Vec::new() };
        if self.program.reads_tokens() {
            staged.put(fixed::TOKENS, input.tokens.iter().map(|id| id.to_le_bytes()));
        }
        let Limits { page, .. } = self.program.limits();
        let row = self.program.limits().row();
        let tokens = parts.iter().enumerate().flat_map(|(sequence, part)| {
            let positions = part.first..part.first + part.tokens;
            positions.map(move |position| (sequence, position))
        });
        let tokens: Vec<(usize, usize)> = tokens.collect();
        let dwords = |pair: [usize; 2]| pair.map(|n| (n as u32).to_le_bytes());
        let places = tokens.iter().flat_map(|&(s, position)| dwords([s, position]));
        staged.put(fixed::PLACES, places);
        let cells = tokens.iter().flat_map(|&(s, position)| {
            let number = parts[s].pages[position / page];
            dwords([number as usize, position % page])
        });
        staged.put(fixed::CELLS, cells);
        if self.program.state() > 0 {
            let slots = parts.iter().flat_map(|part| dwords([part.slot.number, usize::from(part.slot.fresh)]));
            staged.put(fixed::SLOTS, slots);
        }
        let tables = parts.iter().flat_map(|part| {
            let known = part.pages.iter().copied().chain(std::iter::repeat(0));
            known.take(row).map(u32::to_le_bytes)
        });
        staged.put(fixed::TABLES, tables);
        for kind in 0..self.program.rotations().len() {
            let (memory, pairs) = self.program.rotations()[kind];
            let mut all = Vec::with_capacity(pairs * tokens.len() * 2);
            for &(_, position) in &tokens {
                let of_position = angles(kind, position);
                if of_position.len() != pairs {
                    let found = of_position.len();
                    return Err(Failure(format!("{found} angles, where heads have {pairs} pairs")));
                }
                all.extend(of_position.iter().flat_map(|&(cos, sin)| [cos, sin]));
            }
            staged.put(memory, all.iter().map(|x| x.to_le_bytes()));
        }
        let bytes = staged.bytes;
        self.fill(fixed::TOKENS, bytes.as_chunks().0.iter().copied())
    }
}

impl<D: Device + Send + 'static> Passes for Runner<D> {
    fn limits(&self) -> Limits {
        self.program.limits()
    }

    fn tell(&mut self, factors: &[Option<f32>]) -> Result<(), Failure> {
        let (given, wanted) = (factors.len(), self.program.factors());
        if given != wanted {
            return Err(Failure(format!("{given} factors of adapters, where the program has {wanted}")));
        }
        let factors: Vec<Option<u32>> = factors.iter().map(|factor| factor.map(f32::to_bits)).collect();
        if self.told != factors {
            let pairs = factors.iter().flat_map(|factor| [u32::from(factor.is_some()), factor.unwrap_or(0)]);
            self.fill(fixed::FACTORS, pairs.map(u32::to_le_bytes))?;
            self.told = factors;
        }
        Ok(())
    }

    fn pass(&mut self, input: Input<'_>, parts: &[Part<'_>], width: u8, angles: &Angles<'_>) -> Result<(), Failure> {
        self.prepare_pass(input, parts, width, angles)?;
        self.run(Launches::Body)
    }

    fn logits(&mut self, rows: &[usize]) -> Result<Vec<f32>, Failure> {
        self.prepare_logits(rows)?;
        self.run(Launches::Head)?;
        self.read_logits(rows.len())
    }

    fn left(&mut self) -> Result<Vec<Vec<f32>>, Failure> {
        let (tokens, _) = self.last;
        self.program.leaving().map(|(memory, columns)| self.read(memory, tokens * columns)).collect()
    }

    fn hand(&mut self, left: usize, to: &mut dyn Passes, given: usize) -> Result<(), Failure> {
        let missing = || Failure(format!("value {left} that a pass has left as value {given} of another"));
        let to: &mut dyn Any = to;
        let to = to.downcast_mut::<Runner<D>>().ok_or_else(missing)?;
        let (memory, columns) = self.program.leaving().nth(left).ok_or_else(missing)?;
        let (there, of) = to.program.given().nth(given).ok_or_else(missing)?;
        let (tokens, most) = (self.last.0, to.program.limits().tokens);
        if of != columns || tokens > most {
            return Err(missing());
        }
        let (here, other) = (self.loaded(), to.loaded());
        if Arc::ptr_eq(&here, &other) {
            return Err(Failure("a GPU that hands something to itself".to_owned()));
        }
        let (mut here, mut other) = (here.device(), other.device());
        let mut devices: [&mut D; 2] = [&mut here, &mut other];
        let Runner { own, meeting, .. } = self;
        let from = own[memory].as_ref().ok_or_else(missing)?;
        meeting.exchange(&mut devices, |[here, other]| {
            here.send((from, 0), 4 * tokens * columns, other, (to.buffer(there)?, 0)).map_err(Failure::of)
        })?;
        to.handed[given] = true;
        Ok(())
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<(), Failure> {
        let pages = self.program.limits().pages;
        let (from, to) = (from as usize, to as usize);
        if from >= pages || to >= pages {
            let what = format!("page {from} to {to}, where there are {pages}");
            return Err(Failure(what));
        }
        let memories = self.program.memories().iter().zip(&mut self.own);
        for (memory, buffer) in memories.filter(|(memory, _)| memory.kind == Kind::Cells) {
            let Some(buffer) = buffer else { continue };
            let bytes = memory.bytes / pages;
            let mut device = self.loaded.device();
            let done = device.copy(buffer, from * bytes, to * bytes, bytes);
            done.map_err(Failure::of)?;
        }
        Ok(())
    }

    fn read_page(&mut self, page: u32, positions: usize) -> Result<Vec<Vec<u8>>, Failure> {
        let mut all = Vec::new();
        for (memory, heads, size) in self.cells_of() {
            let (starts, each) = self.heads(page, positions, (heads, size))?;
            let mut bytes = vec![0; heads * each];
            if let Some(buffer) = &self.own[memory] {
                for (at, bytes) in starts.zip(bytes.chunks_exact_mut(each.max(1))) {
                    self.loaded.device().download(buffer, at, bytes).map_err(Failure::of)?;
                }
            }
            all.push(bytes);
        }
        Ok(all)
    }

    fn write_page(&mut self, page: u32, positions: usize, cells: &[Vec<u8>]) -> Result<(), Failure> {
        let own = self.cells_of();
        if cells.len() != own.len() {
            return Err(Failure(format!("{} memories of cells, where there are {}", cells.len(), own.len())));
        }
        for ((memory, heads, size), bytes) in own.into_iter().zip(cells) {
            let (starts, each) = self.heads(page, positions, (heads, size))?;
            if bytes.len() != heads * each {
                return Err(Failure(format!("{} bytes of cells, where there are {}", bytes.len(), heads * each)));
            }
            if let Some(buffer) = &mut self.own[memory] {
                for (at, bytes) in starts.zip(bytes.chunks_exact(each.max(1))) {
                    self.loaded.device().upload(buffer, at, bytes).map_err(Failure::of)?;
                }
            }
        }
        Ok(())
    }

    fn cells(&self) -> usize {
        self.program.cells().count()
    }

    fn state(&self) -> usize {
        self.program.state()
    }

    fn copy_state(&mut self, from: usize, to: usize) -> Result<(), Failure> {
        let [(from, bytes), (to, _)] = [self.slot(from)?, self.slot(to)?];
        let mut device = self.loaded.device();
        let Some(states) = &mut self.own[fixed::STATES] else { return Ok(()) };
        device.copy(states, from, to, bytes).map_err(Failure::of)
    }

    fn read_state(&mut self, slot: usize) -> Result<Vec<f32>, Failure> {
        let (at, bytes) = self.slot(slot)?;
        self.read_at(fixed::STATES, at, bytes / 4)
    }

    fn write_state(&mut self, slot: usize, state: &[f32]) -> Result<(), Failure> {
        let (at, bytes) = self.slot(slot)?;
        if 4 * state.len() != bytes {
            return Err(Failure(format!("a state of {} numbers, where slots have {}", state.len(), bytes / 4)));
        }
        let mut device = self.loaded.device();
        let Some(states) = &mut self.own[fixed::STATES] else { return Ok(()) };
        let numbers: Vec<u8> = state.iter().flat_map(|x| x.to_le_bytes()).collect();
        device.upload(states, at, &numbers).map_err(Failure::of)
    }
}
