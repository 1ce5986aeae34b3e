//! Collective operations of a warp's lanes: matrices, products, shuffles.

use trine_cuda::fragment;

use super::fault::{Kind, Trouble};
use super::instruction::{Op, Register, Shuffle, Source};
use super::mma::Fragment;
use super::warp::{LANES, Surroundings, Warp, each};

impl Warp<'_> {
    /// Executes an instruction whose results come from several lanes.
    pub(super) fn together(&mut self, op: &Op, mask: u32, around: &mut Surroundings) -> Result<(), Trouble> {
        match op {
            Op::Matrix { to, at, transposed } => {
                self.whole(mask, u32::MAX)?;
                let addresses = self.addresses(at, mask, around)?;
                self.matrices(to, &addresses[..8 * to.len()], *transposed, around)
            }
            Op::Mma { form, d, a, b, c, sparse } => {
                self.whole(mask, u32::MAX)?;
                let [a, b, c] = [a, b, c].map(|from| self.fragment(from, around));
                let metadata = match sparse {
                    Some((from, selector)) => Some((self.fragment(&[*from], around)?[0], *selector)),
                    None => None,
                };
                let sparse = metadata.as_ref().map(|(m, selector)| (m, *selector));
                let product = form.product(&a?, &b?, &c?, sparse);
                around.report.products += 1;
                for (to, values) in d.iter().zip(&product) {
                    self.put(*to, mask, &values.map(u64::from));
                }
                Ok(())
            }
            Op::Shuffle { mode, to, valid, from, by, clamp, members } => {
                self.shuffle((*mode, *to, *valid), [from, by, clamp, members], mask, around)
            }
            other => {
                let what = format!("{other:?} is not executed by lanes together");
                Err(Trouble::new(Kind::Launch, 0, what))
            }
        }
    }

    /// Registers of all lanes, as 32 bits each.
    fn fragment(&self, from: &[Source], around: &Surroundings) -> Result<Fragment, Trouble> {
        let register = |source: &Source| {
            let values = self.operand(source, u32::MAX, around.at)?;
            Ok(values.map(|value| value as u32))
        };
        from.iter().map(register).collect()
    }

    /// `ldmatrix`: eight rows of 16 bytes for each register.
    fn matrices(
        &mut self,
        to: &[Register],
        addresses: &[(usize, u64)],
        transposed: bool,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        self.banks(addresses, 16, around)?;
        let mut results = vec![[0u64; LANES]; to.len()];
        for &(lane, address) in addresses {
            let now = self.stamp(around, lane);
            let found = around.shared.read(address, 16, now);
            let row = found.map_err(|(kind, what)| Trouble::new(kind, lane, what))?;
            let (matrix, number) = fragment::matrix_row(lane);
            for (column, half) in row.as_chunks::<2>().0.iter().enumerate() {
                let (row, column) = if transposed { (column, number) } else { (number, column) };
                let half = u64::from(u16::from_le_bytes(*half));
                results[matrix][fragment::matrix_lane(row, column / 2)] |= half << (16 * (column % 2));
            }
        }
        for (to, values) in to.iter().zip(&results) {
            self.put(*to, u32::MAX, values);
        }
        Ok(())
    }

    fn shuffle(
        &mut self,
        (mode, to, valid): (Shuffle, Register, Option<Register>),
        [from, by, clamp, members]: [&Source; 4],
        mask: u32,
        around: &Surroundings,
    ) -> Result<(), Trouble> {
        let members = self.operand(members, mask, around.at)?;
        for lane in each(mask) {
            self.whole(mask, members[lane] as u32)?;
        }
        let values = self.operand(from, mask, around.at)?;
        let (by, clamp) = (self.operand(by, mask, around.at)?, self.operand(clamp, mask, around.at)?);
        let (mut results, mut from_lane) = ([0; LANES], [0; LANES]);
        for lane in each(mask) {
            let (by, clamp) = (by[lane] as usize & 31, clamp[lane] as usize);
            // Bits 8 to 12 of the clamp part the warp into segments, bits 0 to 4 say how far a lane may reach in one.
            let segment = clamp >> 8 & 31;
            let most = lane & segment | clamp & 31 & !segment;
            let least = lane & segment;
            let (source, found) = match mode {
                Shuffle::Up => (lane.wrapping_sub(by), lane >= by + most),
                Shuffle::Down => (lane + by, lane + by <= most),
                Shuffle::Butterfly => (lane ^ by, lane ^ by <= most),
                Shuffle::Index => {
                    let source = least | by & !segment;
                    (source, source <= most)
                }
            };
            let source = if found { source } else { lane };
            if mask >> source & 1 == 0 {
                let what = format!("lane {source}, which takes no part");
                return Err(Trouble::new(Kind::PartialWarp, lane, what));
            }
            results[lane] = values[source];
            from_lane[lane] = u64::from(found);
        }
        self.put(to, mask, &results);
        if let Some(valid) = valid {
            self.put(valid, mask, &from_lane);
        }
        Ok(())
    }
}
