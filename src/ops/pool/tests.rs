use super::*;
use crate::runtime::check::{self, Case, Suite};
use crate::runtime::tuned::at_full_size;
use candle_core::{Device, Var};
use dsf_emulation::emulated;

const ALL: [Pool; 3] = [Pool::Mean, Pool::Last, Pool::Max];

/// Lengths that include 1 and L.
fn lengths(batch: usize, len: usize) -> Tensor {
    let steps = |b: usize| match b % 3 {
        0 => len,
        1 => 1,
        _ => 1 + b * 7 % len,
    };
    let lengths: Vec<u32> = (0..batch).map(|b| steps(b) as u32).collect();
    Tensor::from_vec(lengths, batch, &Device::Cpu).unwrap()
}

/// Pooling of one kind, with or without lengths.
fn by(kind: Pool, cut: bool) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync {
    move |ins| {
        let (batch, len, _) = ins[0].dims3()?;
        pool(&ins[0], cut.then(|| lengths(batch, len)).as_ref(), kind)
    }
}

fn reference(kind: Pool, cut: bool) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |ins| {
        let (batch, len, _) = ins[0].dims3()?;
        let lengths = cut.then(|| lengths(batch, len));
        reference::pool(&Pooled::check(&ins[0], lengths.as_ref(), kind)?, &ins[0])
    }
}

fn case(shape: &[usize]) -> Case {
    Case::new(format!("{shape:?}")).normal("x", shape)
}

/// Values with many ties.
fn ties(shape: [usize; 3]) -> Case {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|i| (i * 29 % 31 % 3) as f64 - 1.0).collect();
    Case::new(format!("ties of {shape:?}")).values(&values, &shape)
}

fn each(f: impl Fn(Pool, bool)) {
    for kind in ALL {
        for cut in [false, true] {
            f(kind, cut);
        }
    }
}

#[test]
fn it_passes_the_suite() {
    let shapes: [&[usize]; 7] =
        [&[1, 1, 1], &[7, 2, 3], &[3, 63, 16], &[2, 64, 100], &[4, 65, 17], &[1, 1000, 5], &[3, 9, 300]];
    each(|kind, cut| {
        let of_all = Suite {
            agree: &[&shapes.map(case)[..], &[ties([7, 65, 6])]].concat(),
            differences: &[case(&[4, 5, 2])],
            bits: &[case(&[2, 100, 200])],
            tracked: &[case(&[3, 4, 5])],
            refused: &[],
        };
        check::suite(of_all, by(kind, cut), reference(kind, cut));
    });
}

#[test]
fn kernels_equal_the_reference() {
    // several pieces, columns beyond one tile, widths that are not multiples of four
    let shapes: [&[usize]; 6] = [&[1, 1, 1], &[7, 2, 3], &[3, 65, 16], &[4, 33, 68], &[2, 32, 70], &[1, 300, 4]];
    each(|kind, cut| {
        check::kernels_agree(&shapes.map(case), by(kind, cut), reference(kind, cut));
        check::kernels_agree(&[ties([7, 130, 6])], by(kind, cut), reference(kind, cut));
    });
}

#[test]
fn pieces_of_full_size_equal_the_reference() {
    let cases = [&[1, 1, 1], &[2, 600, 6]].map(|x| case(x));
    each(|kind, cut| {
        at_full_size(|| check::kernels_agree(&cases, by(kind, cut), reference(kind, cut)));
    });
}

/// Result and gradient of one sequence of one channel.
fn single(x: &[f32], steps: u32, kind: Pool) -> (f32, Vec<f32>) {
    let x = Var::from_vec(x.to_vec(), (1, x.len(), 1), &Device::Cpu).unwrap();
    let lengths = Tensor::new(&[steps], &Device::Cpu).unwrap();
    let y = pool(&x, Some(&lengths), kind).unwrap();
    let grads = y.backward().unwrap();
    let gx = grads.get(&x).unwrap().flatten_all().unwrap();
    let y = y.flatten_all().unwrap().to_vec1::<f32>().unwrap()[0];
    (y, gx.to_vec1().unwrap())
}

#[test]
fn what_lies_beyond_a_length_is_not_seen() {
    let x = [1.0, 4.0, 4.0, f32::NAN];
    for (kind, y, gx) in [
        (Pool::Mean, 3.0, [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0]),
        (Pool::Last, 4.0, [0.0, 0.0, 1.0, 0.0]),
        (Pool::Max, 4.0, [0.0, 1.0, 0.0, 0.0]),
    ] {
        let expected = (y, gx.to_vec());
        assert_eq!(single(&x, 3, kind), expected);
        assert_eq!(emulated(|| single(&x, 3, kind)), expected);
    }
}

#[test]
fn what_is_no_number_is_not_lost() {
    // in two pieces of a kernel
    let mut x = vec![0.0; 70];
    (x[40], x[41], x[69]) = (f32::NAN, 9.0, f32::NAN);
    for (y, gx) in [single(&x, 70, Pool::Max), emulated(|| single(&x, 70, Pool::Max))] {
        assert!(y.is_nan());
        let at: Vec<usize> = (0..70).filter(|&i| gx[i] != 0.0).collect();
        assert_eq!(at, [40]);
    }
}

#[test]
fn lengths_must_be_those_of_some_steps_of_every_sequence() {
    let of = |lengths: &[u32]| {
        let lengths = Tensor::new(lengths, &Device::Cpu).unwrap();
        move |ins: &[Tensor]| pool(&ins[0], Some(&lengths), Pool::Mean)
    };
    let message = "pool: a length of 0, but x has 3 steps and needed are 1 ..= 3";
    check::refuses(&[&[2, 3, 4]], of(&[3, 0]), message);
    let message = "pool: a length of 4, but x has 3 steps";
    check::refuses(&[&[2, 3, 4]], of(&[4, 1]), message);
    let message = "pool: lengths has shape [3] of U32, but x asks for [2] of U32";
    check::refuses(&[&[2, 3, 4]], of(&[1, 1, 1]), message);
    check::refuses(&[&[2, 3]], of(&[1, 1]), "pool: x has shape [2, 3]");
    let wide = |ins: &[Tensor]| {
        let lengths = Tensor::new(&[1i64, 1], &Device::Cpu)?;
        pool(&ins[0], Some(&lengths), Pool::Mean)
    };
    check::refuses(&[&[2, 3, 4]], wide, "[2] of I64, but x asks for [2] of U32");
}

#[test]
fn kernels_index_large_tensors() {
    check::large(&case(&[1, 16, 64])).blocks(1).agrees(by(Pool::Max, false), reference(Pool::Max, false));
}
