//! The engine's products against those of the reference.

use trine_formats::anyprec::{ApView, pack_row};
use trine_formats::gguf::Blob;
use trine_formats::types::num::f32_to_f16;

use crate::kernels::AlignedBytes;
use crate::kernels::bitplane::NumberPath;
use crate::kernels::testing::isas;
use crate::ops::product::bitplane::{BitplaneMatrix, BitplaneProduct, multiply_all};
use trine_testkit::npz::Npz;

#[test]
fn products_are_the_golden_ones() {
    let (a, i) = (Npz::open("anyprec/a_main_64x256.npz"), Npz::open("anyprec/i_gemv_canonical_8x256.npz"));
    let (codes, x) = (a.u8("labels8"), i.f32("x"));
    let mut planes = vec![Vec::new(); 8];
    for codes in codes.chunks_exact(256).take(8) {
        let mut row = vec![[0; 32]; 8];
        let mut places: Vec<&mut [u8]> = row.iter_mut().map(|p| &mut p[..]).collect();
        pack_row(codes, &mut places);
        for (all, plane) in planes.iter_mut().zip(&row) {
            all.extend_from_slice(plane);
        }
    }
    let planes: Vec<Blob> = planes.into_iter().map(Blob::from_vec).collect();
    for width in 3..=8u8 {
        let centroids = &a.f32(&format!("lut{width}_f32"))[..8 << width];
        let lut = centroids.iter().flat_map(|&c| f32_to_f16(c).to_le_bytes());
        let view = ApView {
            width,
            columns: 256,
            rows: 8,
            groups: 1,
            planes: planes[..usize::from(width)].to_vec(),
            lut: Blob::from_vec(lut.collect()),
            sparse: None,
        };
        for (path, name) in [(NumberPath::F32, "f32"), (NumberPath::I16, "i16")] {
            let expected = i.f32(&format!("y_{name}_b{width}"));
            let matrix = BitplaneMatrix::new(path, [view.clone()]);
            for isa in isas() {
                for tokens in [1, 2, 9] {
                    let form = matrix.form(isa, tokens);
                    let (x, bytes) = (x.repeat(tokens), form.act_bytes(256));
                    let mut acts = AlignedBytes::new(tokens * bytes);
                    for (x, out) in x.chunks_exact(256).zip(acts.chunks_exact_mut(bytes)) {
                        form.arrange(isa, x, out);
                    }
                    let mut out = vec![0.0; 8 * tokens];
                    let job = BitplaneProduct { w: &matrix, width, form, acts: &acts, x: &x, out: &mut out };
                    multiply_all(isa, &mut [job], tokens);
                    for (i, y) in out.iter().enumerate() {
                        let want = expected[i % 8];
                        assert_eq!(y.to_bits(), want.to_bits(), "{isa} {name} {width} {i}");
                    }
                }
            }
        }
    }
}
