//! How fast a machine does each kind of work at most.

use super::Work;

/// Bytes of an f32.
const F32: f64 = 4.0;

/// Work a second.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Rates {
    /// Multiplies and adds in matrix products of f32.
    flops: f64,
    /// Lanes of vector instructions on f32.
    lanes: f64,
    exps: Exps,
    /// Bytes of memory.
    bytes: f64,
    /// Whether what products read and write counts.
    operands: bool,
    /// Whether vector instructions on narrower or wider numbers take less or more.
    scaled: bool,
}

/// What computes exponentials.
#[derive(Clone, Copy, Debug)]
enum Exps {
    /// So many vector instructions each.
    Instructions(f64),
    /// A unit beside the vector pipes, so many a second.
    Unit(f64),
}

const CYCLES: f64 = 3.3e9;

/// A Zen-4-class core at 3.3 GHz that runs AVX-512 over two 256-bit pipes; on another processor the
/// fraction of the floor still compares one op with another, but is no statement about that
/// processor.
///
/// | work | rate of one core | why |
/// |---|---|---|
/// | multiply-add in a matrix product | 105.6 GFLOP/s | 32 f32 operations a cycle |
/// | vector instruction | 52.8 G lanes/s | 16 f32 lanes a cycle |
/// | exponential | 8 vector instructions | a polynomial of degree 5 and the power of two |
/// | memory | 20 GB/s | what two cores share, and one may have alone |
pub(in crate::bench) const CORE: Rates = Rates {
    flops: 32.0 * CYCLES,
    lanes: 16.0 * CYCLES,
    exps: Exps::Instructions(8.0),
    bytes: 20e9,
    operands: false,
    scaled: true,
};

/// An H200: 132 multiprocessors at 1.755 GHz.
///
/// | work | rate | why |
/// |---|---|---|
/// | multiply-add in a matrix product | 790 TFLOP/s in bf16, half in f32 | large products, tf32 for f32 |
/// | vector instruction | 29.6 T lanes/s | 128 lanes a cycle and multiprocessor |
/// | exponential | 3.7 T/s | 16 a cycle and multiprocessor |
/// | memory | 4.3 TB/s | a copy |
///
/// Products of full f32 accuracy cannot use tf32 as it is; with fp32 lanes (67 TFLOP/s) they reach
/// at most 17 % of their floor.
pub(in crate::bench) const H200: Rates = Rates {
    flops: 395e12,
    lanes: 128.0 * 132.0 * 1.755e9,
    exps: Exps::Unit(16.0 * 132.0 * 1.755e9),
    bytes: 4.3e12,
    operands: true,
    scaled: false,
};

impl Rates {
    /// Seconds that `work` takes at least, with numbers of `bytes` bytes each.
    pub fn seconds(&self, work: Work, bytes: f64) -> f64 {
        let wider = bytes / F32;
        let (lanes, exps) = match self.exps {
            Exps::Instructions(each) => (work.lanes + each * work.exps, 0.0),
            Exps::Unit(rate) => (work.lanes, work.exps / rate),
        };
        let operands = if self.operands { work.operands } else { 0.0 };
        let vectors = (lanes / self.lanes).max(exps);
        let vectors = if self.scaled {
            wider * vectors
        } else {
            vectors
        };
        let products = wider * work.flops / self.flops;
        let memory = bytes * (work.words + operands) / self.bytes;
        products.max(vectors).max(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::CELL;
    use super::super::{linear_scan, selective_scan, Passes};
    use super::*;

    #[test]
    fn a_scan_takes_twelve_instructions_an_element_and_thirty_six_both_ways() {
        let Passes { forward, both } = selective_scan(CELL);
        let rate = |work: Work| CELL.elements() / CORE.seconds(work, 4.0) / 1e9;
        assert!((rate(forward) - 4.4).abs() < 1e-9);
        assert!((rate(both) - 4.4 / 3.0).abs() < 1e-9);
    }

    /// 36 and 109 µs, as an H200's exponentials allow.
    #[test]
    fn on_a_gpu_a_scan_waits_for_exponentials_whatever_it_reads() {
        let Passes { forward, both } = selective_scan(CELL);
        for bytes in [2.0, 4.0] {
            assert!((1e6 * H200.seconds(forward, bytes) - 36.2).abs() < 0.1);
            assert!((1e6 * H200.seconds(both, bytes) - 108.6).abs() < 0.2);
        }
    }

    #[test]
    fn wider_numbers_take_longer() {
        let work = linear_scan(CELL).forward;
        for rates in [CORE, H200] {
            assert_eq!(rates.seconds(work, 8.0), 2.0 * rates.seconds(work, 4.0));
        }
    }

    #[test]
    fn operands_of_products_count_on_a_gpu_alone() {
        let work = Passes::dense(1.0, 1e9).forward;
        assert!(CORE.seconds(work, 4.0) < 1e-9);
        assert_eq!(H200.seconds(work, 2.0), 2e9 / 4.3e12);
    }
}
