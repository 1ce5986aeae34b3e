//! The work of each kernel of a token and of a prompt, as a page.

use std::fmt::Write;

use trine_compat_tests::models::TRILM;
use trine_compat_tests::ptx::{Emulated, Schedule};
use trine_cuda::plan;
use trine_formats::types::{REGISTRY, TypeId};
use trine_testkit::is_written;

use super::model::{ALL, file, hashes, on_gpu};
use super::product::{Product, module};

#[test]
fn the_page_has_the_work_of_each_kernel() {
    let mut page = String::from(
        "# Notes: the work of kernels\n\nInstructions and bytes of each kernel of a pass, counted by the emulator: the bundled LLaMA of six layers (256 columns, 5.8 million weights). \
         Instructions are those of PTX\nthat warps execute; bytes are what their loads from global memory and their stores there would move with all 32 lanes, before any cache. `TRINE_WRITE_DOCS=1 cargo test --release \
         --workspace --test cuda counts` writes this\npage.\n",
    );
    for ty in ["TQ2_0", "Q8_0", "F16", "BF16"] {
        let file = file(TRILM, ty);
        for tokens in [1, 16] {
            let device = Emulated::new().expect("PTX");
            let launched = device.launched.clone();
            let ids: Vec<u32> = (0..tokens).map(|i| 100 * i + 7).collect();
            hashes(&on_gpu(&file, device, ALL), &ids, ids.len());
            let what = if tokens == 1 { "a token".to_owned() } else { format!("a prompt of {tokens} tokens") };
            let _ = write!(
                page,
                "\n## {ty}, {what}\n\n| kernel | launches | instructions | bytes loaded | bytes stored |\n|---|--:|--:|--:|--:|\n"
            );
            for (kernel, work) in launched.lock().expect("launches").iter() {
                let (launches, instructions, [loaded, stored]) = (work.launches, work.instructions, work.bytes);
                let _ = writeln!(page, "| `{kernel}` | {launches} | {instructions} | {loaded} | {stored} |");
            }
        }
    }
    page += &products();
    is_written("docs/notes/kernels-gpu.md", &page);
}

/// Products of types that are integers: how much a weight costs.
fn products() -> String {
    let mut table = String::from(
        "\n## Products of long rows\n\nInstructions that warps execute for 4,096 weights, 16 rows of 256 columns, of a matrix of 4,096 columns. With \
         32 threads to a warp, 128 of them are\none for each weight. More than 16 tokens take kernels that read weights once for 16 (types without such a kernel read them once for eight).\n\n\
         | type | 1 token | 8 tokens | 32 tokens |\n|---|--:|--:|--:|\n",
    );
    let own = [TypeId::TQ2_0, TypeId::Q8_0, TypeId::Q4_0];
    let others = REGISTRY.iter().map(|info| info.id).filter(|&ty| plan::integers(ty).is_some());
    for ty in own.into_iter().chain(others) {
        let info = ty.info().expect("a type");
        let _ = write!(table, "| {} |", info.name.to_uppercase());
        for (rows, tokens) in [(16, 1), (16, 8), (64, 32)] {
            let product = Product::random(ty, rows, 4096, tokens, 1);
            let plan = product.plan_as(4, 1, tokens <= 16);
            let report = match plan::integers(ty) {
                Some(_) => {
                    let launch = &plan.product;
                    let done = product.run_integers(module(launch.module.name), launch, None, Schedule::InTurn);
                    done.unwrap_or_else(|fault| panic!("{ty}: {fault}")).1
                }
                None => product.run(&plan, Schedule::InTurn).1,
            };
            let _ = write!(table, " {} |", report.instructions / rows as u64);
        }
        table.push('\n');
    }
    table
}
