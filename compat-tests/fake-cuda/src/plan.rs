//! The device, as the environment describes it.

use std::path::PathBuf;

use crate::Code;

/// The device and its failures.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The driver's version, 1000 for each major and 10 for each minor release.
    pub version: i32,
    /// How many devices there are.
    pub devices: i32,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Bytes of memory of the devices in turn; further ones have as much as the last.
    pub memory: Vec<usize>,
    /// Multiprocessors, their clock and the memory's in kilohertz, bits of the bus.
    pub clocks: [i32; 4],
    /// The functions and kernels that fail, and what they answer.
    pub failures: Vec<(String, Code)>,
    /// The functions and kernels that do nothing.
    pub skipped: Vec<String>,
    /// True if devices can write each other's memory.
    pub reaches: bool,
    /// Where calls are noted.
    pub log: Option<PathBuf>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            version: 13000,
            devices: 1,
            capability: (9, 0),
            memory: vec![80 << 30],
            clocks: [132, 1_980_000, 2_619_000, 5120],
            failures: Vec::new(),
            skipped: Vec::new(),
            reaches: true,
            log: None,
        }
    }
}

impl Plan {
    /// The plan of some words.
    ///
    /// # Panics
    /// Words that it does not know: a test that misspells one has to hear of it.
    pub fn parse(words: &str) -> Plan {
        let mut plan = Plan::default();
        for word in words.split_whitespace() {
            let (name, value) = word.split_once('=').expect("name=value");
            let number = || value.parse().expect("a number");
            match name {
                "version" => plan.version = number(),
                "devices" => plan.devices = number(),
                "memory" => {
                    plan.memory = value.split(',').map(|bytes| bytes.parse().expect("bytes")).collect();
                }
                "clocks" => {
                    let numbers: Vec<i32> = value.split(',').map(|n| n.parse().expect("a number")).collect();
                    plan.clocks = numbers.try_into().expect("four numbers");
                }
                "capability" => {
                    let (major, minor) = value.split_once('.').expect("major.minor");
                    plan.capability = [major, minor].map(|n| n.parse().expect("a number")).into();
                }
                "fail" => {
                    let (what, code) = value.split_once(':').expect("what:code");
                    let code = code.parse().expect("a code");
                    plan.failures.push((what.to_owned(), code));
                }
                "reaches" => plan.reaches = number() != 0,
                "skip" => plan.skipped.push(value.to_owned()),
                "log" => plan.log = Some(value.into()),
                other => panic!("there is no '{other}'"),
            }
        }
        plan
    }

    /// Bytes of memory of the device of a number.
    pub fn memory(&self, device: usize) -> usize {
        self.memory.get(device).or(self.memory.last()).copied().unwrap_or(0)
    }

    /// The code with which a function or a kernel fails, where it does.
    pub fn failure(&self, what: &str) -> Option<Code> {
        let found = self.failures.iter().find(|(name, _)| name == what);
        found.map(|(_, code)| *code)
    }
}
