//! Outputs of the reference programs, recorded in `testdata`.

use std::collections::BTreeMap;

use crate::{read, testdata};

/// One recorded array of `testdata/kernels`: rows of the same length.
pub struct Array {
    /// Number of rows.
    pub rows: usize,
    /// All rows, one after the other.
    pub bytes: Vec<u8>,
}

impl Array {
    /// The bytes of a row.
    pub fn row(&self, r: usize) -> &[u8] {
        let len = self.bytes.len() / self.rows;
        &self.bytes[r * len..(r + 1) * len]
    }

    /// The array as floats.
    pub fn floats(&self) -> Vec<f32> {
        floats(&self.bytes)
    }

    /// A row as floats.
    pub fn row_floats(&self, r: usize) -> Vec<f32> {
        floats(self.row(r))
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (words, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    words.iter().map(|w| f32::from_le_bytes(*w)).collect()
}

/// All arrays of one part of `testdata/kernels`.
pub struct Kernels(BTreeMap<String, Array>);

impl Kernels {
    /// Reads part `a` (16 rows of 2560) or `b` (48 rows of 256).
    pub fn load(part: &str) -> Kernels {
        let data = read(&testdata(&format!("kernels/kernels-{part}.bin")));
        let index = read(&testdata(&format!("kernels/kernels-{part}.txt")));
        let index = String::from_utf8(index).expect("text");
        let mut arrays = BTreeMap::new();
        for line in index.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [name, kind, rows, columns, offset] = fields[..] else { panic!("index line {line:?}") };
            let number = |s: &str| s.parse::<usize>().expect("a number");
            let size = number(rows) * number(columns) * if kind == "f32" { 4 } else { 1 };
            let array = Array { rows: number(rows), bytes: data[number(offset)..][..size].to_vec() };
            arrays.insert(name.to_owned(), array);
        }
        Kernels(arrays)
    }

    /// The array of this name, where it was recorded.
    pub fn get(&self, name: &str) -> Option<&Array> {
        self.0.get(name)
    }

    /// The array of this name.
    #[track_caller]
    pub fn array(&self, name: &str) -> &Array {
        self.get(name).unwrap_or_else(|| panic!("no array {name}"))
    }
}

/// Token ids and the reference's hash of the logits at each position.
pub struct Logits {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// SHA-256 of the f32 little-endian logits, in hexadecimal, one per token.
    pub sha256: Vec<String>,
}

/// Reads `testdata/golden/logits/NAME.json`.
#[track_caller]
pub fn logits(name: &str) -> Logits {
    let json = json(&format!("golden/logits/{name}.json"));
    let list = |key: &str| json[key].as_array().expect(key).iter();
    let token = |v: &serde_json::Value| v.as_u64().expect("an id") as u32;
    let hash = |v: &serde_json::Value| v.as_str().expect("a hash").to_owned();
    Logits {
        tokens: list("tokens").map(token).collect(),
        sha256: list("sha256_f32le_per_position").map(hash).collect(),
    }
}

/// The longer list of tokens that the reference evaluated of models of `testdata/archs`.
pub fn long_tokens() -> Vec<u32> {
    let all = json("archs/golden.json");
    let ids = all["tokens"]["long"].as_array().expect("a list").iter();
    ids.map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()).expect("an id")).collect()
}

/// A JSON file of `testdata`.
#[track_caller]
pub fn json(path: &str) -> serde_json::Value {
    let parsed = serde_json::from_slice(&read(&testdata(path)));
    parsed.unwrap_or_else(|e| panic!("{path}: {e}"))
}
