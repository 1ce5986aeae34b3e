//! Memory accesses of lanes: loads, stores, asynchronous copies.

use super::fault::{Kind, Trouble};
use super::instruction::{Address, Register, Source, Space, Word};
use super::shadow::Moment;
use super::shared::wavefronts;
use super::warp::{LANES, Surroundings, Warp, each};

impl Warp<'_> {
    /// The address that each lane of the mask asks for.
    pub(super) fn addresses(
        &self,
        at: &Address,
        mask: u32,
        around: &Surroundings,
    ) -> Result<Vec<(usize, u64)>, Trouble> {
        let bases = self.operand(&at.base, mask, around.at)?;
        let address = |lane: usize| (lane, bases[lane].wrapping_add_signed(at.offset));
        Ok(each(mask).map(address).collect())
    }

    /// Counts the wavefronts of an access to shared memory, and finds those that take too many.
    pub(super) fn banks(
        &self,
        addresses: &[(usize, u64)],
        bytes: usize,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        let found = wavefronts(addresses, bytes);
        if bytes > 2 {
            around.report.worst_wavefronts = around.report.worst_wavefronts.max(found);
        }
        let most = match bytes {
            16 => 1,
            // A lane that asks for one or two bytes looks them up in a table, at a place that data decides.
            1 | 2 => LANES,
            _ => around.wavefronts,
        };
        if found <= most {
            return Ok(());
        }
        let what = format!("{found} wavefronts, where {most} are enough");
        Err(Trouble::new(Kind::BankConflict, addresses[0].0, what))
    }

    pub(super) fn load(
        &mut self,
        (space, word): (Space, Word),
        to: &[Register],
        at: &Address,
        mask: u32,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        let addresses = self.addresses(at, mask, around)?;
        let bytes = word.bytes * to.len();
        if space == Space::Shared {
            self.banks(&addresses, bytes, around)?;
        }
        let mut results = [[0; LANES]; 4];
        for (lane, address) in addresses {
            let now = self.stamp(around, lane);
            let found = match space {
                Space::Shared => around.shared.read(address, bytes, now),
                Space::Global => {
                    let learnt = around.order.learnt();
                    let now = Moment { stamp: now, learnt };
                    around.memory.read(address, bytes, now)
                }
            };
            let found = found.map_err(|(kind, what)| Trouble::new(kind, lane, what))?;
            for (result, part) in results.iter_mut().zip(found.chunks_exact(word.bytes)) {
                result[lane] = word.number(part);
            }
        }
        for (to, result) in to.iter().zip(&results) {
            self.put(*to, mask, result);
        }
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        (space, word): (Space, Word),
        from: &[Source],
        at: &Address,
        mask: u32,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        let addresses = self.addresses(at, mask, around)?;
        if space == Space::Shared {
            self.banks(&addresses, word.bytes * from.len(), around)?;
        }
        let mut values = Vec::with_capacity(from.len());
        for source in from {
            values.push(self.operand(source, mask, around.at)?);
        }
        for (lane, address) in addresses {
            let mut bytes = Vec::with_capacity(16);
            for value in &values {
                bytes.extend_from_slice(&value[lane].to_le_bytes()[..word.bytes]);
            }
            let now = self.stamp(around, lane);
            let done = match space {
                Space::Shared => around.shared.write(address, &bytes, now),
                Space::Global => {
                    let learnt = around.order.learnt();
                    let now = Moment { stamp: now, learnt };
                    around.memory.write(address, &bytes, now)
                }
            };
            done.map_err(|(kind, what)| Trouble::new(kind, lane, what))?;
        }
        Ok(())
    }

    /// Atomic additions, lane by lane.
    pub(super) fn add(
        &mut self,
        to: Register,
        at: &Address,
        from: &Source,
        mask: u32,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        let values = self.operand(from, mask, around.at)?;
        let mut results = [0; LANES];
        for (lane, address) in self.addresses(at, mask, around)? {
            let stamp = self.stamp(around, lane);
            let learnt = around.order.learnt();
            let found = around.memory.add(address, values[lane] as u32, Moment { stamp, learnt });
            let before = found.map_err(|(kind, what)| Trouble::new(kind, lane, what))?;
            around.order.meet(address, stamp);
            results[lane] = before.into();
        }
        self.put(to, mask, &results);
        Ok(())
    }

    pub(super) fn copy(
        &mut self,
        bytes: usize,
        (to, from): (&Address, &Address),
        read: Option<Source>,
        mask: u32,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        let targets = self.addresses(to, mask, around)?;
        let sources = self.addresses(from, mask, around)?;
        self.banks(&targets, bytes, around)?;
        let read = read.unwrap_or(Source::Constant(bytes as u64));
        let read = self.operand(&read, mask, around.at)?;
        for (&(lane, to), &(_, from)) in targets.iter().zip(&sources) {
            let now = self.stamp(around, lane);
            let wanted = (read[lane] as u32 as usize).min(bytes);
            let trouble = |(kind, what)| Trouble::new(kind, lane, what);
            let mut data = vec![0; bytes];
            // Bytes that are not read may lie anywhere.
            if wanted > 0 {
                let learnt = around.order.learnt();
                let moment = Moment { stamp: now, learnt };
                let found = around.memory.read(from, bytes, moment);
                let found = found.map_err(trouble)?;
                data[..wanted].copy_from_slice(&found[..wanted]);
            }
            self.copies[lane].begin(around.shared, to, data, now).map_err(trouble)?;
        }
        Ok(())
    }
}
