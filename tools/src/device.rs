//! The option that says where a model runs.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use clap::Args;
use trine_cuda::driver::Gpu;

/// The option by its name of several letters.
pub const SHORT: (&str, &str) = ("-dev", "--device");

/// What can run a model.
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
        number
            .map(Device::Cuda)
            .ok_or_else(|| "it is cpu, cuda, or cuda:N for the GPU of number N".to_owned())
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
#[derive(Args, Clone, Debug, Default)]
pub struct DeviceArgs {
    /// Where the model runs, also -dev: cpu. cuda and cuda:N look for an NVIDIA GPU and say whether its driver and the GPU can be
    /// used; models do not run on one yet, so they end with an error
    #[arg(long, value_name = "cpu|cuda[:N]", default_value_t)]
    pub device: Device,
}

impl DeviceArgs {
    /// Looks whether models can run where they are to. Nothing of a GPU is touched for the processor.
    ///
    /// # Errors
    /// The device is not there, cannot be used, or is a GPU, on which no model runs yet.
    pub fn check(&self) -> Result<()> {
        let Device::Cuda(number) = self.device else {
            return Ok(());
        };
        let instead = || format!("--device {} (--device cpu needs no GPU)", self.device);
        let gpu = Gpu::find(number).with_context(instead)?;
        let ((major, minor), gib) = (gpu.capability, gpu.memory as f64 / (1u64 << 30) as f64);
        bail!(
            "--device {}: {} with compute capability {major}.{minor} and {gib:.1} GiB is there, but models do not run on a GPU yet: \
             use --device cpu",
            self.device,
            gpu.name
        )
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
        ] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }
}
