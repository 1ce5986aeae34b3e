//! Products of all types, with the quantizers before them.

use trine_compat_tests::inputs::Rng;
use trine_cuda::plan;
use trine_cuda::program::Matrix;
use trine_formats::types::{REGISTRY, TypeId};

use super::{Case, rows};
use crate::product::assert_same;

/// Multiplies rows that hurt by a matrix of random bytes, or of encoded floats.
fn check(ty: TypeId, count: usize, columns: usize, usual: bool) {
    let info = ty.info().expect("a type");
    let of_row = info.row_bytes(columns as u64).expect("whole blocks") as usize;
    let mut rng = Rng::new((count * columns) as u64);
    let mut data = rng.bytes(count * of_row);
    if usual {
        for row in data.chunks_exact_mut(of_row) {
            let x: Vec<f32> = (0..columns).map(|_| 2.0 * rng.unit() - 1.0).collect();
            info.encode.expect("an encoder")(&x, None, row);
        }
    }
    let x = rows(columns, 9);
    let act = info.act.and_then(|act| act.info()).expect("a type");
    let act_row = act.row_bytes(columns as u64).expect("whole blocks") as usize;
    let mut expected = Vec::new();
    for x in x.chunks_exact(columns) {
        let mut row = vec![0; act_row];
        act.encode.expect("an encoder")(x, None, &mut row);
        let dot = info.dot_ref.expect("a definition");
        expected.extend(data.chunks_exact(of_row).map(|w| dot(w, &row)));
    }
    let data: &'static [u8] = data.leak();
    let case = Case { results: count, ..Case::new(&x, columns) };
    let found = case.run(|r, x| {
        let matrix = Matrix { name: "a matrix", ty, rows: count, columns, data, scale: 1.0 };
        r.product(matrix, x)
    });
    assert_same(&found, &expected, &format!("{ty} {count} x {columns}"));
}

#[test]
fn by_the_types_of_heads() {
    for (count, columns) in [(1, 1), (33, 7), (70, 256), (32, 511)] {
        check(TypeId::F16, count, columns, false);
        check(TypeId::F16, count, columns, true);
        check(TypeId::F32, count, columns, false);
        check(TypeId::F32, count, columns, true);
    }
}

#[test]
fn by_the_types_of_blocks() {
    for info in REGISTRY.iter().filter(|info| info.encode.is_some() && plan::multiplies(info.id)) {
        check(info.id, 40, 512, false);
        check(info.id, 17, 768, true);
    }
    // An odd number of blocks, and a last group that is not full.
    check(TypeId::Q8_0, 20, 288, true);
    check(TypeId::Q4_0, 20, 96, true);
}
