//! The hyperparameters of the released classifiers, one row a dataset and kind of mixer.

use crate::tasks::lra::LraDataset;

/// What a row names. Where the released config has no such key, the value changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    pub layers: usize,
    pub d: usize,
    /// State of a state space model; query and key width of attention, over all heads.
    pub n: usize,
    pub heads: usize,
    /// Hidden width of feed-forward halves and heads.
    pub mlp: usize,
    pub attn_dropout: f64,
    pub dropout: f64,
    pub lr: f64,
    pub weight_decay: f64,
    pub batch: usize,
    pub epochs: usize,
    pub warmup: usize,
    /// Inner width over d.
    pub expand: f64,
    /// Whether the norm stands before the mixer.
    pub prenorm: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Softmax,
    Linear,
    Normalized,
    /// Mamba-1 in the released configs; S6 takes its rows.
    StateSpace,
    Ssd,
    Hawk,
}

/// Layers, d, e, heads, m, dropout of attention, dropout, rate, decay, batch, epochs, warm-up.
type Attention = (
    usize,
    usize,
    usize,
    usize,
    usize,
    f64,
    f64,
    f64,
    f64,
    usize,
    usize,
    usize,
);

/// Layers, d, n, inner width over d, norm before the mixer, rate, batch, epochs, warm-up.
type StateSpace = (usize, usize, usize, f64, bool, f64, usize, usize, usize);

/// Blocks, d, inner width over d, hidden width over d, rate, batch, epochs.
type Hawk = (usize, usize, f64, f64, f64, usize, usize);

/// The row of `kind` on `dataset`.
pub(super) fn row(dataset: LraDataset, kind: Kind) -> Row {
    match kind {
        Kind::Softmax | Kind::Linear | Kind::Normalized => attention(dataset, kind),
        Kind::StateSpace => state_space(mamba(dataset)),
        // Only Image has a config of its own.
        Kind::Ssd => state_space(match dataset {
            LraDataset::Image => (2, 128, 64, 1.0, false, 2e-4, 64, 50, 5),
            other => mamba(other),
        }),
        Kind::Hawk => hawk(dataset),
    }
}

#[rustfmt::skip]
fn attention(dataset: LraDataset, kind: Kind) -> Row {
    use Kind::{Linear, Normalized, Softmax};
    use LraDataset::{Image, Listops, Pathfinder, Retrieval, Text};
    let values: Attention = match (dataset, kind) {
        (Listops, Softmax) => (8, 128, 64, 8, 512, 0.1, 0.1, 5e-4, 0.1, 8, 50, 5),
        (Listops, _) => (10, 128, 64, 8, 512, 0.1, 0.1, 5e-4, 0.1, 32, 50, 5),
        (Text, Softmax) => (4, 128, 64, 4, 512, 0.1, 0.1, 2e-4, 0.1, 4, 30, 5),
        (Text, _) => (4, 256, 128, 4, 512, 0.1, 0.1, 2e-4, 0.1, 16, 30, 5),
        // No config of softmax attention was released; this is that of the others.
        (Retrieval, _) => (6, 128, 128, 4, 512, 0.0, 0.1, 5e-4, 0.1, 8, 30, 5),
        (Image, Softmax | Linear) => (2, 128, 64, 8, 128, 0.2, 0.3, 1e-3, 0.0, 64, 50, 5),
        (Image, _) => (2, 128, 64, 8, 128, 0.1, 0.1, 1e-3, 0.0, 64, 50, 5),
        (Pathfinder, Normalized) => (6, 256, 128, 8, 512, 0.0, 0.0, 1e-4, 0.0, 32, 200, 20),
        (Pathfinder, _) => (1, 128, 64, 2, 128, 0.2, 0.1, 1e-3, 0.0, 64, 200, 20),
    };
    let (layers, d, n, heads, mlp, attn_dropout, dropout, lr, weight_decay, batch, epochs, warmup) = values;
    Row {
        layers, d, n, heads, mlp, attn_dropout, dropout, lr, weight_decay, batch, epochs, warmup,
        expand: 1.0, prenorm: true,
    }
}

#[rustfmt::skip]
fn mamba(dataset: LraDataset) -> StateSpace {
    match dataset {
        LraDataset::Listops => (10, 64, 64, 3.0, false, 1e-4, 64, 50, 0),
        LraDataset::Text => (6, 64, 64, 2.5, true, 5e-4, 32, 100, 0),
        LraDataset::Retrieval => (6, 256, 64, 1.5, true, 1e-4, 16, 30, 0),
        LraDataset::Image => (2, 256, 64, 2.0, false, 2e-4, 64, 50, 5),
        LraDataset::Pathfinder => (6, 128, 64, 4.0, true, 1e-4, 32, 100, 0),
    }
}

fn state_space((layers, d, n, expand, prenorm, lr, batch, epochs, warmup): StateSpace) -> Row {
    Row {
        layers,
        d,
        n,
        heads: 1,
        // MATCH of Retrieval has m = 512 whatever the model; nothing else of this kind asks for m.
        mlp: 512,
        attn_dropout: 0.0,
        dropout: 0.0,
        lr,
        weight_decay: 0.01,
        batch,
        epochs,
        warmup,
        expand,
        prenorm,
    }
}

fn hawk(dataset: LraDataset) -> Row {
    let values: Hawk = match dataset {
        LraDataset::Listops => (10, 64, 2.0, 1.0, 1e-4, 64, 50),
        LraDataset::Text => (6, 128, 1.5, 1.0, 2.5e-4, 32, 100),
        LraDataset::Retrieval => (6, 256, 1.0, 1.0, 1e-4, 16, 30),
        LraDataset::Image => (6, 256, 1.0, 1.5, 1e-4, 32, 30),
        LraDataset::Pathfinder => (6, 128, 2.0, 2.0, 1e-4, 32, 50),
    };
    let (layers, d, expand, grown, lr, batch, epochs) = values;
    let base = state_space((layers, d, 1, expand, true, lr, batch, epochs, 0));
    Row {
        mlp: (grown * d as f64) as usize,
        ..base
    }
}
