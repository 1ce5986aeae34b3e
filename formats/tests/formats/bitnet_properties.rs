//! Properties of I2_S, TL1 and TL2 for any shape, tiles, weights and activations.

use proptest::prelude::*;
use trine_formats::types::i2_s::Interleave;
use trine_formats::types::ternary::{
    ActScale, Packing, TernaryData, TernaryError, Tiles, dot, dot_codes, quantize_i2_s, quantize_tl, tail, ternarize,
};
use trine_formats::types::{tl1, tl2};

/// A matrix that all three formats can hold, with tiles for two of them.
#[derive(Debug, Clone)]
struct Matrix {
    rows: usize,
    columns: usize,
    tl1: Tiles,
    tl2: Tiles,
    scale: f32,
    codes: Vec<i8>,
}

impl Matrix {
    fn packings(&self) -> [Packing; 4] {
        [
            Packing::I2S(Interleave::Usual),
            Packing::I2S(Interleave::Arm64),
            Packing::Tl1(self.tl1),
            Packing::Tl2(self.tl2),
        ]
    }

    fn pack(&self, packing: Packing) -> Vec<u8> {
        packing.pack(self.columns, self.rows, self.scale, &self.codes).unwrap()
    }

    fn weights(&self, packing: Packing) -> (Vec<i8>, f32) {
        let data = self.pack(packing);
        let read = TernaryData::new(packing, self.columns, self.rows, &data).unwrap();
        (read.codes().unwrap(), read.scale())
    }
}

/// Tile sizes that divide `n`, of the smallest up.
fn divisors(n: usize, unit: usize) -> Vec<u32> {
    let all = (1..=n / unit).map(|i| i * unit);
    all.filter(|&d| n.is_multiple_of(d)).map(|d| d as u32).collect()
}

fn tl2_columns(columns: usize) -> Vec<u32> {
    let all = (1..=columns / 24).map(|i| i * 24);
    all.filter(|bk| (columns % bk).is_multiple_of(32) && columns % bk <= 256).map(|bk| bk as u32).collect()
}

prop_compose! {
    fn matrix()(
        rows in 1..=6usize, columns in 2..=8usize, pick in any::<[u16; 4]>(), seed in any::<u64>(),
        scale in prop_oneof![Just(1.0f32), Just(0.0371), 1e-6f32..1e6],
    ) -> Matrix {
        let (rows, columns) = (32 * rows, 128 * columns);
        let of = |list: Vec<u32>, n: usize| list[usize::from(pick[n]) % list.len()];
        let micro = if pick[3].is_multiple_of(2) && rows.is_multiple_of(64) { 64 } else { 32 };
        let tl1 = Tiles::new(
            of(divisors(rows, micro), 0),
            of(divisors(columns, 256 / micro), 1),
            micro as u32,
        );
        let tl2 = Tiles::new(of(divisors(rows, 32), 2), of(tl2_columns(columns), 3), 32);
        let mut state = seed;
        let codes = (0..rows * columns).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 33) % 3) as i8 - 1
        }).collect();
        Matrix { rows, columns, tl1, tl2, scale, codes }
    }
}

fn activations(columns: usize, seed: u64, kind: u8) -> Vec<f32> {
    let mut state = seed | 1;
    (0..columns)
        .map(|i| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = (state >> 40) as f32 / 8_388_608.0 - 1.0;
            match kind % 5 {
                0 => uniform,
                1 => uniform * uniform * uniform * 1e4,
                2 => uniform.max(0.0) * 1e-3,
                3 => (state >> 57) as f32 - 63.5,
                _ => {
                    if i == columns / 2 {
                        -3.4e38
                    } else {
                        uniform
                    }
                }
            }
        })
        .collect()
}

/// The outputs of a matrix for one activation row, as bits.
fn product(codes: &[i8], scale: f32, q: &[i8], act: ActScale, i2_s: bool) -> Vec<u32> {
    let rows = codes.chunks(q.len());
    rows.map(|w| {
        let y = if i2_s { tail(dot_codes(w, q), act.sum, act.a, scale) } else { tail(dot(w, q), 0, act.a, scale) };
        y.to_bits()
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn packed_codes_come_back(m in matrix()) {
        for packing in m.packings() {
            let (codes, scale) = m.weights(packing);
            prop_assert_eq!(&codes, &m.codes, "{:?}", packing);
            prop_assert_eq!(scale.to_bits(), m.scale.to_bits());
            let bytes = packing.type_id().info().unwrap()
                .tensor_bytes(m.columns as u64, m.rows as u64);
            prop_assert_eq!(Some(m.pack(packing).len() as u64), bytes);
        }
    }

    #[test]
    fn all_formats_give_the_same_outputs(m in matrix(), seed in any::<u64>(), kind in any::<u8>()) {
        let x = activations(m.columns, seed, kind);
        let (mut q, mut q_tl) = (vec![0; x.len()], vec![0; x.len()]);
        let (act, act_tl) = (quantize_i2_s(&x, &mut q), quantize_tl(&x, &mut q_tl));
        prop_assert_eq!((&q, act), (&q_tl, act_tl));
        let [i2_s, arm, tl1, tl2] = m.packings().map(|p| {
            let (codes, scale) = m.weights(p);
            product(&codes, scale, &q, act, matches!(p, Packing::I2S(_)))
        });
        prop_assert_eq!(&i2_s, &arm);
        prop_assert_eq!(&i2_s, &tl1);
        prop_assert_eq!(&i2_s, &tl2);
    }

    /// Any bytes: an answer or an error that names a place, and codes that are codes.
    #[test]
    fn no_bytes_panic(m in matrix(), seed in any::<u64>(), damage in 0..40usize) {
        for packing in m.packings() {
            let mut data = m.pack(packing);
            let mut state = seed | 1;
            for _ in 0..damage {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 20) as usize % data.len();
                data[at] = (state >> 9) as u8;
            }
            let read = TernaryData::new(packing, m.columns, m.rows, &data).unwrap();
            match read.codes() {
                Ok(codes) => prop_assert!(codes.iter().all(|c| (-1..=1).contains(c))),
                Err(TernaryError::Code { row, column, code, .. }) => {
                    prop_assert!(row < m.rows && column < m.columns);
                    prop_assert!(code == 3 || (9..=15).contains(&code));
                    // Rows before it are read.
                    let mut before = vec![0; row * m.columns];
                    prop_assert!(read.unpack_rows(0..row, &mut before).is_ok());
                }
                Err(e) => return Err(TestCaseError::fail(e.to_string())),
            }
            data.pop();
            prop_assert!(TernaryData::new(packing, m.columns, m.rows, &data).is_err());
        }
    }

    /// Any tiles on any shape: refused, or every weight has a place of its own.
    #[test]
    fn tiles_are_refused_or_hold_everything(
        rows in 0..140usize, columns in 0..600usize, tiles in any::<[u8; 3]>(), large in any::<bool>(),
    ) {
        let [bm, bk, micro] = tiles.map(u32::from);
        let micro = [32, 64, micro][micro as usize % 3];
        let (bm, bk) = if large { (bm << 24, bk << 24) } else { (bm / 32 * 32, bk / 8 * 8) };
        for packing in [Packing::Tl1(Tiles::new(bm, bk, micro)), Packing::Tl2(Tiles::new(bm, bk, micro))] {
            let codes: Vec<i8> = (0..rows * columns).map(|i| (i * 7 % 3) as i8 - 1).collect();
            if let Ok(data) = packing.pack(columns, rows, 1.0, &codes) {
                let read = TernaryData::new(packing, columns, rows, &data).unwrap();
                prop_assert_eq!(read.codes().unwrap(), codes);
            }
        }
    }

    #[test]
    fn rows_of_a_batch_are_those_rows_alone(m in matrix(), seed in any::<u64>()) {
        // Quantizing and multiplying look at one activation row at a time: the same bits in any company.
        let batch: Vec<Vec<f32>> = (0..4).map(|n| activations(m.columns, seed ^ n, n as u8)).collect();
        let mut q = vec![0i8; 4 * m.columns];
        let acts: Vec<ActScale> = batch.iter().zip(q.chunks_mut(m.columns))
            .map(|(x, q)| quantize_i2_s(x, q)).collect();
        for (n, x) in batch.iter().enumerate() {
            let mut alone = vec![0; m.columns];
            let act = quantize_i2_s(x, &mut alone);
            let stacked = &q[n * m.columns..][..m.columns];
            prop_assert_eq!(
                product(&m.codes, m.scale, stacked, acts[n], true),
                product(&m.codes, m.scale, &alone, act, false)
            );
        }
    }
}

#[test]
fn the_published_tiles_fit_their_shapes() {
    let shapes = [
        [1536u64, 4096],
        [1536, 1536],
        [4096, 1536],
        [3200, 8640],
        [3200, 3200],
        [8640, 3200],
        [14336, 4096],
        [4096, 14336],
        [1024, 4096],
        [4096, 4096],
    ];
    for [rows, columns] in shapes {
        let (r, c) = (rows as usize, columns as usize);
        Packing::Tl1(tl1::published(columns, rows).unwrap()).check(c, r).unwrap();
        Packing::Tl2(tl2::published(columns, rows).unwrap()).check(c, r).unwrap();
    }
    // BitNet 2B-4T has none.
    assert_eq!(tl1::published(2560, 2560), None);
    assert_eq!(tl2::published(6912, 2560), None);
}

#[test]
fn indices_and_weights() {
    assert_eq!(tl1::pair(0), Some([-1, -1]));
    assert_eq!(tl1::pair(5), Some([0, 1]));
    assert_eq!((tl1::pair(9), tl1::pair(255)), (None, None));
    assert_eq!(tl2::triple(0), Some([0, 0, 0]));
    assert_eq!(tl2::triple(2), Some([0, 1, -1]));
    assert_eq!(tl2::triple(5), Some([1, -1, -1]));
    assert_eq!(tl2::triple(13), Some([1, 1, 1]));
    assert_eq!((tl2::triple(14), tl2::triple(255)), (None, None));
}

#[test]
fn ternarize_edge_cases() {
    let mut codes = [9; 8];
    let x = [-0.0, 1e-6, 1.1e-6, -0.5, 0.25, f32::NAN, 9e-7, -1e-30];
    assert_eq!(ternarize(&x, &mut codes), 0.5);
    // The float next to 1e-6 lies just under it.
    assert_eq!(codes, [0, 0, 1, -1, 1, -1, 0, 0]);
    let mut codes = [9; 2];
    assert_eq!(ternarize(&[0.0, -0.0], &mut codes), 0.0);
    assert_eq!(codes, [0, 0]);
    assert_eq!(ternarize(&[f32::INFINITY, -1.0], &mut codes), f32::INFINITY);
    assert_eq!(codes, [1, -1]);
}

/// A case that bitnet.cpp leaves undefined, and where the two quantizers differ.
#[test]
fn activations_without_a_scale() {
    let mut q = [7; 3];
    let mut both = |x: [f32; 3]| {
        let i2_s = (quantize_i2_s(&x, &mut q), q);
        let tl = (quantize_tl(&x, &mut q), q);
        (i2_s, tl)
    };
    let ((a, q1), (b, q2)) = both([0.0, -0.0, 0.0]);
    assert_eq!((a.a.to_bits(), q1, q2), (12_700_000f32.to_bits(), [0; 3], [0; 3]));
    assert_eq!((b.a, b.sum), (f32::INFINITY, 0));
    assert_eq!(tail(0, 0, b.a, 0.5).to_bits(), 0);
    // Below the floor of I2_S the rows differ; where 127 / max overflows, TL has nothing.
    let ((a, q1), (b, q2)) = both([1e-6, -5e-7, 0.0]);
    assert_eq!((a.sum, q1), (7, [13, -6, 0]));
    assert_eq!((b.sum, q2), (63, [127, -64, 0]));
    let (_, (b, q2)) = both([1e-40, -1e-40, 0.0]);
    assert_eq!((b.a, q2), (f32::INFINITY, [0; 3]));
    for x in [[1.0, f32::NAN, 2.0], [1.0, f32::NEG_INFINITY, 2.0]] {
        let (i2_s, tl) = both(x);
        for (act, q) in [i2_s, tl] {
            assert_eq!((act.sum, q), (0, [0; 3]));
            assert!(tail(0, act.sum, act.a, 0.5).is_nan());
        }
    }
    // Ties go to the even integer.
    let ((_, q1), _) = both([127.0, 0.5, -1.5]);
    assert_eq!(q1, [127, 0, -2]);
}

#[test]
fn requests_that_cannot_be_met() {
    let p = Packing::I2S(Interleave::Usual);
    let e = p.pack(256, 2, 1.0, &[0; 511]).unwrap_err();
    assert_eq!(e, TernaryError::Buffer { found: 511, expected: 512 });
    let mut codes = vec![0; 512];
    codes[300] = 2;
    let e = p.pack(256, 2, 1.0, &codes).unwrap_err();
    assert_eq!(e, TernaryError::NotTernary { row: 1, column: 44, code: 2 });
    let e = p.check(640 + 64, 1).unwrap_err();
    assert!(e.to_string().contains("i2_s packs 128 columns"), "{e}");
    assert!(Packing::I2S(Interleave::Arm64).check(640 + 64, 1).is_ok());
    assert!(p.check(usize::MAX / 2 + 1, 1 << 10).is_err());
    let e = Packing::Tl2(Tiles::new(32, 96, 32)).check(192, 32).unwrap_err();
    assert_eq!(e, TernaryError::Narrow { columns: 192 });
    let e = Packing::Tl1(Tiles::new(32, 8, 32)).check(200, 32).unwrap_err();
    assert!(e.to_string().contains("tl1 packs 16 columns"), "{e}");

    let data = p.pack(256, 2, 1.0, &[1; 512]).unwrap();
    let read = TernaryData::new(p, 256, 2, &data).unwrap();
    assert!(read.unpack_rows(1..3, &mut [0; 512]).is_err());
    assert!(read.unpack_rows(0..2, &mut [0; 511]).is_err());
    let empty = p.pack(0, 5, 2.0, &[]).unwrap();
    let read = TernaryData::new(p, 0, 5, &empty).unwrap();
    assert_eq!((read.codes(), read.scale()), (Ok(vec![]), 2.0));
}
