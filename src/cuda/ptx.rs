//! The kernels as PTX: what a driver is given, and what the tests execute.
//!
//! The text is made of `kernels/` by `cargo xtask ptx` and checked in; `ptx/MANIFEST` says of what and by what. It asks for
//! PTX 7.4 and compute capability 8.0, so drivers from R470 on compile it for every later GPU.

/// The release of CUDA that brought PTX 7.4, the version that the kernels ask for.
pub const DRIVER: (u32, u32) = (11, 4);
/// The series of drivers that came with it.
pub const SERIES: u32 = 470;
/// The lowest compute capability with the instructions of the kernels: products of bytes and halves by a warp, asynchronous copies.
pub const CAPABILITY: (u32, u32) = (8, 0);

/// A file of PTX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text {
    /// Its name, without `.ptx`.
    pub name: &'static str,
    /// What it says.
    pub text: &'static str,
}

/// Products with few tokens.
pub const DECODE: Text = Text {
    name: "decode",
    text: include_str!("ptx/decode.ptx"),
};

/// Products of activations in half precision.
pub const HALF: Text = Text {
    name: "half",
    text: include_str!("ptx/half.ptx"),
};

/// Products with many tokens.
pub const PREFILL: Text = Text {
    name: "prefill",
    text: include_str!("ptx/prefill.ptx"),
};

/// Products of ternary matrices with one scale.
pub const TERNARY: Text = Text {
    name: "ternary",
    text: include_str!("ptx/ternary.ptx"),
};

/// Products of K-quants and of half floats.
pub const CHAINS: Text = Text {
    name: "chains",
    text: include_str!("ptx/chains.ptx"),
};

/// Rows of tables, decoded.
pub const EMBED: Text = Text {
    name: "embed",
    text: include_str!("ptx/embed.ptx"),
};

/// Norms, and sums and products of single elements.
pub const NORM: Text = Text {
    name: "norm",
    text: include_str!("ptx/norm.ptx"),
};

/// Activations to quants.
pub const QUANTIZE: Text = Text {
    name: "quantize",
    text: include_str!("ptx/quantize.ptx"),
};

/// Rotary embedding, keys and values, and attention over them.
pub const ATTENTION: Text = Text {
    name: "attention",
    text: include_str!("ptx/attention.ptx"),
};

/// The functions of gates.
pub const GATE: Text = Text {
    name: "gate",
    text: include_str!("ptx/gate.ptx"),
};

/// Those whose results have the bits of a processor, by name.
pub const EXACT: [Text; 9] = [
    ATTENTION, CHAINS, DECODE, EMBED, GATE, NORM, PREFILL, QUANTIZE, TERNARY,
];

/// All of them, by name.
pub const ALL: [Text; 10] = [
    ATTENTION, CHAINS, DECODE, EMBED, GATE, HALF, NORM, PREFILL, QUANTIZE, TERNARY,
];

/// What they were made of and by what, and what each kernel takes of a multiprocessor.
pub const MANIFEST: &str = include_str!("ptx/MANIFEST");
