//! Against what the reference and an independent exact solver computed (`testdata/anyprec`).

mod products;

use half::f16;
use trine_formats::anyprec::{FixedLut, dot_f32, dot_i16, pack_reference, quantize_activations, unpack_reference};
use trine_testkit::npz::Npz;

use super::compat::Reference;
use super::outliers::{Rule, Spread, find_range, most_sensitive};
use super::sorted::Sorted;
use super::split;
use super::{ClusterError, Clusterer, Method, Nesting};

const COMPAT: Method = Method::Compat { seed: 0 };

fn nesting() -> Nesting {
    Nesting::new(3, 8).unwrap()
}

/// Rows of weights with sensitivities, `columns` each.
struct Rows {
    weights: Vec<f32>,
    sensitivities: Vec<f32>,
    columns: usize,
}

impl Rows {
    /// The rows of a file, with `groups` to a row.
    fn of(npz: &Npz, groups: usize) -> Rows {
        Rows {
            weights: npz.f32("weights"),
            sensitivities: npz.f32("sens"),
            columns: npz.array("weights").shape[1] / groups,
        }
    }

    fn iter(&self) -> impl ExactSizeIterator<Item = (&[f32], &[f32])> {
        let weights = self.weights.chunks_exact(self.columns);
        weights.zip(self.sensitivities.chunks_exact(self.columns))
    }
}

/// Codes and tables of all rows by one method.
struct Clustered {
    codes: Vec<u8>,
    /// By width from 3 on, rows one after the other.
    luts: Vec<Vec<f32>>,
}

fn cluster(rows: &Rows, method: Method) -> Clustered {
    let mut clusterer = Clusterer::new(nesting(), method);
    let mut out = Clustered { codes: Vec::new(), luts: vec![Vec::new(); 6] };
    for (weights, sensitivities) in rows.iter() {
        let mut codes = vec![0xff; rows.columns];
        clusterer.cluster(weights, sensitivities, &mut codes).unwrap();
        out.codes.extend(codes);
        for (all, lut) in out.luts.iter_mut().zip(clusterer.luts()) {
            all.extend_from_slice(lut);
        }
    }
    out
}

fn sq(x: f64) -> f64 {
    x * x
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// `Σ s (w − c)²` of each row at each width, 3 to 8.
fn errors(rows: &Rows, c: &Clustered) -> Vec<[f64; 6]> {
    let one = |r: usize, weights: &[f32], sensitivities: &[f32], width: usize| {
        let codes = &c.codes[r * rows.columns..][..rows.columns];
        let lut = &c.luts[width - 3][r << width..][..1 << width];
        let terms = weights.iter().zip(sensitivities).zip(codes);
        terms
            .map(|((&w, &s), &code)| {
                let c = lut[usize::from(code >> (8 - width))];
                f64::from(s) * sq(f64::from(w) - f64::from(c))
            })
            .sum()
    };
    let rows = rows.iter().enumerate();
    rows.map(|(r, (w, s))| std::array::from_fn(|i| one(r, w, s, i + 3))).collect()
}

#[track_caller]
fn close(got: f64, want: f64, noise: f64, what: &str) {
    assert!((got - want).abs() <= 1e-9 * want.abs() + noise, "{what}: {got:e}, expected {want:e} within {noise:e}");
}

/// The error that the optima in the files may have: they are differences of sums as large as `Σ s w²`.
fn noise((weights, sensitivities): (&[f32], &[f32])) -> f64 {
    let terms = weights.iter().zip(sensitivities);
    let energy: f64 = terms.map(|(&w, &s)| f64::from(s) * sq(w.into())).sum();
    64.0 * f64::EPSILON * energy
}

fn compat_equals(file: &str, groups: usize, labels: bool) {
    let npz = Npz::open(&format!("anyprec/{file}"));
    let rows = Rows::of(&npz, groups);
    let got = cluster(&rows, COMPAT);
    for (lut, width) in got.luts.iter().zip(3..) {
        let want = npz.f32(&format!("lut{width}_f32"));
        assert!(bits(lut) == bits(&want), "{file}: lut{width}");
    }
    let want = npz.u8("labels8");
    if labels {
        assert!(got.codes == want, "{file}: labels");
        return;
    }
    // equal weights may have other codes there, of equal values
    for (i, (&a, &b)) in got.codes.iter().zip(&want).enumerate() {
        let row = i / rows.columns;
        for (lut, width) in got.luts.iter().zip(3usize..) {
            let value = |code: u8| lut[(row << width) + usize::from(code >> (8 - width))];
            assert_eq!(value(a).to_bits(), value(b).to_bits(), "weight {i}, width {width}");
        }
    }
}

#[test]
fn compat_is_the_reference_bit_for_bit() {
    compat_equals("a_main_64x256.npz", 1, true);
    compat_equals("b_groupcount2_16x256.npz", 2, true);
    compat_equals("c_rows_4x4096.npz", 1, true);
    compat_equals("e_edge_rows_14x64.npz", 1, false);
}

#[test]
fn compat_from_the_reference_s_first_centroids() {
    let npz = Npz::open("anyprec/a_main_64x256.npz");
    let (starts, labels) = (npz.f32("kpp_init"), npz.u8("labels8"));
    let luts = npz.f32("lut3_f32");
    let mut reference = Reference::new(0);
    for (r, (weights, sensitivities)) in Rows::of(&npz, 1).iter().enumerate() {
        let start = reference.first_centroids(weights, sensitivities, 3);
        assert_eq!(bits(&start), bits(&starts[8 * r..][..8]), "row {r}");
        let mut lut = [Vec::new()];
        let mut codes = vec![0; weights.len()];
        let start = &starts[8 * r..][..8];
        reference.cluster_from(weights, sensitivities, start, &mut lut, &mut codes).unwrap();
        assert_eq!(bits(&lut[0]), bits(&luts[8 * r..][..8]), "row {r}");
        let want = labels[256 * r..][..256].iter().map(|l| l >> 5);
        assert!(codes.into_iter().eq(want), "row {r}");
    }
}

#[test]
fn errors_of_the_reference_are_those_it_had() {
    for file in ["a_main_64x256.npz", "c_rows_4x4096.npz"] {
        let npz = Npz::open(&format!("anyprec/{file}"));
        let rows = Rows::of(&npz, 1);
        let mut got = cluster(&rows, COMPAT);
        let check = |got: &Clustered, suffix: &str| {
            let errors = errors(&rows, got);
            for width in 3..=8 {
                let want = npz.f64(&format!("sse{width}{suffix}"));
                for (r, (e, w)) in errors.iter().zip(want).enumerate() {
                    close(e[width - 3], w, 0.0, &format!("{file} row {r} width {width}{suffix}"));
                }
            }
        };
        check(&got, "");
        for x in got.luts.iter_mut().flatten() {
            *x = f16::from_f32(*x).to_f32();
        }
        check(&got, "_lutf16");
    }
}

#[test]
fn the_exact_seed_is_the_optimum() {
    let (a, h) = (Npz::open("anyprec/a_main_64x256.npz"), Npz::open("anyprec/h_optimal_seed_and_split_64x256.npz"));
    let rows = Rows::of(&a, 1);
    let got = cluster(&rows, Method::Exact);
    let errors = errors(&rows, &got);
    let noise: Vec<f64> = rows.iter().map(noise).collect();
    for (width, name) in (3..=8).map(|w| (w, format!("sse{w}"))) {
        for (r, want) in h.f64(&name).into_iter().enumerate() {
            close(errors[r][width - 3], want, noise[r], &format!("row {r}, {name}"));
        }
    }
    let borders = h.i32("seed_borders");
    for (r, want) in a.f64("sse3_dp_optimal").into_iter().enumerate() {
        close(errors[r][0], want, 0.0, &format!("row {r}, the optimum"));
        let mut sizes = [0; 8];
        for code in &got.codes[256 * r..][..256] {
            sizes[usize::from(code >> 5)] += 1;
        }
        let want: Vec<i32> = borders[9 * r..][..9].windows(2).map(|p| p[1] - p[0]).collect();
        assert_eq!(sizes[..], want[..], "row {r}");
    }
}

#[test]
fn the_optimum_at_every_width_without_nesting() {
    let npz = Npz::open("anyprec/a_main_64x256.npz");
    let rows = Rows::of(&npz, 1);
    for width in 3..=8u8 {
        let nesting = Nesting::new(width, width).unwrap();
        let mut clusterer = Clusterer::new(nesting, Method::Exact);
        let want = npz.f64(&format!("sse{width}_dp_optimal"));
        for (r, (weights, sensitivities)) in rows.iter().enumerate() {
            let mut codes = vec![0; weights.len()];
            clusterer.cluster(weights, sensitivities, &mut codes).unwrap();
            let lut = &clusterer.luts()[0];
            let error = |i: usize| {
                let e = f64::from(weights[i]) - f64::from(lut[usize::from(codes[i])]);
                f64::from(sensitivities[i]) * e * e
            };
            let got: f64 = (0..weights.len()).map(error).sum();
            let noise = noise((weights, sensitivities));
            close(got, want[r], noise, &format!("row {r}, width {width}"));
        }
    }
}

#[test]
fn the_best_width_is_the_optimum_and_others_are_nested_in_it() {
    let rows = Rows::of(&Npz::open(FILES[0]), 1);
    for bits in [4, 6, 8] {
        let got = cluster(&rows, Method::BestAt(bits));
        let alone = Nesting::new(bits, bits).expect("one width");
        let mut clusterer = Clusterer::new(alone, Method::Exact);
        let mut codes = vec![0; rows.columns];
        for (r, (weights, sensitivities)) in rows.iter().enumerate() {
            clusterer.cluster(weights, sensitivities, &mut codes).expect("sound weights");
            let lut = &got.luts[usize::from(bits - 3)][r << bits..][..1 << bits];
            assert_eq!(self::bits(lut), self::bits(&clusterer.luts()[0]), "{bits} bits, row {r}");
            let nested = &got.codes[r * rows.columns..][..rows.columns];
            let leading = nested.iter().map(|c| c >> (8 - bits));
            assert!(leading.eq(codes.iter().copied()), "{bits} bits, row {r}");
        }
    }
}

#[test]
fn exact_splits_are_never_worse_than_the_reference_s() {
    for file in ["a_main_64x256.npz", "c_rows_4x4096.npz"] {
        let npz = Npz::open(&format!("anyprec/{file}"));
        let rows = Rows::of(&npz, 1);
        let reference = cluster(&rows, COMPAT);
        for (r, (weights, sensitivities)) in rows.iter().enumerate() {
            let codes = &reference.codes[r * rows.columns..][..rows.columns];
            for width in 3..8usize {
                for parent in 0..1u16 << width {
                    let members: Vec<usize> =
                        (0..rows.columns).filter(|&i| u16::from(codes[i] >> (8 - width)) == parent).collect();
                    let x: Vec<f32> = members.iter().map(|&i| weights[i]).collect();
                    let s: Vec<f32> = members.iter().map(|&i| sensitivities[i]).collect();
                    let mut sorted = Sorted::default();
                    sorted.load(&x);
                    sorted.find_runs(&x, &s);
                    let best = split::split(sorted.runs(), 0.0);
                    let error = |centroids: &dyn Fn(usize) -> f32| -> f64 {
                        let term = |i: usize| f64::from(s[i]) * sq(f64::from(x[i]) - f64::from(centroids(i)));
                        (0..x.len()).map(term).sum()
                    };
                    let upper = sorted.runs().get(best.below).map(|r| r.value);
                    let ours = error(&|i| best.centroids[usize::from(upper.is_some_and(|u| f64::from(x[i]) >= u))]);
                    let lut = &reference.luts[width - 2][r << (width + 1)..];
                    let theirs = error(&|i| lut[usize::from(codes[members[i]] >> (7 - width))]);
                    assert!(
                        ours <= theirs * (1.0 + 1e-6) + 1e-30,
                        "{file} row {r} width {width} cluster {parent}: {ours:e} > {theirs:e}"
                    );
                }
            }
        }
    }
}

#[test]
fn outliers_are_those_of_the_reference() {
    let npz = Npz::open("anyprec/f_dense_sparse.npz");
    let tensor = |i: usize| (npz.f32(&format!("w{i}")), npz.f32(&format!("g{i}")));
    let indices = |name: String| -> Vec<usize> { npz.i32(&name).into_iter().map(|i| i as usize).collect() };
    let mut spreads = Vec::new();
    for i in 0..3 {
        let (weights, scores) = tensor(i);
        let removed = most_sensitive(&scores, 0.05, Rule::AnyPrecision);
        assert_eq!(removed, indices(format!("sens_idx{i}")), "tensor {i}");
        spreads.push(Spread::measure(&weights, &removed, Rule::AnyPrecision, 2.0));
        // without ties one less goes by the other rule
        let strict = most_sensitive(&scores, 0.05, Rule::SqueezeLlm);
        assert_eq!(strict.len(), removed.len() - 1);
        assert!(strict.iter().all(|i| removed.contains(i)));
    }
    let found = find_range(&spreads, 0.4);
    assert_eq!(found.last.range.to_bits(), npz.f64("trange")[0].to_bits());
    assert_eq!(found.last.percent.to_bits(), npz.f64("pct")[0].to_bits());
    assert!(!found.last.clipped);
    // 180 of 45056 are nearer to the share than the reference's 181
    assert_eq!(found.nearest.percent, 180.0 / 45056.0 * 100.0);
    for (i, (spread, want)) in spreads.iter().zip(npz.f32("thresholds")).enumerate() {
        let threshold = spread.threshold(found.last.range) as f32;
        assert_eq!(threshold.to_bits(), want.to_bits(), "tensor {i}");
        let (weights, scores) = tensor(i);
        let removed = most_sensitive(&scores, 0.05, Rule::AnyPrecision);
        let beyond: Vec<usize> =
            (0..weights.len()).filter(|j| weights[*j].abs() >= threshold && !removed.contains(j)).collect();
        assert_eq!(beyond, indices(format!("thr_idx{i}")), "tensor {i}");
    }
}

#[test]
fn thresholds_by_interpolated_quartiles() {
    let npz = Npz::open("anyprec/f_dense_sparse.npz");
    for (i, want) in npz.f64("sqllm_T_range1.8").into_iter().enumerate() {
        let weights = npz.f32(&format!("w{i}"));
        let got = Spread::measure(&weights, &[], Rule::SqueezeLlm, 1.0).threshold(1.8);
        // the reference computes the quartiles in f32
        assert!((got - want).abs() < 3e-7 * want, "tensor {i}: {got}, {want}");
    }
}

const FILES: [&str; 3] = ["anyprec/a_main_64x256.npz", "anyprec/c_rows_4x4096.npz", "anyprec/e_edge_rows_14x64.npz"];

#[test]
fn centroids_lie_between_their_children() {
    let edge = FILES[2];
    for (file, method) in FILES.map(|f| [(f, COMPAT), (f, Method::Exact), (f, Method::BestAt(5))]).as_flattened() {
        if (*file, *method) == (edge, COMPAT) {
            continue; // an empty cluster's centroid stays behind there
        }
        let rows = Rows::of(&Npz::open(file), 1);
        let got = cluster(&rows, *method);
        let codes = |r: usize| &got.codes[r * rows.columns..][..rows.columns];
        for width in 3..8usize {
            for r in 0..rows.iter().len() {
                let (coarse, fine) = (&got.luts[width - 3], &got.luts[width - 2]);
                for parent in 0..1usize << width {
                    let child = |side: usize| {
                        let code = 2 * parent + side;
                        let used = |c: &u8| usize::from(c >> (7 - width)) == code;
                        (codes(r).iter().any(used)).then(|| fine[(r << (width + 1)) + code])
                    };
                    if let (Some(a), Some(b)) = (child(0), child(1)) {
                        let c = coarse[(r << width) + parent];
                        assert!(
                            a.min(b) <= c && c <= a.max(b),
                            "{file} {method:?} row {r} width {width} cluster {parent}: {a} {c} {b}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn more_bits_are_never_worse() {
    for file in FILES {
        let rows = Rows::of(&Npz::open(file), 1);
        for method in [COMPAT, Method::Exact, Method::BestAt(4)] {
            let mut got = cluster(&rows, method);
            for (r, e) in errors(&rows, &got).iter().enumerate() {
                assert!(e.is_sorted_by(|a, b| a >= b), "{file} {method:?} row {r}: {e:?}");
            }
            for x in got.luts.iter_mut().flatten() {
                *x = f16::from_f32(*x).to_f32();
            }
            for ((weights, sensitivities), (r, e)) in rows.iter().zip(errors(&rows, &got).iter().enumerate()) {
                let largest = weights.iter().fold(0f32, |m, w| m.max(w.abs()));
                let mass: f64 = sensitivities.iter().map(|&s| f64::from(s)).sum();
                let rounding = sq(f64::from(largest) / 2048.0) * mass;
                let falls = |a: &f64, b: &f64| *b <= a * 1.001 + rounding;
                assert!(e.is_sorted_by(falls), "{file} {method:?} row {r}, f16: {e:?}");
            }
        }
    }
}

#[test]
fn rows_do_not_depend_on_each_other() {
    for file in FILES {
        let rows = Rows::of(&Npz::open(file), 1);
        for method in [COMPAT, Method::Exact, Method::BestAt(4)] {
            let all = cluster(&rows, method);
            // one clusterer for all rows, backwards
            let mut clusterer = Clusterer::new(nesting(), method);
            let each: Vec<_> = rows.iter().enumerate().collect();
            for &(r, (weights, sensitivities)) in each.iter().rev() {
                let mut codes = vec![0; rows.columns];
                clusterer.cluster(weights, sensitivities, &mut codes).unwrap();
                assert_eq!(codes[..], all.codes[r * rows.columns..][..rows.columns]);
                for ((lut, all), width) in clusterer.luts().iter().zip(&all.luts).zip(3..) {
                    assert_eq!(bits(lut), bits(&all[r << width..][..1 << width]));
                }
            }
        }
    }
}

#[test]
fn senseless_input_is_named() {
    let mut clusterer = Clusterer::new(nesting(), Method::Exact);
    let mut codes = [0; 4];
    let mut error =
        |weights: [f32; 4], sensitivities: [f32; 4]| clusterer.cluster(&weights, &sensitivities, &mut codes).err();
    let (w, s) = ([0.0, 1.0, -2.0, 65504.0], [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(error(w, s), None);
    let with = |mut values: [f32; 4], i: usize, x: f32| {
        values[i] = x;
        values
    };
    let nan = f32::NAN;
    assert_eq!(error(with(w, 1, f32::NEG_INFINITY), s), Some(ClusterError::NotFinite(1)));
    assert!(matches!(error(with(w, 2, nan), s), Some(ClusterError::NotFinite(2))));
    assert_eq!(error(with(w, 0, -65505.0), s), Some(ClusterError::TooLarge(0, -65505.0)));
    assert_eq!(error(w, with(s, 3, -1e-30)), Some(ClusterError::Sensitivity(3, -1e-30)));
    assert!(matches!(error(w, with(s, 1, nan)), Some(ClusterError::Sensitivity(1, _))));
    assert!(matches!(error(w, with(s, 1, f32::INFINITY)), Some(ClusterError::Sensitivity(1, _))));
    let sparse = [0.0; 4];
    assert_eq!(error(w, sparse), None, "all count alike");
}

#[test]
fn the_reference_s_packing_is_read_and_written() {
    let npz = Npz::open("anyprec/d_refpack.npz");
    let bytes = |name: &str| -> Vec<u8> {
        let words = npz.i32(name).into_iter();
        words.flat_map(i32::to_le_bytes).collect()
    };
    for columns in [256, 1024, 1536, 2048] {
        let codes = npz.u8(&format!("labels_K{columns}"));
        let packed = bytes(&format!("qweight_K{columns}"));
        let got = unpack_reference(&packed, 8, 4, columns);
        assert!(got.as_ref() == Some(&codes), "{columns} columns");
        assert!(pack_reference(&codes, 8, columns) == Some(packed), "{columns} columns");
    }
    let codes = Npz::open("anyprec/a_main_64x256.npz").u8("labels8");
    let packed = bytes("qweight_main");
    assert!(unpack_reference(&packed, 8, 64, 256).as_ref() == Some(&codes));
    // the first three planes are the codes of three bits
    let upper = unpack_reference(&packed[..3 * packed.len() / 8], 3, 64, 256).unwrap();
    assert!(upper.iter().eq(codes.iter().map(|c| c >> 5).collect::<Vec<_>>().iter()));
    for (bits, rows, columns) in [(8, 64, 255), (8, 63, 256), (7, 64, 256), (0, 64, 256), (9, 64, 256)] {
        assert_eq!(unpack_reference(&packed, bits, rows, columns), None);
    }
    assert_eq!(pack_reference(&codes, 8, 48), None);
}

#[test]
fn products_are_the_canonical_ones() {
    let (a, i) = (Npz::open("anyprec/a_main_64x256.npz"), Npz::open("anyprec/i_gemv_canonical_8x256.npz"));
    let (codes, x) = (a.u8("labels8"), i.f32("x"));
    let activations = quantize_activations(&x);
    assert_eq!(activations.values, i.i8("xq"));
    assert_eq!(bits(&activations.scales), bits(&i.f32("xd")));
    for width in 3..=8usize {
        let array = |name: &str| format!("{name}_b{width}");
        let lut: Vec<u16> = a.f32(&format!("lut{width}_f32")).into_iter().map(|c| f16::from_f32(c).to_bits()).collect();
        let (want_f32, want_i16) = (i.f32(&array("y_f32")), i.f32(&array("y_i16")));
        let (centroids, scales) = (i.i16(&array("C16")), i.f32(&array("rowscale")));
        for row in 0..8 {
            let lut = &lut[row << width..][..1 << width];
            let entry = |code: &u8| usize::from(code >> (8 - width));
            let entries = codes[256 * row..][..256].iter().map(entry);
            let weights = entries.clone().map(|e| f16::from_bits(lut[e]).to_f32());
            let y = dot_f32(weights, &x);
            assert_eq!(y.to_bits(), want_f32[row].to_bits(), "f32, {width} bits, row {row}");
            let fixed = FixedLut::new(lut.iter().copied());
            assert_eq!(fixed.centroids, centroids[row << width..][..1 << width]);
            assert_eq!(fixed.scale.to_bits(), scales[row].to_bits());
            let y = dot_i16(entries.map(|e| fixed.centroids[e]), fixed.scale, &activations);
            assert_eq!(y.to_bits(), want_i16[row].to_bits(), "i16, {width} bits, row {row}");
        }
    }
}
