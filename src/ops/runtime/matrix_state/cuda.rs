//! Launches of the kernels of `cuda/matrix_state_kernels.cuh`, and of the events of `cuda/matrix_state.cu`.

use super::{StateSizes, A, B, DECAYS, KEYS, QUERIES, VALUES};
use crate::gpu::sizes::matrix_state::{SIDE, SPAN, THREADS};
use crate::gpu::{Arg, Buffer, Gpu, Grid, Kernel, View, SHARED};
use crate::runtime::autograd::{Launch, LaunchBackward};
use crate::runtime::sums::add_parts;
use crate::runtime::tuned::Tuned;
use candle_core::{bail, DType, Result};

/// Features of keys that kernels take.
const MOST_KEYS: usize = 1024;
/// Features of a tile of a product.
const TILE: usize = 16;
/// Columns of a block of a walk, with the distance between rows of its state in shared memory.
const WIDTHS: [(usize, usize); 3] = [(32, 40), (16, 24), (8, 8)];
/// Fewer blocks than this do not occupy a GPU. Tests run on both sides of the threshold.
const FULL: Tuned = Tuned::new(128, 2);

/// A pass on a GPU.
struct Pass<'a> {
    op: &'a StateSizes,
    module: &'static str,
    gpu: &'a Gpu,
    /// The leading arguments of the kernels: the inputs, null for a rank-one part that is missing, and the events.
    inputs: Vec<Arg<'a>>,
    io: DType,
    /// Rows of both sides of a span and of its mixing matrix.
    rows: usize,
    back: bool,
}

/// Outputs of a walk: the state before each span or the gradient after it, the projections or their gradients, and the
/// result or the gradients of the values.
struct Walked<'a> {
    states: Option<&'a mut Buffer>,
    projections: Option<&'a mut Buffer>,
    o: Option<&'a mut Buffer>,
}

impl StateSizes {
    /// Launches the forward pass of the op whose kernels are in `module`, with the inputs q, k, v, g and, with a rank-one
    /// part, a and b. Returns the result; then, if tracked, the states before spans, the mixing matrices, with a rank-one
    /// part the projections, and the events if there are any.
    pub(crate) fn launch(&self, module: &'static str, call: Launch) -> Result<Vec<Buffer>> {
        let Launch { gpu, ins, tracked } = call;
        let events = self.event_table(gpu)?;
        let pass = Pass::new(self, module, gpu, ins, events.as_ref(), false)?;
        let kept = |count: usize| tracked.then(|| gpu.alloc(DType::F32, count)).transpose();
        let mut states = kept(self.states())?;
        let mut projections = if ins.len() > A { kept(self.projections())? } else { None };
        let mut mixing = gpu.alloc(DType::F32, self.spans() * pass.rows * pass.rows)?;
        let mut o = gpu.alloc(pass.io, self.batch * self.times.rows * self.heads * self.values)?;
        let to = Walked { states: states.as_mut(), projections: projections.as_mut(), o: Some(&mut o) };
        pass.walk(Arg::Null, (&mut mixing).into(), to)?;
        drop(pass);
        let saved = [states, Some(mixing), projections, events].into_iter().flatten();
        Ok([o].into_iter().chain(saved.filter(|_| tracked)).collect())
    }

    /// Launches the backward pass; the gradients of the inputs, in their order.
    pub(crate) fn launch_backward(&self, module: &'static str, call: LaunchBackward) -> Result<Vec<Option<Buffer>>> {
        let LaunchBackward { gpu, ins, needs_grad, .. } = call;
        let [before, mixing, saved @ ..] = call.saved else {
            unreachable!("the forward pass kept states and matrices")
        };
        let (projections, events) = if ins.len() > A { (saved.first(), saved.get(1)) } else { (None, saved.first()) };
        let pass = Pass::new(self, module, gpu, ins, events, true)?;
        let needed = |input: usize, dtype: DType, shares: usize| {
            let alloc = || gpu.alloc(dtype, shares * ins[input].len());
            needs_grad.get(input).is_some_and(|&needs| needs).then(alloc).transpose()
        };
        let go: Arg = call.only().grad.into();
        let mut gv = needed(VALUES, pass.io, 1)?;
        let mut after = gpu.alloc(DType::F32, before.len())?;
        let mut of_projections = projections.map(|p| gpu.alloc(DType::F32, p.len())).transpose()?;
        let to = Walked { states: Some(&mut after), projections: of_projections.as_mut(), o: gv.as_mut() };
        pass.walk(go.clone(), mixing.into(), to)?;
        // Shared decays have a gradient for each tile of features.
        let shares = if self.decays == 1 { self.keys.div_ceil(TILE) } else { 1 };
        let mut gg = needed(DECAYS, DType::F32, shares)?;
        let [mut gq, mut gk] = [needed(QUERIES, pass.io, 1)?, needed(KEYS, pass.io, 1)?];
        let [mut ga, mut gb] = [needed(A, pass.io, 1)?, needed(B, pass.io, 1)?];
        let mut grads = [&mut gq, &mut gk, &mut ga, &mut gb, &mut gg];
        if grads.iter().any(|grad| grad.is_some()) {
            let mut args = vec![go, before.into(), (&after).into(), projections.into(), of_projections.as_ref().into()];
            args.extend(grads.iter_mut().map(|grad| Arg::from(grad.as_mut())));
            pass.launch("gradients", [self.spans(), self.keys.div_ceil(SIDE), 1], 0, &args)?;
        }
        let gg = gg.map(|parts| add_parts(gpu, parts, shares, pass.io)).transpose()?;
        Ok([gq, gk, gv, gg, ga, gb].into_iter().take(ins.len()).collect())
    }

    /// The number of spans of all sequences and heads.
    fn spans(&self) -> usize {
        self.batch * self.heads * self.events().div_ceil(SPAN)
    }

    /// The number of elements of the stored states.
    fn states(&self) -> usize {
        self.spans() * self.keys * self.values
    }

    /// The number of elements of the projections, (B, L, s, e).
    fn projections(&self) -> usize {
        self.batch * self.len * self.heads * self.values
    }

    /// The events of a sequence: each step with its query or, if times are given, a step or a query
    /// each.
    fn events(&self) -> usize {
        match self.rows {
            Some(_) => self.len + self.times.rows,
            None => self.len,
        }
    }

    /// The widest block of a walk whose states fit into shared memory, but less than twice as wide as the values, rounded up
    /// to 8, and narrower if there would otherwise be few blocks: its columns, and the elements of its states.
    fn columns(&self) -> (usize, usize) {
        let of = |&(width, pitch): &(usize, usize)| (width, pitch, self.keys.next_multiple_of(TILE) * pitch);
        let fits = |&(width, pitch, state): &(usize, usize, usize)| {
            let occupies = width == 8 || self.batch * self.heads * self.values.div_ceil(width) >= FULL.get();
            occupies
                && width < 2 * self.values.next_multiple_of(8)
                && (state + 3 * SPAN * pitch) * size_of::<f32>() <= SHARED
        };
        let (width, _, state) = WIDTHS.iter().map(of).find(fits).expect("the narrowest fits");
        (width, state)
    }

    /// The trailing arguments of the kernels.
    fn args(&self) -> [Arg<'static>; 7] {
        let sizes = [self.len, self.times.rows, self.heads, self.keys];
        let [len, rows, heads, keys] = sizes.map(Arg::from);
        let [values, decays, count] = [self.values, self.decays, self.events()].map(Arg::from);
        [len, rows, heads, keys, values, decays, count]
    }

    /// The events in their order, (B, events), if times are given.
    fn event_table(&self, gpu: &Gpu) -> Result<Option<Buffer>> {
        gpu.with_tensor(self.rows.as_ref(), |times| times.map(|times| self.ordered(gpu, times)).transpose())
    }

    fn ordered(&self, gpu: &Gpu, times: View) -> Result<Buffer> {
        let all = self.batch * self.events();
        let mut events = gpu.alloc(DType::U32, all)?;
        let sizes = [self.len, self.times.rows, all].map(Arg::from);
        let args = [&[times.into(), (&mut events).into()], &sizes[..]].concat();
        let kernel = Kernel::new("matrix_state", "matrix_state_events");
        gpu.launch(kernel, Grid::for_each(all), &args)?;
        Ok(events)
    }
}

impl<'a> Pass<'a> {
    fn new(
        op: &'a StateSizes,
        module: &'static str,
        gpu: &'a Gpu,
        ins: &[View<'a>],
        events: Option<&'a Buffer>,
        back: bool,
    ) -> Result<Self> {
        if op.keys > MOST_KEYS {
            bail!("{module}: keys of {} features, kernels take up to {MOST_KEYS}", op.keys);
        }
        let mut inputs: Vec<Arg> = ins.iter().map(|&x| x.into()).collect();
        inputs.resize(B + 1, Arg::Null);
        inputs.push(events.into());
        let rows = if ins.len() > A { 2 * SPAN } else { SPAN };
        Ok(Self { op, module, gpu, inputs, io: ins[KEYS].dtype(), rows, back })
    }

    fn launch(&self, kernel: &str, blocks: [usize; 3], shared: usize, args: &[Arg]) -> Result<()> {
        let args = [&self.inputs[..], args, &self.op.args()].concat();
        let kernel = Kernel::of(self.module, &format!("{}_{kernel}", self.module), self.io);
        self.gpu.launch(kernel, Grid { blocks, threads: THREADS, shared }, &args)
    }

    /// Launches the factors of all spans and the walk over the states. In the forward pass the factors also write the
    /// mixing matrices, and `go`, the gradient of the result, is null.
    fn walk(&self, go: Arg, mixing: Arg, to: Walked) -> Result<()> {
        let op = self.op;
        let features = op.spans() * op.keys.next_multiple_of(TILE);
        let alloc = |rows: usize| self.gpu.alloc(DType::F32, features * rows);
        let (mut reads, mut writes, mut whole) = (alloc(self.rows)?, alloc(self.rows)?, alloc(1)?);
        let mut factors = vec![(&mut reads).into(), (&mut writes).into(), (&mut whole).into(), mixing];
        factors.push(self.back.into());
        self.launch("factors", [op.spans(), 1, 1], 0, &factors)?;
        let back = factors.pop();
        let outputs = [to.states.into(), to.projections.into(), to.o.into()];
        let args: Vec<Arg> = [go].into_iter().chain(factors).chain(outputs).chain(back).collect();
        let (width, state) = op.columns();
        let blocks = [op.batch * op.heads, op.values.div_ceil(width), 1];
        self.launch(&format!("walk_{width}"), blocks, state * size_of::<f32>(), &args)
    }
}
