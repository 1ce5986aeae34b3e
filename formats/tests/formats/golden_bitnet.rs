//! I2_S, TL1 and TL2 against what bitnet.cpp's own code packed, quantized and multiplied (testdata/bitnet).
//! Compared as bits. Integers are exact here: where the reference's 16-bit sums wrap, trine has the true sum.

use std::collections::BTreeMap;

use trine_formats::types::i2_s::Interleave;
use trine_formats::types::ternary::{
    ActScale, Packing, TAIL, TernaryData, Tiles, dot, dot_codes, quantize_i2_s, quantize_tl, tail, ternarize,
};
use trine_formats::types::{tl1, tl2};
use trine_testkit::{read, testdata};

/// The scale of all cases but one, which has 1.
const SCALE: f32 = 0.0371;

struct Case {
    name: String,
    kind: String,
    /// M, K, N and, for TL, BM, BK, bm.
    sizes: BTreeMap<String, usize>,
    arrays: BTreeMap<String, Vec<u8>>,
}

impl Case {
    fn size(&self, name: &str) -> usize {
        self.sizes[name]
    }

    fn has(&self, name: &str) -> bool {
        self.arrays.contains_key(name)
    }

    fn bytes(&self, name: &str) -> &[u8] {
        &self.arrays[name]
    }

    fn words(&self, name: &str) -> impl Iterator<Item = [u8; 4]> {
        let (words, rest) = self.bytes(name).as_chunks();
        assert!(rest.is_empty());
        words.iter().copied()
    }

    fn i8s(&self, name: &str) -> Vec<i8> {
        self.bytes(name).iter().map(|&b| b as i8).collect()
    }

    fn i32s(&self, name: &str) -> Vec<i32> {
        self.words(name).map(i32::from_le_bytes).collect()
    }

    fn f32s(&self, name: &str) -> Vec<f32> {
        self.words(name).map(f32::from_le_bytes).collect()
    }

    fn weights(&self) -> Vec<i8> {
        self.i8s("weights_ternary_i8")
    }

    fn scale(&self) -> f32 {
        if self.name == "i2s_k6912" { 1.0 } else { SCALE }
    }

    fn tiles(&self) -> Tiles {
        let size = |name| self.size(name) as u32;
        Tiles::new(size("BM"), size("BK"), size("bm"))
    }

    /// The tensor's data as the file has it: what the converter packed, padding, scale, zeros.
    fn tl_data(&self) -> Vec<u8> {
        let mut data = self.bytes("packed_u8").to_vec();
        data.resize(data.len().next_multiple_of(TAIL), 0);
        data.extend(self.scale().to_le_bytes());
        data.extend([0; TAIL - 4]);
        data
    }
}

fn cases(kind: &str) -> Vec<Case> {
    let dir = testdata("bitnet");
    let index = std::fs::read_to_string(dir.join("index.txt")).unwrap();
    let mut cases: Vec<Case> = Vec::new();
    let mut file = Vec::new();
    for line in index.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        if let ["case", name, kind, sizes @ ..] = &fields[..] {
            let sizes = sizes.iter().map(|s| s.split_once('=').unwrap());
            let sizes = sizes.map(|(k, v)| (k.to_owned(), v.parse().unwrap()));
            file = read(&dir.join(format!("{name}.bin.gz")));
            cases.push(Case {
                name: name.to_string(),
                kind: kind.to_string(),
                sizes: sizes.collect(),
                arrays: BTreeMap::new(),
            });
        } else if let [name, _, offset, bytes] = fields[..] {
            let range = offset.parse().unwrap()..;
            let bytes: usize = bytes.parse().unwrap();
            let data = file[range][..bytes].to_vec();
            let case = cases.last_mut().unwrap();
            case.arrays.insert(name.to_owned(), data);
        } else {
            panic!("index line {line:?}");
        }
    }
    cases.retain(|c| c.kind == kind);
    assert_eq!(cases.len(), BTreeMap::from([("I2_S", 5), ("TL1", 3), ("TL2", 4)])[kind]);
    cases
}

/// Both directions of one layout.
fn check_layout(case: &Case, packing: Packing, data: &[u8]) {
    let (columns, rows) = (case.size("K"), case.size("M"));
    let name = &case.name;
    let weights = case.weights();
    let packed = packing.pack(columns, rows, case.scale(), &weights).unwrap();
    let differs = packed.iter().zip(data).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{name}: first byte that differs");
    assert_eq!(packed.len(), data.len(), "{name}");
    let info = packing.type_id().info().unwrap();
    let size = info.tensor_bytes(columns as u64, rows as u64);
    assert_eq!(size, Some(data.len() as u64), "{name}");

    let tensor = TernaryData::new(packing, columns, rows, data).unwrap();
    assert_eq!(tensor.scale().to_bits(), case.scale().to_bits(), "{name}");
    assert_eq!(tensor.codes().unwrap(), weights, "{name}");
    // Any rows on their own.
    for first in 0..rows {
        let end = (first + 3).min(rows);
        let mut some = vec![9; (end - first) * columns];
        tensor.unpack_rows(first..end, &mut some).unwrap();
        assert_eq!(some, weights[first * columns..end * columns], "{name}");
    }

    // The same from the floats that the weights stand for.
    let x: Vec<f32> = weights.iter().map(|&c| f32::from(c) * case.scale()).collect();
    let mut codes = vec![9; x.len()];
    let scale = ternarize(&x, &mut codes);
    assert_eq!(scale.to_bits(), case.scale().to_bits(), "{name}");
    assert_eq!(codes, weights, "{name}");
}

#[test]
fn i2_s_layouts() {
    for case in cases("I2_S") {
        for (interleave, array) in [(Interleave::Usual, "packed_x86_128"), (Interleave::Arm64, "packed_arm_64")] {
            check_layout(&case, Packing::I2S(interleave), case.bytes(array));
        }
    }
}

#[test]
fn tl_layouts() {
    for case in cases("TL1") {
        check_layout(&case, Packing::Tl1(case.tiles()), &case.tl_data());
    }
    for case in cases("TL2") {
        check_layout(&case, Packing::Tl2(case.tiles()), &case.tl_data());
    }
}

/// The activation rows of a case, quantized.
fn quantized(case: &Case, quantize: fn(&[f32], &mut [i8]) -> ActScale) -> Vec<(Vec<i8>, ActScale)> {
    let x = case.f32s("activations_f32");
    x.chunks(case.size("K"))
        .map(|x| {
            let mut q = vec![99; x.len()];
            let act = quantize(x, &mut q);
            (q, act)
        })
        .collect()
}

#[test]
fn i2_s_activations() {
    for case in cases("I2_S") {
        let (q, a) = (case.i8s("act_q_i8"), case.f32s("act_scale_f32"));
        let sums = case.i32s("act_sum_i32");
        let got = quantized(&case, quantize_i2_s);
        assert_eq!(got.len(), case.size("N"));
        for (n, (row, act)) in got.iter().enumerate() {
            let name = format!("{} row {n}", case.name);
            let columns = case.size("K");
            assert_eq!(act.a.to_bits(), a[n].to_bits(), "{name}");
            assert_eq!(row[..], q[n * columns..][..columns], "{name}");
            assert_eq!(act.sum, sums[n], "{name}");
        }
    }
}

/// Built by gcc the same source fuses the product with the rounding. That is another format.
#[test]
fn products_are_rounded_before_they_become_integers() {
    let all = cases("I2_S");
    let case = all.iter().find(|c| c.has("act_q_gcc_fma_i8")).unwrap();
    let fused = case.i8s("act_q_gcc_fma_i8");
    let got = quantized(case, quantize_i2_s);
    let q = got.iter().flat_map(|(q, _)| q);
    assert_eq!(q.zip(&fused).filter(|(a, b)| a != b).count(), 1020);
}

#[test]
fn i2_s_products() {
    for case in cases("I2_S") {
        let (columns, rows) = (case.size("K"), case.size("M"));
        let (d, y) = (case.i32s("code_dot_exact_i32"), case.f32s("out_exact_f32"));
        let weights = case.weights();
        for (n, (q, act)) in quantized(&case, quantize_i2_s).iter().enumerate() {
            for (m, w) in weights.chunks(columns).enumerate() {
                let at = n * rows + m;
                let name = format!("{} row {m}, activation row {n}", case.name);
                assert_eq!(dot_codes(w, q), d[at], "{name}");
                assert_eq!(dot(w, q), d[at] - act.sum, "{name}");
                let got = tail(d[at], act.sum, act.a, case.scale());
                assert_eq!(got.to_bits(), y[at].to_bits(), "{name}");
                // Without the detour over D, as TL1 and TL2 have it.
                let got = tail(dot(w, q), 0, act.a, case.scale());
                assert_eq!(got.to_bits(), y[at].to_bits(), "{name}");
            }
        }
    }
}

/// The recorded wrapped sums differ from the exact ones that the test above holds trine to.
#[test]
fn sums_do_not_wrap() {
    let all = cases("I2_S");
    let case = all.iter().find(|c| c.has("code_dot_avx2_wrapping_i32")).unwrap();
    let exact = case.i32s("code_dot_exact_i32");
    assert_eq!(exact, case.i32s("code_dot_neon_dotprod_i32"));
    let wrapped = case.i32s("code_dot_avx2_wrapping_i32");
    let differ = exact.iter().zip(&wrapped).filter(|(a, b)| a != b);
    assert_eq!(differ.count(), 6);
}

/// Sums of the weights behind each index with the quants of a group, in two byte planes.
fn lut_bytes<const G: usize>(weights: fn(u8) -> Option<[i8; G]>, q: &[i8], high_first: bool) -> Vec<Option<u8>> {
    let mut planes = [[None; 16]; 2];
    for index in 0..16 {
        let Some(w) = weights(index) else { continue };
        let [low, high] = (dot(&w, q) as i16).to_le_bytes();
        let bytes = if high_first { [high, low] } else { [low, high] };
        planes[0][usize::from(index)] = Some(bytes[0]);
        planes[1][usize::from(index)] = Some(bytes[1]);
    }
    planes.concat()
}

/// Compares the indices in use with a recorded table of one activation row.
fn check_lut(name: &str, want: &[u8], got: impl Iterator<Item = Vec<Option<u8>>>) {
    let got: Vec<Option<u8>> = got.flatten().collect();
    assert_eq!(got.len(), want.len(), "{name}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        if let Some(got) = got {
            assert_eq!(got, want, "{name}: byte {i}");
        }
    }
}

fn check_tl(case: &Case) {
    let (columns, rows) = (case.size("K"), case.size("M"));
    let (q, a) = (case.i32s("act_q_i32_nan_as_0"), case.f32s("act_scale_f32"));
    let (c, y) = (case.i32s("int_sum_exact_i32"), case.f32s("out_f32"));
    let weights = case.weights();
    for (n, (row, act)) in quantized(case, quantize_tl).iter().enumerate() {
        let name = format!("{} activation row {n}", case.name);
        assert_eq!(act.a.to_bits(), a[n].to_bits(), "{name}");
        let wide: Vec<i32> = row.iter().map(|&q| q.into()).collect();
        assert_eq!(wide, q[n * columns..][..columns], "{name}");
        assert_eq!(act.sum, wide.iter().sum::<i32>(), "{name}");
        let zero = act.a.is_infinite();
        for (m, w) in weights.chunks(columns).enumerate() {
            let (at, got) = (n * rows + m, dot(w, row));
            assert_eq!(got, c[at], "{name} row {m}");
            let got = tail(got, 0, act.a, case.scale());
            if zero {
                assert_eq!(got.to_bits(), 0.0f32.to_bits(), "{name} row {m}");
                assert_eq!(y[at], 0.0, "{name} row {m}");
            } else {
                assert_eq!(got.to_bits(), y[at].to_bits(), "{name} row {m}");
            }
        }
        if !zero {
            check_tables(case, n, row);
        }
    }
}

fn check_tables(case: &Case, n: usize, q: &[i8]) {
    let name = format!("{} activation row {n}", case.name);
    let per_row = |array: &str| {
        let bytes = case.bytes(array);
        let len = bytes.len() / case.size("N");
        bytes[n * len..][..len].to_vec()
    };
    if case.kind == "TL1" {
        let pairs = q.chunks(2).map(|q| lut_bytes(tl1::pair, q, true));
        return check_lut(&name, &per_row("lut_i8"), pairs);
    }
    let (columns, bk) = (case.size("K"), case.size("BK"));
    let three_k = columns / bk * bk;
    let triples = q[..three_k].chunks(3);
    check_lut(&name, &per_row("lut3_i8"), triples.map(|q| lut_bytes(tl2::triple, q, false)));
    let pairs = q[three_k..].chunks(2);
    check_lut(&name, &per_row("lut2_i8"), pairs.map(|q| lut_bytes(tl1::pair, q, false)));
    let rows = case.size("M");
    let three = &case.i32s("int_sum_three_i32")[n * rows..][..rows];
    for (w, want) in case.weights().chunks(columns).zip(three) {
        assert_eq!(dot(&w[..three_k], &q[..three_k]), *want, "{name}");
    }
}

#[test]
fn tl1_products() {
    cases("TL1").iter().for_each(check_tl);
}

#[test]
fn tl2_products() {
    cases("TL2").iter().for_each(check_tl);
}
