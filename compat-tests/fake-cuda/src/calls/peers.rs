//! The functions between devices.

use std::ffi::{c_int, c_uint, c_void};

use super::{call, give};
use crate::Code;
use crate::state::{EVENTS, mistake};

/// The answer that a device may write another one's memory already.
const ALREADY: Code = 704;

api! {
    fn cuDeviceCanAccessPeer(state, can: *mut c_int, device: c_int, other: c_int) {
        state.ready()?;
        if device == other || state.one(device).holds == 0 || state.one(other).holds == 0 {
            mistake("a device that is to reach itself, or one that is not held");
        }
        // SAFETY: the caller's.
        unsafe { give(can, c_int::from(state.plan.reaches)) };
        Ok(())
    }

    fn cuCtxEnablePeerAccess(state, other: *mut c_void, flags: c_uint) {
        let other = state.of_context(other.addr());
        let reaches = state.plan.reaches;
        let one = state.entered()?;
        if flags != 0 || !reaches {
            mistake("a device that cannot be reached");
        }
        if !one.reached.insert(other) {
            return Err(ALREADY);
        }
        state.note("reach");
        Ok(())
    }

    fn cuMemcpyPeerAsync(
        state,
        to: u64,
        to_context: *mut c_void,
        from: u64,
        from_context: *mut c_void,
        bytes: usize,
        stream: *mut c_void
    ) {
        let [target, source] = [to_context, from_context].map(|context| state.of_context(context.addr()));
        let one = state.entered()?;
        one.stream(stream.addr());
        if one.number != source || source == target {
            mistake("a copy in the queue of another device");
        }
        if !state.order.send(source, target) {
            mistake("a copy into memory that the other device may still use");
        }
        let one = &state.devices[source];
        let (buffer, at) = one.memory(from, bytes);
        let copied = one.device.some_bytes(buffer, at, bytes).to_vec();
        let other = &mut state.devices[target];
        let (buffer, at) = other.memory(to, bytes);
        other.device.fill(buffer, at, &copied);
        state.note("send");
        Ok(())
    }

    fn cuEventCreate(state, event: *mut *mut c_void, flags: c_uint) {
        state.entered()?;
        if flags != 2 {
            mistake("an event with a time, which nobody asks for");
        }
        let number = EVENTS + state.order.event();
        // SAFETY: the caller's.
        unsafe { give(event, std::ptr::without_provenance_mut(number)) };
        Ok(())
    }

    fn cuEventRecord(state, event: *mut c_void, stream: *mut c_void) {
        let one = state.entered()?;
        one.stream(stream.addr());
        let number = one.number;
        if !state.order.record(event.addr().wrapping_sub(EVENTS), number) {
            mistake("an event that is not there");
        }
        Ok(())
    }

    fn cuStreamWaitEvent(state, stream: *mut c_void, event: *mut c_void, flags: c_uint) {
        let one = state.entered()?;
        one.stream(stream.addr());
        let number = one.number;
        if flags != 0 || !state.order.wait_for(event.addr().wrapping_sub(EVENTS), number) {
            mistake("an event that is not there");
        }
        Ok(())
    }

    fn cuEventDestroy_v2(state, event: *mut c_void) {
        match state.order.at(event.addr().wrapping_sub(EVENTS)) {
            Some(event) => *event = None,
            None => mistake("an event that is not there"),
        }
        Ok(())
    }
}
