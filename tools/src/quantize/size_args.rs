//! The options of `rquantize --target-bpw` and `--target-size`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use trine::quant::Target;
use trine::quant::allocate::Size;

use crate::memory;

/// The options of files of a given size.
#[derive(Args)]
pub struct SizeArgs {
    /// Choose the type of every tensor so that the file has N bits for each weight at most and least is lost
    ///
    /// Each tensor is encoded in every type that its rows allow; bits go where they save most of the error of products,
    /// with --imatrix weighed by importance. OUT.gguf is followed by no TYPE. Tensors that --tensor-type and the like name
    /// have the type that they name. The same model and options give the same file on any machine
    #[arg(long, value_name = "N", conflicts_with_all = ["target_size", "pure", "gptq"], value_parser = bits)]
    pub target_bpw: Option<f64>,

    /// The same for a file of SIZE bytes at most, such as 90M (million) or 8GiB
    #[arg(long, value_name = "SIZE", visible_alias = "fit", conflicts_with_all = ["pure", "gptq"], value_parser = memory::file_size)]
    pub target_size: Option<usize>,

    /// Write the types that were chosen to FILE, which --tensor-type-file reads, llama-quantize's too
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
}

impl SizeArgs {
    /// The size that is asked for, and its option.
    pub fn given(&self) -> Option<(Size, &'static str)> {
        let bits = self.target_bpw.map(|bits| (Size::BitsPerWeight(bits), "--target-bpw"));
        bits.or_else(|| self.target_size.map(|bytes| (Size::File(bytes as u64), "--target-size")))
    }
}

fn bits(text: &str) -> Result<f64, String> {
    let bits = text.parse().ok().filter(|bits: &f64| bits.is_finite() && *bits > 0.0 && *bits <= 64.0);
    bits.ok_or_else(|| "write a number of bits such as 4.5".to_owned())
}

/// The words behind the input: output and threads.
pub(super) fn words<'a>(rest: &[&'a str], option: &str) -> Result<(&'a str, Option<&'a str>)> {
    if let Some(ty) = rest.iter().find(|word| Target::parse(word).is_some() && word.parse::<u32>().is_err()) {
        bail!("{option} chooses the types: leave {ty} out");
    }
    match *rest {
        [out] => Ok((out, None)),
        [out, threads] => Ok((out, Some(threads))),
        _ => bail!("{option} takes IN.gguf OUT.gguf [THREADS]"),
    }
}
