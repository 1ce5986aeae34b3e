//! NaN, infinities, overflow and subnormals through the encoders: the bytes here were read from ggml's
//! portable C build, and equal what a reader of the C source derives for x86-64.

use trine_formats::types::TypeId;

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

fn encode(id: TypeId, x: &[f32]) -> Vec<u8> {
    let t = id.info().unwrap();
    let mut row = vec![0xA5; x.len() / t.block * t.bytes];
    t.encode.unwrap()(x, None, &mut row);
    row
}

fn decode(id: TypeId, row: &[u8]) -> Vec<f32> {
    let t = id.info().unwrap();
    let mut out = vec![0.0; row.len() / t.bytes * t.block];
    t.decode.unwrap()(row, &mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A block of zeros with some elements set.
fn block<const N: usize>(set: &[(usize, f32)]) -> [f32; N] {
    let mut x = [0.0; N];
    for &(i, v) in set {
        x[i] = v;
    }
    x
}

/// +1, -1, +1, -1 in each group of the ternary layouts, scaled; then some elements set.
fn ternary(scale: f32, set: &[(usize, f32)]) -> [f32; 256] {
    let mut x = block(&[(1, scale), (2, -scale), (200, scale), (250, -scale)]);
    for &(i, v) in set {
        x[i] = v;
    }
    x
}

/// Checks the scale and the bytes that differ from those of all-zero codes, for TQ1_0 and TQ2_0.
fn check_ternary(what: &str, x: &[f32; 256], d: u16, tq1: &[(usize, u8)], tq2: &[(usize, u8)]) {
    let mut want = [0x80; 54];
    want[48..52].fill(0x7F);
    want[52..].copy_from_slice(&d.to_le_bytes());
    tq1.iter().for_each(|&(i, b)| want[i] = b);
    assert_eq!(hex(&encode(TypeId::TQ1_0, x)), hex(&want), "{what}, TQ1_0");
    let mut want = [0x55; 66];
    want[64..].copy_from_slice(&d.to_le_bytes());
    tq2.iter().for_each(|&(i, b)| want[i] = b);
    assert_eq!(hex(&encode(TypeId::TQ2_0, x)), hex(&want), "{what}, TQ2_0");
}

/// The bytes of [`ternary`] without further elements.
const TQ1: [(usize, u8); 4] = [(1, 0xD5), (2, 0x2B), (40, 0x89), (50, 0x75)];
const TQ2: [(usize, u8); 4] = [(1, 0x56), (2, 0x54), (40, 0x65), (58, 0x15)];

#[test]
fn ternary_scales_overflow_and_vanish_but_codes_stay() {
    check_ternary("zero", &[0.0; 256], 0, &[], &[]);
    check_ternary("minus zero", &[-0.0; 256], 0, &[], &[]);
    check_ternary("one", &ternary(1.0, &[]), 0x3C00, &TQ1, &TQ2);
    check_ternary("65519", &ternary(65519.0, &[]), 0x7BFF, &TQ1, &TQ2);
    check_ternary("65520", &ternary(65520.0, &[]), 0x7C00, &TQ1, &TQ2);
    check_ternary("2e-8", &ternary(2e-8, &[]), 0, &TQ1, &TQ2);
    check_ternary("2^-127", &ternary(f32::MIN_POSITIVE / 2.0, &[]), 0, &TQ1, &TQ2);
    // Below 2^-128 the inverse of the scale is infinite.
    check_ternary("2^-128 * 0.99", &ternary(f32::MIN_POSITIVE / 4.0 * 0.99, &[]), 0, &[], &[]);
}

#[test]
fn ternary_ties_round_away_from_zero() {
    let below = 0.5f32.next_down();
    let x = ternary(1.0, &[(3, 0.5), (4, -0.5), (5, below), (6, -below)]);
    let tq1 = [&TQ1[..], &[(3, 0xD5), (4, 0x2B)]].concat();
    let tq2 = [&TQ2[..], &[(3, 0x56), (4, 0x54)]].concat();
    check_ternary("ties", &x, 0x3C00, &tq1, &tq2);
}

#[test]
fn ternary_nan_and_infinity() {
    check_ternary("NaN first", &ternary(1.0, &[(0, NAN)]), 0x3C00, &TQ1, &TQ2);
    check_ternary("NaN last", &ternary(1.0, &[(255, NAN)]), 0x7E00, &[], &[]);
    check_ternary("infinity", &ternary(1.0, &[(7, -INF)]), 0x7C00, &[], &[]);
    // The scale comes from what follows the last NaN, so that earlier codes leave 0..=2: TQ2_0 keeps
    // two bits of them, in TQ1_0 the base-3 number wraps.
    let x = ternary(1.0, &[(0, 5.0), (161, -7.0), (240, 300.0), (251, NAN), (252, 1.0)]);
    let tq1 = [&TQ1[..], &[(0, 0x0F), (33, 0x46), (48, 0x6D)]].concat();
    let tq2 = [&TQ2[..], &[(0, 0x56), (33, 0x59), (60, 0x95)]].concat();
    check_ternary("large before NaN", &x, 0x3C00, &tq1, &tq2);
}

#[test]
fn ternary_rows_with_odd_scales_decode_as_ieee_says() {
    for id in [TypeId::TQ1_0, TypeId::TQ2_0] {
        let y = decode(id, &encode(id, &ternary(1.0, &[(255, NAN)])));
        assert!(y.iter().all(|v| v.is_nan()), "{id}: NaN scale");
        let y = decode(id, &encode(id, &ternary(1.0, &[(7, INF)])));
        assert!(y.iter().all(|v| v.is_nan()), "{id}: zero times infinity");
        let y = decode(id, &encode(id, &ternary(65520.0, &[])));
        assert!(y[1] == INF && y[2] == -INF && y[3].is_nan(), "{id}: overflow");
        let y = decode(id, &encode(id, &ternary(2e-8, &[])));
        let bits = [y[0], y[1], y[2]].map(f32::to_bits);
        assert_eq!(bits, [0, 0, 0x8000_0000], "{id}: vanished scale");
    }
}

#[test]
fn q2_0_and_q1_0() {
    let tail = "555555555555555555555555555555";
    let x: [f32; 64] = block(&[(0, NAN), (1, INF), (2, -INF), (3, 1.0), (4, -1.0)]);
    assert_eq!(hex(&encode(TypeId::Q2_0, &x)), format!("007c40{tail}"));
    let x: [f32; 64] = block(&[(0, NAN), (1, 1.0), (2, -1.0), (3, 0.5), (4, -0.5), (5, 0.499_999_97), (6, -0.0)]);
    assert_eq!(hex(&encode(TypeId::Q2_0, &x)), format!("003c8854{}", &tail[2..]));

    // Below 2^-128 the inverse of the scale is infinite and every code is the lowest.
    let x: [f32; 64] = block(&[(0, f32::from_bits(2)), (2, -f32::from_bits(2))]);
    assert_eq!(hex(&encode(TypeId::Q2_0, &x)), "0".repeat(36));
    let x: [f32; 64] = block(&[(0, f32::MIN_POSITIVE / 2.0), (2, -f32::MIN_POSITIVE / 2.0)]);
    assert_eq!(hex(&encode(TypeId::Q2_0, &x)), format!("000046{tail}"));

    let tail = "ffffffffffffffffffffffffffffff";
    let x: [f32; 128] = block(&[(0, NAN), (1, -0.0), (3, 1.0), (4, -1.0)]);
    assert_eq!(hex(&encode(TypeId::Q1_0, &x)), format!("007eee{tail}"));
    let x: [f32; 128] = block(&[(0, -0.0), (1, -0.0), (3, 1.0), (4, -1.0)]);
    assert_eq!(hex(&encode(TypeId::Q1_0, &x)), format!("0024ef{tail}"));
}

#[test]
fn q8_0() {
    let zeros = "0".repeat(52);
    let q8 = |set: &[(usize, f32)]| hex(&encode(TypeId::Q8_0, &block::<32>(set)));
    assert_eq!(
        q8(&[(0, 127.0), (1, 0.5), (2, -0.5), (3, 1.5), (4, 2.5), (5, -2.5)]),
        format!("003c7f01ff0203fd{zeros}")
    );
    // 300 stands before the NaN, the scale is made from the 1 behind it: 38100 keeps its low byte.
    assert_eq!(
        q8(&[(0, 300.0), (1, NAN), (2, 1.0), (3, -1.0), (4, 0.5), (5, -0.5)]),
        format!("0820d4007f8140c0{zeros}")
    );
    assert_eq!(q8(&[(0, 300.0), (1, INF), (2, 1.0)]), format!("007c{}", "0".repeat(64)));
    assert_eq!(q8(&[(0, f32::from_bits(3)), (2, -f32::from_bits(70))]), "0".repeat(68));
}

#[test]
fn mxfp4_exponents() {
    let mxfp4 = |set: &[(usize, f32)]| hex(&encode(TypeId::MXFP4, &block::<32>(set)))[..6].to_string();
    assert_eq!(mxfp4(&[(0, 1.0), (1, -1.0)]), "7d060e");
    assert_eq!(mxfp4(&[(0, f32::MAX), (1, -1.0)]), "fd0500");
    assert_eq!(mxfp4(&[(0, 16.0f32.next_down()), (1, -1.0)]), "810600", "log2f gives 4");
    assert_eq!(mxfp4(&[(0, NAN), (1, -1.0)]), "7d000e");
    assert_eq!(mxfp4(&[(0, INF), (1, -1.0)]), "000000");
}

#[test]
fn four_and_five_bits() {
    let mixed: [f32; 32] = block(&[(3, NAN), (5, INF), (6, -2.0), (20, 1.0)]);
    let nothing = [NAN; 32];
    let cases = [
        (TypeId::Q4_0, "00fc88888880888088888888888888888888", "008000000000000000000000000000000000"),
        (TypeId::Q4_1, "007c00c000000000000000000000000000000000", "00fc007c00000000000000000000000000000000"),
        (TypeId::Q5_0, "00fcd7ffffff00000000000000000000000000000000", "00800000000000000000000000000000000000000000"),
        (TypeId::Q5_1, "007c00c0", "00fc007c"),
        (TypeId::IQ4_NL, "00008888888f888f88888888888888888888", "0000ffffffffffffffffffffffffffffffff"),
    ];
    for (id, want_mixed, want_nothing) in cases {
        let bytes = 2 * id.info().unwrap().bytes;
        assert_eq!(hex(&encode(id, &mixed)), format!("{want_mixed:0<bytes$}"), "{id}, NaN and infinity");
        assert_eq!(hex(&encode(id, &nothing)), format!("{want_nothing:0<bytes$}"), "{id}, only NaN");
    }
}
