//! Matrix products of cuBLAS, as plain loops with sums in f64.

use crate::answer::{require, Answer, Code};
use crate::array::{Array, Type};
use crate::memory::Memory;
use dsf_emulation::tf32;

/// A factor: a column-major matrix for each member of the batch.
pub(crate) struct Factor {
    pub(crate) address: u64,
    pub(crate) kind: Type,
    /// Elements from a column to the next.
    pub(crate) leading: usize,
    /// Elements from a matrix to the next.
    pub(crate) stride: i64,
    pub(crate) transposed: bool,
}

/// C = alpha A B + beta C, for A of (rows, inner) and B of (inner, columns), once for each member of the batch.
pub(crate) struct Product {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) inner: usize,
    pub(crate) batch: usize,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) left: Factor,
    pub(crate) right: Factor,
    pub(crate) to: Factor,
    /// Whether the factors are rounded to 11 bits.
    pub(crate) tf32: bool,
}

impl Factor {
    /// Elements from the first of the first matrix to the end of the last.
    fn span(&self, rows: usize, columns: usize, batch: usize) -> usize {
        let (height, width) = if self.transposed { (columns, rows) } else { (rows, columns) };
        match height * width * batch {
            0 => 0,
            _ => (batch - 1) * self.stride.unsigned_abs() as usize + (width - 1) * self.leading + height,
        }
    }

    /// Checks that the leading dimension holds a column.
    fn check(&self, rows: usize, columns: usize) -> Answer {
        let height = if self.transposed { columns } else { rows };
        require(self.leading >= height.max(1), Code::InvalidValue, "a leading dimension below the height of a matrix")?;
        require(self.stride >= 0, Code::InvalidValue, "a negative stride between matrices")
    }

    /// Reads the matrices as (batch, rows, columns).
    fn read(&self, rows: usize, columns: usize, batch: usize, rounds: bool, memory: &Memory) -> Answer<Vec<f64>> {
        let array = Array::at(self.address, self.kind, memory)?;
        let mut all = Vec::with_capacity(batch * rows * columns);
        for matrix in 0..batch {
            for i in 0..rows {
                for j in 0..columns {
                    let (row, column) = if self.transposed { (j, i) } else { (i, j) };
                    let x = array.get(matrix * self.stride as usize + column * self.leading + row)?;
                    all.push(if rounds { f64::from(tf32(x as f32)) } else { x });
                }
            }
        }
        Ok(all)
    }
}

impl Product {
    /// Checks the sizes.
    pub(crate) fn check(&self) -> Answer {
        self.left.check(self.rows, self.inner)?;
        self.right.check(self.inner, self.columns)?;
        self.to.check(self.rows, self.columns)
    }

    /// The address and the bytes of each matrix.
    pub(crate) fn spans(&self) -> [(u64, usize); 3] {
        let sizes = [(&self.left, self.rows, self.inner), (&self.right, self.inner, self.columns)];
        let span = |(factor, rows, columns): (&Factor, usize, usize)| {
            (factor.address, factor.span(rows, columns, self.batch) * factor.kind.bytes())
        };
        let [left, right] = sizes.map(span);
        [left, right, span((&self.to, self.rows, self.columns))]
    }

    pub(crate) fn run(&self, memory: &Memory) -> Answer {
        let Self { rows, columns, inner, batch, alpha, beta, .. } = *self;
        let left = self.left.read(rows, inner, batch, self.tf32, memory)?;
        let right = self.right.read(inner, columns, batch, self.tf32, memory)?;
        let to = Array::at(self.to.address, self.to.kind, memory)?;
        let mut sums = vec![0.0; columns];
        for matrix in 0..batch {
            for i in 0..rows {
                sums.fill(0.0);
                for k in 0..inner {
                    let factor = left[(matrix * rows + i) * inner + k];
                    let row = &right[(matrix * inner + k) * columns..][..columns];
                    sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += factor * x);
                }
                for (j, sum) in sums.iter().enumerate() {
                    let at = matrix * self.to.stride as usize + j * self.to.leading + i;
                    // The result is not read if it is multiplied by zero: it may never have been written.
                    let before = if beta == 0.0 { 0.0 } else { beta * to.get(at)? };
                    to.set(at, alpha * sum + before)?;
                }
            }
        }
        Ok(())
    }
}
