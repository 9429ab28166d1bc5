//! Gradients through time, as `dsf inspect --gradients` shows them.

use candle_core::{DType, Device, Tensor};
use dsf::inspect::{Need, Network, NetworkInput, StateGradients};
use dsf::model::{Io, LanguageModel};
use dsf::nn::Params;
use dsf::recipes;
use dsf::tasks::{self, Splits};

/// Gradients of each layer of a fresh model in f64 on an example of `task`.
fn traced(task: &str, settings: &[(&str, &str)]) -> Vec<StateGradients> {
    let config = recipes::run(task, &[&[("preset", "smoke")], settings].concat()).unwrap();
    let mut network = Network::fresh(config, DType::F64).unwrap();
    network.traced = true;
    let subjects = network.subjects(NetworkInput::Task(None, None), &[], Need::Pass).unwrap();
    subjects.into_iter().map(|subject| subject.gradients.unwrap()).collect()
}

/// Through one layer of retention, the only path from a state to a later output is the decay γ.
#[test]
fn the_gradient_through_a_constant_decay_falls_by_it() {
    let found = traced("mqar", &[("mixer", "retention"), ("layers", "1"), ("heads", "1")]);
    let [gradients] = &found[..] else { panic!("{} layers", found.len()) };
    let gamma = 1.0 - 2f64.powi(-5);
    assert!(gradients.by_lag.len() > 10, "{} lags", gradients.by_lag.len());
    for (further, share) in gradients.by_lag.iter().enumerate() {
        assert!((share - gamma.powi(further as i32)).abs() < 1e-12, "lag {}: {share}", further + 1);
    }
    let first_below = (0..).find(|lag| gamma.powi(*lag) < 0.5).unwrap();
    let expected = if (first_below as usize) < gradients.by_lag.len() { f64::from(first_below) } else { f64::INFINITY };
    assert_eq!(gradients.half_life(), Some(expected));
}

/// The transition of generalised linear attention is the identity.
#[test]
fn a_transition_of_one_loses_nothing() {
    let found = traced("mqar", &[("mixer", "generalized-linear"), ("layers", "1")]);
    assert!(found[0].by_lag.iter().all(|share| (share - 1.0).abs() < 1e-12), "{:?}", found[0].by_lag);
    assert_eq!(found[0].half_life(), Some(f64::INFINITY));
}

/// Every number of a state, moved a little after one token, changes the loss by the gradient's component.
#[test]
fn norms_are_those_of_finite_differences_over_all_paths() {
    const STEP: f64 = 1e-5;
    for mixer in ["s6", "lstm", "delta-net", "softmax"] {
        let settings = [("mixer", mixer), ("d", "8"), ("n", "4"), ("heads", "1"), ("layers", "2")];
        let settings = [&[("preset", "smoke")], &settings[..]].concat();
        let config = match recipes::run("mqar", &settings) {
            Ok(config) => config,
            // Without a state expansion.
            Err(_) => recipes::run(
                "mqar",
                &settings.into_iter().filter(|(name, _)| !["n", "heads"].contains(name)).collect::<Vec<_>>(),
            )
            .unwrap(),
        };
        let mut network = Network::fresh(config.clone(), DType::F64).unwrap();
        network.traced = true;
        let subjects = network.subjects(NetworkInput::Task(None, None), &[], Need::Pass).unwrap();
        let Splits::PerToken { test, .. } = tasks::load(&config.task, None).unwrap() else { unreachable!() };
        let batch = test.batch(0..1);
        let params = Params::seeded(config.seed, DType::F64, &Device::Cpu).detached();
        let model = LanguageModel::new(&config.model, Io::of(&config.task).unwrap(), &params).unwrap();
        let tokens = Tensor::from_slice(batch.tokens, (1, test.seq_len()), &Device::Cpu).unwrap();
        let rows = Tensor::from_slice(batch.positions, batch.positions.len(), &Device::Cpu).unwrap();
        let labels = Tensor::from_slice(batch.answers, batch.answers.len(), &Device::Cpu).unwrap();
        // The loss where number `element` of the state of a layer after token `at` has moved, and the size of that state.
        let loss = |layer: usize, at: usize, element: usize, by: f64| {
            let (mut seen, mut size) = (vec![0; 2], 0);
            let mut between = |of: usize, state: &mut [Tensor]| {
                if (of, seen[of]) == (layer, at) {
                    let mut first = 0;
                    for tensor in state.iter_mut() {
                        let count = tensor.elem_count();
                        if (first..first + count).contains(&element) {
                            let mut numbers = tensor.flatten_all()?.to_vec1::<f64>()?;
                            numbers[element - first] += by;
                            *tensor = Tensor::from_vec(numbers, tensor.shape(), &Device::Cpu)?;
                        }
                        first += count;
                    }
                    size = first;
                }
                seen[of] += 1;
                Ok(())
            };
            let hidden = model.hidden_by_steps(&tokens, &mut between).unwrap().unwrap();
            let hidden = hidden.squeeze(0).unwrap().index_select(&rows, 0).unwrap();
            (model.classify(&hidden, &labels).unwrap().loss.to_scalar::<f64>().unwrap(), size)
        };
        for (layer, at) in [(0, 5), (1, 3)] {
            let size = loss(layer, at, 0, 0.0).1;
            let squares = (0..size).map(|element| {
                let [above, below] = [STEP, -STEP].map(|by| loss(layer, at, element, by).0);
                ((above - below) / (2.0 * STEP)).powi(2)
            });
            let expected = squares.sum::<f64>().sqrt();
            let found = subjects[layer].gradients.as_ref().unwrap().by_token[at];
            assert!(expected > 0.0, "{mixer}, layer {layer}");
            assert!((found - expected).abs() < 1e-6 * expected, "{mixer}, layer {layer}: {found}, {expected}");
        }
    }
}

/// The label of a document depends on all of its states, and there is no token that a lag could be counted from.
#[test]
fn a_classifier_has_gradients_by_token_alone() {
    for gradients in traced("lra", &[("dataset", "listops"), ("mixer", "lru")]) {
        assert!(gradients.by_lag.is_empty() && gradients.half_life().is_none());
        assert!(gradients.by_token.len() > 100);
        assert!(gradients.by_token.iter().all(|norm| norm.is_finite() && *norm > 0.0));
    }
}

/// All positions are decoded from the last vector, from which lags are counted.
#[test]
fn an_auto_encoder_reads_its_state_at_the_end() {
    let found = traced("mad", &[("skill", "compression"), ("mixer", "retention"), ("layers", "1"), ("heads", "1")]);
    let gamma = 1.0 - 2f64.powi(-5);
    for gradients in found {
        assert_eq!(gradients.by_lag.len(), gradients.by_token.len());
        assert!(gradients.by_lag.len() > 5);
        let last = gradients.by_lag.len() - 1;
        assert!((gradients.by_lag[last] - gamma.powi(last as i32)).abs() < 1e-12);
    }
}
