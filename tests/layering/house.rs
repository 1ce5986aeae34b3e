//! The table of the house: rooms, and what may stand where.

use super::source::Named;

/// A part of the house: its name, and the modules that it lives in (`src/ops` is `src/ops.rs` or `src/ops/`).
pub type Room = (&'static str, &'static [&'static str]);

/// Everything that the rules know. A row that concerns nothing any more is a broken rule itself.
pub struct House {
    /// The floors, from the roof down. A room may use every room of the floors below its own; not those above it, and
    /// not its neighbours. A file that stands in no room is named too.
    pub floors: &'static [&'static [Room]],
    /// Rooms that are entered through the front door alone, and those who enter: these name what `mod.rs` shows, no
    /// module inside.
    pub front_doors: &'static [(&'static str, &'static [&'static str])],
    /// Folders that only their own part of the house may look into.
    pub private: &'static [(&'static str, &'static str)],
    /// Paths and macros that may be named in some places only, or everywhere but there, and why.
    pub words: &'static [Word],
    /// The most lines of a file, those of constants not counted.
    pub lines: usize,
    /// Where `unsafe` may stand.
    pub unsafe_places: &'static [&'static str],
    /// The libraries whose sources are read: name in paths, and root file.
    pub crates: &'static [(&'static str, &'static str)],
}

/// A rule about paths that start in one of several ways.
pub struct Word {
    /// The first segments.
    pub starts: &'static [&'static str],
    /// The modules where they may or must not stand.
    pub place: Place,
    /// The rule in words.
    pub why: &'static str,
}

/// Where something may be named.
pub enum Place {
    /// Here and nowhere else.
    Only(&'static [&'static str]),
    /// Everywhere but here.
    Never(&'static [&'static str]),
}

#[rustfmt::skip]
pub const HOUSE: House = House {
    floors: &[
        &[("proofs",    &["compat-tests/src", "compat-tests/tests", "compat-tests/benches", // against the references
                          "compat-tests/fuzz/src", "formats/tests", "tools/tests", "tools/hub/tests",
                          "tools/serve/tests", "tools/trine/tests", "tests"])],
        &[("driver",    &["compat-tests/fake-cuda/src"])],  // NVIDIA's driver library over the emulator
        &[("emulator",  &["compat-tests/ptx/src"]),         // of PTX
          ("kit",       &["tests/kit"]),                    // fixtures of all tests
          ("xtask",     &["tools/xtask/src"]),              // commands of the project
          ("python",    &["tools/python/src"]),             // the Python package
          ("web",       &["tools/web/src"]),                // the engine of the package for browsers
          ("program",   &["tools/trine/src"])],             // all tools in one program
        &[("serve",     &["tools/serve/src"])],             // the server as a program
        &[("http",      &["tools/serve/src/http"])],
        &[("api",       &["tools/serve/src/api"])],         // JSON to requests, events to JSON
        &[("models",    &["tools/serve/src/models"])],      // which model answers a request, loaded and unloaded
        &[("service",   &["tools/serve/src/service"])],     // a loaded model with all that answers need
        &[("args",      &["tools/serve/src/args"]),
          ("refusal",   &["tools/serve/src/error"])],       // what a client is told when it gets no text
        &[("engine",    &["tools/serve/src/engine"])],      // requests to events: steps over many texts
        &[("tools",     &["tools/src"])],
        &[("hub",       &["tools/hub/src"])],               // models by name, from other machines and from caches
        &[("front",     &["src/lib", "src/error", "examples"])], // what trine re-exports, and one error for all of it
        &[("open",      &["src/open"]),                     // a path to a model
          ("generate",  &["src/generate"])],                // the loop from prompt to text
        &[("handle",    &["src/handle"])],                  // weights, tokenizer and file of one model
        &[("tune",      &["src/tune"]),                     // scales of quantized files by gradient
          ("sequential", &["src/sequential"])],             // Hessians behind what is rounded already
        &[("quant",     &["src/quant"]),                    // these four work on files and texts
          ("convert",   &["src/convert"]),
          ("fisher",    &["src/fisher"]),
          ("eval",      &["src/eval"])],
        &[("widely",    &["src/widely"])],                  // real matrices to widely linear ones and back, in parts
        &[("step",      &["src/step"])],                    // one pass over segments of many sequences
        &[("model",     &["src/model"])],                   // a file's description and weights to a program
        &[("exec",      &["src/exec"])],                    // the processor and GPUs, which carry programs out
        &[("forward",   &["src/program"])],                 // a model's forward pass as data
        &[("chat",      &["src/chat"])],                    // messages to a prompt
        &[("grammar",   &["src/grammar"])],                 // which tokens may come next
        &[("tokenizer", &["src/tokenizer"]),
          ("sample",    &["src/sample"])],
        &[("ops",       &["src/ops"])],                     // operations: definition and dispatch
        &[("kv",        &["src/kv"]),                       // pages of keys and values
          ("linalg",    &["src/linalg"])],                  // factors and inverses of symmetric matrices
        &[("arch",      &["src/arch"]),                     // what architectures are: data
          ("kernels",   &["src/kernels"]),                  // rows, blocks and lanes
          ("cuda",      &["src/cuda"]),                     // layouts, plans and PTX for NVIDIA GPUs
          ("pool",      &["src/pool"])],                    // threads
        &[("formats",   &["formats/src"]),                  // what bytes mean
          ("math",      &["src/kernels/math"]),             // elementary functions
          ("cancel",    &["src/cancel", "src/progress"]),   // a request to stop, and news of the work
          ("isolate",   &["src/isolate"])],                 // work on data that nobody has to trust
    ],
    front_doors: &[
        ("model", &["quant", "convert", "fisher", "eval", "tune", "handle", "open", "generate", "front", "tools"]),
        ("step",  &["eval", "handle", "generate", "front", "tools"]),
    ],
    private: &[("src/kernels/arch", "src/kernels")],
    words: &[
        Word {
            starts: &["clap"],
            place: Place::Only(&["tools", "compat-tests/fuzz/src/request", "compat-tests/fuzz/src/tool_calls"]),
            why: "options of a command line end in tools",
        },
        Word {
            starts: &["std::arch"],
            place: Place::Only(&["src/kernels/arch", "compat-tests/benches/widely"]),
            why: "intrinsics and assembly live in src/kernels/arch",
        },
        Word {
            starts: &["trine_cuda"],
            place: Place::Only(&["src/exec/device", "tools/src", "compat-tests"]),
            why: "GPU code is behind the feature cuda",
        },
        Word {
            starts: &["rayon", "crate::pool", "trine::pool", "std::thread::spawn", "std::thread::scope", "std::thread::Builder"],
            place: Place::Never(&["src/kernels", "src/cuda", "formats/src"]),
            why: "kernels and formats run in the thread of their caller",
        },
    ],
    lines: 500,
    // Kernels, their memory and proofs, the pool, where files are mapped, where the outputs of several products are
    // written by the tasks of one region, where signals get their handlers, where NVIDIA's driver and the references'
    // libraries are called, where JavaScript hands memory over.
    unsafe_places: &[
        "src/kernels/arch", "src/kernels/aligned", "src/kernels/proof", "src/kernels/shared/halves/memory",
        "src/kernels/shared/packed/arena", "src/cuda/driver", "src/pool", "src/open", "src/ops/product", "tools/src/signals",
        "compat-tests/src/ggml", "compat-tests/src/bench", "compat-tests/src/oracle", "compat-tests/benches/widely",
        "compat-tests/fake-cuda/src/calls", "examples/vulkan/src/device", "tools/web/src/lib", "tools/web/src/request", "tools/web/src/memory",
    ],
    crates: &[
        ("trine_formats", "formats/src/lib.rs"),
        ("trine_kernels", "src/kernels/lib.rs"),
        ("trine_cuda", "src/cuda/lib.rs"),
        ("trine", "src/lib.rs"),
        ("trine_tools", "tools/src/lib.rs"),
        ("trine_hub", "tools/hub/src/lib.rs"),
        ("trine_serve", "tools/serve/src/lib.rs"),
        ("trine_ptx", "compat-tests/ptx/src/lib.rs"),
        ("trine_fake_cuda", "compat-tests/fake-cuda/src/lib.rs"),
        ("trine_testkit", "tests/kit/lib.rs"),
        ("trine_compat_tests", "compat-tests/src/lib.rs"),
        ("trine_python", "tools/python/src/lib.rs"),
        ("trine_web", "tools/web/src/lib.rs"),
    ],
};

impl House {
    /// The floor, counted from the roof, and the name of the room that `file` belongs to: the one with the longest path.
    pub fn room(&self, file: &str) -> Option<(usize, &'static str)> {
        let rooms = self.floors.iter().enumerate();
        let places = rooms.flat_map(|(floor, rooms)| {
            let places = move |room: &'static Room| room.1.iter().map(move |place| (floor, room.0, *place));
            rooms.iter().flat_map(places)
        });
        places
            .filter(|(.., place)| lies_in(file, place))
            .max_by_key(|(.., place)| place.len())
            .map(|(floor, name, _)| (floor, name))
    }
}

impl Word {
    /// True if a path starts in one of the ways of the rule.
    pub fn concerns(&self, named: &Named) -> bool {
        self.starts.iter().any(|start| named.starts_with(start))
    }

    /// True if such paths may stand in `file`.
    pub fn allows(&self, file: &str) -> bool {
        match self.place {
            Place::Only(places) => places.iter().any(|place| lies_in(file, place)),
            Place::Never(places) => !places.iter().any(|place| lies_in(file, place)),
        }
    }
}

/// True if `file` is the module `place` or lies in its folder.
pub fn lies_in(file: &str, place: &str) -> bool {
    let rest = file.strip_prefix(place);
    rest.is_some_and(|r| r == ".rs" || r.starts_with('/'))
}
