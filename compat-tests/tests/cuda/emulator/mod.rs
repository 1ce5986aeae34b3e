//! Every instruction against a formula of its own, and faults that have to be found.

mod blocks;
mod collective;
mod faults;
mod floats;
mod integers;
mod lanes;
mod launches;

use trine_compat_tests::ptx::{Argument, Device, Fault, Launch, Module, Report};

/// A module of one kernel `k` with these arguments, registers `%r`, `%rd`, `%f` and `%p` of each sort, and this body.
fn module(arguments: &[&str], shared: usize, body: &str) -> Module {
    let arguments: Vec<String> = arguments.iter().enumerate().map(|(i, ty)| format!(".param .{ty} a{i}")).collect();
    let text = format!(
        ".version 7.4\n.target sm_80\n.address_size 64\n.visible .entry k({})\n{{\n\
         .reg .pred %p<9>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n.shared .align 16 .b8 s[{shared}];\n{body}\n}}\n",
        arguments.join(",\n")
    );
    Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Runs a kernel that takes a buffer of dwords and writes one of as many bytes as `output` says.
fn run(body: &str, shared: usize, input: &[u32], output: usize, launch: &Launch) -> Result<(Vec<u32>, Report), Fault> {
    let module = module(
        &["u64", "u64"],
        shared,
        &format!("ld.param.u64 %rd1, [a0];\nld.param.u64 %rd2, [a1];\nmov.u32 %r1, %tid.x;\n{body}\nret;"),
    );
    let mut device = Device::new();
    let bytes = input.iter().flat_map(|d| d.to_le_bytes()).collect();
    let (from, to) = (device.constant(bytes), device.empty(output));
    let arguments = [Argument::Buffer(from), Argument::Buffer(to)];
    let launch = Launch { arguments: &arguments, ..launch.clone() };
    let report = device.launch(&module, "k", &launch)?;
    let dwords = device.bytes(to).as_chunks::<4>().0;
    let dwords = dwords.iter().map(|b| u32::from_le_bytes(*b)).collect();
    Ok((dwords, report))
}
