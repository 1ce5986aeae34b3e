//! Products with any-precision weights: recorded once, launched at any width of the file.

use super::calls::{Pass, int, memory};
use super::matrix::{Layout, Store};
use super::memory::{Memory, Quants};
use super::operation::Operation;
use super::plane_matrix::{PlacedPlanes, PlaneMatrix, sparse};
use super::{Call, Operand, ProgramError, Recorder, Span};
use crate::planes::{Extents, Path};

impl<'a> Store<'a> {
    fn planes(&mut self, memories: &mut Vec<Memory>, matrix: PlaneMatrix<'a>) -> Result<PlacedPlanes, ProgramError> {
        let view = matrix.widest()?;
        let extents = Extents { rows: view.rows, columns: view.columns, groups: view.groups };
        let sparse = sparse(view).map_or(0, |(.., count)| count);
        let widths: Vec<u8> = matrix.views.iter().map(|view| view.width).collect();
        if extents.rows == 0 {
            return Ok(PlacedPlanes { extents, path: matrix.path, memory: 0, sparse: 0, widths });
        }
        let (path, sizes) = (matrix.path, matrix.sizes()?);
        let plans = widths.iter().map(|&width| extents.product(path, width, 1));
        plans.collect::<Result<Vec<_>, _>>().map_err(|why| matrix.failed(why.to_string()))?;
        Ok(PlacedPlanes { extents, path, memory: self.add(memories, Layout::Planes(matrix), &sizes), sparse, widths })
    }
}

impl<'a> Recorder<'a> {
    /// An any-precision matrix times every row of `x`, at the width of a pass.
    ///
    /// # Errors
    /// Tables that no kernel takes, another width of rows.
    pub fn planes_product(&mut self, matrix: PlaneMatrix<'a>, x: Span) -> Result<Span, ProgramError> {
        let columns = matrix.widest()?.columns;
        if columns != self.columns(x) {
            let what = format!("{}: {columns} columns for rows of {}", matrix.name, self.columns(x));
            return Err(ProgramError::Missing(what));
        }
        let rows = matrix.widest()?.rows;
        let own = self.own_rows(None, rows);
        let matrix = if own.len() < rows { matrix.part(own)? } else { matrix };
        let matrix = self.store.planes(&mut self.memories, matrix)?;
        let from = match matrix.path {
            Path::Fixed => self.quantized(x, Quants::Planes),
            Path::Floats => x.0,
        };
        let to = self.value(self.rows(x), rows)?;
        self.operations.push(Operation::Planes { matrix, from, x: x.0, to: to.0 });
        Ok(to)
    }
}

impl Pass<'_> {
    pub(super) fn planes(&mut self, matrix: &PlacedPlanes, [from, x, to]: [usize; 3]) -> Result<(), ProgramError> {
        let Extents { rows, columns, .. } = matrix.extents;
        let (tokens, (tables, number)) = (self.rows(to), matrix.at(self.width)?);
        let (codes, x, out) = (matrix.memory, self.at(x), self.outputs(None, to));
        if rows == 0 {
            return Ok(());
        }
        let tables = Operand::Memory(codes + 1, tables);
        let mut operands = vec![memory(codes), tables];
        let mut rest = codes + 2;
        match matrix.path {
            Path::Fixed => {
                let [quants, scales, _] = self.quants(from)?;
                operands.extend([Operand::Memory(rest, 4 * rows * number), quants, scales]);
                rest += 1;
            }
            // Nothing is read where a path has no scales.
            Path::Floats => operands.extend([tables, x, x]),
        }
        operands.push(out);
        operands.extend([self.width.into(), matrix.extents.of_group(), rows, columns, tokens].map(int));
        let launch = matrix.extents.product(matrix.path, self.width, tokens)?;
        self.calls.push(Call { launch, operands });
        if matrix.sparse > 0 {
            let differences = Operand::Memory(rest + 2, 4 * matrix.sparse * number);
            let operands = vec![memory(rest), memory(rest + 1), differences, x, out, int(rows), int(columns)];
            self.calls.push(Call { launch: matrix.extents.sparse(tokens)?, operands });
        }
        Ok(())
    }
}
