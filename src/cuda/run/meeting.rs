//! Places where devices wait for one another, while who starts their work does not.

use super::Failure;
use crate::device::Device;

/// A mark for each device, used again at every meeting.
pub(super) struct Meeting<D: Device>(Vec<D::Mark>);

impl<D: Device> Default for Meeting<D> {
    fn default() -> Self {
        Meeting(Vec::new())
    }
}

impl<D: Device> Meeting<D> {
    /// Lets devices send one another something: behind all that each of them was given, and before all that each will be
    /// given.
    ///
    /// # Errors
    /// Those of `send` and of the devices.
    pub fn exchange<'d, T: AsMut<[&'d mut D]>>(
        &mut self,
        devices: &mut T,
        send: impl FnOnce(&mut T) -> Result<(), Failure>,
    ) -> Result<(), Failure>
    where
        D: 'd,
    {
        // Memory that is sent to may be in use until here, and what arrives is used from there on.
        self.wait(devices.as_mut())?;
        send(devices)?;
        self.wait(devices.as_mut())
    }

    /// Each device waits for all that the others were given.
    fn wait(&mut self, devices: &mut [&mut D]) -> Result<(), Failure> {
        let Meeting(marks) = self;
        marks.resize_with(devices.len(), D::Mark::default);
        for (device, mark) in devices.iter_mut().zip(marks.iter_mut()) {
            device.mark(mark).map_err(Failure::of)?;
        }
        for (number, device) in devices.iter_mut().enumerate() {
            for (_, mark) in marks.iter().enumerate().filter(|(other, _)| *other != number) {
                device.after(mark).map_err(Failure::of)?;
            }
        }
        Ok(())
    }
}
