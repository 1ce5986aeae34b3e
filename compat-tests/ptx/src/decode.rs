//! Opcodes and operands to instructions.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use super::instruction::{Address, Op, Register, Shuffle, Source, Space, Special, Word};
use super::mma::Form;
use super::operand::Operand;
use super::scalar;

/// Meanings of names.
#[derive(Clone, Default, Debug)]
pub(super) struct Names {
    pub(super) registers: HashMap<String, Register>,
    /// Places of arguments.
    pub(super) arguments: HashMap<String, usize>,
    /// Places of the kernel's own shared memory.
    pub(super) shared: HashMap<String, usize>,
    /// Shared memory whose size the launch says.
    pub(super) dynamic: HashSet<String>,
    /// The different constants of the kernel, and the coordinates that it reads.
    pub(super) constants: RefCell<Vec<u64>>,
    pub(super) specials: RefCell<Vec<Special>>,
}

/// The place of a value in a list, at whose end it is put when it is new.
fn place_in<T: PartialEq>(all: &RefCell<Vec<T>>, value: T) -> usize {
    let mut all = all.borrow_mut();
    let found = all.iter().position(|other| *other == value);
    found.unwrap_or_else(|| {
        all.push(value);
        all.len() - 1
    })
}

type Decoded<T> = Result<T, String>;

impl Names {
    pub(super) fn constant(&self, bits: u64) -> Source {
        Source::Constant(place_in(&self.constants, bits))
    }

    fn special(&self, special: Special) -> Source {
        Source::Special(place_in(&self.specials, special))
    }

    fn source(&self, operand: &Operand) -> Decoded<Source> {
        let name = match operand {
            Operand::Number(bits) => return Ok(self.constant(*bits)),
            Operand::Name(name) => name,
            other => return Err(format!("{other:?} is no value")),
        };
        if let Some(&register) = self.registers.get(name) {
            return Ok(Source::Register(register));
        }
        if let Some(&at) = self.shared.get(name) {
            return Ok(self.constant(at as u64));
        }
        if self.dynamic.contains(name) {
            return Ok(self.special(Special::Dynamic));
        }
        let axis = |rest: &str| ["x", "y", "z"].iter().position(|a| *a == rest);
        let special = match name.split_once('.') {
            Some(("%tid", rest)) => axis(rest).map(Special::Thread),
            Some(("%ntid", rest)) => axis(rest).map(Special::Threads),
            Some(("%ctaid", rest)) => axis(rest).map(Special::Block),
            Some(("%nctaid", rest)) => axis(rest).map(Special::Blocks),
            None if name == "%laneid" => Some(Special::Lane),
            _ => None,
        };
        let special = special.map(|special| self.special(special));
        special.ok_or_else(|| format!("nothing is called '{name}'"))
    }

    fn register(&self, operand: &Operand) -> Decoded<Register> {
        match self.source(operand)? {
            Source::Register(register) => Ok(register),
            _ => Err(format!("{operand:?} is no register")),
        }
    }

    fn address(&self, operand: &Operand) -> Decoded<Address> {
        let Operand::Address(base, offset) = operand else {
            return Err(format!("{operand:?} is no address"));
        };
        let base = match base {
            Some(name) => self.source(&Operand::Name(name.clone()))?,
            None => self.constant(0),
        };
        let offset = *offset;
        Ok(Address { base, offset })
    }

    fn registers(&self, operand: &Operand) -> Decoded<Vec<Register>> {
        parts(operand).iter().map(|o| self.register(o)).collect()
    }

    fn sources(&self, operand: &Operand) -> Decoded<Vec<Source>> {
        parts(operand).iter().map(|o| self.source(o)).collect()
    }
}

/// The parts of a vector; of another operand itself.
fn parts(operand: &Operand) -> &[Operand] {
    match operand {
        Operand::Vector(parts) => parts,
        other => std::slice::from_ref(other),
    }
}

/// Bytes and sign of a type.
fn word(ty: &str) -> Option<Word> {
    let bytes = match ty.get(1..)? {
        "8" => 1,
        "16" => 2,
        "32" => 4,
        "64" => 8,
        _ => return None,
    };
    let signed = ty.starts_with('s');
    ty.starts_with(['b', 'u', 's', 'f']).then_some(Word { bytes, signed })
}

/// The operation of an opcode, and the label that it jumps to.
pub(super) fn decode(opcode: &str, operands: Vec<Operand>, names: &Names) -> Decoded<(Op, Option<String>)> {
    let unknown = || format!("unknown instruction '{opcode}'");
    let mut modifiers = opcode.split('.');
    let head = modifiers.next().unwrap_or("");
    let modifiers: Vec<&str> = modifiers.collect();
    let op = match (head, &operands[..]) {
        ("bra", [Operand::Name(label)]) => {
            // The target is known when all labels are.
            return Ok((Op::Branch(0), Some(label.clone())));
        }
        ("ret" | "exit", []) => Op::Exit,
        ("bar", [Operand::Number(0)]) if modifiers == ["sync"] => Op::Barrier,
        ("bar", [Operand::Number(0xffff_ffff)]) if modifiers == ["warp", "sync"] => Op::WarpBarrier,
        ("bar", [minus]) if modifiers == ["warp", "sync"] && *minus == Operand::Number(u64::MAX) => Op::WarpBarrier,
        ("fence", []) if modifiers == ["acq_rel", "gpu"] => Op::Fence,
        ("membar", []) if modifiers == ["gl"] => Op::Fence,
        ("atom", [to, at, from])
            if matches!(modifiers[..], ["relaxed", "gpu", "global", "add", "u32"] | ["global", "add", "u32"]) =>
        {
            Op::Add { to: names.register(to)?, at: names.address(at)?, from: names.source(from)? }
        }
        ("ld", [to, from]) if modifiers.first() == Some(&"param") => {
            let (word, _) = access(&modifiers[1..]).ok_or_else(unknown)?;
            let Operand::Address(Some(base), offset) = from else {
                return Err(format!("{from:?} is no argument"));
            };
            let place = names.arguments.get(base);
            let place = place.ok_or_else(|| format!("no argument '{base}'"))?;
            let at = usize::try_from(*place as i64 + offset).map_err(|e| e.to_string())?;
            let to = names.registers(to)?;
            Op::Argument { word, to, at }
        }
        ("ld", [to, from]) => {
            let space = space(&modifiers).ok_or_else(unknown)?;
            let (word, count) = access(&modifiers[1..]).ok_or_else(unknown)?;
            let (to, at) = (names.registers(to)?, names.address(from)?);
            (to.len() == count && word.bytes * count <= 16).then_some(()).ok_or_else(unknown)?;
            Op::Load { space, word, to, at }
        }
        ("st", [to, from]) => {
            let space = space(&modifiers).ok_or_else(unknown)?;
            let (word, count) = access(&modifiers[1..]).ok_or_else(unknown)?;
            let (from, at) = (names.sources(from)?, names.address(to)?);
            (from.len() == count && word.bytes * count <= 16).then_some(()).ok_or_else(unknown)?;
            Op::Store { space, word, from, at }
        }
        ("mov", [to, Operand::Vector(from)]) => Op::Join {
            to: names.register(to)?,
            bits: part_bits(&modifiers, from.len()).ok_or_else(unknown)?,
            from: from.iter().map(|o| names.source(o)).collect::<Decoded<_>>()?,
        },
        ("mov", [Operand::Vector(to), from]) => {
            let wanted = |o: &Operand| match o {
                Operand::Name(name) if name == "_" => Ok(None),
                other => names.register(other).map(Some),
            };
            Op::Part {
                bits: part_bits(&modifiers, to.len()).ok_or_else(unknown)?,
                to: to.iter().map(wanted).collect::<Decoded<_>>()?,
                from: names.source(from)?,
            }
        }
        ("cp", _) => copy(&modifiers, &operands, names)?.ok_or_else(unknown)?,
        ("ldmatrix", [to, at]) => {
            let (count, transposed) = match modifiers[..] {
                ["sync", "aligned", "m8n8", count, "shared", "b16"] => (count, false),
                ["sync", "aligned", "m8n8", count, "trans", "shared", "b16"] => (count, true),
                _ => return Err(unknown()),
            };
            let (to, at) = (names.registers(to)?, names.address(at)?);
            let expected = ["x1", "x2", "", "x4"].iter().position(|c| *c == count);
            (expected == to.len().checked_sub(1) && to.len() != 3).then_some(()).ok_or_else(unknown)?;
            Op::Matrix { to, at, transposed }
        }
        ("mma", _) => product(&modifiers, &operands, names)?.ok_or_else(unknown)?,
        ("shfl", [to, from, by, clamp, members]) => {
            let ["sync", mode, "b32"] = modifiers[..] else {
                return Err(unknown());
            };
            let mode = match mode {
                "up" => Shuffle::Up,
                "down" => Shuffle::Down,
                "bfly" => Shuffle::Butterfly,
                "idx" => Shuffle::Index,
                _ => return Err(unknown()),
            };
            let (to, valid) = match to {
                Operand::Pair(to, valid) => {
                    (names.register(&Operand::Name(to.clone()))?, Some(names.register(&Operand::Name(valid.clone()))?))
                }
                to => (names.register(to)?, None),
            };
            let [from, by, clamp, members] = [from, by, clamp, members].map(|o| names.source(o));
            Op::Shuffle { mode, to, valid, from: from?, by: by?, clamp: clamp?, members: members? }
        }
        _ => {
            let (count, f) = scalar::find(opcode).ok_or_else(unknown)?;
            let Some((to, from)) = operands.split_first().filter(|(_, from)| from.len() == count) else {
                return Err(format!("'{opcode}' with {} operands", operands.len()));
            };
            Op::Scalar {
                f,
                to: names.register(to)?,
                from: from.iter().map(|o| names.source(o)).collect::<Decoded<_>>()?,
            }
        }
    };
    Ok((op, None))
}

fn space(modifiers: &[&str]) -> Option<Space> {
    match *modifiers.first()? {
        "global" => Some(Space::Global),
        "shared" => Some(Space::Shared),
        _ => None,
    }
}

/// The numbers of a load or store: their type and how many. Caches are no part of what the emulator knows.
fn access(modifiers: &[&str]) -> Option<(Word, usize)> {
    let hint = |m: &&str| ["nc", "ca", "cg", "cs"].contains(m) || m.starts_with("L1::") || m.starts_with("L2::");
    let modifiers: Vec<&str> = modifiers.iter().copied().filter(|m| !hint(m)).collect();
    let (count, ty) = match modifiers[..] {
        [ty] => (1, ty),
        ["v2", ty] => (2, ty),
        ["v4", ty] => (4, ty),
        _ => return None,
    };
    Some((word(ty)?, count))
}

/// Bits of each of `count` parts of a `mov`.
fn part_bits(modifiers: &[&str], count: usize) -> Option<usize> {
    let [ty] = modifiers else { return None };
    let bits = 8 * word(ty)?.bytes;
    (count > 1 && bits % count == 0 && bits / count >= 8).then(|| bits / count)
}

/// Asynchronous copies.
fn copy(modifiers: &[&str], operands: &[Operand], names: &Names) -> Decoded<Option<Op>> {
    Ok(Some(match (modifiers, operands) {
        (["async", "commit_group"], []) => Op::Commit,
        (["async", "wait_all"], []) => Op::WaitAll,
        (["async", "wait_group"], [Operand::Number(left)]) => Op::WaitGroup(*left as usize),
        (["async", cache @ ("ca" | "cg"), "shared", "global", hints @ ..], [to, from, size, read @ ..])
            if hints.iter().all(|h| h.starts_with("L2::")) =>
        {
            let (Operand::Number(bytes @ (4 | 8 | 16)), 0 | 1) = (size, read.len()) else {
                return Ok(None);
            };
            if *cache == "cg" && *bytes != 16 {
                return Ok(None);
            }
            Op::Copy {
                bytes: *bytes as usize,
                to: names.address(to)?,
                from: names.address(from)?,
                read: match read.first() {
                    Some(read) => names.source(read)?,
                    None => names.constant(*bytes),
                },
            }
        }
        _ => return Ok(None),
    }))
}

/// Products of matrices.
fn product(modifiers: &[&str], operands: &[Operand], names: &Names) -> Decoded<Option<Op>> {
    let signed = |ty: &str| match ty {
        "s8" => Some(true),
        "u8" => Some(false),
        _ => None,
    };
    let form = match modifiers {
        ["sync", "aligned", "m16n8k32", "row", "col", "s32", a, b, "s32"] => {
            let (Some(a_signed), Some(b_signed)) = (signed(a), signed(b)) else {
                return Ok(None);
            };
            Form::Bytes { a_signed, b_signed }
        }
        ["sync", "aligned", "m16n8k16", "row", "col", "s32", "s8", "s8", "s32"] => Form::ShortBytes,
        ["sync", "aligned", "m16n8k16", "row", "col", "f32", "f16", "f16", "f32"] => Form::Halves,
        ["sync", "aligned", "m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"] => Form::Brains,
        ["sp" | "sp::ordered_metadata", "sync", "aligned", "m16n8k32", "row", "col", "f32", "f16", "f16", "f32"] => {
            Form::SparseHalves
        }
        _ => return Ok(None),
    };
    let (operands, sparse) = match (form, operands) {
        (Form::SparseHalves, [rest @ .., metadata, Operand::Number(selector @ (0 | 1))]) => {
            (rest, Some((names.source(metadata)?, *selector as usize)))
        }
        (Form::SparseHalves, _) => return Ok(None),
        (_, all) => (all, None),
    };
    let [d, a, b, c] = operands else {
        return Ok(None);
    };
    let (d, a) = (names.registers(d)?, names.sources(a)?);
    let (b, c) = (names.sources(b)?, names.sources(c)?);
    if d.len() != 4 || [a.len(), b.len(), c.len()] != form.registers() {
        return Ok(None);
    }
    Ok(Some(Op::Mma { form, d, a, b, c, sparse }))
}
