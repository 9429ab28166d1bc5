//! The layer of RetNet (Sun et al. 2023): retention of rotated queries and keys, an RMS norm of each head, and a gate. The
//! original takes angles from another list and a group norm.

use super::matrix_state::{head_rms_factor, work, Drive, MatrixMixer, MatrixState, Sizes};
use super::retention::log_decays;
use super::rotary::{Positions, RotaryEmbedding};
use super::{Entry, Family, Growth, MixerSpec};
use crate::nn::{project, Map, Params};
use crate::ops;
use candle_core::{Result, Tensor};

pub(super) const ENTRY: Entry = Entry {
    name: "retnet",
    equation: "y_i = W (silu(W_g u_i) ⊙ norm(Σ_j γ^(i-j) (R_i q_i·R_j k_j/√m) v_j))",
    cite: "Sun et al. 2023",
    variants: &["block"],
    dsf: "N = n d/s, inside its norm",
    heads: true,
    expands: true,
    growth: Growth::No("the angles of its rotation depend on n"),
    stem: "retnet",
    work: |spec| Some(work(spec, 2)),
    build: |spec, params| Ok(Box::new(MatrixMixer(RetNet::new(spec, params)?))),
    ..Entry::of(Family::GatedLinear)
};

/// Added to the mean square in the norm.
const EPS: f64 = 1e-6;

struct RetNet {
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wg: Tensor,
    wout: Tensor,
    /// Rows of `wq` and `wk` in the order in which they are rotated.
    order: Tensor,
    rotary: RotaryEmbedding,
    sizes: Sizes,
}

impl RetNet {
    fn new(spec: &MixerSpec, params: &Params) -> Result<Self> {
        let (d, n) = (spec.d_model, spec.d_state);
        let weight = |name, rows, std| params.weight(name, (rows, d), std);
        let wq = weight("wq", n, spec.input_std)?;
        let sizes = Sizes::of(spec);
        Ok(Self {
            wk: weight("wk", n, spec.input_std)?,
            wv: weight("wv", d, spec.input_std)?,
            wg: weight("wg", d, spec.input_std)?,
            wout: weight("wout", d, spec.output_std)?,
            order: Tensor::new(neighbours_apart(sizes), wq.device())?,
            rotary: RotaryEmbedding::over(sizes.heads, sizes.features),
            wq,
            sizes,
        })
    }
}

/// Channels 2j and 2j + 1 of a head are turned together, where the rotation turns channels j and j + m/2: first those with even
/// numbers, then the others. An odd last one stays where it is, unturned.
fn neighbours_apart(sizes: Sizes) -> Vec<u32> {
    let m = sizes.features;
    let pairs = m / 2;
    let of_head = move |head: usize| {
        let evens = (0..pairs).map(|j| 2 * j);
        let odds = (0..pairs).map(|j| 2 * j + 1);
        let all = evens.chain(odds).chain(2 * pairs..m);
        all.map(move |channel| (head * m + channel) as u32)
    };
    (0..sizes.heads).flat_map(of_head).collect()
}

impl MatrixState for RetNet {
    const AROUND: Option<&'static str> = Some(
        "driven by its values W_V u; C_i holds what is not linear in the state, the scale of each head's norm, and the gate \
         silu(W_g u) and the output projection",
    );

    fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn drive(&self, u: &Tensor, at: &Positions) -> Result<Drive> {
        let (wq, wk) = (
            self.wq.index_select(&self.order, 0)?,
            self.wk.index_select(&self.order, 0)?,
        );
        let (all, queried) = ([&wk, &self.wv], [&wq, &self.wg]);
        let maps = project(
            u,
            &all.map(|w| (w, None)),
            &queried.map(|w| (w, None)),
            at.cx(),
        )?;
        let [q, k] = self.rotary.apply([&maps.queried[0], &maps.all[0]], at)?;
        let k = self.sizes.split(&k)?;
        let scale = (self.sizes.features as f64).powf(-0.5);
        Ok(Drive {
            q: (self.sizes.split(&q)? * scale)?,
            v: self.sizes.split(&maps.all[1])?,
            g: self.sizes.constant(&log_decays(self.sizes.heads), &k)?,
            k,
            beside: maps.queried[1].clone(),
        })
    }

    fn factor(&self, o: &Tensor, gate: &Tensor) -> Result<Option<Tensor>> {
        (ops::silu(gate)? * head_rms_factor(o, EPS)?).map(Some)
    }

    fn value(&self) -> Map<'_> {
        (&self.wv, None)
    }

    fn output(&self) -> Option<Map<'_>> {
        Some((&self.wout, None))
    }
}
