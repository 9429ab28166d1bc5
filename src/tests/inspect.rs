//! `dsf inspect` computes what it says: systems that are the mixers, measures of their matrices, both lemmas.

use crate::world::{distance, perturb, Case};
use candle_core::{DType, Device, Tensor};
use dsf::inspect::{
    bins, engines, etas, identity, lemma1, lemma2, verify, Growing, Heads, LayerPass, Measures, Need, Network,
    NetworkInput, Seen, Subject, View, ETAS,
};
use dsf::ltv::Ltv;
use dsf::mixers::{find, Core, Entry, Growth, MIXERS};
use dsf::nn::{Cx, Params};
use dsf::ops::rng::Rng;
use dsf::recipes;
use dsf::report::Report;

/// d, n and L.
const SHAPES: [[usize; 3]; 3] = [[8, 4, 1], [12, 6, 17], [16, 8, 40]];

/// A layer's mixer with weights moved from their start, on normal numbers.
fn subject(mixer: &str, variant: &str, [d, n, seq_len]: [usize; 3], heads: usize, dtype: DType) -> Subject {
    let mut case = Case::new(find(mixer).unwrap(), variant, heads);
    case.config.d_model = d;
    case.config.d_state = if case.entry.expands { n } else { 1 };
    let params = Params::seeded(3, dtype, &Device::Cpu).detached();
    let mixer = case.mixer(&params);
    perturb(&params);
    let mut rng = Rng::new(4, "u", 0);
    let u: Vec<f64> = (0..seq_len * d).map(|_| rng.normals().0).collect();
    let u = Tensor::from_vec(u, (seq_len, d), &Device::Cpu).unwrap();
    let vars = params.vars().into_iter();
    Subject {
        name: case.entry.name.to_owned(),
        place: (case.entry.name.to_owned(), 0),
        pretrained: false,
        pass: LayerPass::Whole,
        sees_all: false,
        entry: case.entry,
        model: case.config,
        seed: 3,
        mixer,
        weights: vars.map(|(name, var)| (name, var.as_detached_tensor())).collect(),
        u: u.to_dtype(dtype).unwrap(),
        gradients: None,
    }
}

fn seen(subject: &Subject) -> Seen {
    subject.system().unwrap().map_err(str::to_owned).unwrap()
}

/// Whether the registry says that a variant is a system itself: by its N, which may be that of one variant alone.
fn is_system(entry: &Entry, variant: &str) -> bool {
    let Some(states) = entry.dsf.strip_prefix("N = ") else {
        return false;
    };
    let alone = states.split_once("(variant ");
    alone.is_none_or(|(_, named)| named.strip_suffix(')') == Some(variant))
}

#[test]
fn every_system_of_the_registry_is_the_mixer_in_both_types_at_every_shape() {
    for entry in MIXERS {
        for variant in entry.variants {
            for shape in SHAPES {
                for heads in if entry.heads { vec![1, 2] } else { vec![1] } {
                    for dtype in [DType::F64, DType::F32] {
                        let subject = subject(entry.name, variant, shape, heads, dtype);
                        let place = format!("{} {variant} {shape:?} {heads} {dtype:?}", entry.name);
                        let seen = match subject.system().unwrap() {
                            Ok(seen) => seen,
                            Err(why) => {
                                assert!(!is_system(entry, variant), "{place}: {why}");
                                assert_ne!(why, "none is derived here", "{place} does not say why");
                                continue;
                            }
                        };
                        let measures = Measures::of(&seen).unwrap();
                        let errors = verify(&subject, &seen, &measures).unwrap();
                        assert!(errors.hold() && !errors.steps.is_nan(), "{place}: {errors:?}");
                        let tolerance = if dtype == DType::F64 { 1e-10 } else { 1e-5 };
                        assert_eq!(errors.tolerance, tolerance);
                    }
                }
            }
        }
    }
}

/// Largest difference between an engine's output and that of the first engine, relative to the largest output.
fn largest_difference(report: &Report) -> f64 {
    let records = report.grids[0].records.iter();
    let differences = records
        .filter(|record| record.iter().any(|(_, value)| value == "difference"))
        .filter_map(|record| record.last()?.1.as_f64());
    differences.fold(0.0, f64::max)
}

#[test]
fn every_engine_of_a_mixer_gives_the_same_outputs_at_every_shape() {
    for entry in MIXERS {
        for variant in entry.variants {
            for shape in [[8, 4, 1], [12, 6, 17], [8, 4, 70]] {
                for heads in if entry.heads { vec![1, 2] } else { vec![1] } {
                    for dtype in [DType::F64, DType::F32] {
                        let subject = subject(entry.name, variant, shape, heads, dtype);
                        let subject_steps = subject.mixer.recurrent().is_some();
                        let chunked = { entry.work(&subject.model) }.is_some_and(|work| work.core == Core::ChunkedScan);
                        let (report, hold) = engines(String::new(), &[subject]).unwrap();
                        let place = format!("{} {variant} {shape:?} {heads} {dtype:?}", entry.name);
                        assert!(
                            hold || dtype == DType::F32 && largest_difference(&report) <= 1e-5 * entry.f32_rounding,
                            "{place}: {:?} {:?}",
                            report.notes,
                            report.grids[0].lines
                        );
                        let lines = report.grids[0].lines.iter();
                        let lines: Vec<String> = lines.map(|line| line.name().to_owned()).collect();
                        let steps = lines.last().unwrap() == "step by step";
                        assert_eq!(steps, subject_steps, "{place}");
                        assert_eq!(lines.len() == 3, chunked, "{place}");
                        // The note on the medians, the one on equality, and why there are no more.
                        assert_eq!(report.notes.len(), if chunked { 2 } else { 3 });
                    }
                }
            }
        }
    }
}

#[test]
fn channels_of_the_recurrences_may_have_several_states() {
    let cases = [("qlstm", "dsf"), ("qlstm", "paper"), ("qlstm-reversed", "dsf"), ("rg-lru", "paper")];
    for (mixer, variant) in cases {
        let mut case = Case::new(find(mixer).unwrap(), variant, 1);
        case.config.options.insert("states".to_owned(), "3".to_owned());
        let (mixer, params) = case.build();
        assert_eq!(mixer.state_size(5), 3 * 12, "{case}");
        let (x, cx) = (case.input(2, 9), Cx::eval());
        let y = mixer.forward(&x, &cx).unwrap();
        let recurrent = mixer.recurrent().unwrap();
        let mut state = recurrent.init(2).unwrap();
        let steps = (0..9).map(|i| {
            let x_t = x.get_on_dim(1, i).unwrap();
            recurrent.step(&x_t, i, &mut state).unwrap()
        });
        let steps: Vec<Tensor> = steps.collect();
        assert!(distance(&Tensor::stack(&steps, 1).unwrap(), &y) < 1e-12, "{case}");
        let u = x.get(0).unwrap();
        let Some(system) = mixer.ltv(&u).unwrap() else {
            assert_eq!(variant, "paper", "{case}: the tanh");
            continue;
        };
        assert_eq!(system.width().unwrap(), 3 * 12, "{case}");
        assert!(distance(&system.run(&u).unwrap(), &y.get(0).unwrap()) < 1e-12, "{case}");
        let counted = case.entry.work(&case.config).unwrap().projections;
        let weights = params.vars().into_iter().filter(|(_, var)| var.rank() == 2);
        let weights: usize = weights.map(|(_, var)| var.elem_count()).sum();
        assert_eq!(counted, weights, "{case}");
    }
}

#[test]
fn the_dual_form_is_that_of_systems_with_one_decay_a_channel() {
    let subject = |mixer, variant| subject(mixer, variant, [8, 4, 20], 1, DType::F64);
    let ssd = subject("ssd", "reference");
    let system = seen(&ssd).system;
    let dual = system.by_pairs(&ssd.u).unwrap().unwrap();
    assert!(distance(&dual, &system.run(&ssd.u).unwrap()) < 1e-12);
    let s6 = subject("s6", "reference");
    assert!(seen(&s6).system.by_pairs(&s6.u).unwrap().is_none());
}

#[test]
fn attention_with_any_normaliser_is_a_system_whose_products_cancel_it() {
    let names: Vec<String> = ETAS.iter().map(|eta| eta.name.to_owned()).collect();
    for (mixer, variant, heads) in [
        ("normalized", "reference", 2),
        ("normalized", "paper", 1),
        ("softmax", "reference", 2),
        ("linear", "paper", 1),
    ] {
        let subject = subject(mixer, variant, [12, 6, 17], heads, DType::F64);
        for view in etas(&subject, &names).unwrap() {
            let errors = view.errors.unwrap();
            assert!(errors.hold(), "{}: {errors:?}", view.name);
            let found = view.found.unwrap();
            let (before, after) = (found.gate.unwrap(), found.product.unwrap());
            let constant = view.name.ends_with("one");
            assert_eq!(before < 1e-9, constant, "{}: {before}", view.name);
            assert!(after < 1e-9, "{}: {after}", view.name);
        }
        // That of normalized attention is e^z: the system is the mixer's own.
        if mixer == "normalized" {
            let exp = etas(&subject, &["exp".to_owned()]).unwrap().remove(0);
            let own = Measures::of(&seen(&subject)).unwrap();
            let pairs = exp.found.unwrap().outputs.concat();
            for (a, b) in pairs.iter().zip(own.outputs.concat()) {
                assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{a} {b}");
            }
        }
    }
    let none = subject("s6", "reference", SHAPES[0], 1, DType::F64);
    assert!(etas(&none, &names).is_err());
    let own = subject("linear", "paper", SHAPES[0], 1, DType::F64);
    assert!(etas(&own, &["exq".to_owned()]).is_err());
}

#[test]
fn channels_that_see_the_same_are_measured_once_and_alike() {
    for mixer in ["linear", "taylor", "normalized"] {
        let subject = subject(mixer, "reference", SHAPES[1], 1, DType::F64);
        let shared = seen(&subject);
        let spelled = Seen {
            system: Ltv {
                decay: shared.system.decay.contiguous().unwrap(),
                write: shared.system.write.contiguous().unwrap(),
                read: shared.system.read.contiguous().unwrap(),
                ..shared.system.clone()
            },
            input: shared.input.clone(),
            around: None,
        };
        assert_eq!(shared.system.decay.stride()[1], 0, "{mixer}");
        let (once, each) = (Measures::of(&shared).unwrap(), Measures::of(&spelled).unwrap());
        let numbers = |m: &Measures| {
            let ends = [
                m.rank,
                m.horizon.unwrap().tokens,
                m.largest_product.unwrap(),
                m.free.unwrap() as f64,
                m.width as f64,
                m.gate.unwrap(),
                m.product.unwrap(),
            ];
            let rows = m.norms.concat().into_iter().chain(m.outputs.concat());
            let gains = m.gains.concat().into_iter();
            let spectrum = m.spectrum.concat().into_iter().chain(m.shares.clone());
            let all = rows.chain(gains).chain(spectrum).chain(ends);
            all.collect::<Vec<f64>>()
        };
        for (a, b) in numbers(&once).iter().zip(numbers(&each)) {
            assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{mixer}: {a} {b}");
        }
    }
}

#[test]
fn a_wrong_system_is_found() {
    let subject = subject("s6", "reference", SHAPES[1], 1, DType::F64);
    let mut seen = seen(&subject);
    seen.system.decay = (&seen.system.decay * 1.001).unwrap();
    let measures = Measures::of(&seen).unwrap();
    let errors = verify(&subject, &seen, &measures).unwrap();
    assert!(!errors.hold() && errors.between < 1e-12 && errors.steps < 1e-10, "{errors:?}");
}

/// Frobenius norms of the matrices `(L, .., ..)` along the first axis.
fn norms(x: &Tensor) -> Vec<f64> {
    let squares = x.sqr().unwrap().flatten_from(1).unwrap().sum(1).unwrap();
    squares.sqrt().unwrap().to_vec1().unwrap()
}

/// The largest |λ| of a matrix, by Gelfand's formula |Λ^k|^(1/k) for k = 2^40.
fn radius(lambda: &Tensor) -> f64 {
    let (mut power, mut log) = (lambda.unsqueeze(0).unwrap(), 0.0);
    for doubled in 0..40 {
        let norm = norms(&power)[0];
        if norm == 0.0 {
            return 0.0;
        }
        log += norm.ln() / f64::from(doubled).exp2();
        power = (power / norm).unwrap();
        power = power.matmul(&power).unwrap();
    }
    log.exp()
}

#[test]
fn measures_are_those_of_the_matrices_spelled_out() {
    for (mixer, variant, heads) in [
        ("linear", "reference", 2),
        ("normalized", "paper", 2),
        ("s6", "reference", 1),
        ("ssd-mamba2", "mamba2", 2),
        ("mamba", "block", 1),
        ("rg-lru", "hawk", 1),
        ("lru", "paper", 1),
        ("s4d", "inv_bilinear", 1),
        ("h3", "paper", 1),
        ("delta-net", "paper", 2),
        ("gated-delta-net", "paper", 1),
    ] {
        let subject = subject(mixer, variant, SHAPES[1], heads, DType::F64);
        let seen = seen(&subject);
        let measures = Measures::of(&seen).unwrap();
        let system: &Ltv = &seen.system;
        let width = seen.input.dim(1).unwrap();
        let state_alone = Ltv { skip: None, direct: None, ..system.clone() };
        let phi = state_alone.kernel().unwrap();
        let phi = phi.narrow(3, 0, width).unwrap();
        let offset = system.offset.is_some();
        assert_eq!(measures.rows, (0..17).collect::<Vec<_>>());
        for (i, row) in measures.norms.iter().enumerate() {
            assert_eq!(row.len(), i + 1);
            let wanted = norms(&phi.get(i).unwrap().contiguous().unwrap());
            for (j, (got, wanted)) in row.iter().zip(&wanted).enumerate() {
                assert!((got - wanted).abs() < 1e-9 * wanted.max(1.0), "{mixer} {i} {j}: {got} {wanted}");
            }
            assert!(wanted[i + 1..].iter().all(|norm| *norm == 0.0), "{mixer}: Φ is lower triangular");
        }
        let b = system.b().unwrap().narrow(2, 0, width).unwrap().contiguous().unwrap();
        for (gains, (b, c)) in measures.gains.iter().zip(norms(&b).iter().zip(norms(&system.c().unwrap()))) {
            assert!((gains[0] - b).abs() < 1e-9 * b.max(1.0), "{mixer}, offset {offset}");
            assert!((gains[1] - c).abs() < 1e-9 * c.max(1.0), "{mixer}");
        }
        let transitions = system.transitions().unwrap();
        let highest = transitions[1..].iter().map(radius).fold(0.0, f64::max);
        let [_, _, largest] = measures.moduli().unwrap();
        assert!((largest - highest).abs() < 1e-9, "{mixer}: {highest} {largest}");
        let share: f64 = measures.shares.iter().sum();
        match mixer.ends_with("delta-net") {
            true => assert!(measures.shares.is_empty() && measures.half_lives.is_empty()),
            false => {
                assert!((share - 1.0).abs() < 1e-12, "{mixer}: {share}");
                assert_eq!(measures.shares.len(), bins().len());
            }
        }
    }
}

#[test]
fn free_numbers_of_a_transition_are_what_section_4_says() {
    let free = |mixer: &str, variant: &str, heads: usize| {
        let subject = subject(mixer, variant, [16, 8, 12], heads, DType::F64);
        Measures::of(&seen(&subject)).unwrap().free.unwrap()
    };
    assert_eq!(free("normalized", "reference", 1), 1);
    assert_eq!(free("normalized", "reference", 4), 4);
    assert_eq!(free("linear", "paper", 2), 2);
    assert_eq!(free("generalized-linear", "paper", 2), 1);
    assert_eq!(free("s6", "reference", 1), 16 * 8);
    assert_eq!(free("ssd", "paper", 1), 1);
    assert_eq!(free("ssd", "reference", 1), 16);
    assert_eq!(free("ssd-mamba2", "mamba2", 2), 2);
    assert_eq!(free("qlstm", "dsf", 1), 16);
}

#[test]
fn the_normaliser_cancels_in_the_product_and_the_step_does_not() {
    let gate = |mixer: &str, variant: &str| {
        let subject = subject(mixer, variant, [16, 8, 24], 1, DType::F64);
        let measures = Measures::of(&seen(&subject)).unwrap();
        [measures.gate.unwrap(), measures.product.unwrap()]
    };
    for mixer in ["linear", "normalized", "normalized-softplus", "normalized-sigmoid"] {
        let [before, after] = gate(mixer, "reference");
        assert!(before > 0.1 && after < 1e-12, "{mixer}: {before} {after}");
    }
    for (mixer, variant) in [("s6", "reference"), ("ssd", "paper"), ("qlstm", "dsf"), ("rg-lru", "paper")] {
        let [before, after] = gate(mixer, variant);
        assert!(before > 0.1 && after > 0.1, "{mixer}: {before} {after}");
    }
}

#[test]
fn a_long_input_is_seen_at_some_of_its_tokens_the_last_among_them() {
    let subject = subject("ssd", "reference", [8, 4, 300], 1, DType::F64);
    let view = View::of(&subject, true).unwrap();
    let measures = view.found.as_ref().unwrap();
    assert_eq!((measures.rows.len(), *measures.rows.last().unwrap()), (64, 299));
    assert!(view.errors.unwrap().hold());
    let rows = view.attention.weights.iter().zip(&measures.rows);
    for (row, i) in rows {
        assert_eq!(row.len(), i + 1);
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}

#[test]
fn attention_beside_an_attention_is_that_of_its_own_queries_and_keys() {
    let own = subject("linear", "reference", SHAPES[1], 2, DType::F64);
    assert!(View::of(&own, false).unwrap().attention.own);
    for (mixer, variant) in [("s6", "reference"), ("mlstm-block", "block")] {
        let fresh = subject(mixer, variant, SHAPES[1], 1, DType::F64);
        assert!(!View::of(&fresh, false).unwrap().attention.own, "{mixer}");
    }
    let softmax = subject("softmax", "reference", [8, 4, 6], 2, DType::F64);
    let view = View::of(&softmax, true).unwrap();
    assert!(view.found.is_err() && view.errors.is_none());
    assert_eq!(view.state, [6 * 12, 12]);
    assert_eq!(view.attention.weights.len(), 6);
}

#[test]
fn the_state_of_a_larger_n_does_what_a_smaller_one_does_where_the_registry_says_so() {
    for entry in MIXERS {
        for variant in entry.variants {
            let subject = subject(entry.name, variant, [8, 4, 9], 1, DType::F64);
            let growing = [Growing { subject: &subject, to: 9, moved: false }];
            let report = lemma2(&growing).unwrap();
            let values: Vec<Option<f64>> = report.grids[0]
                .records
                .iter()
                .map(|record| record.iter().find(|(name, _)| name == "value").unwrap().1.as_f64())
                .collect();
            let place = format!("{} {variant}: {values:?}", entry.name);
            match entry.growth {
                Growth::Exact { .. } | Growth::Stacked { .. } => {
                    assert!(values[0].unwrap() < 1e-12, "{place}")
                }
                Growth::Limit { .. } => {
                    assert!(values[0].unwrap() > 0.01, "{place}");
                    if *variant == "reference" {
                        assert!(values[4].unwrap() < 1e-12 && values[1] > values[2], "{place}");
                    }
                }
                Growth::No(_) => assert_eq!(values[0], None, "{place}"),
            }
            if subject.system().unwrap().is_ok() {
                assert!(values.last().unwrap().unwrap() < 1e-12, "{place}");
            }
        }
    }
}

#[test]
fn errors_of_the_truncated_softmax_fall_within_their_bounds() {
    let values = |report: &Report, what: &str| -> Vec<f64> {
        let records = report.grids[0].records.iter();
        let of = records.filter(|record| record[1].1 == what);
        of.map(|record| record[4].1.as_f64().unwrap_or(f64::INFINITY)).collect()
    };
    let own = subject("softmax", "reference", [8, 4, 10], 2, DType::F64);
    for heads in [Heads::random(3, 12, 1), Heads::of(&own).unwrap()] {
        let report = lemma1(&heads, 14).unwrap();
        let (errors, bounds) = (values(&report, "error"), values(&report, "bound"));
        assert_eq!(errors.len(), 14);
        assert!(errors.iter().zip(&bounds).all(|(e, b)| *e <= b + 1e-12), "{errors:?} {bounds:?}");
        assert!(errors[13] < 1e-3 * errors[1], "{errors:?}");
        let recurrent = values(&report, "recurrence - sum over tokens");
        assert!(recurrent[1] < 1e-10, "{recurrent:?}");
    }
    assert!(lemma1(&Heads::random(2, 3, 0), 0).is_err());
    let none = subject("s6", "reference", SHAPES[0], 1, DType::F64);
    assert!(Heads::of(&none).is_err());
}

#[test]
fn the_transition_of_s6_is_a_reversed_sigmoid_and_its_input_gate_the_rest() {
    let model = |mixer: &str| {
        let settings = [("preset", "smoke"), ("mixer", mixer), ("layers", "1")];
        Ok(recipes::run("mqar", &settings)?.model)
    };
    for a in [0.3, 1.0, 2.5] {
        let report = identity(model, a, 12).unwrap();
        assert_eq!(report.grids[0].records.len(), 5, "S6, both Mambas and both SSDs");
        assert_eq!(report.grids[1].records.len(), 5, "the same under the zero-order hold");
        for record in report.grids.iter().flat_map(|grid| &grid.records) {
            assert!(record[4].1.as_f64().unwrap() < 1e-9, "{record:?}");
        }
    }
    assert!(identity(model, -1.0, 12).is_err());
}

/// The measures of a fresh model of `mixer` with these settings, on normal numbers, its only layer.
fn fresh(mixer: &str, settings: &[(&str, &str)], seq_len: usize) -> Measures {
    let usual = [("preset", "smoke"), ("mixer", mixer), ("layers", "1")];
    let config = recipes::run("mqar", &[&usual, settings].concat()).unwrap();
    let network = Network::fresh(config, DType::F64).unwrap();
    let read = NetworkInput::Random(Some(seq_len));
    let subject = network.subjects(read, &[], Need::System).unwrap();
    Measures::of(&seen(&subject[0])).unwrap()
}

#[test]
fn the_median_of_an_even_number_is_the_mean_of_the_two_in_the_middle() {
    // Λ of the released S6 has e^(-ln 2) and e^(-2 ln 2) at its start: half-lives of 1 and 1/2.
    let measures = fresh("s6", &[("n", "2"), ("d", "4")], 9);
    let [low, median, high] = measures.moduli().unwrap();
    assert!((low - 0.25).abs() < 1e-2 && (high - 0.5).abs() < 1e-2);
    assert!((median - 0.375).abs() < 1e-2, "{median}");
    let life = measures.half_life().unwrap();
    assert!((life - 0.75).abs() < 1e-2, "{life}");
}

#[test]
fn no_start_that_many_models_share_lies_on_an_edge_of_the_bins() {
    // ln 2 / (ln 2 k) for the A = 1 to n of a step of ln 2, and an A of 1 for whole steps.
    let ends = bins();
    let ends = ends.iter().filter_map(|name| name.split_once('-'));
    let ends: Vec<f64> = ends.map(|(_, end)| end.parse().unwrap()).collect();
    assert_eq!(ends.len(), 6);
    for end in ends {
        for start in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0] {
            assert!((end - start).abs() > 0.1, "{end}");
        }
    }
    for mixer in ["s6", "ssd"] {
        let first = fresh(mixer, &[("n", "4"), ("d", "8")], 17).shares[0];
        assert!((first - 1.0).abs() < 1e-9, "{mixer}: {first}");
    }
}

#[test]
fn half_lives_do_not_depend_on_where_a_normaliser_is_written() {
    for mixer in ["linear", "normalized", "mlstm"] {
        let subject = subject(mixer, find(mixer).unwrap().variants[0], SHAPES[1], 1, DType::F64);
        let seen = seen(&subject);
        let gate = seen.system.gate.clone().unwrap();
        // The same map with the gate in C_i: h becomes h/g, Λ_i becomes Λ_i g_{i-1}/g_i.
        let before = gate.narrow(0, 0, 16).unwrap();
        let before = Tensor::cat(&[&gate.narrow(0, 0, 1).unwrap(), &before], 0).unwrap();
        let ratio = (before / &gate).unwrap().unsqueeze(2).unwrap();
        let each = gate.unsqueeze(2).unwrap();
        let moved = Seen {
            system: Ltv {
                decay: seen.system.decay.broadcast_mul(&ratio).unwrap(),
                write: seen.system.write.broadcast_div(&each).unwrap(),
                read: seen.system.read.broadcast_mul(&each).unwrap(),
                gate: None,
                ..seen.system.clone()
            },
            input: seen.input.clone(),
            around: None,
        };
        let outputs = [&seen, &moved].map(|seen| seen.system.run(&seen.input).unwrap());
        assert!(distance(&outputs[0], &outputs[1]) < 1e-10, "{mixer}");
        let [here, there] = [&seen, &moved].map(|seen| Measures::of(seen).unwrap());
        for (a, b) in here.shares.iter().zip(&there.shares) {
            assert!((a - b).abs() < 1e-9, "{mixer}: {a} {b}");
        }
        for (a, b) in here.half_lives.iter().zip(&there.half_lives) {
            assert!(a == b || (a - b).abs() < 1e-8 * b, "{mixer}: {a} {b}");
        }
        let apart = here.product.unwrap() - there.product.unwrap();
        assert!(apart.abs() < 1e-10, "{mixer}: {apart}");
        if mixer != "mlstm" {
            assert!(here.half_lives.iter().all(|life| life.is_infinite()), "{mixer}");
            assert_ne!(here.moduli(), there.moduli(), "{mixer}: Λ alone does depend on it");
        }
    }
}

#[test]
fn a_horizon_stands_beside_that_of_a_uniform_average() {
    for (seq_len, wanted) in [(16, 8.0625), (32, 15.28125), (64, 29.6875)] {
        let subject = subject("linear", "reference", [8, 4, seq_len], 1, DType::F64);
        let view = View::of(&subject, false).unwrap();
        let uniform = view.uniform.unwrap();
        assert_eq!(uniform.tokens, wanted, "L = {seq_len}");
        assert!(uniform.share > 0.9 && uniform.share < 1.0, "{uniform:?}");
        let horizon = view.found.unwrap().horizon.unwrap();
        assert!(horizon.share > 0.0 && horizon.share <= 1.0);
        assert!(horizon.tokens <= (seq_len + 1) as f64 / 2.0);
    }
}

#[test]
fn a_single_token_has_no_transition_and_none_is_measured() {
    for mixer in ["s6", "linear", "gla", "delta-net", "lru"] {
        let measures = fresh(mixer, &[("d", "8")], 1);
        assert_eq!(measures.moduli(), None, "{mixer}");
        assert_eq!(measures.half_life(), None, "{mixer}");
        let numbers = [
            measures.growing,
            measures.largest_product,
            measures.gate,
            measures.product,
            measures.free.map(|count| count as f64),
        ];
        assert_eq!(numbers, [None; 5], "{mixer}");
        assert!(measures.shares.is_empty(), "{mixer}");
    }
}

#[test]
fn pairs_of_a_sequence_of_several_tiles_sum_to_the_recurrence() {
    for mixer in ["ssd", "mamba2"] {
        let variant = find(mixer).unwrap().variants[0];
        let subject = subject(mixer, variant, [4, 2, 1100], 1, DType::F64);
        let seen = seen(&subject);
        let dual = seen.system.by_pairs(&seen.input).unwrap().unwrap();
        let run = seen.system.run(&seen.input).unwrap();
        assert!(distance(&dual, &run) < 1e-11, "{mixer}");
    }
}

#[test]
fn heads_grow_each_for_themselves() {
    for (mixer, variant) in [
        ("softmax", "reference"),
        ("normalized", "reference"),
        ("gla", "paper"),
        ("delta-net", "paper"),
        ("rwkv7", "paper"),
        ("mamba2", "block"),
    ] {
        let subject = subject(mixer, variant, [8, 4, 9], 2, DType::F64);
        let growing = |to| [Growing { subject: &subject, to, moved: false }];
        let report = lemma2(&growing(10)).unwrap();
        let off = report.grids[0].records[0].last().unwrap().1.as_f64();
        assert!(off.unwrap() < 1e-12, "{mixer}: {off:?}");
        if find(mixer).unwrap().name != "mamba2" {
            let at = lemma2(&growing(9)).unwrap_err().diagnostic();
            let asked = (at.flag.as_deref(), at.value.as_deref());
            assert_eq!(asked, (Some("--to-n"), Some("9")), "{mixer}: {at:?}");
        }
    }
}
