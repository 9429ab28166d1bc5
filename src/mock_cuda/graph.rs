//! Graphs: what a capture leaves, and what is replayed.

use crate::stream::{Action, Capture};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};
use std::sync::Arc;

/// A captured graph, or one that can be launched: both have the same nodes.
#[derive(Clone)]
pub(crate) struct Graph {
    pub(crate) nodes: Arc<Vec<Action>>,
    /// Memory that its nodes allocate.
    memory: Arc<Vec<u64>>,
}

impl Graph {
    pub(crate) fn of(capture: Capture) -> Self {
        Self { nodes: Arc::new(capture.nodes), memory: Arc::new(capture.memory) }
    }

    /// Memory to be released with the graph: none while it can still be launched or instantiated.
    pub(crate) fn released(self) -> Vec<u64> {
        Arc::into_inner(self.memory).unwrap_or_default()
    }
}

/// The nodes of a graph by kind.
#[derive(Default)]
struct Counts {
    own: usize,
    products: usize,
    candle: usize,
    copies: usize,
    clears: usize,
    allocations: usize,
    frees: usize,
    other: usize,
}

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter) -> Result {
        let mut counts = Counts::default();
        let mut names = BTreeMap::<&str, usize>::new();
        for node in self.nodes.iter() {
            match node {
                Action::Launch(launch) => {
                    let of = if launch.function.is_own() { &mut counts.own } else { &mut counts.candle };
                    *of += 1;
                    *names.entry(launch.function.name()).or_default() += 1;
                }
                Action::Multiply(_) => counts.products += 1,
                Action::ToDevice { .. } | Action::ToHost { .. } | Action::OnDevice { .. } => counts.copies += 1,
                Action::Clear { .. } => counts.clears += 1,
                Action::Allocate(_) => counts.allocations += 1,
                Action::Free(_) | Action::Release(_) => counts.frees += 1,
                Action::Record(_) | Action::Replay(_) => counts.other += 1,
            }
        }
        let Counts { own, products, candle, copies, clears, allocations, frees, other } = counts;
        let all = own + products + candle + copies + clears + other;
        write!(f, "nodes={all} own={own} products={products} candle={candle} copies={copies} clears={clears} ")?;
        write!(f, "allocations={allocations} frees={frees}")?;
        for (name, count) in names {
            write!(f, " {name}:{count}")?;
        }
        Ok(())
    }
}
