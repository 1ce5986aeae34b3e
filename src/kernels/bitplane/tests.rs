//! Every kernel against the canonical products, bit for bit.

use trine_formats::anyprec::{ApView, FixedLut, dot_f32, dot_i16, quantize_activations, words};
use trine_formats::gguf::Blob;
use trine_formats::types::num::{f16_to_f32, f32_to_f16};

use super::*;
use crate::testing::{Random, isas, same, skipped};
use crate::{AlignedBytes, Level};

const PATHS: [NumberPath; 2] = [NumberPath::F32, NumberPath::I16];

/// Prefetch distances, bytes, beyond the end of memory too; no bit depends on them.
const AHEADS: [usize; 4] = [0, 64, 8192, 1 << 20];

type Multiply = Box<dyn Fn(&PlaneRows<'_>, Arrangement, &[u8], usize, &mut [f32])>;

/// The kernels that this processor runs, among them those that it has better ones for.
fn kernels() -> Vec<(String, Isa, Multiply)> {
    let by_isa = |isa: Isa| -> (String, Isa, Multiply) {
        let run = move |rows: &PlaneRows<'_>, form, acts: &[u8], tokens, out: &mut [f32]| {
            multiply(isa, rows, form, acts, tokens, out);
        };
        (isa.to_string(), isa, Box::new(run))
    };
    let mut all: Vec<_> = isas().map(by_isa).collect();
    if !Isa::detect().has_gfni() {
        skipped("bits transposed by an instruction", "GFNI");
    }
    let plain: Vec<Isa> = isas().map(Isa::plain).collect();
    for (isa, more) in isas().map(|isa| (isa, "")).chain(plain.iter().map(|&isa| (isa, " plain"))) {
        if reads_packed(isa) {
            for ahead in AHEADS {
                let run = move |rows: &PlaneRows<'_>, form, acts: &[u8], tokens, out: &mut [f32]| {
                    multiply_packed(isa, rows, ahead, (form, acts), tokens, out);
                };
                all.push((format!("packed, {isa}{more}, {ahead} ahead"), isa, Box::new(run)));
            }
        }
    }
    for isa in plain.into_iter().filter(|isa| isa.has(Level::Avx2)) {
        let (name, _, run) = by_isa(isa);
        all.push((format!("{name} without gfni and vbmi"), isa, run));
    }
    all
}

/// From packed codes, where groups are whole blocks; in parts of several rows, as threads have them.
fn multiply_packed(
    isa: Isa,
    rows: &PlaneRows<'_>,
    ahead: usize,
    (form, acts): (Arrangement, &[u8]),
    tokens: usize,
    out: &mut [f32],
) {
    let count = rows.check(form, acts, tokens, out);
    if !rows.in_blocks() {
        return multiply(isa, rows, form, acts, tokens, out);
    }
    let path = match form {
        Arrangement::Floats => NumberPath::F32,
        _ => NumberPath::I16,
    };
    let held = Packed::of(isa, path, rows, count);
    let packed = packed::PackedRows { ahead, ..held.rows() };
    assert_eq!(packed.rows(), count);
    let at = count / 2 / packed::PAIR * packed::PAIR;
    for range in [0..at, at..count] {
        let out = &mut out[range.start * tokens..range.end * tokens];
        let part = packed.part(&range);
        packed::multiply(isa, &part, form, acts, tokens, out);
    }
}

/// Packed rows with the memory they stand in.
struct Packed {
    shape: packed::Shape,
    width: usize,
    lines: [AlignedBytes; 3],
    tables: AlignedBytes,
    scales: Vec<f32>,
}

impl Packed {
    fn of(isa: Isa, path: NumberPath, rows: &PlaneRows<'_>, count: usize) -> Packed {
        let shape = packed::Shape { columns: rows.columns, groups: rows.groups };
        let (width, pairs) = (rows.width(), count.next_multiple_of(packed::PAIR));
        // the leading bit, which is the first of the planes, is bit 0 of the packed codes
        let lines = packed::Kind::ALL.map(|kind| {
            if !kind.of(width) {
                return AlignedBytes::new(0);
            }
            let mut out = AlignedBytes::new(pairs * shape.row_bytes(kind));
            let planes = &rows.planes[kind.planes().start..width.min(kind.planes().end)];
            packed::pack(isa, kind, shape, planes, count, &mut out);
            out
        });
        let mut tables = AlignedBytes::new(pairs * shape.table_bytes(width));
        let mut scales = vec![1.0; count];
        packed::pack_tables(isa, path, rows, &mut tables, &mut scales);
        Packed { shape, width, lines, tables, scales }
    }

    fn rows(&self) -> packed::PackedRows<'_> {
        packed::PackedRows {
            shape: self.shape,
            width: self.width,
            lines: self.lines.each_ref().map(|lines| &lines[..]),
            tables: &self.tables,
            scales: &self.scales,
            ahead: 0,
        }
    }
}

/// Rows with all they need.
struct Matrix {
    columns: usize,
    groups: usize,
    planes: Vec<Vec<u8>>,
    lut: Vec<u8>,
}

impl Matrix {
    fn rows(&self) -> usize {
        self.planes[0].len() / (8 * words(self.columns))
    }

    /// Bits of the planes and of their padding at random; `centroid` draws a half float.
    fn random(
        random: &mut Random,
        (rows, columns, groups): (usize, usize, usize),
        width: usize,
        mut centroid: impl FnMut(&mut Random) -> u16,
    ) -> Matrix {
        let bytes = 8 * words(columns) * rows;
        Matrix {
            columns,
            groups,
            planes: (0..width).map(|_| random.bytes(bytes)).collect(),
            lut: (0..(rows * groups) << width).flat_map(|_| centroid(random).to_le_bytes()).collect(),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&PlaneRows<'_>) -> R) -> R {
        let planes: Vec<&[u8]> = self.planes.iter().map(|p| &p[..]).collect();
        f(&PlaneRows { columns: self.columns, groups: self.groups, planes: &planes, lut: &self.lut })
    }

    fn view(&self) -> ApView {
        ApView {
            width: self.planes.len() as u8,
            columns: self.columns,
            rows: self.rows(),
            groups: self.groups,
            planes: self.planes.iter().cloned().map(Blob::from_vec).collect(),
            lut: Blob::from_vec(self.lut.clone()),
            sparse: None,
        }
    }

    /// `[row][token]`.
    fn expected(&self, path: NumberPath, x: &[f32]) -> Vec<f32> {
        let view = self.view();
        let mut out = Vec::new();
        for row in 0..self.rows() {
            let entries = view.entries(row);
            for x in x.chunks_exact(self.columns) {
                out.push(match path {
                    NumberPath::F32 => dot_f32(view.dense_row(row), x),
                    NumberPath::I16 => {
                        let lut = FixedLut::new(view.row_lut(row));
                        let centroids = entries.iter().map(|&e| lut.centroids[e]);
                        dot_i16(centroids, lut.scale, &quantize_activations(x))
                    }
                });
            }
        }
        out
    }
}

/// All rows of `x` in the form for `tokens` of them.
fn arranged(form: Arrangement, isa: Isa, x: &[f32], columns: usize) -> AlignedBytes {
    let bytes = form.act_bytes(columns);
    let mut out = AlignedBytes::new(x.len() / columns * bytes);
    for (x, out) in x.chunks_exact(columns).zip(out.chunks_exact_mut(bytes)) {
        form.arrange(isa, x, out);
    }
    out
}

fn compare(m: &Matrix, x: &[f32], what: &str) {
    let tokens = x.len() / m.columns;
    for path in PATHS {
        let expected = m.expected(path, x);
        for (name, isa, multiply) in kernels() {
            let (shape, n) = ((m.columns, m.groups), tokens);
            let forms = [false, true].map(|packed| Arrangement::of(path, isa, n, packed, shape.0, shape.1));
            let compare = |form: Arrangement| {
                let acts = arranged(form, isa, x, m.columns);
                let mut out = vec![f32::from_bits(0x7FC1_2345); expected.len()];
                m.with(|rows| multiply(rows, form, &acts, tokens, &mut out));
                for (i, (a, b)) in out.iter().zip(&expected).enumerate() {
                    let (width, columns, groups) = (m.planes.len(), m.columns, m.groups);
                    assert!(
                        same(*a, *b),
                        "{name} {path:?} {form:?} {what}: {width} bits, {columns} columns, {groups} groups, row {}, token {} of {tokens}: {a:e} {:08x} is not {b:e} {:08x}",
                        i / tokens,
                        i % tokens,
                        a.to_bits(),
                        b.to_bits()
                    );
                }
            };
            compare(forms[0]);
            if forms[1] != forms[0] {
                compare(forms[1]);
            }
        }
    }
}

fn normal(random: &mut Random) -> u16 {
    f32_to_f16(random.float())
}

#[test]
fn kernels_give_the_canonical_products_of_any_shape() {
    let mut random = Random(1);
    for width in 1..=8 {
        for columns in [1, 5, 63, 64, 65, 130, 192, 256, 320, 512, 576, 577, 1000, 1088, 1536] {
            for (rows, tokens) in [(1, 1), (2, 2), (3, 5), (37, 1), (9, 3), (5, 4), (11, 6), (3, 8), (2, 15), (2, 17)] {
                let m = Matrix::random(&mut random, (rows, columns, 1), width, normal);
                let x: Vec<f32> = (0..columns * tokens).map(|_| random.float()).collect();
                compare(&m, &x, "shape");
            }
        }
    }
}

#[test]
fn kernels_give_the_canonical_products_of_groups() {
    let mut random = Random(2);
    for width in 1..=8 {
        // whole blocks, and groups that end inside one
        for (columns, groups) in [(128, 2), (1152, 2), (640, 5), (1536, 4), (768, 4), (96, 2), (200, 8), (3, 3)] {
            for (rows, tokens) in [(3, 1), (2, 4)] {
                let shape = (rows, columns, groups);
                let m = Matrix::random(&mut random, shape, width, normal);
                let x: Vec<f32> = (0..columns * tokens).map(|_| random.float()).collect();
                compare(&m, &x, "groups");
            }
        }
    }
}

#[test]
fn kernels_give_the_canonical_products_of_odd_tables() {
    let mut random = Random(3);
    type Draw = fn(&mut Random) -> u16;
    let draws: [(&str, Draw); 6] = [
        ("any bits", |r| r.bits() as u16),
        ("finite", |r| {
            let c = r.bits() as u16;
            if c & 0x7C00 == 0x7C00 { c & 0x83FF } else { c }
        }),
        ("subnormal", |r| r.bits() as u16 & 0x83FF),
        ("zeros", |r| r.bits() as u16 & 0x8000),
        ("infinity", |r| [0x7C00, 0x3C00][r.below(40).min(1)]),
        ("NaN", |r| [0x7E01, 0xB800][r.below(40).min(1)]),
    ];
    for (name, draw) in draws {
        for width in 1..=8 {
            for (columns, groups, tokens) in [(70, 1, 1), (576, 1, 1), (640, 2, 3), (96, 4, 2)] {
                let m = Matrix::random(&mut random, (9, columns, groups), width, draw);
                let x: Vec<f32> = (0..columns * tokens).map(|_| random.float()).collect();
                compare(&m, &x, name);
            }
        }
    }
}

#[test]
fn kernels_give_the_canonical_products_of_odd_activations() {
    let mut random = Random(4);
    for width in [3, 5, 6, 7, 8] {
        for columns in [64, 100, 576] {
            let m = Matrix::random(&mut random, (5, columns, 1), width, normal);
            for odd in [0.0, -0.0, 1e-40, -1e-44, 3e38, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let plain: Vec<f32> = (0..3 * columns).map(|_| random.float()).collect();
                compare(&m, &vec![odd; columns], "all odd");
                let mut x = plain.clone();
                x[random.below(columns)] = odd;
                compare(&m, &x, "one odd");
                x.truncate(columns);
                compare(&m, &x, "one odd");
            }
            // every magnitude there is, which the rounding of the quants has to take
            let wide: Vec<f32> = (0..columns).map(|_| f32::from_bits(random.bits() as u32 & 0xBFFF_FFFF)).collect();
            compare(&m, &wide, "wide");
            // products that vanish, of either sign
            let tiny: Vec<f32> = (0..columns).map(|_| f32::from_bits(random.bits() as u32 & 0x8000_0003)).collect();
            compare(&m, &tiny, "tiny");
        }
    }
}

#[test]
fn quants_are_rounded_to_even() {
    // 127 / 254 is a half: odd values lie between two quants
    let mut x: Vec<f32> = (0..64).map(|i| (2 * i - 63) as f32).collect();
    x[5] = 254.0;
    let expected = quantize_activations(&x);
    for isa in isas() {
        for form in [Arrangement::Bytes, Arrangement::Words] {
            let acts = arranged(form, isa, &x, 64);
            let value = |i: usize| match form {
                Arrangement::Bytes => acts[i] as i8,
                _ => acts[i / 4 * 4 + i % 4 / 2 * 64 + i % 2 * 2] as i8,
            };
            let values: Vec<i8> = (0..64).map(value).collect();
            assert_eq!(values, expected.values, "{isa} {form:?}");
        }
    }
}

#[test]
fn packed_codes_are_the_bits_of_the_planes() {
    // what the layout says, bit by bit
    let mut random = Random(7);
    let (rows, columns, groups) = (3, 640, 2);
    let m = Matrix::random(&mut random, (rows, columns, groups), 8, normal);
    for isa in isas().chain(isas().map(Isa::plain)).filter(|&isa| reads_packed(isa)) {
        let held = m.with(|all| Packed::of(isa, NumberPath::I16, all, rows));
        is_packed(&m, &held.rows(), isa);
    }
}

fn is_packed(m: &Matrix, packed: &packed::PackedRows<'_>, isa: Isa) {
    let (rows, columns, groups) = (m.rows(), m.columns, m.groups);
    let blocks = columns / 64 / groups;
    for row in 0..rows {
        for column in 0..columns {
            let (block, byte) = (column / 64, column % 64);
            let (group, block) = (block / blocks, block % blocks);
            let run = row / 2 * groups + group;
            let at = |lines: usize, line: usize| ((run * lines + line) * 2 + row % 2) * 64 + byte;
            let nibbles = packed.lines[0][at(blocks.div_ceil(2), block / 2)];
            let two_bits = at(blocks.div_ceil(4), block / 4);
            let middle = packed.lines[1][two_bits] >> [4, 0, 6, 2][block % 4] & 3;
            let last = packed.lines[2][two_bits] >> [6, 2, 4, 0][block % 4] & 3;
            let code = nibbles >> (4 * (block % 2)) & 15 | middle << 4 | last << 6;
            for (plane, bytes) in m.planes.iter().enumerate() {
                let bit = bytes[row * columns / 8 + column / 8] >> (column % 8) & 1;
                assert_eq!(code >> plane & 1, bit, "{isa}: {row} {column} {plane}");
            }
        }
    }
}

#[test]
fn values_of_half_floats_are_exact() {
    // the two ways from the tables to single precision agree
    let m = Matrix {
        columns: 64,
        groups: 1,
        planes: vec![vec![0; 8]],
        lut: [0x3555u16, 0xBEEF].iter().flat_map(|c| c.to_le_bytes()).collect(),
    };
    let mut x = vec![0.0; 64];
    x[7] = 1.0;
    for (_, isa, multiply) in kernels() {
        let acts = arranged(Arrangement::Floats, isa, &x, 64);
        let mut out = [0.0];
        m.with(|rows| multiply(rows, Arrangement::Floats, &acts, 1, &mut out));
        assert_eq!(out[0].to_bits(), f16_to_f32(0x3555).to_bits());
    }
}
