//! Collective operations of a warp's lanes: matrices, products, shuffles.

use trine_cuda::fragment;

use super::fault::{Kind, Trouble};
use super::instruction::{Op, Register, Shuffle, Source};
use super::mma::Fragment;
use super::warp::{LANES, Lanes, Surroundings, Warp, each};

impl Warp<'_> {
    /// Executes an instruction whose results come from several lanes.
    pub(super) fn together(&mut self, op: &Op, mask: u32, around: &mut Surroundings) -> Result<(), Trouble> {
        match op {
            Op::Matrix { to, at, transposed } => {
                self.whole(mask, u32::MAX)?;
                let at = self.addresses(at, mask)?;
                self.matrices(to, &at, *transposed, around)
            }
            Op::Mma { form, d, a, b, c, sparse } => {
                self.whole(mask, u32::MAX)?;
                let [a, b, c] = [a, b, c].map(|from| self.fragment(from));
                let metadata = match sparse {
                    Some((from, selector)) => Some((self.fragment(&[*from])?[0], *selector)),
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
                self.shuffle((*mode, *to, *valid), [from, by, clamp, members], mask)
            }
            other => {
                let what = format!("{other:?} is not executed by lanes together");
                Err(Trouble::new(Kind::Launch, 0, what))
            }
        }
    }

    /// Registers of all lanes, as 32 bits each.
    fn fragment(&self, from: &[Source]) -> Result<Fragment, Trouble> {
        let mut fragment = [[0; LANES]; 4];
        for (register, source) in fragment.iter_mut().zip(from) {
            let values = self.value(source, u32::MAX)?;
            register.iter_mut().zip(values).for_each(|(bits, value)| *bits = *value as u32);
        }
        Ok(fragment)
    }

    /// `ldmatrix`: eight rows of 16 bytes for each register, at the addresses of as many lanes.
    fn matrices(
        &mut self,
        to: &[Register],
        at: &Lanes,
        transposed: bool,
        around: &mut Surroundings,
    ) -> Result<(), Trouble> {
        let lanes = u32::MAX >> (LANES - 8 * to.len());
        self.banks(at, lanes, 16, around)?;
        let mut results = [[0u64; LANES]; 4];
        for lane in each(lanes) {
            let now = self.stamp(around, lane);
            let found = around.shared.read::<16>(at[lane], now);
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
    ) -> Result<(), Trouble> {
        let members = self.value(members, mask)?;
        for lane in each(mask) {
            self.whole(mask, members[lane] as u32)?;
        }
        let values = self.value(from, mask)?;
        let (by, clamp) = (self.value(by, mask)?, self.value(clamp, mask)?);
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
