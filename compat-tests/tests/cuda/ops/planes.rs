//! Products with any-precision weights: at every width the bits of their definitions, by the planes of that width alone.

use std::borrow::Cow;

use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Argument, Device, Emulated, Kind, Schedule};
use trine_cuda::pack::planes::{Tables, planes};
use trine_cuda::planes::{Extents, Path};
use trine_cuda::program::PlaneMatrix;
use trine_cuda::ptx::PLANES;
use trine_formats::anyprec::{ApView, FixedLut, SparseView, add_sparse, dot_f32, dot_i16, quantize_activations, words};
use trine_formats::gguf::Blob;
use trine_formats::types::num::f32_to_f16;

use super::{Case, rows};
use crate::mistakes::with_mistake;
use crate::product::{assert_same, module};

const PATHS: [Path; 2] = [Path::Fixed, Path::Floats];

/// Little-endian half floats: of any bits, or numbers around one.
fn halves(rng: &mut Rng, count: usize, any: bool) -> Vec<u8> {
    match any {
        true => rng.bytes(2 * count),
        false => (0..count).flat_map(|_| f32_to_f16(2.0 * rng.unit() - 1.0).to_le_bytes()).collect(),
    }
}

/// A matrix at some widths: planes of random bits, centroids of [`halves`], and some sparse weights.
fn views(extents: Extents, widths: &[u8], any: bool, seed: u64) -> &'static [ApView] {
    let Extents { rows, columns, groups } = extents;
    let mut rng = Rng::new(seed);
    let bytes = 8 * words(columns) * rows;
    let widest = *widths.last().expect("a width");
    // Bits behind the last column are zeros in a file.
    let pad = u64::MAX.checked_shr((words(columns) * 64 - columns) as u32).unwrap_or(0);
    let mut plane = || {
        let mut plane = rng.bytes(bytes);
        for row in plane.chunks_exact_mut(8 * words(columns)) {
            let last = row.len() - 8;
            let word = u64::from_le_bytes(row[last..].try_into().expect("a word"));
            row[last..].copy_from_slice(&(word & pad).to_le_bytes());
        }
        Blob::from_vec(plane)
    };
    let planes: Vec<Blob> = (0..widest).map(|_| plane()).collect();
    let (mut ends, mut places, mut count) = (vec![0i32], Vec::new(), 0);
    for row in 0..rows {
        for column in (0..columns).filter(|column| row % 3 != 1 && (row * 31 + column * 7) % 13 == 0) {
            places.extend((column as i32).to_le_bytes());
            count += 1;
        }
        ends.push(count);
    }
    let ends: Vec<u8> = ends.into_iter().flat_map(i32::to_le_bytes).collect();
    let sparse = SparseView {
        ptr: Blob::from_vec(ends),
        col: Blob::from_vec(places),
        val: Blob::from_vec(halves(&mut rng, count as usize, false)),
    };
    let view = |&width: &u8| ApView {
        width,
        columns,
        rows,
        groups,
        planes: planes[..width.into()].to_vec(),
        lut: Blob::from_vec(halves(&mut rng, (rows * groups) << width, any)),
        sparse: (rows > 2).then(|| sparse.clone()),
    };
    widths.iter().map(view).collect::<Vec<_>>().leak()
}

/// Products by the definition, `[token][row]`.
fn expected(view: &ApView, path: Path, x: &[f32]) -> Vec<f32> {
    let mut out = Vec::new();
    for x in x.chunks_exact(view.columns) {
        for row in 0..view.rows {
            let dense = view.dense_row(row);
            let y = match path {
                Path::Floats => dot_f32(dense.iter().copied(), x),
                Path::Fixed => {
                    let lut = FixedLut::new(view.row_lut(row));
                    let centroids = view.entries(row).into_iter().map(|e| lut.centroids[e]);
                    dot_i16(centroids, lut.scale, &quantize_activations(x))
                }
            };
            let entries = view.sparse.iter().flat_map(|sparse| sparse.row(row));
            out.push(add_sparse(y, entries.map(|(column, weight)| (column, weight, dense[column])), x));
        }
    }
    out
}

fn matrix(path: Path, views: &'static [ApView]) -> PlaneMatrix<'static> {
    PlaneMatrix { name: "a matrix", path, views: views.iter().map(Cow::Borrowed).collect() }
}

/// Multiplies rows that hurt, `at_once` at a time and no more than the matrix has rows, at every width.
fn check(extents: Extents, widths: &[u8], any: bool, at_once: &[usize]) {
    let Extents { rows: count, columns, groups } = extents;
    let views = views(extents, widths, any, (count * columns + groups) as u64);
    let all = rows(columns, 7);
    for (path, view) in PATHS.into_iter().flat_map(|path| views.iter().map(move |view| (path, view))) {
        for (&at_once, from) in at_once.iter().zip([0, 2, 5, 1]) {
            let x = &all[from * columns..(from + at_once) * columns];
            let case = Case { results: count, width: view.width, ..Case::new(x, columns) };
            let done = case.run_on(Emulated::new().expect("PTX"), |r, x| r.planes_product(matrix(path, views), x));
            let found = done.unwrap_or_else(|e| panic!("{e}"));
            let what = format!("{path:?} {extents:?} {} bits, {at_once} tokens", view.width);
            assert_same(&found, &expected(view, path, x), &what);
        }
    }
}

#[test]
fn every_width_has_its_bits() {
    let all = &[3, 4, 5, 6, 7, 8];
    check(Extents { rows: 11, columns: 640, groups: 1 }, all, false, &[1, 3, 9]);
    // Tables of any bits: infinities, NaN, numbers below the normal ones.
    check(Extents { rows: 7, columns: 128, groups: 1 }, all, true, &[7, 1]);
    // One row, a block that is not full, rows of one block; widths below three.
    check(Extents { rows: 1, columns: 70, groups: 1 }, &[1, 2, 3, 8], false, &[1]);
    check(Extents { rows: 2, columns: 33, groups: 1 }, &[2, 4], false, &[2, 1]);
    // Groups: of some blocks, of a quad, and of what begins within a block.
    check(Extents { rows: 3, columns: 512, groups: 2 }, &[3, 8], false, &[3]);
    check(Extents { rows: 3, columns: 96, groups: 24 }, &[3, 4], false, &[2]);
    check(Extents { rows: 4, columns: 600, groups: 5 }, &[2, 5], true, &[3]);
    // Enough rows for several warps in a block, the last of which has none.
    check(Extents { rows: 2 * 132 * 3 + 1, columns: 64, groups: 1 }, &[3, 6], false, &[1]);
}

/// The arguments and the launch of a product by the first `given` planes of a matrix of eight.
fn read(width: u8, given: usize) -> Result<Vec<f32>, Kind> {
    let extents = Extents { rows: 6, columns: 576, groups: 1 };
    let views = views(extents, &[3, 4, 5, 6, 7, 8], false, 4);
    let view = views.iter().find(|view| view.width == width).expect("the width");
    let x = &rows(extents.columns, 3)[..extents.columns];
    let packed = planes(views.last().expect("a width")).expect("planes");
    let packed: Vec<u8> = packed[..packed.len() / 8 * given].iter().flat_map(|d| d.to_le_bytes()).collect();
    let (tables, quantized) = (Tables::fixed(view), quantize_activations(x));
    let bytes = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    // Tokens that fill up the last eight are zeros.
    let mut quants: Vec<u8> = quantized.values.iter().map(|&q| q as u8).collect();
    quants.resize(extents.columns.next_multiple_of(256) * 8, 0);
    let scales: Vec<f32> = quantized.scales.iter().flat_map(|&s| [s, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).collect();
    let mut device = Device::new();
    let parts = [packed, tables.centroids, bytes(&tables.scales), quants, bytes(&scales)];
    let mut arguments: Vec<Argument> = parts.into_iter().map(|p| Argument::Buffer(device.constant(p))).collect();
    let out = device.empty(4 * extents.rows);
    arguments.push(Argument::Buffer(out));
    arguments.extend([width.into(), 576, 6, 576, 1].map(Argument::U32));
    let plan = extents.product(Path::Fixed, width, 1).expect("a plan");
    let launch = crate::product::launch(&plan, &arguments, Schedule::Random(2));
    device.launch(module("planes"), &plan.kernel, &launch).map_err(|fault| fault.kind)?;
    let without = ApView { sparse: None, ..view.clone() };
    assert_same(&device.floats(out), &expected(&without, Path::Fixed, x), &format!("{width} bits by {given} planes"));
    Ok(device.floats(out))
}

#[test]
fn a_width_reads_its_planes_and_no_others() {
    for width in 3..=8 {
        read(width, width.into()).expect("no fault");
        assert_eq!(read(width, usize::from(width) - 1).expect_err("a plane is missing"), Kind::OutOfBounds);
    }
}

#[test]
fn mistakes_are_found() {
    let schedules = [Schedule::InTurn, Schedule::Random(1), Schedule::Last(0)];
    let shows =
        |extents: Extents, (path, width, tokens): (Path, u8, usize), kernel: &str, change: &dyn Fn(&str) -> String| {
            let views = views(extents, &[3, 8], false, 11);
            let view = views.iter().find(|view| view.width == width).expect("the width");
            let x = rows(extents.columns, 7)[..tokens * extents.columns].to_vec();
            let expected = expected(view, path, &x);
            schedules.into_iter().any(|schedule| {
                let mut device = Emulated::new().expect("PTX");
                device.replace(PLANES.name, with_mistake(PLANES, kernel, change));
                let case = Case { results: extents.rows, width, schedule, ..Case::new(&x, extents.columns) };
                let done = case.run_on(device, |r, x| r.planes_product(matrix(path, views), x));
                done.map_or(true, |found| found.iter().zip(&expected).any(|(a, b)| a.to_bits() != b.to_bits()))
            })
        };
    let one = Extents { rows: 5, columns: 640, groups: 1 };
    let several = Extents { rows: 5, columns: 640, groups: 2 };
    for (extents, how, kernel) in [
        (one, (Path::Fixed, 3, 1), "planes_3_fixed_1"),
        (one, (Path::Fixed, 3, 2), "planes_3_fixed_4"),
        (one, (Path::Fixed, 3, 5), "planes_3_fixed_8"),
        (several, (Path::Fixed, 8, 1), "planes_8_fixed_1"),
        (several, (Path::Fixed, 8, 2), "planes_8_fixed_4"),
        (several, (Path::Fixed, 3, 5), "planes_8_fixed_8"),
        (several, (Path::Floats, 8, 1), "planes_8_floats_1"),
        (several, (Path::Floats, 3, 2), "planes_8_floats_4"),
    ] {
        let of = |change: &dyn Fn(&str) -> String| shows(extents, how, kernel, change);
        assert!(!of(&|t| format!("{t} ")), "{kernel}: no mistake");
        assert!(
            of(&|t| t.replacen("fma.rn.f32", "sub.rn.f32 %f1, %f1, %f1; //", 1)),
            "{kernel}: a product is left out"
        );
        assert!(of(&|t| t.replacen("bfly", "up", 1)), "{kernel}: lanes in another order");
        assert!(of(&|t| t.replacen("bar.sync", "// ", 1)), "{kernel}: no barrier");
        assert!(of(&|t| t.replace("1431655765", "0")), "{kernel}: a bit of a plane");
        if how.0 == Path::Fixed {
            assert!(of(&|t| t.replacen("dp2a.hi", "dp2a.lo", 1)), "{kernel}: the wrong bytes");
            assert!(of(&|t| t.replacen("mul.rn.f32", "add.rn.f32", 1)), "{kernel}: another scale");
        }
    }
    let of = |change: &dyn Fn(&str) -> String| shows(one, (Path::Fixed, 3, 2), "add_sparse", change);
    assert!(!of(&|t| format!("{t} ")), "no mistake");
    assert!(of(&|t| t.replace("fma.rn.f32", "mov.f32 %f1, %f2; //")), "no sparse weights");
}
