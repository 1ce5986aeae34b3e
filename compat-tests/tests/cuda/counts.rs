//! The work of each kernel of a token and of a prompt, as a page.

use std::fmt::Write;

use trine_compat_tests::models::TRILM;
use trine_compat_tests::ptx::Emulated;
use trine_testkit::is_written;

use super::model::{ALL, file, hashes, on_gpu};

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
    is_written("docs/notes/kernels-gpu.md", &page);
}
