//! Panels of bf16 from f32.

#![allow(unsafe_code)]

use super::unit::{Unit, LANES};
use super::view::View;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Layout of a panel.
#[derive(Clone, Copy)]
pub(super) struct PanelLayout {
    /// Pairs of each lane. Those after the operand's numbers are zero.
    pub(super) pairs: usize,
    /// 0 for the rounded numbers, 1 for their rounded remainders.
    pub(super) term: usize,
    /// Whether the pairs of a lane are beside each other, otherwise the lanes of a pair.
    pub(super) by_lane: bool,
}

impl PanelLayout {
    /// Pairs of `depth` numbers, in whole steps of the unit.
    pub(super) fn pairs_of<U: Unit>(depth: usize) -> usize {
        depth.div_ceil(2).next_multiple_of(U::STEP)
    }
}

/// Sixteen lanes of sixteen pairs.
type Square = [__m512i; LANES];

/// Writes the panels of the rows of `from`, one after another; lanes that the last one lacks are zero.
pub(super) fn pack(from: View<f32>, panel: PanelLayout, to: &mut [MaybeUninit<u32>]) {
    let panels = from.rows.div_ceil(LANES);
    assert!(to.len() == panels * LANES * panel.pairs && from.columns <= 2 * panel.pairs);
    assert!(from.rows == 0 || from.columns == 0 || from.last() < from.data.len());
    assert!(from.column_stride == 1 || from.row_stride == 1, "lanes or their numbers are contiguous");
    let to = to.as_mut_ptr().cast::<u32>();
    // The order in which numbers are contiguous.
    let squares = panel.pairs.div_ceil(LANES);
    for i in 0..panels * squares {
        let (at, first) = match from.column_stride {
            1 => (i / squares, i % squares),
            _ => (i % panels, i / panels),
        };
        let rows = at * LANES..((at + 1) * LANES).min(from.rows);
        // SAFETY: a unit is in use, which only a processor with these instructions has; reads and writes are inside
        // the slices by the assertions.
        unsafe {
            pack_square(from.part(rows, 0..from.columns), panel, first * LANES, to.add(at * LANES * panel.pairs))
        };
    }
}

/// Writes up to 16 pairs of a panel, from the pair `first` on.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn pack_square(from: View<f32>, panel: PanelLayout, first: usize, to: *mut u32) {
    let by_lane = from.column_stride == 1;
    let pairs = LANES.min(panel.pairs - first);
    let (to, distance) = match panel.by_lane {
        true => (to.wrapping_add(first), panel.pairs),
        false => (to.wrapping_add(first * LANES), LANES),
    };
    if by_lane == panel.by_lane {
        // SAFETY: the caller's.
        return unsafe { write_lines(from, first, panel.term, pairs, to, distance) };
    }
    let mut square = [_mm512_setzero_si512(); LANES];
    // SAFETY: a square has room for all lines; the rest is the caller's.
    unsafe {
        write_lines(from, first, panel.term, LANES, square.as_mut_ptr().cast(), LANES);
        transpose(&mut square);
        match panel.by_lane {
            true => {
                for (i, line) in square.iter().enumerate() {
                    _mm512_mask_storeu_epi32(to.wrapping_add(i * distance).cast(), mask(pairs), *line);
                }
            }
            false => {
                for (i, line) in square[..pairs].iter().enumerate() {
                    _mm512_storeu_si512(to.wrapping_add(i * distance).cast(), *line);
                }
            }
        }
    }
}

/// Writes `pairs` pairs from the pair `first` on in the order of the operand, lines of 16 words that begin `distance`
/// words apart: the pairs of each row if rows are contiguous, otherwise the rows of each pair.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn write_lines(from: View<f32>, first: usize, term: usize, pairs: usize, to: *mut u32, distance: usize) {
    let left = from.columns.saturating_sub(2 * first);
    let mut at = from.data.as_ptr().wrapping_add(2 * first * from.column_stride);
    let to = |line: usize| to.wrapping_add(line * distance).cast();
    // SAFETY: the caller's; masked loads and stores are within the operand and the panel.
    unsafe {
        if from.column_stride == 1 {
            let (low, high, width) = (mask(left), mask(left.saturating_sub(LANES)), mask(pairs));
            for lane in 0..from.rows {
                let line = round(load(at, low), load(at.wrapping_add(LANES), high), term);
                _mm512_mask_storeu_epi32(to(lane), width, line);
                at = at.wrapping_add(from.row_stride);
            }
            for lane in from.rows..LANES {
                _mm512_mask_storeu_epi32(to(lane), width, _mm512_setzero_si512());
            }
            return;
        }
        let alternate = _mm512_loadu_si512(ALTERNATE.as_ptr().cast());
        let (lanes, whole) = (mask(from.rows), pairs.min(left / 2));
        for pair in 0..whole {
            let next = at.wrapping_add(from.column_stride);
            let line = round(load(at, lanes), load(next, lanes), term);
            _mm512_storeu_epi32(to(pair), _mm512_permutexvar_epi16(alternate, line));
            at = next.wrapping_add(from.column_stride);
        }
        for pair in whole..pairs {
            let low = if 2 * pair < left { lanes } else { 0 };
            let line = round(load(at, low), _mm512_setzero_ps(), term);
            _mm512_storeu_epi32(to(pair), _mm512_permutexvar_epi16(alternate, line));
        }
    }
}

/// The order of the numbers of two groups of lanes in which they alternate.
const ALTERNATE: [u16; 2 * LANES] = {
    let mut order = [0; 2 * LANES];
    let mut i = 0;
    while i < 2 * LANES {
        order[i] = (i / 2 + i % 2 * LANES) as u16;
        i += 1;
    }
    order
};

/// Selects the first `count` lanes.
#[inline(always)]
fn mask(count: usize) -> __mmask16 {
    match count {
        LANES.. => !0,
        count => (1 << count) - 1,
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load(from: *const f32, lanes: __mmask16) -> __m512 {
    unsafe { _mm512_maskz_loadu_ps(lanes, from) }
}

/// Two groups of lanes in bf16, one behind the other: rounded, or what rounding them leaves.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn round(mut low: __m512, mut high: __m512, term: usize) -> __m512i {
    if term > 0 {
        low = _mm512_sub_ps(low, _mm512_cvtpbh_ps(_mm512_cvtneps_pbh(low)));
        high = _mm512_sub_ps(high, _mm512_cvtpbh_ps(_mm512_cvtneps_pbh(high)));
    }
    let both = _mm512_cvtne2ps_pbh(high, low);
    // SAFETY: vectors of the same size, without invalid values.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(both) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(square: &mut Square) {
    let mut x = *square;
    for i in (0..LANES).step_by(2) {
        x[i] = _mm512_unpacklo_epi32(square[i], square[i + 1]);
        x[i + 1] = _mm512_unpackhi_epi32(square[i], square[i + 1]);
    }
    let mut y = x;
    for i in (0..LANES).step_by(4) {
        for j in 0..2 {
            y[i + 2 * j] = _mm512_unpacklo_epi64(x[i + j], x[i + 2 + j]);
            y[i + 2 * j + 1] = _mm512_unpackhi_epi64(x[i + j], x[i + 2 + j]);
        }
    }
    // Quarter q of y[4 i + j] has column 4 q + j of rows 4 i to 4 i + 3.
    for j in 0..4 {
        let even = _mm512_shuffle_i32x4::<0x88>(y[j], y[4 + j]);
        let odd = _mm512_shuffle_i32x4::<0xdd>(y[j], y[4 + j]);
        let even_below = _mm512_shuffle_i32x4::<0x88>(y[8 + j], y[12 + j]);
        let odd_below = _mm512_shuffle_i32x4::<0xdd>(y[8 + j], y[12 + j]);
        square[j] = _mm512_shuffle_i32x4::<0x88>(even, even_below);
        square[4 + j] = _mm512_shuffle_i32x4::<0x88>(odd, odd_below);
        square[8 + j] = _mm512_shuffle_i32x4::<0xdd>(even, even_below);
        square[12 + j] = _mm512_shuffle_i32x4::<0xdd>(odd, odd_below);
    }
}
