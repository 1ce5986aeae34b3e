//! The kernels with one mistake each, which has to show within three schedules: by a fault, or by a bit.

use trine_compat_tests::ptx::{Kind, Module};
use trine_cuda::fast::{Scales, Weights};
use trine_cuda::ptx::HALF;

use super::super::mistakes::{shows, with_mistake};
use super::Product;

/// How a mistake in the kernel of a product shows.
fn found(product: &Product, change: &dyn Fn(&str) -> String) -> Option<Option<Kind>> {
    let module: Module = with_mistake(HALF, &product.plan().launch.kernel, change);
    shows(&product.in_order(), |schedule| Ok(product.run_in(&module, schedule)?.0))
}

fn products() -> [Product; 2] {
    [(Weights::TwoBits, Scales::Groups(128)), (Weights::FourBits, Scales::Groups(64))]
        .map(|kind| Product::random(kind, (1280, 144, 19), 3))
}

#[test]
fn mistakes_in_the_pipeline() {
    for product in products() {
        let of = |change: &dyn Fn(&str) -> String| found(&product, change);
        let wait = of(&|text| text.replace("cp.async.wait_group 2;", "cp.async.wait_group 3;"));
        assert_eq!(wait, Some(Some(Kind::InFlight)), "a wait too few");
        let barrier = of(&|text| text.replacen("bar.sync", "// ", 1));
        assert!(
            matches!(barrier, Some(Some(Kind::Race | Kind::InFlight | Kind::Uninitialised))),
            "no barrier: {barrier:?}"
        );
        let swizzle = of(&|text| text.replacen("xor.b32", "or.b32", 1));
        assert!(swizzle.is_some(), "another swizzle");
        let order = of(&|text| text.replacen("fma.rn.f32", "fma.rn.f16x2", 1));
        assert_eq!(order, Some(None), "a sum in half precision");
        let matrices = of(&|text| text.replacen(".x4.shared", ".x4.trans.shared", 1));
        assert_eq!(matrices, Some(None), "a matrix transposed");
    }
}

#[test]
fn mistakes_where_slices_meet() {
    for product in products() {
        assert!(product.plan().tickets > 0);
        let of = |change: &dyn Fn(&str) -> String| found(&product, change);
        // The first fence is the one before a ticket is taken, the second the one behind.
        let before = of(&|text| text.replacen("fence.acq_rel.gpu;", "", 1));
        assert_eq!(before, Some(Some(Kind::Race)), "no fence before the ticket");
        let behind = of(&|text| {
            let (first, rest) = text.split_once("fence.acq_rel.gpu;").expect("a fence");
            format!("{first}fence.acq_rel.gpu;{}", rest.replacen("fence.acq_rel.gpu;", "", 1))
        });
        assert_eq!(behind, Some(Some(Kind::Race)), "no fence behind the ticket");
        let barrier = of(&|text| {
            let (first, rest) = text.split_once("fence.acq_rel.gpu;").expect("a fence");
            let (first, last) = first.rsplit_once("bar.sync").expect("a barrier");
            format!("{first}// {last}fence.acq_rel.gpu;{rest}")
        });
        assert!(
            matches!(barrier, Some(Some(Kind::Race | Kind::Uninitialised))),
            "no barrier before the ticket: {barrier:?}"
        );
    }
}
