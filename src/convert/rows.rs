//! The tensors of the output: one row each, in the order of the reference converter.

use std::collections::BTreeMap;

use trine_formats::safetensors::{Dtype, Tensor};
use trine_formats::types::TypeId;

use super::drafters;
use super::error::Problems;
use super::folder::{Folder, Source as OfFolder};
use super::outtype::OutType;
use super::place::{Place, Use};
use super::reading::Reader;
use super::row::{Content, Row};
use super::source::Source;
use super::values::Stored;
use crate::arch::tensor::full_name;
use crate::arch::{Extent, Role, Step, Tensor as Described};

/// Makes the rows.
pub(super) struct Rows<'a> {
    folder: &'a Folder,
    source: &'a Source,
    reader: Reader<'a>,
    outtype: OutType,
    notes: &'a mut Vec<String>,
    rows: &'a mut Vec<Row>,
    pub problems: Problems,
    /// The tensor of the checkpoint that each tensor of the output is made of.
    found: BTreeMap<String, String>,
    /// Tensors that are stacked, by the tensor of the output.
    stacks: BTreeMap<String, Stack>,
    /// Tensors that stand in pieces, each by its number, by the tensor of the output.
    pieces: BTreeMap<String, BTreeMap<u64, Stored>>,
    /// The first factors of products, with their names, by the tensor of the output.
    factors: BTreeMap<String, (String, Stored)>,
}

/// Tensors that become one, as far as they have been seen.
struct Stack {
    block: Option<u32>,
    tensor: &'static Described,
    group: &'static str,
    items: Vec<Option<Stored>>,
    from: &'static str,
}

impl Stack {
    fn is_whole(&self) -> bool {
        self.items.iter().all(Option::is_some)
    }
}

fn gguf_name(block: Option<u32>, t: &Described) -> String {
    full_name(block.map(|n| n as usize), t.gguf)
}

impl<'a> Rows<'a> {
    pub fn new(
        folder: &'a Folder,
        reader: Reader<'a>,
        outtype: OutType,
        notes: &'a mut Vec<String>,
        rows: &'a mut Vec<Row>,
    ) -> Rows<'a> {
        // those that are made otherwise
        let found = rows.iter().map(|row| (row.name.clone(), row.source.clone())).collect();
        Rows {
            folder,
            source: reader.source,
            reader,
            outtype,
            notes,
            rows,
            problems: Problems::default(),
            found,
            stacks: BTreeMap::new(),
            pieces: BTreeMap::new(),
            factors: BTreeMap::new(),
        }
    }

    /// Looks at all tensors of the checkpoint.
    pub fn all(mut self) -> Problems {
        let folder = self.folder;
        let mut last = Vec::new();
        let mut tables: BTreeMap<u32, Row> = BTreeMap::new();
        for s in &folder.tensors {
            let t = &s.tensor;
            if self.is_scale(&t.name) {
                continue;
            }
            match self.source.place(&t.name) {
                Place::Ignored => {}
                Place::Here(Some(n), what) if self.is_unused(n, &what) => {}
                Place::Here(Some(n), what) if matches!(what.steps, [Step::ExpertsOfTokens(_)]) => {
                    match self.experts_of_tokens(s, n, &what) {
                        Ok(row) => drop(tables.insert(n, row)),
                        Err(problem) => self.problems.push(problem),
                    }
                }
                Place::Here(None, what) if self.left_out(&what) || self.is_copy(&t.name, &what) => {}
                Place::Here(None, what) if what.steps.contains(&Step::TokenOffsets) => {
                    match drafters::tokens(folder, s, self.source.target_tokens) {
                        Ok(tokens) => last.push(drafters::row(what.tensors[0].gguf, t, tokens)),
                        Err(problem) => self.problems.push(problem),
                    }
                }
                Place::Unknown => self.problems.push(format!(
                    "'{}' has no place in a {} model of {} blocks",
                    t.name, self.source.arch.name, self.source.layers
                )),
                Place::TiedOutput if self.source.tied => {
                    let note = "lm_head.weight left out: the embedding serves as output";
                    self.notes.push(note.into());
                }
                Place::TiedOutput => self.problems.push(format!(
                    "'lm_head.weight' is separate, and {} models use the embedding as output",
                    self.source.arch.name
                )),
                Place::Here(block, what) => {
                    if let Err(problem) = self.gains(&t.name, block) {
                        self.problems.push(problem);
                    }
                    if let Err(problem) = self.put(t, s.shard, block, &what) {
                        self.problems.push(problem);
                        // it is there, after all
                        for name in what.tensors.iter().map(|d| gguf_name(block, d)) {
                            self.found.entry(name).or_insert_with(|| t.name.clone());
                        }
                    }
                }
            }
        }
        self.rows.extend(last);
        self.rows.splice(0..0, tables.into_values());
        self.missing_tables();
        self.missing();
        self.problems
    }

    /// Makes the gains that stand before a tensor of a block.
    fn gains(&mut self, name: &str, block: Option<u32>) -> Result<(), String> {
        let source = self.source;
        let Some(n) = block else { return Ok(()) };
        for (before, gguf, number) in source.checkpoint.gains {
            let Some(described) = source.block(n).find(|t| t.gguf == *gguf && name.ends_with(before)) else {
                continue;
            };
            let value = match number {
                Some(key) => self.reader.h.f32(key).map_err(|e| e.to_string())?,
                None => Some(1.0),
            };
            let value = value.ok_or_else(|| format!("config.json has no '{}'", number.unwrap_or_default()))?;
            let shape = source.sizes_of(block).gguf_shape(described);
            let elements = shape.iter().product::<u64>() as usize;
            let name = gguf_name(block, described);
            self.found.insert(name.clone(), "config.json".to_owned());
            let content = Content::Computed(vec![value; elements]);
            self.rows.push(Row { name, source: "config.json".into(), from: "F32", shape, ty: TypeId::F32, content });
        }
        Ok(())
    }

    /// The first blocks, as many as a number of `config.json`.
    fn first_blocks(&self, key: &str) -> u32 {
        self.reader.h.u32(key).ok().flatten().unwrap_or(0)
    }

    /// True if a tensor counts for nothing in block `n`, where a table says which experts a token goes to or none does.
    fn is_unused(&self, n: u32, what: &Use) -> bool {
        what.steps.iter().any(|step| match step {
            Step::BehindBlocks(key) => n < self.first_blocks(key),
            Step::ExpertsOfTokens(key) => n >= self.first_blocks(key),
            _ => false,
        })
    }

    /// The table of the experts that every token goes to in block `n`, as numbers of 32 bits.
    fn experts_of_tokens(&mut self, s: &OfFolder, n: u32, what: &Use) -> Result<Row, String> {
        let t = &s.tensor;
        let described = what.tensors[0];
        let name = gguf_name(Some(n), described);
        self.found.insert(name.clone(), t.name.clone());
        let wanted = self.source.sizes_of(Some(n)).gguf_shape(described);
        let shape: Vec<u64> = t.shape.iter().rev().copied().collect();
        if shape != wanted || !matches!(t.dtype, Dtype::I64 | Dtype::I32) {
            let dtype = t.dtype.name();
            return Err(format!(
                "'{}' has shape {:?} and type {dtype}, expected whole numbers {wanted:?}",
                t.name, t.shape
            ));
        }
        let mut bytes = vec![0; t.bytes as usize];
        self.folder.shards.read(s.shard, t.offset, &mut bytes).map_err(|e| e.to_string())?;
        let all: Vec<i64> = match t.dtype {
            Dtype::I64 => bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
            _ => bytes.as_chunks().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect(),
        };
        let experts = self.source.sizes.experts as i64;
        if let Some(wrong) = all.iter().find(|id| !(0..experts).contains(*id)) {
            return Err(format!("'{}' names expert {wrong} of {experts}", t.name));
        }
        let content = Content::Ints(all.into_iter().map(|id| id as i32).collect());
        Ok(Row { name, source: t.name.clone(), from: t.dtype.name(), shape, ty: TypeId::I32, content })
    }

    /// True if a tensor is one that the checkpoint has had under another name already.
    fn is_copy(&self, name: &str, what: &Use) -> bool {
        let copies = self.source.checkpoint.copies.contains(&name);
        copies && what.tensors.iter().all(|t| self.found.contains_key(t.gguf))
    }

    /// True if a tensor is one that the file does without: an output matrix, or one that `config.json` says is none.
    fn left_out(&self, what: &Use) -> bool {
        let denied = |(key, tensor): &(&str, &str)| {
            what.tensors.iter().any(|t| t.gguf == *tensor) && matches!(self.reader.h.bool(key), Ok(Some(false)))
        };
        if self.source.checkpoint.only_with.iter().any(denied) {
            return true;
        }
        let output = what.tensors.iter().any(|t| t.role == Role::Output);
        output && self.source.tied && self.source.checkpoint.tied_left_out
    }

    /// True if a tensor is the scale of another.
    fn is_scale(&self, name: &str) -> bool {
        let base = name.strip_suffix("_scale");
        base.is_some_and(|b| self.reader.weights.scales.contains_key(b))
    }

    fn put(&mut self, t: &Tensor, shard: usize, block: Option<u32>, what: &Use) -> Result<(), String> {
        for (tensor, stored) in self.reader.read(t, shard, block, what)? {
            let mut twice = self.source.checkpoint.first_twice.iter().filter(|_| block == Some(0));
            if let Some((_, other)) = twice.find(|(name, _)| *name == tensor.gguf) {
                let name = full_name(Some(0), other);
                self.push_as(name, block, tensor, (t.name.clone(), t.dtype.name()), stored.clone())?;
            }
            let pieces = what.steps.iter().find_map(|s| if let Step::Pieces(key) = s { Some(*key) } else { None });
            match (what.item, pieces) {
                _ if what.steps.contains(&Step::Product) => self.factor(t, block, tensor, stored)?,
                (Some((number, _)), Some(key)) => self.piece(t, tensor, (number, key), stored)?,
                (Some((number, group)), None) => self.item(t, block, (tensor, number, group), stored)?,
                (None, _) => self.push(block, tensor, t.name.clone(), t.dtype.name(), stored)?,
            }
        }
        Ok(())
    }

    /// Takes one of the two factors of a tensor, which is made with the second one.
    fn factor(
        &mut self,
        t: &Tensor,
        block: Option<u32>,
        tensor: &'static Described,
        stored: Stored,
    ) -> Result<(), String> {
        let name = gguf_name(block, tensor);
        match self.factors.remove(&name) {
            None => {
                self.factors.insert(name, (t.name.clone(), stored));
                Ok(())
            }
            Some((_, other)) => {
                let product = Stored { times: Some(Box::new(other)), ..stored };
                self.push(block, tensor, t.name.clone(), t.dtype.name(), product)
            }
        }
    }

    /// Takes one of the pieces of a tensor, which is made with the last one.
    fn piece(
        &mut self,
        t: &Tensor,
        tensor: &'static Described,
        (number, key): (u64, &str),
        stored: Stored,
    ) -> Result<(), String> {
        let count = self.reader.h.need(key).map_err(|e| e.to_string())?;
        let pieces = self.pieces.entry(tensor.gguf.to_owned()).or_default();
        if pieces.insert(number, stored).is_some() {
            return Err(format!("'{}' is there twice", t.name));
        }
        if pieces.len() < count as usize {
            return Ok(());
        }
        let mut all = self.pieces.remove(tensor.gguf).into_iter().flat_map(BTreeMap::into_values);
        let Some(mut whole) = all.next() else { return Ok(()) };
        for piece in all {
            if (piece.columns, piece.dtype) != (whole.columns, whole.dtype) {
                return Err(format!("the pieces of '{}' have rows of other lengths or types", t.name));
            }
            whole.rows += piece.rows;
            whole.slices.append(piece.slices);
        }
        self.push(None, tensor, t.name.clone(), t.dtype.name(), whole)
    }

    fn push(
        &mut self,
        block: Option<u32>,
        described: &'static Described,
        source: String,
        from: &'static str,
        stored: Stored,
    ) -> Result<(), String> {
        self.push_as(gguf_name(block, described), block, described, (source, from), stored)
    }

    /// [`Rows::push`] under this name.
    fn push_as(
        &mut self,
        name: String,
        block: Option<u32>,
        described: &'static Described,
        (source, from): (String, &'static str),
        stored: Stored,
    ) -> Result<(), String> {
        if let Some(other) = self.found.insert(name.clone(), source.clone()) {
            return Err(format!("'{other}' and '{source}' are the same tensor"));
        }
        let ty = match stored.role {
            Role::Embedding | Role::Output => self.outtype.embedding,
            // rows for tokens, as the embeddings are
            Role::Positions if described.shape.contains(&Extent::LayerInputs) => self.outtype.embedding,
            Role::Positions if described.shape.contains(&Extent::NgramRows) => self.outtype.embedding,
            Role::ByRows | Role::ByColumns => self.outtype.matrix,
            _ => TypeId::F32,
        };
        let ty = stored.ty.unwrap_or(ty);
        let mut shape = match described.shape {
            [] if stored.rows == 1 => vec![stored.columns],
            [] => vec![stored.columns, stored.rows],
            _ => self.source.sizes_of(block).gguf_shape(described),
        };
        shape.resize(shape.len() + stored.ones, 1);
        if stored.flat {
            shape.retain(|n| *n != 1);
        }
        self.rows.push(Row { name, source, from, shape, ty, content: Content::Stored(stored) });
        Ok(())
    }

    /// Takes one of the tensors that are stacked. With the last of a group all of its stacks are done.
    fn item(
        &mut self,
        t: &Tensor,
        block: Option<u32>,
        (tensor, number, group): (&'static Described, u64, &'static str),
        stored: Stored,
    ) -> Result<(), String> {
        let count = self.source.sizes.extent(tensor.shape[0]);
        if number >= count {
            return Err(format!("'{}' has number {number}, and config.json says there are {count}", t.name));
        }
        let stack = self.stacks.entry(gguf_name(block, tensor));
        let stack = stack.or_insert_with(|| Stack {
            block,
            tensor,
            group,
            items: vec![None; count as usize],
            from: t.dtype.name(),
        });
        if stack.from != t.dtype.name() {
            return Err(format!(
                "'{}' is of type {}, and others of its stack are of type {}",
                t.name,
                t.dtype.name(),
                stack.from
            ));
        }
        if stack.items[number as usize].replace(stored).is_some() {
            return Err(format!("'{}' is there twice", t.name));
        }
        let of_group = |pattern: &str| pattern.starts_with(group) && pattern.contains('*');
        let prefix = block.map_or(String::new(), |n| format!("blk.{n}."));
        let names: Vec<(&str, String)> = self
            .source
            .own_names()
            .filter(|(pattern, _)| of_group(pattern))
            .map(|(pattern, to)| (*pattern, to.concat()))
            .map(|(pattern, to)| (pattern, format!("{prefix}{to}")))
            .collect();
        // one of several names without numbers
        let names = match group.contains('*') || !names.is_empty() {
            true => names,
            false => vec![(group, gguf_name(block, tensor))],
        };
        let whole = |name: &String| self.stacks.get(name).is_some_and(Stack::is_whole);
        if !names.iter().all(|(_, name)| whole(name)) {
            return Ok(());
        }
        for (pattern, name) in names {
            let Some(stack) = self.stacks.remove(&name) else {
                continue;
            };
            let mut items = stack.items.into_iter().flatten();
            let Some(mut stored) = items.next() else {
                continue;
            };
            for item in items {
                stored.rows += item.rows;
                stored.slices.append(item.slices);
            }
            let source = self.source.checkpoint.full_name(stack.block, pattern);
            self.push(stack.block, stack.tensor, source, stack.from, stored)?;
        }
        Ok(())
    }

    /// Notes the tables of the experts of tokens that the first blocks lack.
    fn missing_tables(&mut self) {
        let source = self.source;
        for &(pattern, steps) in source.checkpoint.steps {
            let [Step::ExpertsOfTokens(key)] = steps else { continue };
            for n in 0..self.first_blocks(key).min(source.layers) {
                let described = source.block(n).find(|t| source.names(t).any(|hf| hf == pattern));
                if described.is_some_and(|t| !self.found.contains_key(&gguf_name(Some(n), t))) {
                    self.problems.push(format!("'{}' is missing", source.checkpoint.full_name(Some(n), pattern)));
                }
            }
        }
    }

    /// Notes the required tensors that are missing.
    fn missing(&mut self) {
        let source = self.source;
        let blocks = (0..source.all_blocks()).flat_map(|n| source.block(n).map(move |t| (Some(n), t)));
        for (block, t) in source.ends().map(|t| (None, t)).chain(blocks) {
            let name = gguf_name(block, t);
            let required = (t.required || (t.role == Role::Output && !source.tied)) && !source.may_lack(block, t);
            // queries of a narrow vector stand in for those of the block's input
            let ranked = source.sizes.latent.query_rank > 0 && t.shape == [Extent::LatentQueries, Extent::Embd];
            if !required || ranked || t.role == Role::PlainNorm || self.found.contains_key(&name) {
                continue;
            }
            // of a tensor in another shape than the architecture's, the name stands beside
            let beside = || source.checkpoint.beside.iter().find(|other| other.gguf == t.gguf);
            let Some(hf) = source.names(t).next().or_else(|| Some(beside()?.hf)) else {
                continue;
            };
            let full = source.checkpoint.full_name(block, hf);
            let stack = self.stacks.get(&name);
            let absent = stack.and_then(|s| s.items.iter().position(Option::is_none));
            match (stack, absent) {
                // the others of its group lack one
                (Some(_), None) => {}
                (Some(_), Some(n)) => {
                    let one = full.replace('*', &n.to_string());
                    self.problems.push(format!("'{one}' is missing"));
                }
                (None, _) => self.problems.push(format!("'{full}' is missing")),
            }
        }
        for (one, _) in self.factors.values() {
            self.problems.push(format!("'{one}' is one of two factors, and the other is missing"));
        }
        for (name, pieces) in &self.pieces {
            let n = (0..).find(|n| !pieces.contains_key(n)).unwrap_or(0);
            self.problems.push(format!("piece {n} of '{name}' is missing"));
        }
        for stack in self.stacks.values().filter(|s| !s.tensor.required) {
            let hf = source.names(stack.tensor).next().unwrap_or_default();
            let n = stack.items.iter().position(Option::is_none).unwrap_or(0);
            let full = source.checkpoint.full_name(stack.block, hf);
            let one = full.replace('*', &n.to_string());
            self.problems.push(format!("'{one}' is missing, and others of {} are there", stack.group));
        }
    }
}
