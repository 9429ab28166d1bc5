//! Gradients of every mixer: they reach each element of the input and of the parameters that affects the output, and
//! equal finite differences.

use crate::world::{flat, normal, parameters, perturb, Case};
use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};
use dsf::mixers::{Carried, Gradient, Mixer, MixerSpec};
use dsf::nn::{Cx, Rows};

/// sum(y ⊙ w) for a fixed random w, so that each output has a different weight.
fn weighted_sum(mixer: &dyn Mixer, x: &Tensor, cx: &Cx) -> Tensor {
    let y = mixer.forward(x, cx).unwrap();
    let w = normal("cotangent", y.shape());
    (y * w).unwrap().sum_all().unwrap()
}

/// Elements of the parameter `name` on which the output depends, according to the registry.
fn expected(case: &Case, name: &str) -> Reach {
    let name = name.strip_prefix("backward.").unwrap_or(name);
    let exception = { case.entry.gradient.iter() }.find(|(known, _)| *known == name);
    match exception.map(|(_, gradient)| gradient) {
        None if name == "lower_bounds" => Reach::Absent, // those of the first layer are 0
        None => Reach::Everywhere,
        Some(Gradient::Unused) => Reach::Absent,
        Some(Gradient::Partial) => Reach::Partly,
        Some(Gradient::Cancels) => {
            let config = &case.config;
            let rotated = config.language.as_ref().map_or(0, |l| l.rotary_dims);
            match rotated * config.n_heads {
                0 => Reach::Zero,
                rotated if rotated < config.d_state => Reach::Partly,
                _ => Reach::Everywhere,
            }
        }
    }
}

/// Elements of a tensor with a nonzero gradient.
#[derive(Debug, PartialEq)]
enum Reach {
    /// The tensor has no gradient.
    Absent,
    /// All gradients are zero.
    Zero,
    Partly,
    Everywhere,
}

fn reach(grads: &GradStore, var: &Var) -> Reach {
    let Some(grad) = grads.get(var) else {
        return Reach::Absent;
    };
    let grad = flat(grad);
    let reached = grad.iter().filter(|g| g.abs() > 1e-12).count();
    match reached {
        0 => Reach::Zero,
        n if n == grad.len() => Reach::Everywhere,
        _ => Reach::Partly,
    }
}

#[test]
fn the_gradient_reaches_every_element_of_the_input_and_of_every_parameter() {
    let others = [Case::normed(), Case::optional(), Case::both_directions()];
    for case in Case::all().into_iter().chain(others.into_iter().flatten()) {
        let (mixer, params) = case.build();
        let x = Var::from_tensor(&case.input(3, 7)).unwrap();
        let loss = weighted_sum(&*mixer, x.as_tensor(), &Cx::eval());
        let grads = loss.backward().unwrap();
        assert_eq!(reach(&grads, &x), Reach::Everywhere, "{case}: the input");
        for (name, var) in params.vars() {
            let wanted = expected(&case, &name);
            assert_eq!(reach(&grads, &var), wanted, "{case}: {name}");
        }
    }
}

/// Parameters that only layers after the first have, or read: shares of the first layer's values, and lower bounds.
#[test]
fn the_gradient_of_a_later_layer_is_its_derivative() {
    for (mixer, options) in
        [("rwkv7", [("value_residual", "true"), ("v_rank", "3")]), ("hgrn2", [("lower_bound", "learnt"); 2])]
    {
        let mut case = Case::new(dsf::mixers::find(mixer).unwrap(), "paper", 3);
        case.config.options.extend(options.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let params = parameters();
        let mixer = case.entry.build(MixerSpec::from(&case.config).in_layer(1), &params).unwrap();
        perturb(&params);
        let x = case.input(2, 7);
        let first = Var::from_tensor(&normal("first values", x.shape())).unwrap();
        let weights = normal("cotangent", x.shape());
        let loss = || {
            let mut carried = Carried { first_values: Some(first.as_tensor().clone()), ..Carried::default() };
            let y = mixer.forward_with(&x, &mut carried, &Cx::eval()).unwrap();
            (y * &weights).unwrap().sum_all().unwrap()
        };
        let grads = loss().backward().unwrap();
        let mut vars: Vec<(String, Var)> = params.vars();
        vars.retain(|(name, _)| ["bv", "wv1", "wv2", "lower_bounds"].contains(&name.as_str()));
        assert!(!vars.is_empty());
        if case.entry.name == "rwkv7" {
            vars.push(("first values".to_owned(), first.clone()));
        }
        for (name, var) in vars {
            let along = normal(&format!("direction/{name}"), var.shape());
            let slope = (grads.get(&var).unwrap() * &along).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap();
            let before = var.as_tensor().copy().unwrap();
            let at = |step: f64| {
                var.set(&(&before + (&along * step).unwrap()).unwrap()).unwrap();
                loss().to_scalar::<f64>().unwrap()
            };
            let step = 1e-5;
            let difference = (at(step) - at(-step)) / (2.0 * step);
            var.set(&before).unwrap();
            assert!((slope - difference).abs() < 1e-6 * slope.abs().max(1e-3), "{name}: {slope} and {difference}");
        }
    }
}

#[test]
fn the_gradient_equals_a_finite_difference_with_dropout_and_selected_rows() {
    let times = Tensor::new(&[[0u32, 3], [2, 6], [1, 5]], &Device::Cpu).unwrap();
    let cx = Cx::train(1, 2).only(Some(&Rows { positions: times }));
    let others = [Case::normed(), Case::optional(), Case::both_directions()];
    for mut case in Case::all().into_iter().chain(others.into_iter().flatten()) {
        case.config.attn_dropout = 0.3;
        // The norm of a head with small values is strongly nonlinear, as is a second pass of `ttt-linear`, which needs a
        // smaller step.
        let nonlinear = case.config.state_norm || case.config.is_bidirectional();
        let usual = case.entry.difference_step;
        let step = if nonlinear { usual.min(1e-6) } else { usual };
        let (mixer, params) = case.build();
        let x = Var::from_tensor(&case.input(3, 7)).unwrap();
        let mut vars = params.vars();
        vars.push(("x".to_owned(), x.clone()));
        let loss = || weighted_sum(&*mixer, x.as_tensor(), &cx);
        let grads = loss().backward().unwrap();
        for (name, var) in vars {
            let direction = normal(&format!("direction/{name}"), var.shape());
            let slope = grads.get(&var).map_or(0.0, |grad| {
                let slope = (grad * &direction).unwrap().sum_all().unwrap();
                slope.to_scalar::<f64>().unwrap()
            });
            let origin = var.as_tensor().copy().unwrap();
            let at = |distance: f64| {
                let moved = (&origin + (&direction * distance).unwrap()).unwrap();
                var.set(&moved).unwrap();
                loss().to_scalar::<f64>().unwrap()
            };
            let difference = (at(step) - at(-step)) / (2.0 * step);
            at(0.0);
            let error = (slope - difference).abs() / difference.abs().max(1.0);
            assert!(error < 1e-6, "{case}: {name}: the gradient is {slope}, the difference {difference}");
        }
    }
}
