//! The header of a published file as text: all of its keys and tensors with their types, at the sizes that the file has
//! and at small ones, so that a model of random weights has the header and nothing else of it.
//!
//! One line each; `testdata/headers/README.md` describes them.

use std::collections::{BTreeMap, BTreeSet};

use trine_formats::gguf::write::{Layout, NewTensor};
use trine_formats::gguf::{Array, Metadata, StrArray, Value};
use trine_formats::types::TypeId;
use trine_formats::types::ternary::{Packing, ternarize};

use super::{listing, weights};

/// The sizes of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Those of the published file.
    Real,
    /// Those of a model that is made in a moment.
    Small,
}

/// Contents of the text.
pub struct Header {
    /// All keys.
    pub meta: Metadata,
    /// All tensors, in the order of the file.
    pub tensors: Vec<NewTensor>,
    /// Numbers of keys, tensors, rotated matrices or tensors of a type, which the published file has.
    pub counts: BTreeMap<String, usize>,
    /// Weights of all tensors of a type in that file.
    pub weights: BTreeMap<String, u64>,
}

impl Header {
    /// Reads a header; panics with the line that is wrong.
    pub fn parse(text: &str, size: Size) -> Header {
        let (meta, tensors) = (Metadata::default(), Vec::new());
        let mut header = Header { meta, tensors, counts: BTreeMap::new(), weights: BTreeMap::new() };
        let mut names: Vec<(String, &str)> = Vec::new();
        for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            if let Some(rest) = line.strip_prefix("let ") {
                let [name, real, small] = rest.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
                names.push((format!("${name}"), if size == Size::Real { real } else { small }));
                // no name is taken for the beginning of a longer one
                names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
                continue;
            }
            let full = names.iter().fold(line.to_owned(), |line, (name, value)| line.replace(name, value));
            header.line(&full).unwrap_or_else(|| panic!("{line}"));
        }
        header
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (what, rest) = line.split_once(' ')?;
        match what {
            "count" | "weights" => {
                let (name, n) = rest.split_once(' ')?;
                match what {
                    "count" => drop(self.counts.insert(name.to_owned(), n.parse().ok()?)),
                    _ => drop(self.weights.insert(name.to_owned(), n.parse().ok()?)),
                }
            }
            "key" => {
                let (key, rest) = rest.split_once(' ')?;
                let (ty, text) = rest.split_once(' ').unwrap_or((rest, ""));
                self.meta.set(key, value(ty, text)?);
            }
            "tensor" => {
                let mut words = rest.split(' ');
                let ty = TypeId::from_name(words.next()?)?;
                let names = listing::numbered(words.next()?)?;
                let shape: Vec<u64> = words.map(|w| w.parse().ok()).collect::<Option<_>>()?;
                self.tensors.extend(names.into_iter().map(|name| NewTensor::new(name, shape.clone(), ty)));
            }
            _ => return None,
        }
        Some(())
    }

    /// The file without its data.
    pub fn layout(&self) -> Layout {
        Layout::new(&self.meta, &self.tensors).expect("a layout")
    }

    /// The bytes of a file with random weights.
    pub fn file(&self) -> Vec<u8> {
        let layout = self.layout();
        let mut bytes = layout.header().to_vec();
        for tensor in layout.tensors() {
            bytes.extend(data(tensor.ty, &tensor.name, &tensor.shape));
            bytes.resize(bytes.len().next_multiple_of(32), 0);
        }
        assert_eq!(bytes.len() as u64, layout.file_bytes());
        bytes
    }
}

/// Random weights of a tensor.
fn data(ty: TypeId, name: &str, shape: &[u64]) -> Vec<u8> {
    let columns = shape[0] as usize;
    let rows = shape[1..].iter().product::<u64>() as usize;
    let mut values = vec![0f32; columns * rows];
    weights::fill(name, 42, 0.1, &mut values);
    if ty == TypeId::I2_S {
        let mut codes = vec![0; values.len()];
        let scale = ternarize(&values, &mut codes);
        return Packing::I2S(Default::default()).pack(columns, rows, scale, &codes).expect("a matrix of the type");
    }
    if let Some(block) = five_values(ty) {
        return values.chunks_exact(256).flat_map(block).collect();
    }
    let info = ty.info().expect("a known type");
    let encode = info.encode.unwrap_or_else(|| panic!("{name}: {ty} has no encoder"));
    let row_bytes =
        info.row_bytes(columns as u64).unwrap_or_else(|| panic!("{name}: no whole blocks of {ty}")) as usize;
    let mut out = vec![0; row_bytes * rows];
    values.chunks_exact(columns).zip(out.chunks_exact_mut(row_bytes)).for_each(|(x, out)| encode(x, None, out));
    out
}

/// Makes the bytes of a block of numbers.
type MakeBlock = fn(&[f32]) -> Vec<u8>;

/// How blocks of the types of Neutrino are made, which nobody quantizes to: of ternary codes with one of two scales, or of
/// bytes.
fn five_values(ty: TypeId) -> Option<MakeBlock> {
    match ty {
        TypeId::FV5 => Some(|x| {
            let plane = |holds: &dyn Fn(f32) -> bool| -> Vec<u8> {
                let byte = |eight: &[f32]| (0..8).map(|i| u8::from(holds(eight[i])) << i).sum();
                x.chunks_exact(8).map(byte).collect()
            };
            let planes = [plane(&|v| v > 0.05), plane(&|v| v < -0.05), plane(&|v| v.abs() > 0.12)];
            let scales = [0.08f32, 0.16].map(f32::to_le_bytes).concat();
            scales.into_iter().chain(planes.concat()).collect()
        }),
        TypeId::FV5B => Some(|x| {
            let codes = x.iter().map(|v| (v * 300.0) as i8 as u8);
            (1.0f32 / 300.0).to_le_bytes().into_iter().chain(codes).collect()
        }),
        _ => None,
    }
}

/// A value: those of listings, and vocabularies and signs, which stand in no text.
fn value(ty: &str, text: &str) -> Option<Value> {
    let numbers = || text.split(' ').map(|n| n.parse::<usize>().ok()).collect::<Option<Vec<usize>>>();
    let all = |all: Vec<String>| {
        let mut out = StrArray::default();
        all.iter().for_each(|s| assert!(out.push(s.as_bytes())));
        Some(Value::Array(Array::Str(out)))
    };
    match ty {
        "bytes" => all(of_bytes(text.parse().ok()?)),
        "pairs" => all((0..text.parse().ok()?).map(|i| pair(i).join(" ")).collect()),
        "pieces" => all(pieces(text.parse().ok()?)),
        "distinct" => {
            let widths: BTreeSet<usize> = numbers()?.into_iter().collect();
            Some(Value::Array(Array::I32(widths.into_iter().map(|w| w as i32).collect())))
        }
        "signs" => {
            let n: usize = numbers()?.into_iter().collect::<BTreeSet<_>>().into_iter().sum();
            let sign = |i: usize| if (i * i + i / 5) % 7 < 3 { 1 } else { -1 };
            Some(Value::Array(Array::I32((0..n).map(sign).collect())))
        }
        _ => listing::value(ty, text),
    }
}

/// The character that stands for a byte in vocabularies of the kind of GPT-2: itself where it is printed, else one of
/// those behind the first 256, in order.
fn of_byte(byte: u8) -> char {
    let printed = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    match printed(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|&b| !printed(b)).count() as u32;
            char::from_u32(256 + before).expect("a character")
        }
    }
}

/// A merge: two letters, every pair once.
fn pair(i: usize) -> [String; 2] {
    const LETTERS: usize = 94;
    let letter = |n: usize| char::from(b'!' + (n % LETTERS) as u8);
    match i / LETTERS / LETTERS {
        0 => [letter(i), letter(i / LETTERS)].map(String::from),
        // longer ones, of a pair and a letter
        n => [format!("{}{}", letter(i), letter(i / LETTERS)), letter(n - 1).to_string()],
    }
}

/// A vocabulary of `n` tokens: all bytes, then the pairs of merges, then tokens that no text has.
fn of_bytes(n: usize) -> Vec<String> {
    let pairs = 512.max(n.saturating_sub(256));
    let bytes = (0..=255).map(|b| of_byte(b).to_string());
    bytes.chain((256..n).map(|i| if i < pairs { pair(i - 256).concat() } else { format!("<|{i}|>") })).take(n).collect()
}

/// A vocabulary of `n` pieces: three controls, all bytes, printed characters, then pieces that no text has.
fn pieces(n: usize) -> Vec<String> {
    let controls = ["<unk>", "<s>", "</s>"].map(str::to_owned);
    let bytes = (0..=255).map(|b: u8| format!("<0x{b:02X}>"));
    let letters = (b'!'..=b'~').map(|b| char::from(b).to_string()).chain(["\u{2581}".to_owned()]);
    let named = controls.into_iter().chain(bytes).chain(letters);
    named.chain((0..n).map(|i| format!("<|{i}|>"))).take(n).collect()
}
