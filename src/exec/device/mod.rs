//! GPUs that carry out the last blocks of a model, behind those that stay on the processor.

mod adapters;
mod added;
mod between;
mod cut;
mod experts;
mod offload;
mod record;
mod recurrent;
mod running;
mod slots;
mod tape;

pub use offload::{DeviceError, Gpu, Limits, Offload, Offloaded, Recording, Sharing, check};
pub use running::{OnDevice, Running};
