use super::*;
use crate::runtime::check::{self, Case, Suite};
use candle_core::Device;

/// Base of Su et al. 2021.
const BASE: f64 = 10_000.0;

/// A shape, the number of heads, the rotated channels of a head, and whether positions are given.
type Setting = ([usize; 3], usize, usize, bool);

/// All channels of a head or some of them; numbers of pairs that are multiples of four and others;
/// a partial last group; several tasks.
const SETTINGS: [Setting; 7] = [
    ([1, 1, 2], 1, 2, false),
    ([2, 5, 16], 1, 16, true),
    ([3, 7, 24], 2, 8, false),
    ([2, 70, 36], 3, 8, true),
    ([2, 3, 21], 3, 6, false),
    ([1, 9, 20], 2, 4, true),
    ([1, 130, 8], 2, 2, false),
];

fn case((shape, heads, dims, given): Setting) -> Case {
    Case::new(format!("{shape:?}, {heads}, {dims}, {given}")).normal("x", &shape)
}

/// Large positions in no order, with a repetition.
fn positions(batch: usize, rows: usize) -> Tensor {
    let position = |i: usize| (i as u32 * 7919) % 5003 + if i == 1 { 1 << 20 } else { 0 };
    let positions: Vec<u32> = (0..batch * rows).map(position).collect();
    Tensor::from_vec(positions, (batch, rows), &Device::Cpu).unwrap()
}

fn fused((shape, heads, dims, given): Setting) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync {
    let positions = given.then(|| positions(shape[0], shape[1]));
    move |ins| rotary(&ins[0], heads, dims, BASE, positions.as_ref())
}

fn plain((shape, heads, dims, given): Setting) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    let positions = match given {
        true => Positions::Given(positions(shape[0], shape[1])),
        false => Positions::FromZero(shape[1]),
    };
    move |ins| reference::rotary(&ins[0], heads, dims, BASE, &positions)
}

#[test]
fn it_passes_the_suite() {
    for setting in SETTINGS {
        let of_one =
            Suite { agree: &[case(setting)], differences: &[], bits: &[], tracked: &[case(setting)], refused: &[] };
        check::suite(of_one, fused(setting), plain(setting));
    }
    for setting in [SETTINGS[2], SETTINGS[5]] {
        check::finite_differences(&case(setting), fused(setting));
    }
    for setting in [([3, 65, 24], 2, 8, false), ([3, 65, 24], 2, 8, true)] {
        check::same_bits(&case(setting), fused(setting));
    }
}

#[test]
fn kernels_equal_the_reference() {
    for setting in SETTINGS {
        check::kernels_agree(&[case(setting)], fused(setting), plain(setting));
    }
}

/// The definition, one number at a time.
#[test]
fn a_pair_half_of_the_rotated_channels_apart_is_rotated_by_its_angle() {
    let (heads, width, dims) = (2, 6, 4);
    let values: Vec<f64> = (0..24).map(|i| f64::from(i) - 3.5).collect();
    let x = Tensor::from_slice(&values, (1, 2, 12), &Device::Cpu).unwrap();
    let at = Tensor::new(&[[3u32, 1000]], &Device::Cpu).unwrap();
    let y = rotary(&x, heads, dims, BASE, Some(&at)).unwrap();
    let y: Vec<f64> = y.flatten_all().unwrap().to_vec1().unwrap();
    for (row, position) in [3.0f64, 1000.0].into_iter().enumerate() {
        for head in 0..heads {
            let x = &values[row * 12 + head * width..][..width];
            let y = &y[row * 12 + head * width..][..width];
            for (j, rate) in [1.0, 0.01].into_iter().enumerate() {
                let (sin, cos) = (position * rate).sin_cos();
                assert!((y[j] - (x[j] * cos - x[j + 2] * sin)).abs() < 1e-12);
                assert!((y[j + 2] - (x[j + 2] * cos + x[j] * sin)).abs() < 1e-12);
            }
            assert_eq!(y[4..], x[4..], "channels beyond the rotated ones do not change");
        }
    }
}

#[test]
fn the_base_sets_how_slowly_later_pairs_turn() {
    let x = Tensor::new(&[[[1f64, 1.0, 0.0, 0.0]]], &Device::Cpu).unwrap();
    let at = Tensor::new(&[[7u32]], &Device::Cpu).unwrap();
    let y = rotary(&x, 1, 4, 500_000.0, Some(&at)).unwrap();
    let y: Vec<f64> = y.flatten_all().unwrap().to_vec1().unwrap();
    let slow = 7.0 / 500_000f64.sqrt();
    for (got, wanted) in y.into_iter().zip([7f64.cos(), slow.cos(), 7f64.sin(), slow.sin()]) {
        assert!((got - wanted).abs() < 1e-15);
    }
}

#[test]
fn a_token_on_its_own_is_rotated_as_in_its_sequence() {
    let x = case(([2, 90, 16], 2, 4, false)).vars(DType::F32).remove(0);
    let whole = rotary(&x, 2, 4, BASE, None).unwrap().narrow(1, 77, 1).unwrap();
    let at = Tensor::new(&[[77u32], [77]], &Device::Cpu).unwrap();
    let alone = rotary(&x.narrow(1, 77, 1).unwrap(), 2, 4, BASE, Some(&at)).unwrap();
    let bits = |x: Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(bits(whole), bits(alone));
}

#[test]
fn products_depend_on_the_distance_alone() {
    let vars = case(([2, 1, 16], 1, 16, false)).vars(DType::F64);
    let product = |from: u32, to: u32| {
        let at = Tensor::new(&[[from], [to]], &Device::Cpu).unwrap();
        let y = rotary(&vars[0], 1, 16, BASE, Some(&at)).unwrap();
        let (q, k) = (y.get(0).unwrap(), y.get(1).unwrap());
        (q * k).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap()
    };
    assert!((product(5, 9) - product(5005, 5009)).abs() < 1e-9);
    assert!((product(5, 9) - product(5, 10)).abs() > 1e-3);
}

#[test]
fn wrong_inputs_are_named() {
    let of = |heads, dims| move |ins: &[Tensor]| rotary(&ins[0], heads, dims, BASE, None);
    let message = "rotary: x has 9 channels, which 2 heads cannot share equally";
    check::refuses(&[&[1, 2, 9]], of(2, 2), message);
    let message = "rotary: 3 channels of a head, needed is an even number up to its 4";
    check::refuses(&[&[1, 2, 8]], of(2, 3), message);
    check::refuses(&[&[1, 2, 8]], of(2, 6), "rotary: 6 channels of a head");
    let elsewhere = |ins: &[Tensor]| rotary(&ins[0], 2, 2, BASE, Some(&positions(1, 3)));
    let message = "rotary: positions has shape [1, 3] of U32, but x asks for [1, 2] of U32";
    check::refuses(&[&[1, 2, 8]], elsewhere, message);
}

#[test]
fn a_base_without_angles_is_named() {
    let of = |base: f64| move |ins: &[Tensor]| rotary(&ins[0], 2, 2, base, None);
    check::refuses(&[&[1, 2, 8]], of(0.5), "rotary: the base 0.5 of the angles");
    check::refuses(&[&[1, 2, 8]], of(f64::NAN), "rotary: the base NaN of the angles");
}

#[test]
fn without_rotated_channels_nothing_changes() {
    let x = case(([1, 2, 8], 2, 0, false)).vars(DType::F32).remove(0);
    let y = rotary(&x, 2, 0, BASE, None).unwrap();
    assert_eq!(y.to_vec3::<f32>().unwrap(), x.to_vec3::<f32>().unwrap());
}

#[test]
fn kernels_index_large_tensors() {
    let setting = ([1, 16, 64], 2, 32, false);
    check::large(&case(setting)).agrees(fused(setting), plain(setting));
}
