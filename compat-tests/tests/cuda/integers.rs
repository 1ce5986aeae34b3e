//! Products of all types that are integers have the bits of the definitions.

use trine_compat_tests::ptx::Schedule;
use trine_compat_tests::{is_long, rounds};
use trine_cuda::plan::{self, Launch, Split};
use trine_formats::types::{REGISTRY, TypeId};

use super::mistakes::{alone_with_mistake, shows};
use super::product::{Product, assert_same, module};

/// Every type whose kernels these are.
fn types() -> impl Iterator<Item = TypeId> {
    REGISTRY.iter().map(|info| info.id).filter(|&ty| plan::integers(ty).is_some())
}

/// A launch of a product, by the kernel for few tokens or by that for many, where there is one.
fn launches(product: &Product, warps: usize) -> Vec<Launch> {
    let mut all = vec![product.plan_as(warps, 1, true).product, product.plan_as(warps, 1, false).product];
    all.dedup();
    all
}

#[track_caller]
fn check(product: &Product, warps: usize, schedule: Schedule) {
    for launch in launches(product, warps) {
        let found = product.run_integers(module(launch.module.name), &launch, None, schedule);
        let what =
            format!("{} {} x {} x {}, {}", product.ty, product.rows, product.columns, product.tokens, launch.kernel);
        let (found, _) = found.unwrap_or_else(|fault| panic!("{what}: {fault}"));
        assert_same(&found, &product.expected(), &what);
    }
}

/// Columns: one unit, several, and the end of a row within one.
fn widths(ty: TypeId) -> Vec<usize> {
    let block = ty.info().expect("a type").block;
    match block {
        256 => vec![256, 768],
        _ => vec![block, 256 + block, 1024 - block],
    }
}

#[test]
fn any_shape_of_random_bytes() {
    for (i, ty) in types().enumerate() {
        for (j, columns) in widths(ty).into_iter().enumerate() {
            // Rows and tokens around the ends of tiles, in turn.
            let all = [(17, 1), (16, 9), (5, 8), (70, 33), (33, 3)];
            let some = [all[0], all[1 + (i + j) % 4]];
            for (rows, tokens) in if is_long() { &all[..] } else { &some[..] } {
                let product = Product::random(ty, *rows, columns, *tokens, (columns * 100 + tokens) as u64);
                check(&product, 1 + (i + j) % 8, Schedule::Random(j as u64));
            }
        }
    }
}

/// Random bytes make NaN of many floats; here all sums are numbers.
#[test]
fn sums_that_are_numbers() {
    for ty in types() {
        for seed in 0..rounds(1) as u64 {
            for tokens in [1, 11] {
                let mut product = Product::random(ty, 20, 1024, tokens, seed);
                product.make_finite(seed);
                let numbers = product.expected().iter().filter(|x| x.is_finite()).count();
                assert!(numbers > 18 * tokens, "{ty}: {numbers} of 20 x {tokens}");
                check(&product, 3, Schedule::InTurn);
            }
        }
    }
}

#[test]
fn places_of_chosen_experts() {
    let (experts, used, tokens) = (3, 2, 5);
    // Experts of the places, and eights of places of one expert, of which the last has nobody.
    let chosen = [0, 2, 2, 0, 0, 2, 2, 0, 0, 2];
    let nobody = u32::MAX;
    let mut list = Vec::new();
    for expert in [0, 2] {
        list.push(expert);
        let mut places: Vec<u32> = (0..10).filter(|&place| chosen[place as usize] == expert).collect();
        places.resize(8, nobody);
        list.extend(places);
    }
    list.extend([nobody; 9]);
    for ty in types() {
        let columns = 512.max(ty.info().expect("a type").block);
        let mut product = Product::random(ty, 18, columns, tokens, 7);
        product.make_finite(7);
        let mut all = product.clone();
        all.weights = (0..experts).flat_map(|i| Product::random(ty, 18, columns, 1, 70 + i).weights).collect();
        let mut expected = Vec::new();
        for (place, expert) in chosen.iter().enumerate() {
            let mut one = product.clone();
            let size = all.weights.len() / experts as usize;
            one.weights = all.weights[*expert as usize * size..][..size].to_vec();
            expected.extend_from_slice(&one.expected()[place / used * 18..][..18]);
        }
        let launch = plan::of_chosen(ty, (18, columns), 3).expect("a plan");
        let found = all.run_integers(module("integers"), &launch, Some((&list, tokens * used)), Schedule::Random(3));
        let (found, _) = found.unwrap_or_else(|fault| panic!("{ty}: {fault}"));
        assert_same(&found, &expected, &format!("experts of {ty}"));
    }
}

/// Every kernel, with one mistake each.
#[test]
fn mistakes_are_found() {
    let mut seen = Vec::new();
    for ty in types() {
        let product = |tokens| {
            let mut product = Product::random(ty, 33, 1024, tokens, 5);
            product.make_finite(5);
            product
        };
        let [one, some] = [product(1), product(11)];
        let of_one = launches(&one, 3).into_iter().map(|launch| (&one, launch));
        for (product, launch) in of_one.chain(launches(&some, 3).into_iter().map(|launch| (&some, launch))) {
            if seen.contains(&launch.kernel) {
                continue;
            }
            let of = |change: &dyn Fn(&str) -> String| {
                let module = alone_with_mistake(launch.module, &launch.kernel, change);
                let run = |schedule| Ok(product.run_integers(&module, &launch, None, schedule)?.0);
                shows(&product.expected(), run).is_some()
            };
            let kernel = &launch.kernel;
            assert!(!of(&|t| format!("{t} ")), "{kernel}: no mistake");
            assert!(of(&|t| t.replace("add.rn.f32", "mul.rn.f32")), "{kernel}: products for sums");
            let left_out = |t: &str| t.replacen("mma.sync", "// mma.sync", 1).replacen("dp4a", "// dp4a", 1);
            // A register that nothing was written to is a fault of its own.
            assert!(of(&left_out), "{kernel}: a product left out");
            assert!(of(&|t| t.replace("mul.rn.f32", "add.rn.f32")), "{kernel}: scales added");
            assert!(of(&|t| t.replace("bar.sync", "// ")), "{kernel}: no barrier");
            seen.push(launch.kernel);
        }
    }
    assert!(seen.len() > 60, "{seen:?}");
}

#[test]
fn a_product_has_its_plan_or_is_refused() {
    for ty in types() {
        let block = ty.info().expect("a type").block;
        for tokens in [1, 8, 16, 17, 64] {
            let plan = plan::product(ty, 100, 4 * block, tokens).expect("a plan");
            assert!(plan.add.is_none() && plan.workspace == 0);
            let many = plan.product.kernel.starts_with("many_");
            assert!(!many || tokens > 16, "{ty} {tokens}");
            assert_eq!(plan.product.kernel.starts_with("one_"), tokens == 1);
            let covered = plan.product.blocks[1] as usize * if many { 32 } else { 8 };
            assert!((tokens..tokens + 32).contains(&covered));
        }
        assert!(plan::product_as(ty, (0, 256, 1), Split { warps: 1, parts: 1 }, true).is_err());
    }
}
