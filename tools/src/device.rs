//! The option that says where a model runs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use trine::exec::{self, Offload, Sharing};
use trine_cuda::driver::{self, Gpu};
use trine_cuda::run::Shared;

/// The option by its name of several letters.
pub const SHORT: (&str, &str) = ("-dev", "--device");

/// The most GPUs that share a model, as many as llama.cpp has.
const MOST: usize = 16;

/// Devices that can run a model.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// NVIDIA GPUs.
    Cuda(Gpus),
}

/// The numbers of one or several GPUs, in the order in which they run layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gpus {
    count: usize,
    numbers: [u32; MOST],
}

impl Gpus {
    /// Some numbers, each once.
    fn of(list: &[u32]) -> Option<Gpus> {
        let twice = |(i, number): (usize, &u32)| list[..i].contains(number);
        if list.is_empty() || list.len() > MOST || list.iter().enumerate().any(twice) {
            return None;
        }
        let mut numbers = [0; MOST];
        numbers[..list.len()].copy_from_slice(list);
        Some(Gpus { count: list.len(), numbers })
    }

    /// The numbers.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers[..self.count]
    }
}

impl FromStr for Device {
    type Err = String;

    /// `cpu`, `cuda`, `cuda:1` and `cuda:0,cuda:1`; as llama.cpp has it, `none` for no GPU and `CUDA0,CUDA1`.
    fn from_str(text: &str) -> Result<Device, String> {
        let small = text.to_ascii_lowercase();
        if ["cpu", "none"].contains(&small.as_str()) {
            return Ok(Device::Cpu);
        }
        let number = |name: &str| {
            let rest = name.strip_prefix("cuda")?;
            let digits = rest.strip_prefix(':').unwrap_or(rest);
            let plain = digits.bytes().all(|b| b.is_ascii_digit());
            match rest {
                "" => Some(0),
                _ if plain => digits.parse().ok(),
                _ => None,
            }
        };
        let numbers = small.split(',').map(number).collect::<Option<Vec<u32>>>();
        let gpus = numbers.and_then(|numbers| Gpus::of(&numbers));
        gpus.map(Device::Cuda).ok_or_else(|| {
            "it is cpu, cuda, cuda:N for the GPU of number N, or several of these with commas, each once".to_owned()
        })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(gpus) => {
                let names = gpus.numbers().iter().map(|number| format!("cuda:{number}"));
                f.write_str(&names.collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// How a model is cut over several GPUs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Split {
    /// One GPU runs all layers.
    None,
    /// Each GPU runs some of the layers.
    #[default]
    Layer,
    /// Each GPU has some rows of every matrix.
    Row,
}

impl FromStr for Split {
    type Err = String;

    fn from_str(text: &str) -> Result<Split, String> {
        match text {
            "none" => Ok(Split::None),
            "layer" => Ok(Split::Layer),
            "row" | "tensor" => Ok(Split::Row),
            _ if text.contains(',') => Err("one at a time: give layer, row or none".to_owned()),
            _ => Err("it is layer, row or none".to_owned()),
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Split::None => "none",
            Split::Layer => "layer",
            Split::Row => "row",
        })
    }
}

/// The shares of GPUs in the layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares(Vec<f32>);

impl FromStr for Shares {
    type Err = String;

    /// Numbers from 0 between commas or, as llama.cpp has it too, slashes.
    fn from_str(text: &str) -> Result<Shares, String> {
        let number = |word: &str| word.trim().parse::<f32>().ok().filter(|n| n.is_finite() && *n >= 0.0);
        let shares = text.split([',', '/']).map(number).collect::<Option<Vec<f32>>>();
        shares.map(Shares).ok_or_else(|| "give a number from 0 for each GPU, such as 3,1".to_owned())
    }
}

/// `--device`, and how several GPUs share a model.
#[derive(Args, Clone, Debug, Default)]
pub struct PlaceArgs {
    /// Where the model runs, also -dev: cpu, or cuda and cuda:N for an NVIDIA GPU with compute capability 8.0 or newer,
    /// or several of these with commas, which share its layers or, with -sm row, the rows of its matrices. The result has the same bits
    #[arg(long, value_name = "cpu|cuda[:N],...", default_value_t)]
    pub device: Device,

    /// How several GPUs share the model, also -sm: layer for some of the layers each, row (or tensor) for some rows of
    /// every matrix each, or none for one GPU that runs all (--main-gpu). The result has the same bits
    #[arg(long, value_name = "layer|row|none", default_value_t)]
    pub split_mode: Split,

    /// The shares of the GPUs in the layers or rows, also -ts: 3,1 gives the first three times as many as the second.
    /// Without it they have shares by their free memory. The result has the same bits
    #[arg(long, value_name = "N,...")]
    pub tensor_split: Option<Shares>,

    /// The GPU that runs the model with --split-mode none, also -mg: its place in the list of --device, from 0
    #[arg(long, value_name = "N")]
    pub main_gpu: Option<usize>,
}

/// `--device` and `-ngl`.
#[derive(Args, Clone, Debug, Default)]
pub struct DeviceArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub place: PlaceArgs,

    /// How many layers the GPU runs, also -ngl: the last N, where the logits count as one and all is every one. The
    /// others run on the processor. The result has the same bits
    #[arg(long, value_name = "N|all", value_parser = layers, alias = "gpu-layers", allow_negative_numbers = true)]
    pub n_gpu_layers: Option<usize>,
}

/// The option of several letters for the layers.
pub const SHORT_LAYERS: (&str, &str) = ("-ngl", "--n-gpu-layers");

/// Options of several letters for how GPUs share a model.
pub const SHORT_SPLIT: [(&str, &str); 3] = [("-sm", "--split-mode"), ("-ts", "--tensor-split"), ("-mg", "--main-gpu")];

/// Parses a number of layers.
///
/// # Errors
/// No number and no `all`.
pub fn layers(text: &str) -> Result<usize, String> {
    match text {
        // llama.cpp has -1 for it.
        "all" | "auto" | "-1" => Ok(usize::MAX),
        _ => text.parse().map_err(|_| "give a whole number from 0, or all".to_owned()),
    }
}

impl DeviceArgs {
    /// The GPU that runs layers, with any-precision weights of some widths, all without any; `None` for the processor, of
    /// which nothing is asked.
    ///
    /// # Errors
    /// The device is not there or cannot be used.
    pub fn offload(&self, widths: &[u8]) -> Result<Option<Offload>> {
        self.place.say_if_unused(self.n_gpu_layers.as_slice());
        self.place.offload(self.n_gpu_layers, widths)
    }
}

impl PlaceArgs {
    /// Says that nothing becomes of `layers` where the processor runs all.
    pub fn say_if_unused(&self, layers: &[usize]) {
        if self.device == Device::Cpu && layers.iter().any(|&layers| layers > 0) {
            note!("note: -ngl: the model runs on the processor; --device cuda runs it on an NVIDIA GPU");
        }
    }

    /// The GPU that runs the last `layers`, all without a number, with any-precision weights of some widths, all without
    /// any; `None` for the processor.
    ///
    /// # Errors
    /// The device is not there or cannot be used.
    pub fn offload(&self, layers: Option<usize>, widths: &[u8]) -> Result<Option<Offload>> {
        let numbers = self.numbers()?;
        let layers = layers.unwrap_or(usize::MAX);
        let mut gpus = Vec::with_capacity(numbers.len());
        for number in numbers {
            let host = Arc::new(Shared::new(self.context(number)?));
            gpus.push(exec::Gpu { name: format!("cuda:{number}"), host });
        }
        let shares = self.tensor_split.as_ref().map_or(&[][..], |shares| &shares.0);
        match gpus.is_empty() {
            true => Ok(None),
            false => {
                let sharing = if self.split_mode == Split::Row { Sharing::Rows } else { Sharing::Layers };
                Ok(Some(Offload { widths: widths.to_vec(), sharing, ..Offload::among(gpus, shares, layers)? }))
            }
        }
    }

    /// The numbers of the GPUs that run layers; none for the processor.
    ///
    /// # Errors
    /// Shares or a main GPU of other GPUs than there are.
    fn numbers(&self) -> Result<Vec<u32>> {
        let Device::Cuda(gpus) = self.device else {
            let unused = [self.tensor_split.is_some(), self.main_gpu.is_some(), self.split_mode != Split::Layer];
            if unused.contains(&true) {
                note!("note: -sm, -ts and -mg: the model runs on the processor; --device cuda:0,cuda:1 names GPUs");
            }
            return Ok(Vec::new());
        };
        let (named, count) = (gpus.numbers(), gpus.numbers().len());
        if let Some(Shares(shares)) = &self.tensor_split
            && shares.len() > count
        {
            let given = shares.len();
            bail!("--tensor-split: {given} shares for {count} of --device {}; name every GPU there", self.device);
        }
        let main = self.main_gpu.unwrap_or(0);
        if main >= count {
            bail!("--main-gpu {main}: --device {} has {count}, counted from 0", self.device);
        }
        if self.split_mode == Split::None {
            if self.tensor_split.is_some() {
                bail!("--tensor-split is for --split-mode layer and row; leave it out");
            }
            return Ok(vec![named[main]]);
        }
        if self.main_gpu.is_some() && count > 1 {
            note!("note: --main-gpu: with --split-mode {} no GPU has more to do than its share", self.split_mode);
        }
        Ok(named.to_vec())
    }

    fn context(&self, number: u32) -> Result<driver::Context> {
        let instead = || format!("--device {} (--device cpu needs no GPU)", self.device);
        driver::Context::open(number).with_context(instead)
    }

    /// The GPU itself; `None` for the processor. Nothing is allocated on it.
    ///
    /// # Errors
    /// The device is not there or cannot be used; there are several.
    pub fn gpu(&self) -> Result<Option<Gpu>> {
        match self.numbers()?[..] {
            [] => Ok(None),
            [number] => Ok(Some(self.context(number)?.gpu().clone())),
            _ => bail!("--device {}: this is for one device; name one", self.device),
        }
    }

    /// Refuses a GPU, which is for `what` alone.
    ///
    /// # Errors
    /// `--device` names a GPU.
    pub fn refuse(&self, what: &str) -> Result<()> {
        match self.device {
            Device::Cpu => Ok(()),
            Device::Cuda(_) => bail!("--device {} is for {what}; leave it out", self.device),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(numbers: &[u32]) -> Device {
        Device::Cuda(Gpus::of(numbers).expect("a few GPUs"))
    }

    #[test]
    fn shares_and_ways_to_share() {
        assert_eq!("3,1".parse(), Ok(Shares(vec![3.0, 1.0])));
        assert_eq!("0.5/1/0".parse(), Ok(Shares(vec![0.5, 1.0, 0.0])));
        for text in ["", "3,", "-1,2", "nan", "inf,1", "3;1"] {
            assert!(text.parse::<Shares>().is_err(), "{text}");
        }
        assert_eq!("layer".parse(), Ok(Split::Layer));
        assert_eq!(("row".parse(), "tensor".parse()), (Ok(Split::Row), Ok(Split::Row)));
        assert!("layer,row".parse::<Split>().expect_err("one").contains("one at a time"));
    }

    #[test]
    fn names_of_devices() {
        for (text, device) in [
            ("cpu", Device::Cpu),
            ("CPU", Device::Cpu),
            ("none", Device::Cpu),
            ("cuda", gpus(&[0])),
            ("cuda:0", gpus(&[0])),
            ("cuda:17", gpus(&[17])),
            ("CUDA1", gpus(&[1])),
            ("CUDA1,CUDA0", gpus(&[1, 0])),
            ("cuda:0,cuda:2", gpus(&[0, 2])),
        ] {
            assert_eq!(text.parse(), Ok(device), "{text}");
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        for text in [
            "",
            "gpu",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:1x",
            "cuda:4294967296",
            "cuda 1",
            "cpu:0",
            "cuda:0,cuda:0",
            "cuda:0,",
            "cuda:0,cpu",
        ] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }
}
