//! Batched products of matrices of activations. Linear maps, whose weights are shared by all rows, are
//! [`linear`](crate::linear()).

use crate::gpu::{self, Buffer, Gpu, Matrix};
use crate::runtime::autograd::{apply_one, runs_on, Backward, Forward, FusedOp, Launch, LaunchBackward};
use crate::runtime::float::Float;
use crate::runtime::gemm::{product, View};
use crate::runtime::parallel::InParallel;
use crate::runtime::zeros::zeros;
use candle_core::{bail, Result, Shape, Tensor};

/// The product of the matrices in the last two axes.
///
/// `a`: (..., rows, inner); `b`: (..., inner, columns); result (..., rows, columns).
pub fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let op = Matmul::check(a, b)?;
    match runs_on(a) {
        true => apply_one(op, &[a, b]),
        false => a.contiguous()?.matmul(&b.contiguous()?),
    }
}

struct Matmul {
    /// The axes before the last two.
    leading: Vec<usize>,
    rows: usize,
    inner: usize,
    columns: usize,
}

impl Matmul {
    fn check(a: &Tensor, b: &Tensor) -> Result<Self> {
        let ([leading @ .., rows, inner], [others @ .., depth, columns]) = (a.dims(), b.dims()) else {
            bail!("matmul: a of shape {:?} and b of shape {:?}, needed are two axes or more", a.dims(), b.dims());
        };
        if leading != others || inner != depth || a.elem_count() * b.elem_count() == 0 {
            bail!("matmul: a of shape {:?} and b of shape {:?} have no product", a.dims(), b.dims());
        }
        if a.dtype() != b.dtype() {
            bail!("matmul: a holds {:?}, but b holds {:?}", a.dtype(), b.dtype());
        }
        Ok(Self { leading: leading.to_vec(), rows: *rows, inner: *inner, columns: *columns })
    }

    /// Numbers of elements of a pair's factors and of its product.
    fn sizes(&self) -> [usize; 3] {
        let (rows, inner, columns) = (self.rows, self.inner, self.columns);
        [rows * inner, inner * columns, rows * columns]
    }

    /// Computes all products with `sizes` (rows, inner, columns) on a GPU.
    fn products(&self, gpu: &Gpu, sizes: [usize; 3], left: Matrix, right: Matrix) -> Result<Buffer> {
        let batch = self.leading.iter().product();
        let [rows, _, columns] = sizes;
        let mut to = gpu.alloc(left.values.dtype(), batch * rows * columns)?;
        let one = gpu::Product::one(sizes, left, right);
        gpu.multiply(gpu::Product { batch, ..one }, &mut to)?;
        Ok(to)
    }
}

impl FusedOp for Matmul {
    const NAME: &'static str = "matmul";

    fn out_shapes(&self) -> Vec<Shape> {
        vec![[&self.leading[..], &[self.rows, self.columns]].concat().into()]
    }

    fn forward<F: Float>(&self, Forward { ins, .. }: Forward<F>) -> Vec<Vec<F>> {
        let [left, right, whole] = self.sizes();
        let mut y = zeros(ins[0].len() / left * whole);
        let pairs = ins[0].chunks(left).zip(ins[1].chunks(right));
        y.chunks_mut(whole).zip(pairs).in_parallel(|(y, (a, b))| {
            let (a, b) = (View::new(a, self.inner), View::new(b, self.columns));
            product(y, self.columns, a, b, false);
        });
        vec![y]
    }

    fn backward<F: Float>(&self, call: Backward<F>) -> Vec<Vec<F>> {
        let [left, right, whole] = self.sizes();
        let [mut ga, mut gb] = [0, 1].map(|i| match call.needs_grad[i] {
            true => zeros(call.ins[i].len()),
            false => Vec::new(),
        });
        let gy = call.only().grad;
        ga.chunks_mut(left).zip(call.ins[1].chunks(right).zip(gy.chunks(whole))).in_parallel(|(ga, (b, gy))| {
            let (gy, b) = (View::new(gy, self.columns), View::new(b, self.columns));
            product(ga, self.inner, gy, b.t(), false);
        });
        gb.chunks_mut(right).zip(call.ins[0].chunks(left).zip(gy.chunks(whole))).in_parallel(|(gb, (a, gy))| {
            let (a, gy) = (View::new(a, self.inner), View::new(gy, self.columns));
            product(gb, self.columns, a.t(), gy, false);
        });
        vec![ga, gb]
    }

    fn launch(&self, Launch { gpu, ins, .. }: Launch) -> Result<Vec<Buffer>> {
        let sizes = [self.rows, self.inner, self.columns];
        let [a, b] = [ins[0], ins[1]].map(Matrix::plain);
        Ok(vec![self.products(gpu, sizes, a, b)?])
    }

    fn launch_backward(&self, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let (gpu, gy, [a, b]) = (call.gpu, call.only().grad, [call.ins[0], call.ins[1]]);
        let (rows, inner, columns) = (self.rows, self.inner, self.columns);
        let of_a = || {
            let (gy, b) = (Matrix::plain(gy), Matrix::transposed(b));
            self.products(gpu, [rows, columns, inner], gy, b)
        };
        let of_b = || {
            let (a, gy) = (Matrix::transposed(a), Matrix::plain(gy));
            self.products(gpu, [inner, rows, columns], a, gy)
        };
        Ok(vec![call.needs_grad[0].then(of_a).transpose()?, call.needs_grad[1].then(of_b).transpose()?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::check::{self, Case};

    fn case(leading: &[usize], [rows, inner, columns]: [usize; 3]) -> Case {
        let shape = |of: [usize; 2]| [leading, &of].concat();
        Case::new(format!("{leading:?} of {rows}, {inner}, {columns}"))
            .normal("a", &shape([rows, inner]))
            .normal("b", &shape([inner, columns]))
    }

    fn fused(ins: &[Tensor]) -> Result<Tensor> {
        matmul(&ins[0], &ins[1])
    }

    fn by_candle(ins: &[Tensor]) -> Result<Tensor> {
        ins[0].matmul(&ins[1])
    }

    fn cases() -> [Case; 4] {
        [case(&[], [3, 4, 5]), case(&[2], [1, 7, 1]), case(&[2, 3], [16, 5, 8]), case(&[2, 1], [40, 33, 17])]
    }

    #[test]
    fn fused_equals_candle() {
        check::agree(&cases(), fused, by_candle);
    }

    #[test]
    fn kernels_equal_candle() {
        check::kernels_agree(&cases(), fused, by_candle);
    }

    #[test]
    fn products_round_to_tf32_where_they_are_asked_to() {
        let case = case(&[2, 3], [17, 20, 9]);
        check::rounded_to_tf32(1, &case, &[true; 3], fused, by_candle);
    }

    #[test]
    fn gradients_are_finite_differences() {
        check::finite_differences(&case(&[2], [3, 2, 4]), fused);
    }

    #[test]
    fn bits_do_not_depend_on_threads() {
        check::same_bits(&case(&[5, 2], [9, 20, 11]), fused);
    }

    #[test]
    fn strided_inputs_are_read_in_order() {
        check::partial_tracking(&case(&[2, 3], [4, 5, 6]), fused);
    }

    #[test]
    fn matrices_that_do_not_meet_are_refused() {
        check::refuses(&[&[2, 3, 4], &[2, 5, 4]], fused, "have no product");
        check::refuses(&[&[2, 3, 4], &[3, 4, 5]], fused, "have no product");
        check::refuses(&[&[4], &[4]], fused, "needed are two axes");
    }
}
