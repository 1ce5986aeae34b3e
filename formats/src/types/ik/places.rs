//! The types that trine encodes: which values their groups may have, and where these and the codes stand in a block.

use super::super::TypeId;
use super::super::grid::{Grid, Levels, Pairs, Step};
use super::super::k_block::BLOCK as WIDEST;
use super::forms::{BlockFormat, IQ2, IQ3, IQ4, IQ5, IQ6, POINTS, form, scale_of};
use super::forms::{second_of_16, second_of_bytes, second_of_iq2_ks, second_of_iq3_ks};
use super::levels::{self, Nearest, Points};

/// The scale of a group as a multiple of the scale of the block or the row, and the half of the table that it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Choice {
    pub multiple: i32,
    pub second: bool,
}

/// The multiples that a scale may be: from `low` to `high` in steps of `step`.
#[derive(Clone, Copy)]
pub(super) struct Multiples {
    pub low: i32,
    pub high: i32,
    pub step: i32,
}

/// The values of a type's codes, in units of a group's scale.
#[derive(Clone, Copy)]
pub(super) enum Book {
    /// A level for each weight: the nearest ones, in the first and in the second half of the table.
    Levels(&'static [Nearest; 2]),
    /// A point for two weights.
    Points(&'static Points),
}

/// Places of one type.
pub(super) struct Places {
    pub id: TypeId,
    pub book: Book,
    pub multiples: Multiples,
    /// Writes the choices of all groups of a block.
    put: fn(&[Choice], &mut [u8]),
    /// Writes the codes of all weights of a block, or of all pairs of weights.
    pub place: fn(&[u8], &mut [u8]),
}

impl Places {
    /// Sizes and readers of the type.
    pub const fn form(&self) -> &'static BlockFormat {
        form(self.id)
    }

    /// Writes the choices of all groups into a block and leaves its scale and its codes.
    pub fn put(&self, choices: &[Choice], block: &mut [u8]) {
        (self.put)(choices, block);
    }
}

const fn places(
    id: TypeId,
    book: Book,
    (low, high, step): (i32, i32, i32),
    put: fn(&[Choice], &mut [u8]),
    place: fn(&[u8], &mut [u8]),
) -> Places {
    Places { id, book, multiples: Multiples { low, high, step }, put, place }
}

static PLACES: [Places; 10] = [
    places(
        TypeId::IQ2_K,
        Book::Levels(&levels::IQ2),
        (-8, 7, 1),
        |choices, b| {
            put_seconds(choices, &mut b[2..4]);
            put_nibbles(choices, |c| c.multiple + 8, low_first, &mut b[4..12]);
        },
        |codes, b| put_pairs(codes, &mut b[12..76]),
    ),
    places(
        TypeId::IQ3_K,
        Book::Levels(&levels::IQ3),
        (-31, 31, 2),
        |choices, b| {
            put_seconds(choices, &mut b[2..4]);
            put_bits(choices.iter().map(|c| c.multiple < 0), &mut b[4..6]);
            put_nibbles(choices, |c| (c.multiple.abs() - 1) / 2, low_first, &mut b[6..14]);
        },
        |codes, b| {
            put_pairs(codes, &mut b[14..78]);
            put_high(codes, 2, &mut b[78..110]);
        },
    ),
    places(TypeId::IQ4_K, Book::Levels(&levels::IQ4), (-32, 31, 1), put_six_bits, |codes, b| {
        put_halves_of_32(codes, &mut b[16..144]);
    }),
    places(TypeId::IQ5_K, Book::Levels(&levels::IQ5), (-32, 31, 1), put_six_bits, |codes, b| {
        put_halves_of_64(codes, &mut b[16..144]);
        put_high(codes, 4, &mut b[144..176]);
    }),
    places(
        TypeId::IQ6_K,
        Book::Levels(&levels::IQ6),
        (-127, 127, 1),
        |choices, b| {
            put_seconds(choices, &mut b[2..4]);
            b[4..20].iter_mut().zip(choices).for_each(|(b, c)| *b = c.multiple as i8 as u8);
        },
        |codes, b| {
            put_halves_of_64(codes, &mut b[20..148]);
            b[148..212].fill(0);
            for (w, code) in codes.iter().enumerate() {
                b[148 + 32 * (w / 128) + w % 32] |= (code >> 4) << (2 * (w / 32 % 4));
            }
        },
    ),
    places(TypeId::IQ4_KS, Book::Levels(&levels::IQ4), (-127, 127, 2), put_bytes, |codes, b| {
        put_halves_of_32(codes, &mut b[8..136]);
    }),
    places(TypeId::IQ5_KS, Book::Levels(&levels::IQ5), (-127, 127, 2), put_bytes, |codes, b| {
        put_halves_of_64(codes, &mut b[8..136]);
        put_high(codes, 4, &mut b[136..168]);
    }),
    places(
        TypeId::IQ2_KS,
        Book::Levels(&levels::IQ2),
        (-16, 15, 1),
        |choices, b| {
            put_seconds(choices, &mut b[0..1]);
            put_bits(choices.iter().map(|c| c.multiple >= 0), &mut b[1..2]);
            put_nibbles(choices, |c| c.multiple + 16, low_first, &mut b[2..6]);
        },
        |codes, b| put_pairs(codes, &mut b[6..70]),
    ),
    places(
        TypeId::IQ3_KS,
        Book::Levels(&levels::IQ3),
        (-16, 15, 1),
        |choices, b| {
            put_bits(choices.iter().map(|c| c.multiple >= 0), &mut b[0..1]);
            put_seconds(choices, &mut b[1..2]);
            put_nibbles(choices, |c| c.multiple + 16, upper_last, &mut b[2..6]);
        },
        |codes, b| {
            put_pairs(codes, &mut b[6..70]);
            put_high(codes, 2, &mut b[70..102]);
        },
    ),
    places(
        TypeId::IQ2_KL,
        Book::Points(&levels::POINTS),
        (-32, 31, 1),
        |choices, b| {
            b[0..2].fill(0);
            for (g, c) in choices.iter().enumerate() {
                b[g / 4] |= ((c.multiple + 32) as u8 >> 4) << (2 * (g % 4));
            }
            put_nibbles(choices, |c| c.multiple + 32, upper_last, &mut b[2..6]);
        },
        place_points,
    ),
];

/// The places of a type that trine encodes.
///
/// # Panics
/// When it does not.
pub(super) const fn places_of(id: TypeId) -> &'static Places {
    let mut i = 0;
    while i < PLACES.len() {
        if PLACES[i].id.0 == id.0 {
            return &PLACES[i];
        }
        i += 1;
    }
    panic!("a type that is not encoded")
}

/// The codes of a type under scales that are decided: a function of its number, of the reader of its halves and of the
/// table.
const fn grid<const ID: u32>(table: &'static [i8], steps: fn(&[u8], &mut [Step])) -> Grid {
    let places = const { places_of(TypeId(ID)) };
    Grid { group: WIDEST / places.form().groups, levels: Levels::Halves(table), steps, place: places.place }
}

/// Reads the steps of a block: of types whose scale stands before the row in units of that.
fn steps<const ID: u32>(block: &[u8], steps: &mut [Step], second: fn(&[u8], usize) -> bool) {
    let form = const { form(TypeId(ID)) };
    let d = scale_of(form, 1.0, block);
    for (g, step) in steps.iter_mut().enumerate() {
        *step = Step { scale: d * (form.scale)(block, g) as f32, offset: 0.0, second: second(block, g) };
    }
}

macro_rules! grids {
    ($($name:ident = $table:ident, $second:ident;)*) => { $(
        #[allow(missing_docs, reason = "the names are the types'")]
        pub static $name: Grid = grid::<{ TypeId::$name.0 }>(&$table, |block, all| {
            steps::<{ TypeId::$name.0 }>(block, all, $second);
        });
    )* };
}

/// The grids of the types of levels.
pub(in super::super) mod grids {
    use super::*;

    grids! {
        IQ2_K = IQ2, second_of_16;
        IQ3_K = IQ3, second_of_16;
        IQ4_K = IQ4, second_of_16;
        IQ5_K = IQ5, second_of_16;
        IQ6_K = IQ6, second_of_16;
        IQ4_KS = IQ4, second_of_bytes;
        IQ5_KS = IQ5, second_of_bytes;
        IQ2_KS = IQ2, second_of_iq2_ks;
        IQ3_KS = IQ3, second_of_iq3_ks;
    }

    /// The points of IQ2_KL under scales that are decided.
    pub static IQ2_KL: Pairs = Pairs {
        group: 32,
        points: &POINTS,
        steps: |block, all| steps::<{ TypeId::IQ2_KL.0 }>(block, all, |_, _| false),
        place: place_points,
    };
}

/// Writes bits, the lowest of a byte first.
fn put_bits(bits: impl Iterator<Item = bool>, bytes: &mut [u8]) {
    bytes.fill(0);
    for (i, bit) in bits.enumerate() {
        bytes[i / 8] |= u8::from(bit) << (i % 8);
    }
}

/// Writes a bit for each group that uses the second half of the table.
fn put_seconds(choices: &[Choice], bytes: &mut [u8]) {
    put_bits(choices.iter().map(|c| c.second), bytes);
}

/// The byte and the half of it of group `g`, two groups to a byte.
fn low_first(g: usize) -> (usize, usize) {
    (g / 2, g % 2)
}

/// The same where the lower halves of four bytes come first.
fn upper_last(g: usize) -> (usize, usize) {
    (g % 4, g / 4)
}

/// Writes the lowest four bits of a number of each group.
fn put_nibbles(choices: &[Choice], of: fn(&Choice) -> i32, at: fn(usize) -> (usize, usize), bytes: &mut [u8]) {
    bytes.fill(0);
    for (g, choice) in choices.iter().enumerate() {
        let (byte, half) = at(g);
        bytes[byte] |= (of(choice) as u8 & 15) << (4 * half);
    }
}

/// Writes halves and six-bit scales: four bytes of their upper bits, then eight of the lower.
fn put_six_bits(choices: &[Choice], b: &mut [u8]) {
    put_seconds(choices, &mut b[2..4]);
    b[4..8].fill(0);
    for (g, choice) in choices.iter().enumerate() {
        b[4 + g / 4] |= ((choice.multiple + 32) as u8 >> 4) << (2 * (g % 4));
    }
    put_nibbles(choices, |c| c.multiple + 32, low_first, &mut b[8..16]);
}

/// Writes bytes of odd scales whose lowest bit is the half.
fn put_bytes(choices: &[Choice], b: &mut [u8]) {
    for (b, choice) in b.iter_mut().zip(choices) {
        *b = (choice.multiple + 127) as u8 | u8::from(choice.second);
    }
}

/// Writes the lowest two bits of codes, as in Q2_K.
fn put_pairs(codes: &[u8], qs: &mut [u8]) {
    qs.fill(0);
    for (w, code) in codes.iter().enumerate() {
        qs[32 * (w / 128) + w % 32] |= (code & 3) << (2 * (w / 32 % 4));
    }
}

/// Writes the lowest four bits of codes, as in IQ4_XS.
fn put_halves_of_32(codes: &[u8], qs: &mut [u8]) {
    qs.fill(0);
    for (w, code) in codes.iter().enumerate() {
        qs[16 * (w / 32) + w % 16] |= (code & 15) << (4 * (w / 16 % 2));
    }
}

/// The same as in Q4_K.
fn put_halves_of_64(codes: &[u8], qs: &mut [u8]) {
    qs.fill(0);
    for (w, code) in codes.iter().enumerate() {
        qs[32 * (w / 64) + w % 32] |= (code & 15) << (4 * (w / 32 % 2));
    }
}

/// Writes bit number `bit` of codes, as in Q5_K.
fn put_high(codes: &[u8], bit: u32, qh: &mut [u8]) {
    qh.fill(0);
    for (w, code) in codes.iter().enumerate() {
        qh[w % 32] |= (code >> bit & 1) << (w / 32);
    }
}

/// Writes the numbers of the points of IQ2_KL.
fn place_points(points: &[u8], b: &mut [u8]) {
    b[6..86].fill(0);
    for (pair, point) in points.iter().enumerate() {
        let (g, m) = (pair / 16, pair % 16);
        b[6 + 16 * (g / 2) + m] |= (point & 15) << (4 * (g % 2));
        b[70 + m] |= (point >> 4) << g;
    }
}
