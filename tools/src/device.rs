//! The option that says where a model runs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use trine::exec::Offload;
use trine_cuda::driver::{self, Gpu};
use trine_cuda::run::Shared;

/// The option by its name of several letters.
pub const SHORT: (&str, &str) = ("-dev", "--device");

/// Devices that can run a model.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// The NVIDIA GPU of a number.
    Cuda(u32),
}

impl FromStr for Device {
    type Err = String;

    /// `cpu`, `cuda` and `cuda:1`; as llama.cpp has it, `none` for no GPU and `CUDA1`.
    fn from_str(text: &str) -> Result<Device, String> {
        let small = text.to_ascii_lowercase();
        if ["cpu", "none"].contains(&small.as_str()) {
            return Ok(Device::Cpu);
        }
        let number = small.strip_prefix("cuda").map(|rest| {
            let digits = rest.strip_prefix(':').unwrap_or(rest);
            let plain = digits.bytes().all(|b| b.is_ascii_digit());
            match rest {
                "" => Some(0),
                _ if plain => digits.parse().ok(),
                _ => None,
            }
        });
        let number = number.flatten();
        number.map(Device::Cuda).ok_or_else(|| "it is cpu, cuda, or cuda:N for the GPU of number N".to_owned())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// `--device`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct PlaceArgs {
    /// Where the model runs, also -dev: cpu, or cuda and cuda:N for an NVIDIA GPU with compute capability 8.0 or newer.
    /// The result has the same bits
    #[arg(long, value_name = "cpu|cuda[:N]", default_value_t)]
    pub device: Device,
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
    /// The GPU that runs layers; `None` for the processor, of which nothing is asked.
    ///
    /// # Errors
    /// The device is not there or cannot be used.
    pub fn offload(&self) -> Result<Option<Offload>> {
        self.place.say_if_unused(self.n_gpu_layers.as_slice());
        self.place.offload(self.n_gpu_layers)
    }
}

impl PlaceArgs {
    /// Says that nothing becomes of `layers` where the processor runs all.
    pub fn say_if_unused(&self, layers: &[usize]) {
        if self.device == Device::Cpu && layers.iter().any(|&layers| layers > 0) {
            note!("note: -ngl: the model runs on the processor; --device cuda runs it on an NVIDIA GPU");
        }
    }

    /// The GPU that runs the last `layers`, all without a number; `None` for the processor.
    ///
    /// # Errors
    /// The device is not there or cannot be used.
    pub fn offload(&self, layers: Option<usize>) -> Result<Option<Offload>> {
        let offload =
            |context| Offload { device: Arc::new(Shared::new(context)), layers: layers.unwrap_or(usize::MAX) };
        Ok(self.context()?.map(offload))
    }

    fn context(&self) -> Result<Option<driver::Context>> {
        let Device::Cuda(number) = self.device else {
            return Ok(None);
        };
        let instead = || format!("--device {} (--device cpu needs no GPU)", self.device);
        driver::Context::open(number).map(Some).with_context(instead)
    }

    /// The GPU itself; `None` for the processor. Nothing is allocated on it.
    ///
    /// # Errors
    /// The device is not there or cannot be used.
    pub fn gpu(&self) -> Result<Option<Gpu>> {
        Ok(self.context()?.map(|context| context.gpu().clone()))
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

    #[test]
    fn names_of_devices() {
        for (text, device) in [
            ("cpu", Device::Cpu),
            ("CPU", Device::Cpu),
            ("none", Device::Cpu),
            ("cuda", Device::Cuda(0)),
            ("cuda:0", Device::Cuda(0)),
            ("cuda:17", Device::Cuda(17)),
            ("CUDA1", Device::Cuda(1)),
        ] {
            assert_eq!(text.parse(), Ok(device), "{text}");
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:1x", "cuda:4294967296", "cuda 1", "cpu:0"] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }
}
