//! Targets of rquantize: their names, and their help texts.

use std::fmt::Write as _;

use trine::quant::lossless::Packed;
use trine::quant::{Ftype, Group, Target};

use crate::widely;

/// Names of targets; of any-precision ones some.
pub fn names() -> impl Iterator<Item = &'static str> {
    Target::names().chain(["AP", "AP3-8", "AP4", "SQ3", "SQ4", widely::TARGET])
}

/// The text below the options in `--help`.
pub fn long_help() -> String {
    let mut text = String::from(
        "Examples:
  rquantize model-F16.gguf model-Q4_K_M.gguf Q4_K_M
  rquantize trilm-F16.gguf trilm-TQ2_0.gguf TQ2_0 4
  rquantize --dry-run model-F16.gguf Q5_K_S
  rquantize --verify bitnet-TQ2_0.gguf bitnet-I2_S.gguf I2_S      the same weights, for bitnet.cpp
  rquantize --imatrix imatrix.gguf model-F16.gguf small.gguf Q2_K_S
  rquantize --imatrix imatrix.gguf --target-size 5G model-F16.gguf small.gguf    the best types for this size
  rquantize --imatrix imatrix.gguf --target-kld 0.05 --kld-text text.txt model-F16.gguf small.gguf
  rquantize --imatrix imatrix.gguf --target-size 5G --for ik model-F16.gguf small.gguf     with ik_llama.cpp's types
  rquantize --gptq hessian.gguf model-F16.gguf model-Q4_0.gguf Q4_0       error feedback; see rimatrix --hessian
  rquantize --gptq hessian.gguf --target-size 5G model-F16.gguf small.gguf   the best file of this size
  rquantize --tune text.txt --reference model-F16.gguf model-Q4_0.gguf tuned.gguf    scales by gradient, same codes
  rquantize --tensor-type 'blk\\.[0-3]\\.ffn_down=q8_0' model-F16.gguf out.gguf Q4_0
  rquantize --allow-requantize --fallback model-Q8_0.gguf out.gguf Q4_K_M
  rquantize --imatrix imatrix.gguf model-F16.gguf model-AP.gguf AP3-8     runs at 3, 4, 5, 6, 7 and 8 bits
  rquantize --width 4 model-AP.gguf model-4.gguf                          one width of it
  rquantize --dry-run model-F16.gguf AP --widths 3,6                      true sizes, tables included
  rquantize model-BF16.gguf model-fairy2i.gguf FAIRY2I --wl-stages 2      weights of +-1 and +-i, 2 bits each
  rquantize model-fairy2i.gguf dense.gguf F16                             the matrices that it computes with
  rquantize --rotate 1024:signs model-F16.gguf rotated.gguf               the same model in a basis without outliers
  rquantize --unrotate rotated.gguf plain.gguf F16                        and back
  rquantize --split-max-size 2G model.gguf model                          model-00001-of-0000N.gguf, as llama-gguf-split
  rquantize --merge model-00001-of-00003.gguf whole.gguf

Types (the number of general.file_type, bits per weight of the main type, and what is particular):
",
    );
    for &group in Group::ALL {
        let _ = writeln!(text, "  {}", group.title());
        for &t in Ftype::ALL.iter().filter(|t| t.group() == group) {
            let bits = t.default_type().info().map_or(0.0, |i| i.bits_per_weight());
            let line = format!("    {:<10} {:>2}  {bits:>6.3}  {}", t.name(), t as u32, t.note());
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let _ = writeln!(text, "  bitnet.cpp");
    for p in Packed::ALL {
        let bits = p.type_id().info().map_or(0.0, |i| i.bits_per_weight());
        let _ = writeln!(text, "    {:<10} {:>2}  {bits:>6.3}  {}", p.name(), p.file_type(), p.note());
    }
    text += "  any-precision, for trine
    APn-m           codes of n to m bits that are one another's beginnings; AP chooses m by the length of
                    the rows: tables of 2^bits entries for each row are small only where rows are long
    APn, SQn        codes of n bits; SQ is SqueezeLLM, with its rules for --outliers
";
    text += "  widely linear, for trine (Fairy2i)
    FAIRY2I         complex weights of +-1 and +-i in stages of one bit per weight, for LLaMA, Qwen 2 and Qwen 3; models
                    are trained for it. F32, F16 and BF16 make such a file dense again. Files of the Fairy2i
                    fork of llama.cpp are translated
";
    text += "  COPY           keeps every tensor, in the order and with the keys of a quantized file\n\n";
    text += "Exit status: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted.";
    text
}
