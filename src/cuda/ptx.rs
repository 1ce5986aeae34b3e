//! The kernels as PTX: what a driver is given, and what the tests execute.
//!
//! The text is made of `kernels/` by `cargo xtask ptx` and checked in, compressed; `ptx/MANIFEST` says of what and by what. It asks
//! for PTX 7.4 and compute capability 8.0, so drivers from R470 on compile it for every later GPU.

use std::sync::OnceLock;

/// The release of CUDA that brought PTX 7.4, the version that the kernels ask for.
pub const DRIVER: (u32, u32) = (11, 4);
/// The series of drivers that came with it.
pub const SERIES: u32 = 470;
/// The lowest compute capability with the instructions of the kernels: products of bytes and of f16 by a warp,
/// asynchronous copies.
pub const CAPABILITY: (u32, u32) = (8, 0);

/// A file of PTX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text {
    /// Its name, without `.ptx`.
    pub name: &'static str,
    /// Its PTX, compressed (RFC 1951).
    packed: &'static [u8],
}

/// The texts of [`ALL`] that were asked for.
static TEXTS: [OnceLock<String>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];

impl Text {
    /// Its PTX. Nothing is unpacked before it is asked for, and nothing twice.
    pub fn text(&self) -> &'static str {
        let place = ALL.iter().position(|text| text.name == self.name);
        place.map_or("", |place| TEXTS[place].get_or_init(|| self.unpacked()))
    }

    /// The text, or an empty one, which every driver refuses, if these are no compressed text.
    fn unpacked(&self) -> String {
        let bytes = miniz_oxide::inflate::decompress_to_vec(self.packed).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// True if results of its kernels have the bits of a processor.
    pub fn is_exact(&self) -> bool {
        !IN_HALVES.contains(self)
    }

    /// Bytes of each argument of a kernel, in order, as the text declares them; `None` where it has no such kernel.
    pub fn arguments(&self, kernel: &str) -> Option<Vec<usize>> {
        let entry = format!(".entry {kernel}(");
        let (_, rest) = self.text().split_once(&entry)?;
        let (list, _) = rest.split_once(')')?;
        let types = list.split(".param").skip(1);
        let sizes = types.map(|ty| match ty.split_whitespace().next()? {
            ".u64" => Some(8),
            ".u32" | ".f32" => Some(4),
            _ => None,
        });
        sizes.collect()
    }
}

/// The text of a name.
macro_rules! text {
    ($name:literal) => {
        Text { name: $name, packed: include_bytes!(concat!("ptx/", $name, ".deflate")) }
    };
}

/// Products with few tokens.
pub const DECODE: Text = text!("decode");

/// Products of activations in half precision.
pub const HALF: Text = text!("half");

/// Products with many tokens.
pub const PREFILL: Text = text!("prefill");

/// Products of types that are integers, with few tokens and of chosen experts.
pub const INTEGERS: Text = text!("integers");

/// The same with one token.
pub const INTEGERS_ONE: Text = text!("integers_one");

/// The same with many tokens.
pub const INTEGERS_MANY: Text = text!("integers_many");

/// Products of ternary matrices with one scale.
pub const TERNARY: Text = text!("ternary");

/// Products of half floats, of brain floats and of floats.
pub const FLOATS: Text = text!("floats");

/// Products of chosen experts, of the types with block scales.
pub const CHOSEN: Text = text!("chosen");

/// The choice of experts, and the sum of their outputs.
pub const EXPERTS: Text = text!("experts");

/// Products of activations in half precision with weights of which two of four are there.
pub const SPARSE: Text = text!("sparse");

/// Products of half floats and brain floats with activations in half precision.
pub const TENSOR: Text = text!("tensor");

/// Products of any-precision weights.
pub const PLANES: Text = text!("planes");

/// Rows of tables, decoded.
pub const EMBED: Text = text!("embed");

/// Norms, and sums and products of single elements.
pub const NORM: Text = text!("norm");

/// Activations to quants.
pub const QUANTIZE: Text = text!("quantize");

/// Rotary embedding, keys and values, and attention over them.
pub const ATTENTION: Text = text!("attention");

/// Keys and values of types beside half floats, and attention over them.
pub const CELLS: Text = text!("cells");

/// Operations between products that few models have.
pub const BETWEEN: Text = text!("between");

/// Attention in both directions.
pub const WHOLE: Text = text!("whole");

/// The functions of gates.
pub const GATE: Text = text!("gate");

/// Convolutions, scans, delta rules and other recurrences over the positions of sequences.
pub const RECURRENT: Text = text!("recurrent");

/// The files whose results have not the bits of a processor: activations in half precision.
const IN_HALVES: [Text; 3] = [HALF, SPARSE, TENSOR];

/// All files, by name.
pub const ALL: [Text; 22] = [
    ATTENTION,
    BETWEEN,
    CELLS,
    CHOSEN,
    DECODE,
    EMBED,
    EXPERTS,
    FLOATS,
    GATE,
    HALF,
    INTEGERS,
    INTEGERS_MANY,
    INTEGERS_ONE,
    NORM,
    PLANES,
    PREFILL,
    QUANTIZE,
    RECURRENT,
    SPARSE,
    TENSOR,
    TERNARY,
    WHOLE,
];

/// Hashes of their sources and versions of their compiler, and each kernel's use of a multiprocessor.
pub const MANIFEST: &str = include_str!("ptx/MANIFEST");
