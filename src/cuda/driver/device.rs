//! A device: what it is called and what it has.

use std::ffi::c_int;

use super::DriverError;
use super::library::{Device, Driver};
use crate::ptx::CAPABILITY;

/// Attributes of the API that tell the compute capability.
const MAJOR: c_int = 75;
const MINOR: c_int = 76;

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
        let gpu = Gpu {
            number,
            name: name(driver, device)?,
            capability: (attribute(driver, device, MAJOR)?, attribute(driver, device, MINOR)?),
            memory: memory(driver, device)?,
        };
        if gpu.capability < CAPABILITY {
            return Err(DriverError::Capability { number, name: gpu.name, found: gpu.capability, needed: CAPABILITY });
        }
        Ok((device, gpu))
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
