//! The functions of graphs.

use std::ffi::{c_uint, c_void};

use super::{call, give, launch};
use crate::Code;
use crate::state::{GRAPHS, READY, mistake};

api! {
    fn cuStreamBeginCapture_v2(state, stream: *mut c_void, mode: c_uint) {
        let one = state.entered()?;
        one.stream(stream.addr());
        if mode > 2 {
            mistake("a way to record that is none");
        }
        one.recorded = Some(Vec::new());
        Ok(())
    }

    fn cuStreamEndCapture(state, stream: *mut c_void, graph: *mut *mut c_void) {
        let one = state.entered()?;
        one.queue(stream.addr());
        let Some(recorded) = one.recorded.take() else {
            mistake("a queue that does not record");
        };
        one.graphs.push(Some(recorded));
        let number = one.first(GRAPHS) + one.graphs.len() - 1;
        // SAFETY: the caller's.
        unsafe { give(graph, std::ptr::without_provenance_mut(number)) };
        Ok(())
    }

    fn cuGraphInstantiateWithFlags(state, ready: *mut *mut c_void, graph: *mut c_void, flags: u64) {
        let one = state.entered()?;
        if flags != 0 {
            mistake("a flag of graphs that is not known");
        }
        let launches = one.graph(GRAPHS, graph.addr(), false);
        one.ready.push(Some(launches));
        let number = one.first(READY) + one.ready.len() - 1;
        // SAFETY: the caller's.
        unsafe { give(ready, std::ptr::without_provenance_mut(number)) };
        Ok(())
    }

    fn cuGraphDestroy(state, graph: *mut c_void) {
        state.current()?.graph(GRAPHS, graph.addr(), true);
        Ok(())
    }

    fn cuGraphLaunch(state, ready: *mut c_void, stream: *mut c_void) {
        let number = state.work(stream.addr())?;
        let one = &mut state.devices[number];
        let launches = one.graph(READY, ready.addr(), false);
        state.note(&format!("a graph of {}", launches.len()));
        // Nobody hears of a failed kernel before the next call.
        let _ = launches.iter().try_for_each(|checked| launch(state, checked));
        Ok(())
    }

    fn cuGraphExecDestroy(state, ready: *mut c_void) {
        state.current()?.graph(READY, ready.addr(), true);
        Ok(())
    }
}
