//! Lemma 2 mixer by mixer: whether a bigger n can compute what a smaller one does. The lemma says
//! so for systems of the form (11); that a mixer's own parameters can express it is another matter.

use crate::world::{distance, normal, parameters, perturb, Case};
use candle_core::{DType, Device, Tensor};
use dsf::mixers::find;
use dsf::nn::{Cx, Params};
use std::collections::HashMap;

const SMALL: usize = 4;
const BIG: usize = 9;

/// A mixer with one head and state expansion `n`.
fn case(mixer: &str, variant: &str, n: usize) -> Case {
    let mut case = Case::new(find(mixer).unwrap(), variant, 1);
    case.config.d_state = n;
    case
}

/// Perturbed parameters of a case by name.
fn values(case: &Case) -> HashMap<String, Tensor> {
    let params = parameters();
    case.mixer(&params);
    perturb(&params);
    let vars = params.vars().into_iter();
    vars.map(|(name, var)| (name, var.as_detached_tensor().copy().unwrap())).collect()
}

fn run(case: &Case, values: HashMap<String, Tensor>) -> Tensor {
    let params = Params::given(values, DType::F64, &Device::Cpu);
    let x = normal("input", (2, 7, case.config.d_model));
    case.mixer(&params).forward(&x, &Cx::eval()).unwrap()
}

/// `small` in the leading corner of `big`.
fn corner(big: &Tensor, small: &Tensor) -> Tensor {
    let range: Vec<_> = small.dims().iter().map(|n| 0..*n).collect();
    big.slice_assign(&range, small).unwrap()
}

/// Distance by which the output moves when n grows from SMALL to BIG: what the small mixer has stays, `zeroed`
/// parameters are 0 elsewhere, `scaled` ones are multiplied, all other new numbers are random.
fn moved(mixer: &str, variant: &str, zeroed: &[&str], scaled: (&[&str], f64)) -> f64 {
    let (small, big) = (case(mixer, variant, SMALL), case(mixer, variant, BIG));
    let known = values(&small);
    let embed = |(name, new): (String, Tensor)| {
        let new = if zeroed.contains(&name.as_str()) { new.zeros_like().unwrap() } else { new };
        let factor = if scaled.0.contains(&name.as_str()) { scaled.1 } else { 1.0 };
        let value = (corner(&new, &known[&name]) * factor).unwrap();
        (name, value)
    };
    let embedded = values(&big).into_iter().map(embed).collect();
    let (y, wanted) = (run(&big, embedded), run(&small, known.clone()));
    distance(&y, &wanted)
}

const NO_SCALE: (&[&str], f64) = (&[], 1.0);
const QUERIES_AND_KEYS: [&str; 4] = ["wq", "wk", "bq", "bk"];

#[test]
fn attention_without_a_feature_map_is_embedded_by_zero_rows_of_queries_and_keys() {
    for mixer in ["generalized-linear", "normalized", "normalized-softplus", "normalized-sigmoid"] {
        for variant in ["reference", "paper"] {
            let apart = moved(mixer, variant, &QUERIES_AND_KEYS, NO_SCALE);
            assert!(apart <= 1e-12, "{mixer} {variant}: {apart:e}");
        }
    }
}

#[test]
fn state_space_models_are_embedded_by_zero_rows_of_the_read_out() {
    for (mixer, variant) in [("s6", "reference"), ("s6", "paper"), ("ssd", "reference"), ("ssd-mamba2", "mamba2")] {
        let apart = moved(mixer, variant, &["wc"], NO_SCALE);
        assert!(apart <= 1e-12, "{mixer} {variant}: {apart:e}");
        let random = moved(mixer, variant, &[], NO_SCALE);
        assert!(random > 0.01, "{mixer} {variant}: {random:e}");
    }
}

#[test]
fn softmax_is_embedded_when_the_queries_undo_the_new_scale() {
    let scale = (BIG as f64 / SMALL as f64).sqrt();
    for variant in ["reference", "paper"] {
        let scaled: (&[&str], f64) = (&["wq", "bq"], scale);
        let apart = moved("softmax", variant, &QUERIES_AND_KEYS, scaled);
        assert!(apart <= 1e-12, "{variant}: {apart:e}");
        let unscaled = moved("softmax", variant, &QUERIES_AND_KEYS, NO_SCALE);
        assert!(unscaled > 0.01, "{variant}: {unscaled:e}");
    }
}

#[test]
fn linear_attention_is_not_embedded_by_zero_rows() {
    for variant in ["reference", "paper"] {
        let apart = moved("linear", variant, &QUERIES_AND_KEYS, NO_SCALE);
        assert!(apart > 0.01, "{variant}: elu(0) + 1 = 1 adds to every score");
    }
}

#[test]
fn linear_attention_is_recovered_only_in_the_limit_of_a_key_bias() {
    let (small, big) = (case("linear", "reference", SMALL), case("linear", "reference", BIG));
    let known = values(&small);
    let wanted = run(&small, known.clone());
    let off = |bias: f64| {
        let embed = |(name, new): (String, Tensor)| {
            let fill = if name == "bk" { bias } else { 0.0 };
            let new = (new.zeros_like().unwrap() + fill).unwrap();
            let value = corner(&new, &known[&name]);
            (name, value)
        };
        distance(&run(&big, values(&big).into_iter().map(embed).collect()), &wanted)
    };
    assert!(off(-5.0) > 1e-5, "{:e}", off(-5.0));
    assert!(off(-14.0) < 1e-4, "{:e}", off(-14.0));
    assert!(off(-40.0) < 1e-12, "{:e}", off(-40.0));
}
