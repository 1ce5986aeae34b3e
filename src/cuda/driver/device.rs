//! A device: what it is called and what it has.

use std::ffi::c_int;

use super::DriverError;
use super::library::{Device, Driver};
use crate::ptx::CAPABILITY;

/// Attributes of the API that tell the compute capability.
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
/// Attributes that tell the clock of multiprocessors in kilohertz, their number, the clock of the memory in kilohertz,
/// and the bits that the memory transfers at once.
const CLOCK: c_int = 13;
const MULTIPROCESSORS: c_int = 16;
const MEMORY_CLOCK: c_int = 36;
const BUS: c_int = 37;

/// A GPU that has what the kernels need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gpu {
    /// Its number, from 0.
    pub number: u32,
    /// The driver's name for it.
    pub name: String,
    /// Its compute capability, such as `(9, 0)`.
    pub capability: (u32, u32),
    /// Bytes of its memory.
    pub memory: u64,
    /// Clocks and widths.
    pub clocks: Clocks,
}

/// Clocks and widths of a device; 0 for what the driver does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clocks {
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Their usual clock, kilohertz.
    pub clock: u32,
    /// The memory's highest clock, kilohertz.
    pub memory_clock: u32,
    /// Bits that the memory transfers at once.
    pub bus: u32,
}

/// Peak rates of a device, per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Peaks {
    /// Bytes read from its memory.
    pub bytes: f64,
    /// Products of bytes in tensor cores.
    pub int8: f64,
    /// Multiply-adds of floats outside of them.
    pub f32: f64,
}

impl Gpu {
    /// Looks for the device of a number, and says what the driver calls it. Nothing is allocated on it.
    ///
    /// # Errors
    /// No such device, or one whose compute capability is too low.
    pub(super) fn find(driver: &Driver, number: u32) -> Result<(Device, Gpu), DriverError> {
        let mut count = 0;
        // SAFETY: there is room for one integer.
        unsafe { driver.count(&mut count)? };
        let count = u32::try_from(count).unwrap_or(0);
        let wanted = c_int::try_from(number).ok();
        let Some(wanted) = wanted.filter(|_| number < count) else {
            return Err(DriverError::NoDevice { wanted: number, count });
        };
        let mut device = 0;
        // SAFETY: there is room for one device, and there are more devices than its number says.
        unsafe { driver.device(&mut device, wanted)? };
        // These are for plans and measurements alone, and drivers may stop to tell them.
        let told = |what| attribute(driver, device, what).unwrap_or(0);
        let gpu = Gpu {
            number,
            name: name(driver, device)?,
            capability: (attribute(driver, device, MAJOR)?, attribute(driver, device, MINOR)?),
            memory: memory(driver, device)?,
            clocks: Clocks {
                multiprocessors: told(MULTIPROCESSORS),
                clock: told(CLOCK),
                memory_clock: told(MEMORY_CLOCK),
                bus: told(BUS),
            },
        };
        if gpu.capability < CAPABILITY {
            return Err(DriverError::Capability { number, name: gpu.name, found: gpu.capability, needed: CAPABILITY });
        }
        Ok((device, gpu))
    }

    /// The peak rates by its clocks and widths; `None` where the driver does not tell one of them, or where the
    /// capability is of a generation whose multiprocessors are not known here.
    pub fn peaks(&self) -> Option<Peaks> {
        let Clocks { multiprocessors, clock, memory_clock, bus } = self.clocks;
        // Products of bytes and multiply-adds of floats that a multiprocessor ends in a cycle, as the maker's
        // descriptions of each generation have them.
        let (int8, f32) = match self.capability {
            (8, 0) => (2048.0, 64.0),
            (8, 7) => (2048.0, 128.0),
            (8, _) => (1024.0, 128.0),
            (9, _) => (4096.0, 128.0),
            (10, _) => (8192.0, 128.0),
            (12, _) => (1024.0, 128.0),
            _ => return None,
        };
        if [multiprocessors, clock, memory_clock, bus].contains(&0) {
            return None;
        }
        let cycles = f64::from(multiprocessors) * f64::from(clock) * 1e3;
        // Memory transfers twice in a cycle of its clock.
        let bytes = 2.0 * f64::from(memory_clock) * 1e3 * f64::from(bus) / 8.0;
        Some(Peaks { bytes, int8: cycles * int8, f32: cycles * f32 })
    }
}

fn name(driver: &Driver, device: Device) -> Result<String, DriverError> {
    let mut name = [0u8; 256];
    // SAFETY: there is room for as many bytes as the call is told, and the device is one that the driver gave.
    unsafe { driver.name(name.as_mut_ptr().cast(), name.len() as c_int, device)? };
    let name = name.split(|&byte| byte == 0).next().unwrap_or(&[]);
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// A property that is no negative number.
fn attribute(driver: &Driver, device: Device, attribute: c_int) -> Result<u32, DriverError> {
    let mut value = 0;
    // SAFETY: there is room for one integer, and the device is one that the driver gave.
    unsafe { driver.attribute(&mut value, attribute, device)? };
    Ok(value.try_into().unwrap_or(0))
}

fn memory(driver: &Driver, device: Device) -> Result<u64, DriverError> {
    let mut bytes = 0;
    // SAFETY: there is room for one size, and the device is one that the driver gave.
    unsafe { driver.memory(&mut bytes, device)? };
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device of a capability with the clocks of an A100 with 40 GB.
    fn gpu(capability: (u32, u32), clocks: Clocks) -> Gpu {
        Gpu { number: 0, name: String::new(), capability, memory: 40 << 30, clocks }
    }

    const A100: Clocks = Clocks { multiprocessors: 108, clock: 1_410_000, memory_clock: 1_215_000, bus: 5120 };

    #[test]
    fn peaks_are_those_of_the_data_sheet() {
        let peaks = gpu((8, 0), A100).peaks().expect("rates");
        // 1555 GB/s, 624 10^12 operations on bytes and 19.5 10^12 on floats, of which a multiply-add is two.
        assert_eq!(peaks.bytes, 1_555_200_000_000.0);
        assert!((peaks.int8 * 2.0 / 624e12 - 1.0).abs() < 1e-3, "{peaks:?}");
        assert!((peaks.f32 * 2.0 / 19.5e12 - 1.0).abs() < 1e-3, "{peaks:?}");
    }

    #[test]
    fn what_the_driver_does_not_tell_has_no_peaks() {
        assert_eq!(gpu((8, 0), Clocks { memory_clock: 0, ..A100 }).peaks(), None);
        assert_eq!(gpu((8, 0), Clocks { multiprocessors: 0, ..A100 }).peaks(), None);
        assert_eq!(gpu((7, 5), A100).peaks(), None);
        assert_eq!(gpu((13, 0), A100).peaks(), None);
    }
}
