//! Gradients of every mixer: they exist, reach everything, and are derivatives.

use crate::world::{flat, normal, Case};
use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};
use dsf::mixers::{Gradient, Mixer};
use dsf::nn::{Cx, Rows};

/// sum(y ⊙ w) for a fixed random w, so that every output weighs differently.
fn weighed(mixer: &dyn Mixer, x: &Tensor, cx: &Cx) -> Tensor {
    let y = mixer.forward(x, cx).unwrap();
    let w = normal("cotangent", y.shape());
    (y * w).unwrap().sum_all().unwrap()
}

/// The part of a parameter on which the output depends.
fn expected(case: &Case, name: &str) -> Reach {
    let exception = { case.entry.gradient.iter() }.find(|(known, _)| *known == name);
    match exception.map(|(_, gradient)| gradient) {
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

#[derive(Debug, PartialEq)]
enum Reach {
    Absent,
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
    for case in Case::all().into_iter().chain(Case::normed()).chain(Case::optional()) {
        let (mixer, params) = case.build();
        let x = Var::from_tensor(&case.input(3, 7)).unwrap();
        let loss = weighed(&*mixer, x.as_tensor(), &Cx::eval());
        let grads = loss.backward().unwrap();
        assert_eq!(reach(&grads, &x), Reach::Everywhere, "{case}: the input");
        for (name, var) in params.vars() {
            let wanted = expected(&case, &name);
            assert_eq!(reach(&grads, &var), wanted, "{case}: {name}");
        }
    }
}

#[test]
fn the_gradient_is_the_derivative_with_dropout_and_chosen_rows_too() {
    let times = Tensor::new(&[[0u32, 3], [2, 6], [1, 5]], &Device::Cpu).unwrap();
    let cx = Cx::train(1, 2).only(Some(&Rows { positions: times }));
    for mut case in Case::all().into_iter().chain(Case::normed()).chain(Case::optional()) {
        case.config.attn_dropout = 0.3;
        // Norms bend the loss where a head is short.
        let step = if case.config.state_norm { 1e-6 } else { case.entry.difference_step };
        let (mixer, params) = case.build();
        let x = Var::from_tensor(&case.input(3, 7)).unwrap();
        let mut vars = params.vars();
        vars.push(("x".to_owned(), x.clone()));
        let loss = || weighed(&*mixer, x.as_tensor(), &cx);
        let grads = loss().backward().unwrap();
        for (name, var) in vars {
            let along = normal(&format!("direction/{name}"), var.shape());
            let slope = grads.get(&var).map_or(0.0, |grad| {
                let slope = (grad * &along).unwrap().sum_all().unwrap();
                slope.to_scalar::<f64>().unwrap()
            });
            let origin = var.as_tensor().copy().unwrap();
            let at = |distance: f64| {
                let moved = (&origin + (&along * distance).unwrap()).unwrap();
                var.set(&moved).unwrap();
                loss().to_scalar::<f64>().unwrap()
            };
            let difference = (at(step) - at(-step)) / (2.0 * step);
            at(0.0);
            let apart = (slope - difference).abs() / difference.abs().max(1.0);
            assert!(apart < 1e-6, "{case}: {name}: {slope} is not {difference}");
        }
    }
}
