//! The keys `anyprec.*` of a file.

use super::{AnyPrecError, BIT_ORDER, MAX_BITS, MAX_TABLES, VERSION, VERSION_SHARED};
use crate::gguf::{Array, Metadata, StrArray, Value};

/// The values of an any-precision file's keys.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Header {
    /// Width of the clusters that were found first.
    pub seed_bits: u8,
    /// Bits of a stored code: the number of planes.
    pub parent_bits: u8,
    /// Widths that have tables, ascending; the last is `parent_bits`.
    pub bits: Vec<u8>,
    /// Groups of columns with codebooks of their own.
    pub groups: u32,
    /// Tables of each width that the rows of a matrix share, or as many as it has rows where these are fewer; 0 where
    /// every row has its own.
    pub tables: u32,
    /// The matrices.
    pub tensors: Vec<String>,
    /// Their numbers of columns.
    pub columns: Vec<u64>,
    /// How the seed clusters were found: `dp`, or `kmeans++:` and the seed of the random numbers.
    pub seed_method: String,
    /// Source of the weights of the quantization errors: `fisher`, `imatrix`, `uniform` or `file`.
    pub sensitivity: String,
    /// Text on which the sensitivities were computed.
    pub calibration: Calibration,
    /// Which weights were kept out of the codebooks, in percent; `None`: all are in.
    pub sparse: Option<SparseShares>,
    /// SHA-256 of the files of the model that was quantized, in hexadecimal.
    pub source_sha256: Vec<String>,
}

/// Where sensitivities come from, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Calibration {
    /// The text.
    pub dataset: Option<String>,
    /// Number of sequences.
    pub samples: Option<u32>,
    /// Tokens in each.
    pub seq_len: Option<u32>,
    /// SHA-256 of the file they were read from, in hexadecimal.
    pub sha256: Option<String>,
}

/// Shares of weights kept out of the codebooks, in percent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SparseShares {
    /// Percentage of each matrix: the most sensitive weights.
    pub sensitivity: f32,
    /// Percentage of the whole model that was in fact kept out as its largest weights.
    pub magnitude: f32,
}

macro_rules! keys {
    ($($name:ident = $key:literal;)*) => { $(const $name: &str = concat!("anyprec.", $key);)* };
}

keys! {
    KEY_VERSION = "version";
    KEY_SEED_BITS = "seed_bits";
    KEY_PARENT_BITS = "parent_bits";
    KEY_BITS = "bits";
    KEY_GROUPS = "group_count";
    KEY_TABLES = "table_count";
    KEY_BIT_ORDER = "bit_order";
    KEY_TENSORS = "tensors";
    KEY_COLUMNS = "in_features";
    KEY_SEED_METHOD = "seed_method";
    KEY_SENSITIVITY = "sensitivity";
    KEY_DATASET = "calibration.dataset";
    KEY_SAMPLES = "calibration.samples";
    KEY_SEQ_LEN = "calibration.seq_len";
    KEY_CALIBRATION_SHA256 = "calibration.sha256";
    KEY_SPARSE_SENSITIVITY = "sparse.sensitivity_pct";
    KEY_SPARSE_MAGNITUDE = "sparse.magnitude_pct";
    KEY_SOURCE = "source_sha256";
}

/// True if the keys are those of an any-precision file, of any version.
pub(super) fn is_any_precision(meta: &Metadata) -> bool {
    meta.get(KEY_VERSION).is_some()
}

impl Header {
    /// Reads the keys; `None` when the file is not of this kind.
    ///
    /// # Errors
    /// Another version; keys that are missing, of another type, or contradict each other.
    pub fn read(meta: &Metadata) -> Result<Option<Header>, AnyPrecError> {
        if !is_any_precision(meta) {
            return Ok(None);
        }
        let version = required(KEY_VERSION, meta.get_u32(KEY_VERSION)?)?;
        let tables = match version {
            VERSION => 0,
            VERSION_SHARED => required(KEY_TABLES, meta.get_u32(KEY_TABLES)?)?,
            _ => return Err(AnyPrecError::Version(version)),
        };
        if version == VERSION_SHARED && !(1..=MAX_TABLES).contains(&tables) {
            let what = format!("{tables} tables cannot be shared, 1 to {MAX_TABLES} can");
            return Err(AnyPrecError::Key { key: short(KEY_TABLES), what });
        }
        let order = required(KEY_BIT_ORDER, meta.get_str(KEY_BIT_ORDER)?)?;
        if order != BIT_ORDER {
            return Err(AnyPrecError::BitOrder(order.to_owned()));
        }
        let text = |key| meta.get_str(key).map(|s| s.map(str::to_owned));
        let shares = (meta.get_f32(KEY_SPARSE_SENSITIVITY)?, meta.get_f32(KEY_SPARSE_MAGNITUDE)?);
        let header = Header {
            seed_bits: width(meta, KEY_SEED_BITS)?,
            parent_bits: width(meta, KEY_PARENT_BITS)?,
            bits: widths(meta)?,
            groups: required(KEY_GROUPS, meta.get_u32(KEY_GROUPS)?)?,
            tables,
            tensors: strings(meta, KEY_TENSORS)?.ok_or_else(|| missing(KEY_TENSORS))?,
            columns: required(KEY_COLUMNS, meta.get_u32s(KEY_COLUMNS)?)?.iter().map(|&k| u64::from(k)).collect(),
            seed_method: text(KEY_SEED_METHOD)?.unwrap_or_default(),
            sensitivity: text(KEY_SENSITIVITY)?.unwrap_or_default(),
            calibration: Calibration {
                dataset: text(KEY_DATASET)?,
                samples: meta.get_u32(KEY_SAMPLES)?,
                seq_len: meta.get_u32(KEY_SEQ_LEN)?,
                sha256: text(KEY_CALIBRATION_SHA256)?,
            },
            sparse: match shares {
                (None, None) => None,
                (sensitivity, magnitude) => {
                    Some(SparseShares { sensitivity: sensitivity.unwrap_or(0.0), magnitude: magnitude.unwrap_or(0.0) })
                }
            },
            source_sha256: strings(meta, KEY_SOURCE)?.unwrap_or_default(),
        };
        header.check()?;
        Ok(Some(header))
    }

    fn check(&self) -> Result<(), AnyPrecError> {
        let refuse = |key: &'static str, what: String| Err(AnyPrecError::Key { key, what });
        if !self.bits.is_sorted_by(|a, b| a < b) || self.bits.last() != Some(&self.parent_bits) {
            return refuse(
                "bits",
                format!("{:?} are not ascending widths that end with parent_bits, {}", self.bits, self.parent_bits),
            );
        }
        if self.bits.first().is_none_or(|&b| b < self.seed_bits) {
            let seed = self.seed_bits;
            return refuse("seed_bits", format!("{seed} is more than the first of {:?}", self.bits));
        }
        if self.groups == 0 {
            return refuse("group_count", "is 0".to_owned());
        }
        if self.tables > 0 && self.groups > 1 {
            return refuse("group_count", format!("is {}, and shared tables are for whole rows", self.groups));
        }
        if self.tensors.is_empty() || self.tensors.len() != self.columns.len() {
            return refuse(
                "in_features",
                format!("has {} entries for {} tensors", self.columns.len(), self.tensors.len()),
            );
        }
        let divides = |k: u64| k > 0 && k.is_multiple_of(u64::from(self.groups));
        match self.columns.iter().position(|&k| !divides(k)) {
            Some(i) => refuse(
                "in_features",
                format!("{} columns of '{}' are not {} groups", self.columns[i], self.tensors[i], self.groups),
            ),
            None => Ok(()),
        }
    }

    /// The tables of each width that a matrix of `rows` rows has for all of them; 0 where every row has its own.
    pub fn shared_by(&self, rows: u64) -> u64 {
        u64::from(self.tables).min(rows)
    }

    /// Sets the keys.
    pub fn write(&self, meta: &mut Metadata) {
        let number = |n: u8| Value::U32(n.into());
        meta.set(KEY_VERSION, Value::U32(if self.tables > 0 { VERSION_SHARED } else { VERSION }));
        if self.tables > 0 {
            meta.set(KEY_TABLES, Value::U32(self.tables));
        }
        meta.set(KEY_SEED_BITS, number(self.seed_bits));
        meta.set(KEY_PARENT_BITS, number(self.parent_bits));
        let bits = self.bits.iter().map(|&b| b.into()).collect();
        meta.set(KEY_BITS, Value::Array(Array::U32(bits)));
        meta.set(KEY_GROUPS, Value::U32(self.groups));
        meta.set(KEY_BIT_ORDER, Value::str(BIT_ORDER));
        meta.set(KEY_TENSORS, string_array(&self.tensors));
        // a tensor of more columns than u32 holds has no place in memory either
        let columns = self.columns.iter().map(|&k| u32::try_from(k).unwrap_or(0));
        meta.set(KEY_COLUMNS, Value::Array(Array::U32(columns.collect())));
        meta.set(KEY_SEED_METHOD, Value::str(&self.seed_method));
        meta.set(KEY_SENSITIVITY, Value::str(&self.sensitivity));
        let c = &self.calibration;
        let texts = [(KEY_DATASET, &c.dataset), (KEY_CALIBRATION_SHA256, &c.sha256)];
        for (key, text) in texts {
            match text {
                Some(text) => meta.set(key, Value::str(text)),
                None => {
                    meta.remove(key);
                }
            }
        }
        for (key, n) in [(KEY_SAMPLES, c.samples), (KEY_SEQ_LEN, c.seq_len)] {
            match n {
                Some(n) => meta.set(key, Value::U32(n)),
                None => {
                    meta.remove(key);
                }
            }
        }
        if let Some(shares) = self.sparse {
            meta.set(KEY_SPARSE_SENSITIVITY, Value::F32(shares.sensitivity));
            meta.set(KEY_SPARSE_MAGNITUDE, Value::F32(shares.magnitude));
        }
        if !self.source_sha256.is_empty() {
            meta.set(KEY_SOURCE, string_array(&self.source_sha256));
        }
    }
}

fn short(key: &'static str) -> &'static str {
    key.strip_prefix("anyprec.").unwrap_or(key)
}

fn missing(key: &'static str) -> AnyPrecError {
    AnyPrecError::Key { key: short(key), what: "is missing".to_owned() }
}

fn required<T>(key: &'static str, value: Option<T>) -> Result<T, AnyPrecError> {
    value.ok_or_else(|| missing(key))
}

fn width(meta: &Metadata, key: &'static str) -> Result<u8, AnyPrecError> {
    let bits = required(key, meta.get_u32(key)?)?;
    check_width(key, bits)
}

fn check_width(key: &'static str, bits: u32) -> Result<u8, AnyPrecError> {
    match u8::try_from(bits) {
        Ok(b @ 1..=MAX_BITS) => Ok(b),
        _ => Err(AnyPrecError::Key { key: short(key), what: format!("{bits} is no width, 1 to {MAX_BITS} are") }),
    }
}

fn widths(meta: &Metadata) -> Result<Vec<u8>, AnyPrecError> {
    let bits = required(KEY_BITS, meta.get_u32s(KEY_BITS)?)?;
    bits.iter().map(|&b| check_width(KEY_BITS, b)).collect()
}

fn strings(meta: &Metadata, key: &'static str) -> Result<Option<Vec<String>>, AnyPrecError> {
    let Some(array) = meta.get_strs(key)? else {
        return Ok(None);
    };
    let text = |s: &[u8]| match std::str::from_utf8(s) {
        Ok(s) => Ok(s.to_owned()),
        Err(_) => Err(AnyPrecError::Key { key: short(key), what: "an entry is not UTF-8".to_owned() }),
    };
    array.iter().map(text).collect::<Result<_, _>>().map(Some)
}

fn string_array(strings: &[String]) -> Value {
    let strings: StrArray = strings.iter().map(String::as_str).collect();
    Value::Array(Array::Str(strings))
}
