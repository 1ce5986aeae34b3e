//! A block: its warps take turns until all have ended.

use super::fault::{Fault, Kind, Trouble};
use super::launch::{Coordinates, Report, Schedule};
use super::memory::Memory;
use super::order::Order;
use super::shared::Shared;
use super::warp::{LANES, Surroundings, Warp, WarpState};

/// Arguments of a block beside its kernel.
pub(super) struct Run<'a, 'k> {
    /// The warps of all blocks, one block at a time, and its shared memory.
    pub(super) warps: &'a mut [Warp<'k>],
    pub(super) shared: &'a mut Shared,
    pub(super) memory: &'a mut Memory,
    pub(super) report: &'a mut Report,
    pub(super) order: &'a mut Order,
    pub(super) arguments: &'a [u8],
    pub(super) at: Coordinates,
    pub(super) wavefronts: usize,
    pub(super) budget: u64,
}

/// Numbers that look random: xorshift.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        // Any state but zero goes through all others.
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `count`.
    pub(super) fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % count
    }
}

/// The most instructions that a warp executes before another one has its turn.
const TURN: usize = 48;

/// Which warp is next, and how many instructions it executes.
fn choose(ready: &[usize], schedule: Schedule, dice: &mut Dice, last: usize) -> (usize, usize) {
    match schedule {
        Schedule::InTurn => {
            let next = ready.iter().find(|&&w| w > last);
            (next.copied().unwrap_or(ready[0]), TURN)
        }
        Schedule::Random(_) => (ready[dice.below(ready.len())], 1 + dice.below(TURN)),
        Schedule::Last(late) => {
            let others = ready.iter().find(|&&w| w != late);
            (others.copied().unwrap_or(ready[0]), TURN)
        }
    }
}

/// Runs a block to its end.
pub(super) fn run(schedule: Schedule, run: &mut Run) -> Result<(), Fault> {
    let seed = match schedule {
        Schedule::Random(seed) => seed,
        _ => 0,
    };
    let mut dice = Dice::new(seed.wrapping_add(u64::from(run.at.number)));
    let warps = &mut *run.warps;
    warps.iter_mut().for_each(|warp| warp.begin(&run.at));
    run.shared.clear();
    run.order.begin_block();
    let mut around = Surroundings {
        memory: run.memory,
        shared: run.shared,
        order: run.order,
        report: run.report,
        arguments: run.arguments,
        at: &run.at,
        epoch: 0,
        wavefronts: run.wavefronts,
    };
    let mut last = warps.len();
    loop {
        let in_state = |state: WarpState| {
            let warps = warps.iter().filter(move |w| w.state == state);
            warps.map(|w| w.number).collect::<Vec<_>>()
        };
        let ready = in_state(WarpState::Ready);
        if ready.is_empty() {
            let waiting = in_state(WarpState::AtBarrier);
            let Some(&first) = waiting.first() else {
                return Ok(());
            };
            if waiting.len() < warps.len() {
                let what =
                    format!("warps {waiting:?} wait for warps {:?}, which have ended", in_state(WarpState::Ended));
                let trouble = Trouble::new(Kind::Barrier, 0, what);
                return Err(fault(&warps[first], &run.at, None, trouble));
            }
            around.epoch += 1;
            warps.iter_mut().for_each(|w| w.state = WarpState::Ready);
            continue;
        }
        let (chosen, turns) = choose(&ready, schedule, &mut dice, last);
        last = chosen;
        let warp = &mut warps[chosen];
        for _ in 0..turns {
            let spent = around.report.instructions >= run.budget;
            let step = if spent {
                let what = format!("more than {} instructions", run.budget);
                Err(Trouble::new(Kind::Budget, 0, what))
            } else {
                warp.step(&mut around)
            };
            step.map_err(|trouble| fault(warp, &run.at, warp.last(), trouble))?;
            if warp.state != WarpState::Ready {
                break;
            }
        }
    }
}

/// Trouble of a warp with the place where it was met.
fn fault(
    warp: &Warp,
    at: &Coordinates,
    instruction: Option<&super::instruction::Instruction>,
    trouble: Trouble,
) -> Fault {
    Fault {
        kind: trouble.kind,
        what: trouble.what,
        kernel: warp.kernel.name.clone(),
        line: instruction.map_or(0, |i| i.line),
        text: instruction.map_or_else(String::new, |i| i.text.clone()),
        block: at.block,
        thread: LANES * warp.number + trouble.lane,
    }
}
