//! Which program's numbering a file's tensor types follow, where programs use one number differently.
//!
//! | id | in ggml | elsewhere |
//! |---|---|---|
//! | 36 | `iq4_nl_4_4`, removed | `i2_s` of bitnet.cpp and ik_llama.cpp |
//! | 37 | `iq4_nl_4_8`, removed | `i8_s` of bitnet.cpp |
//! | 38 | `iq4_nl_8_8`, removed | `tl1` of bitnet.cpp |
//! | 39 | `mxfp4` | `tl2` of bitnet.cpp |
//! | 40 | `nvfp4` | `q2_0c` of Tencent; `stq1_0` with an integer scale; a type of vlut.cpp |
//! | 41 | `q1_0` | `q1_0_g128` of ik_llama.cpp: another name, the same 128 weights in 18 bytes |
//! | 42 | `q2_0`, 64 weights in 18 bytes | PrismML and Pestle: 128 in 34 bytes; `stq1_0` of Tencent; `tl2` of newer bitnet.cpp; Falcon3-1.58bit files: a private `q2b`; the Fairy2i fork of llama.cpp: 64 complex weights in 20 bytes |
//! | 43 | - | `stq1_0` of Tencent; `fv5` of Neutrino |
//! | 44 | - | `fv5b` of Neutrino |
//! | 142 | - | `pq2_0` of PrismML |
//! | 143 | - | `ptq1_0` of PrismML; `g8_0` of Pestle |
//! | 134, 135 | - | `iq1_bn` and `iq2_bn` of ik_llama.cpp; without a scale before each row, as they were at first, kept as unknown |
//! | 133..=158, 202..=399 | - | ik_llama.cpp's own; of another size than today's, kept as unknown |
//!
//! The evidence, strongest first:
//! 1. the key [`KEY_DIALECT`], which trine writes where sizes alone would leave a doubt; the architecture `fairy2i`
//!    together with the keys that only that fork writes;
//! 2. sizes: tensors lie end to end, so all but the last have exactly the room up to the next one. The
//!    meanings differ in size for all but matrices of a few hundred weights. (bitnet.cpp's writer of TL1
//!    and TL2 leaves the scale out of the tensor table as a hole behind the tensor: its size is with it.)
//!    The last tensor is judged by where the file ends;
//! 3. for what two meanings fit equally: ggml's, if ggml has the type today, otherwise that of the
//!    architecture (`bitnet`, `bitnet-25`, `bitnet-b1.58` are run by bitnet.cpp).
//!
//! `general.file_type` is no evidence: bitnet.cpp's own tools disagree about its values. A type that stays undecided is
//! refused with both meanings named.

use super::error::{ErrorKind, GgufError};
use super::{Metadata, TensorInfo};
use crate::types::TypeId;

/// The metadata key that names a file's [`Dialect`] outright.
pub const KEY_DIALECT: &str = "trine.dialect";

/// The program whose type numbers a file uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Dialect {
    /// ggml and llama.cpp.
    #[default]
    Ggml,
    /// bitnet.cpp of Microsoft.
    BitnetCpp,
    /// ik_llama.cpp.
    IkLlama,
    /// PrismML's fork of llama.cpp.
    Prism,
    /// The Fairy2i fork of llama.cpp.
    Fairy2i,
    /// Tencent's Hy models.
    Tencent,
    /// The same, with groups of [`TypeId::STQ1_0`] side by side, as its first version had them.
    TencentFirst,
    /// Pestle of Doses AI.
    Pestle,
    /// Neutrino of Fermion Research.
    Neutrino,
}

impl Dialect {
    const ALL: [Dialect; 9] = [
        Dialect::Ggml,
        Dialect::BitnetCpp,
        Dialect::IkLlama,
        Dialect::Prism,
        Dialect::Fairy2i,
        Dialect::Tencent,
        Dialect::TencentFirst,
        Dialect::Pestle,
        Dialect::Neutrino,
    ];

    /// The value of [`KEY_DIALECT`].
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Ggml => "ggml",
            Dialect::BitnetCpp => "bitnet.cpp",
            Dialect::IkLlama => "ik_llama.cpp",
            Dialect::Prism => "prismml",
            Dialect::Fairy2i => "fairy2i",
            Dialect::Tencent => "tencent",
            Dialect::TencentFirst => "tencent-contiguous",
            Dialect::Pestle => "pestle",
            Dialect::Neutrino => "neutrino",
        }
    }

    /// One line for people.
    pub fn describe(self) -> &'static str {
        match self {
            Dialect::Ggml => "ggml's type numbers",
            Dialect::BitnetCpp => "bitnet.cpp's type numbers: 36 is i2_s, 37 i8_s, 38 tl1, 39 or 42 tl2",
            Dialect::IkLlama => "ik_llama.cpp's type numbers: 36 is i2_s, 134 and above are its own",
            Dialect::Prism => "PrismML's type numbers: 42 has groups of 128, 142 is pq2_0, 143 ptq1_0",
            Dialect::Fairy2i => {
                "the type numbers of the Fairy2i fork of llama.cpp: 42 has 64 complex weights in 20 bytes"
            }
            Dialect::Tencent => "Tencent's type numbers: 40 is q2_0c, 42 or 43 stq1_0",
            Dialect::TencentFirst => "Tencent's type numbers, with stq1_0 as in its first version: groups side by side",
            Dialect::Pestle => "Pestle's type numbers: 42 has groups of 128, 143 is g8_0",
            Dialect::Neutrino => "Neutrino's type numbers: 43 is fv5, 44 fv5b",
        }
    }

    /// Whose type this is; ggml's as long as nothing else is known.
    pub fn of(ty: TypeId) -> Dialect {
        let mut meanings = CONTESTED.iter().flat_map(|c| c.meanings);
        let known = meanings.find(|m| m.ty == ty).map(|m| m.dialect);
        let fork = match ty {
            TypeId::FAIRY2I_TILE64 => Some(Dialect::Fairy2i),
            TypeId::STQ1_0_CONTIGUOUS => Some(Dialect::TencentFirst),
            _ => None,
        };
        known
            .or(fork)
            .or_else(|| of_ik(ty.0 & 0xFFFF).filter(|of_ik| of_ik.ty == ty).map(|of_ik| of_ik.dialect))
            .unwrap_or_default()
    }

    fn from_key(meta: &Metadata) -> Result<Option<Dialect>, GgufError> {
        let Some(name) = meta.get_str(KEY_DIALECT)? else {
            return Ok(None);
        };
        match Dialect::ALL.into_iter().find(|d| d.name() == name) {
            Some(dialect) => Ok(Some(dialect)),
            None => Err(GgufError::key(
                KEY_DIALECT,
                ErrorKind::UnknownDialect { found: name.to_owned(), known: Dialect::ALL.map(Dialect::name).join(", ") },
            )),
        }
    }

    /// True if a type number of `other` means the same here.
    fn speaks(self, other: Dialect) -> bool {
        // ik_llama.cpp took over I2_S, and Pestle what PrismML began with.
        let taken = [(IK, BITNET), (Dialect::TencentFirst, TENCENT), (PESTLE, PRISM)];
        self == other || taken.contains(&(self, other))
    }
}

/// Possible meanings of an id.
struct Meaning {
    dialect: Dialect,
    ty: TypeId,
    name: &'static str,
    /// Weights and bytes of a block of a type that is not in the registry.
    block: Option<(u64, u64)>,
}

impl Meaning {
    const fn known(dialect: Dialect, ty: TypeId, name: &'static str) -> Meaning {
        Meaning { dialect, ty, name, block: None }
    }

    /// The removed repackings of `iq4_nl`.
    const fn removed(id: u32, name: &'static str) -> Meaning {
        Meaning { dialect: Dialect::Ggml, ty: TypeId(id), name, block: Some((32, 18)) }
    }

    fn size(&self, t: &TensorInfo) -> Option<u64> {
        let (columns, rows) = (t.columns(), t.rows());
        match self.block {
            Some((block, bytes)) => {
                (columns.is_multiple_of(block)).then(|| (columns / block).checked_mul(rows)?.checked_mul(bytes))?
            }
            None => self.ty.info()?.tensor_bytes(columns, rows),
        }
    }
}

/// An id with more than one meaning, or with one that only forks have.
struct Contested {
    id: u32,
    meanings: &'static [Meaning],
    /// More about who uses the id, for the refusal.
    note: &'static str,
}

impl Contested {
    /// ggml's meaning, if ggml has the type today.
    fn standard(&self) -> Option<&'static Meaning> {
        let ggml = self.meanings.iter().find(|m| m.dialect == Dialect::Ggml);
        ggml.filter(|m| m.block.is_none())
    }

    fn names(&self, show: impl Fn(&Meaning) -> String) -> String {
        let shown: Vec<String> = self.meanings.iter().map(show).collect();
        shown.join(" or ")
    }
}

const BITNET: Dialect = Dialect::BitnetCpp;
const PRISM: Dialect = Dialect::Prism;
const IK: Dialect = Dialect::IkLlama;
const TENCENT: Dialect = Dialect::Tencent;
const PESTLE: Dialect = Dialect::Pestle;
const NEUTRINO: Dialect = Dialect::Neutrino;

static CONTESTED: [Contested; 12] = [
    Contested {
        id: 36,
        meanings: &[
            Meaning::known(BITNET, TypeId::I2_S, "i2_s (bitnet.cpp)"),
            Meaning::removed(36, "iq4_nl_4_4 (removed from ggml)"),
        ],
        note: "",
    },
    Contested {
        id: 37,
        meanings: &[
            Meaning::known(BITNET, TypeId::I8_S, "i8_s (bitnet.cpp)"),
            Meaning::removed(37, "iq4_nl_4_8 (removed from ggml)"),
        ],
        note: "",
    },
    Contested {
        id: 38,
        meanings: &[
            Meaning::known(BITNET, TypeId::TL1, "tl1 (bitnet.cpp)"),
            Meaning::removed(38, "iq4_nl_8_8 (removed from ggml)"),
        ],
        note: "",
    },
    Contested {
        id: 39,
        meanings: &[
            Meaning::known(Dialect::Ggml, TypeId::MXFP4, "mxfp4 (ggml)"),
            Meaning::known(BITNET, TypeId::TL2, "tl2 (bitnet.cpp)"),
        ],
        note: "",
    },
    Contested {
        id: 40,
        meanings: &[
            Meaning::known(Dialect::Ggml, TypeId::NVFP4, "nvfp4 (ggml)"),
            Meaning::known(TENCENT, TypeId::Q2_0C, "q2_0c (Tencent)"),
        ],
        note: ", or stq1_0 with an integer as its scale or a type of vlut.cpp, which only the programs that made them read",
    },
    Contested {
        id: 42,
        meanings: &[
            Meaning::known(Dialect::Ggml, TypeId::Q2_0, "q2_0 (ggml)"),
            Meaning::known(PRISM, TypeId::Q2_0_G128, "q2_0 of groups of 128 (PrismML)"),
            Meaning::known(TENCENT, TypeId::STQ1_0, "stq1_0 (Tencent)"),
            Meaning::known(BITNET, TypeId::TL2, "tl2 (bitnet.cpp)"),
        ],
        note: ", or the private q2b type of Falcon3-1.58bit files, which only the program that made them reads, or fairy2i_tile64_v2 of the Fairy2i fork of llama.cpp, which is read with the keys of that fork alone",
    },
    Contested {
        id: 43,
        meanings: &[
            Meaning::known(TENCENT, TypeId::STQ1_0_43, "stq1_0 (Tencent)"),
            Meaning::known(NEUTRINO, TypeId::FV5, "fv5 (Neutrino)"),
        ],
        note: "",
    },
    Contested { id: 44, meanings: &[Meaning::known(NEUTRINO, TypeId::FV5B, "fv5b (Neutrino)")], note: "" },
    Contested { id: 134, meanings: &[Meaning::known(IK, TypeId::IQ1_BN, "iq1_bn (ik_llama.cpp)")], note: "" },
    Contested { id: 135, meanings: &[Meaning::known(IK, TypeId::IQ2_BN, "iq2_bn (ik_llama.cpp)")], note: "" },
    Contested { id: 142, meanings: &[Meaning::known(PRISM, TypeId::PQ2_0, "pq2_0 (PrismML)")], note: "" },
    Contested {
        id: 143,
        meanings: &[
            Meaning::known(PRISM, TypeId::PTQ1_0, "ptq1_0 (PrismML)"),
            Meaning::known(PESTLE, TypeId::G8_0, "g8_0 (Pestle)"),
        ],
        note: "",
    },
];

/// Type numbers that only ik_llama.cpp uses.
fn is_ik(id: u32) -> bool {
    of_ik(id).is_some() || matches!(id, 202..=399)
}

/// The meaning of a number that ik_llama.cpp alone uses, where trine knows the type.
fn of_ik(id: u32) -> Option<Meaning> {
    let ty = TypeId::of_ik(id)?;
    Some(Meaning::known(IK, ty, ty.info()?.name))
}

/// How a tensor of a certain size sits in the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// The file ends before it does.
    Short,
    /// The file goes on after it.
    Long,
    /// The tensor ends where the next one starts or the file ends.
    Exact,
}

/// The tensors of one contested id and the room there is for each.
struct Evidence<'a> {
    id: u32,
    tensors: &'a [TensorInfo],
    available: u64,
    alignment: u64,
}

impl<'a> Evidence<'a> {
    /// Tensors with another behind them, and the bytes up to it.
    fn inner(&self) -> impl Iterator<Item = (&'a TensorInfo, u64)> {
        let pairs = self.tensors.iter().zip(self.tensors.iter().skip(1));
        pairs.filter(|(t, _)| t.ty.0 == self.id).map(|(t, next)| (t, next.offset.saturating_sub(t.offset)))
    }

    /// The file's last tensor, if it is one of them, and the bytes up to the end of the file.
    fn last(&self) -> Option<(&'a TensorInfo, u64)> {
        let last = self.tensors.last().filter(|t| t.ty.0 == self.id)?;
        Some((last, self.available.saturating_sub(last.offset)))
    }

    fn padded(&self, meaning: &Meaning, t: &TensorInfo) -> Option<u64> {
        meaning.size(t)?.checked_next_multiple_of(self.alignment)
    }

    /// `None` when some tensor contradicts the meaning.
    fn fit(&self, meaning: &Meaning) -> Option<Fit> {
        if !self.inner().all(|(t, room)| self.padded(meaning, t) == Some(room)) {
            return None;
        }
        let Some((t, room)) = self.last() else {
            return Some(Fit::Exact);
        };
        Some(if room < meaning.size(t)? {
            Fit::Short
        } else if room > self.padded(meaning, t)? {
            Fit::Long
        } else {
            Fit::Exact
        })
    }

    /// A tensor to name in a refusal: the first that contradicts every meaning, or else the first.
    fn misfit(&self, contested: &Contested) -> Option<(&'a TensorInfo, u64)> {
        let all = || self.inner().chain(self.last());
        let fits = |t: &TensorInfo, room: u64| {
            let mut meanings = contested.meanings.iter();
            meanings.any(|m| self.padded(m, t) == Some(room))
        };
        all().find(|&(t, room)| !fits(t, room)).or_else(|| all().next())
    }
}

/// Gives the tensors, whose types are numbers as the file has them, the types they stand for, and tells
/// whose numbers they are. `available` is the size of the data section.
pub(super) fn assign(
    meta: &Metadata,
    tensors: &mut [TensorInfo],
    alignment: u64,
    available: u64,
) -> Result<Dialect, GgufError> {
    let stated = Dialect::from_key(meta)?;
    if stated == Some(Dialect::Fairy2i) || stated.is_none() && is_fairy2i_fork(meta) {
        let file_id = TypeId::FAIRY2I_TILE64.file_id();
        for t in tensors.iter_mut().filter(|t| t.ty.0 == file_id) {
            t.ty = TypeId::FAIRY2I_TILE64;
        }
        return Ok(Dialect::Fairy2i);
    }
    let mut found = if tensors.iter().any(|t| is_ik(t.ty.0)) { Dialect::IkLlama } else { Dialect::Ggml };
    for contested in &CONTESTED {
        if tensors.iter().all(|t| t.ty.0 != contested.id) {
            continue;
        }
        let evidence = Evidence { id: contested.id, tensors, available, alignment };
        let Some(meaning) = decide(contested, &evidence, stated, meta)? else {
            continue;
        };
        let ty = match (stated, meaning.ty) {
            (Some(Dialect::TencentFirst), TypeId::STQ1_0 | TypeId::STQ1_0_43) => TypeId::STQ1_0_CONTIGUOUS,
            (_, ty) => ty,
        };
        if ty.0 != contested.id {
            for t in tensors.iter_mut().filter(|t| t.ty.0 == contested.id) {
                t.ty = ty;
            }
        }
        if found == Dialect::Ggml {
            found = meaning.dialect;
        }
    }
    assign_ik(tensors, alignment, available);
    Ok(stated.unwrap_or(found))
}

/// Gives ik_llama.cpp's own numbers their types. One that some tensor contradicts stays a number: layouts have changed.
fn assign_ik(tensors: &mut [TensorInfo], alignment: u64, available: u64) {
    let mut ids: Vec<u32> = tensors.iter().map(|t| t.ty.0).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|id| CONTESTED.iter().all(|c| c.id != *id));
    for (id, meaning) in ids.into_iter().filter_map(|id| Some((id, of_ik(id)?))) {
        let evidence = Evidence { id, tensors, available, alignment };
        let alone = evidence.inner().next().is_none();
        let fits = evidence.fit(&meaning).is_some_and(|fit| !alone || fit != Fit::Long);
        for t in tensors.iter_mut().filter(|t| fits && t.ty.0 == id) {
            t.ty = meaning.ty;
        }
    }
}

/// The meaning of an id in this file; `None` leaves it a type that trine does not know.
fn decide(
    contested: &'static Contested,
    evidence: &Evidence<'_>,
    stated: Option<Dialect>,
    meta: &Metadata,
) -> Result<Option<&'static Meaning>, GgufError> {
    if let Some(stated) = stated {
        let of = |d: Dialect| contested.meanings.iter().find(|m| d.speaks(m.dialect));
        return Ok(of(stated).or_else(|| of(Dialect::Ggml)));
    }
    let standard = contested.standard();
    let alone = evidence.inner().next().is_none();
    let mut fits: Vec<(Fit, &Meaning)> = contested
        .meanings
        .iter()
        .filter_map(|m| Some((evidence.fit(m)?, m)))
        // One tensor, the last, and the file does not end with it: a file cut off in an ordinary type must
        // not pass as a smaller type, and any other number of bytes may be an unknown type's.
        .filter(|&(fit, m)| match standard {
            _ if !alone || fit == Fit::Exact => true,
            Some(_) => m.dialect == Dialect::Ggml,
            None => m.dialect == BITNET && is_bitnet(meta),
        })
        .collect();
    let Some(best) = fits.iter().map(|&(fit, _)| fit).max() else {
        let (Some(standard), Some((t, room))) = (standard, evidence.misfit(contested)) else {
            return Ok(None);
        };
        if contested.meanings.iter().all(|m| m.size(t).is_none()) {
            // The reader's own complaint about the width or the overflow says it better.
            return Ok(Some(standard));
        }
        let sizes = contested.names(|m| match m.size(t) {
            Some(size) => format!("{size} bytes as {}", m.name),
            None => format!("no whole number of bytes as {}", m.name),
        });
        let kind = ErrorKind::ForeignType { id: contested.id, room, sizes, note: contested.note };
        return Err(GgufError::tensor(&t.name, kind));
    };
    fits.retain(|&(fit, _)| fit == best);
    if let [(_, only)] = fits[..] {
        return Ok(Some(only));
    }
    let bitnet = fits.iter().find(|(_, m)| m.dialect == BITNET);
    match (standard, bitnet) {
        (Some(standard), _) => Ok(Some(standard)),
        (None, Some((_, bitnet))) if is_bitnet(meta) => Ok(Some(bitnet)),
        _ => {
            let (id, t) = (contested.id, evidence.misfit(contested));
            let names = contested.names(|m| m.name.to_owned());
            Err(GgufError::tensor(t.map_or("", |(t, _)| &t.name), ErrorKind::AmbiguousType { id, names }))
        }
    }
}

/// The key that all files of the Fairy2i fork of llama.cpp have, and trine's of the same architecture do not.
pub(crate) const FAIRY2I_SCHEMA: &str = "fairy2i.schema_version";

/// True if the Fairy2i fork of llama.cpp has written the file.
pub(crate) fn is_fairy2i_fork(meta: &Metadata) -> bool {
    let arch = meta.get_str("general.architecture");
    matches!(arch, Ok(Some("fairy2i"))) && meta.get(FAIRY2I_SCHEMA).is_some()
}

/// True if the architecture is one that bitnet.cpp runs.
fn is_bitnet(meta: &Metadata) -> bool {
    let arch = meta.get_str("general.architecture");
    matches!(arch, Ok(Some("bitnet" | "bitnet-25" | "bitnet-b1.58")))
}
