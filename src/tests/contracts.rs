//! Contracts that every mixer of the registry keeps, in every variant, held against itself: a newcomer's
//! row is tested by being there.

use crate::world::{distance, normal, parameters, perturb, Case};
use candle_core::{Device, Tensor};
use dsf::mixers::{MixerSpec, State};
use dsf::nn::{Cx, Rows};

/// Lengths: one token, fewer than any block of an algorithm, one more than a power of two.
const LENGTHS: [usize; 3] = [1, 7, 33];

/// Calls `claim` with every mixer, input batch and length.
fn for_each(claim: impl Fn(&Case, usize, usize)) {
    let others = [Case::convolved(), Case::normed(), Case::optional()];
    for case in Case::all().into_iter().chain(others.into_iter().flatten()) {
        for seq_len in LENGTHS {
            for batch in [1, 3] {
                claim(&case, batch, seq_len);
            }
        }
    }
}

/// `x` with the token at (`example`, `time`) replaced.
fn with_other_token(x: &Tensor, example: usize, time: usize) -> Tensor {
    let token = normal("other", (1, 1, x.dim(2).unwrap()));
    let range = [example..example + 1, time..time + 1, 0..x.dim(2).unwrap()];
    x.slice_assign(&range, &token).unwrap()
}

#[test]
fn an_output_depends_on_no_later_token_and_on_no_other_example() {
    for_each(|case, batch, seq_len| {
        let (mixer, _) = case.build();
        let x = case.input(batch, seq_len);
        let y = mixer.forward(&x, &Cx::eval()).unwrap();
        let last = batch - 1;
        for time in [0, seq_len / 2, seq_len.saturating_sub(2)] {
            let other = with_other_token(&x, last, time);
            let other = mixer.forward(&other, &Cx::eval()).unwrap();
            let part = |y: &Tensor, first, count| {
                let y = y.narrow(0, last, 1).unwrap();
                y.narrow(1, first, count).unwrap()
            };
            let place = format!("{case}, L = {seq_len}, token {time}");
            let before = distance(&part(&other, 0, time), &part(&y, 0, time));
            assert!(before <= 1e-12, "{place}: the past moved by {before:e}");
            let now = distance(&part(&other, time, 1), &part(&y, time, 1));
            assert!(now > 1e-6, "{place}: its own output moved by {now:e} only");
            let others = |y: &Tensor| y.narrow(0, 0, last).unwrap();
            let beside = distance(&others(&other), &others(&y));
            assert!(beside <= 1e-12, "{place}: other examples moved by {beside:e}");
        }
    });
}

/// A mixer is not told how long its input is to be: padding that is not looked at changes nothing.
#[test]
fn an_output_does_not_depend_on_how_many_tokens_follow() {
    for_each(|case, batch, seq_len| {
        let (mixer, _) = case.build();
        let x = case.input(batch, seq_len);
        let whole = mixer.forward(&x, &Cx::eval()).unwrap();
        for len in [1, seq_len / 2, seq_len - 1].into_iter().filter(|len| *len > 0) {
            let first = |x: &Tensor| x.narrow(1, 0, len).unwrap().contiguous().unwrap();
            let alone = mixer.forward(&first(&x), &Cx::eval()).unwrap();
            let apart = distance(&alone, &first(&whole));
            assert!(apart <= 1e-12, "{case}, {len} of {seq_len}: {apart:e}");
        }
    });
}

/// Outputs `(batch, seq_len, d_model)` token by token, and the last state.
fn stepped(case: &Case, x: &Tensor) -> Option<(Tensor, State)> {
    let mixer = case.build_detached();
    let recurrent = mixer.recurrent()?;
    let (batch, seq_len, _) = x.dims3().unwrap();
    let mut state = recurrent.init(batch).unwrap();
    let step = |i: usize| {
        let x_t = x.narrow(1, i, 1).unwrap().squeeze(1).unwrap();
        recurrent.step(&x_t, i, &mut state).unwrap()
    };
    let ys: Vec<Tensor> = (0..seq_len).map(step).collect();
    Some((Tensor::stack(&ys, 1).unwrap(), state))
}

#[test]
fn token_by_token_equals_the_whole_sequence() {
    for_each(|case, batch, seq_len| {
        let x = case.input(batch, seq_len);
        let Some((stepped, _)) = stepped(case, &x) else {
            return;
        };
        let whole = case.build().0.forward(&x, &Cx::eval()).unwrap();
        let apart = distance(&stepped, &whole);
        assert!(apart <= 1e-10, "{case}, L = {seq_len}: {apart:e}");
    });
}

/// Tokens read at once leave the state and give the outputs of steps, before and after.
#[test]
fn tokens_read_at_once_are_steps() {
    for_each(|case, batch, seq_len| {
        let (x, mixer) = (case.input(batch, seq_len), case.build_detached());
        let Some((stepped, _)) = stepped(case, &x) else {
            return;
        };
        let recurrent = mixer.recurrent().unwrap();
        for len in [1, seq_len / 2, seq_len].into_iter().filter(|len| *len > 0) {
            let (y, mut state) = recurrent.read(&x.narrow(1, 0, len).unwrap().contiguous().unwrap()).unwrap();
            let step = |i: usize| {
                let x_t = x.narrow(1, i, 1).unwrap().squeeze(1).unwrap();
                recurrent.step(&x_t, i, &mut state).unwrap().unsqueeze(1).unwrap()
            };
            let ys: Vec<Tensor> = std::iter::once(y).chain((len..seq_len).map(step)).collect();
            let apart = distance(&Tensor::cat(&ys, 1).unwrap(), &stepped);
            assert!(apart <= 1e-10, "{case}, {len} of {seq_len} tokens at once: {apart:e}");
        }
    });
}

#[test]
fn the_state_size_is_what_decoding_keeps() {
    for_each(|case, batch, seq_len| {
        let Some((_, state)) = stepped(case, &case.input(batch, seq_len)) else {
            return;
        };
        let claimed = case.build().0.state_size(seq_len);
        assert_eq!(claimed, state.size(), "{case}, L = {seq_len}, batch {batch}");
    });
}

/// Ascending times for each example, another choice for each.
fn rows(batch: usize, seq_len: usize) -> Rows {
    let of = |b: usize| match seq_len {
        1 => vec![0],
        _ => vec![(b % (seq_len - 1)) as u32, seq_len as u32 - 1],
    };
    let times: Vec<u32> = (0..batch).flat_map(of).collect();
    let shape = (batch, times.len() / batch);
    let times = Tensor::from_vec(times, shape, &Device::Cpu).unwrap();
    Rows { positions: times }
}

#[test]
fn rows_asked_for_are_rows_of_the_whole_output() {
    for_each(|case, batch, seq_len| {
        let (mixer, _) = case.build();
        let (x, rows) = (case.input(batch, seq_len), rows(batch, seq_len));
        let whole = mixer.forward(&x, &Cx::eval()).unwrap();
        let asked = mixer.forward(&x, &Cx::eval().only(Some(&rows))).unwrap();
        let apart = distance(&asked, &rows.select(&whole).unwrap());
        assert!(apart <= 1e-12, "{case}, L = {seq_len}: {apart:e}");
    });
}

/// The N that the registry claims for a case, and whether it is that of a system inside the mixer; `None` where it
/// claims none.
fn claimed_width(case: &Case) -> Option<(usize, bool)> {
    if case.config.options.get("activation").is_some_and(|activation| activation != "none") {
        return None;
    }
    let mut claims = case.entry.dsf.split("; ").filter_map(|claim| {
        let (claim, variants) = match claim.split_once(" (variant ") {
            Some((claim, variants)) => (claim, variants.strip_suffix(')')),
            None => (claim, None),
        };
        let around = [", inside ", ", after "].map(|word| claim.split_once(word));
        let around = around.into_iter().flatten().next();
        let formula = around.map_or(claim, |(formula, _)| formula);
        let of_case = variants.is_none_or(|list| list.split(" or ").any(|v| v == case.config.variant));
        (of_case && !claim.starts_with("no ("))
            .then_some((formula, around.is_some() || case.config.short_conv || case.config.state_norm))
    });
    let (formula, inside) = claims.next()?;
    assert!(claims.next().is_none(), "{case}: one claim a variant");
    Some((width(case, formula), inside))
}

fn width(case: &Case, formula: &str) -> usize {
    let (d, n, s) = (case.config.d_model, case.config.d_state, case.config.n_heads);
    match formula {
        // The features of relative positions are twice as many.
        "N = n d/s" if case.config.options.get("lrpe").is_some_and(|lrpe| lrpe == "true") => 2 * n * d / s,
        "N = n d/s" => n * case.config.options.get("value_width").and_then(|v| v.parse().ok()).unwrap_or(d) / s,
        "N = n E/s" => n * MixerSpec::from(&case.config).inner_width() / s,
        "N = n V/s" => n * case.config.options["value_width"].parse().unwrap_or(d) / s,
        "N = n d" => n * d,
        "N = d C(n/s+P, P)" => {
            let order: usize = case.config.options["order"].parse().unwrap();
            let monomials = (1..=order).fold(1, |count, p| count * (n / s + p) / p);
            d * monomials
        }
        "N = d M" => {
            let m = n / s;
            d * m.max((m as f64 * (m as f64).ln()) as usize)
        }
        "N = d" => d,
        "N = 2d" => 2 * d,
        "N = 2n d" => 2 * n * d,
        "N = 2n d c" => 2 * n * d * case.config.options["head_dim"].parse::<usize>().unwrap(),
        "N = E" if case.config.variant == "griffin" => case.config.options["width"].parse().unwrap_or(d),
        "N = E" => MixerSpec::from(&case.config).inner_width(),
        "N = n E" => n * MixerSpec::from(&case.config).inner_width(),
        other => panic!("{case}: `{other}` is not a formula that this test knows"),
    }
}

#[test]
fn a_finite_system_exists_where_the_table_says_and_is_as_wide() {
    for_each(|case, _, seq_len| {
        let u = case.input(1, seq_len).squeeze(0).unwrap();
        let mixer = case.build().0;
        let found = match mixer.ltv(&u).unwrap() {
            Some(system) => Some((system.width().unwrap(), false)),
            None => { mixer.inner(&u).unwrap() }.map(|i| (i.system.width().unwrap(), true)),
        };
        assert_eq!(found, claimed_width(case), "{case}");
    });
}

#[test]
fn recurrence_and_kernel_of_the_system_are_the_forward_pass() {
    for_each(|case, _, seq_len| {
        let (mixer, _) = case.build();
        let x = case.input(1, seq_len);
        let u = x.squeeze(0).unwrap();
        let (system, u) = match mixer.ltv(&u).unwrap() {
            Some(system) => (system, u),
            None => match mixer.inner(&u).unwrap() {
                Some(inner) => (inner.system, inner.input),
                None => return,
            },
        };
        let y = mixer.forward(&x, &Cx::eval()).unwrap().squeeze(0).unwrap();
        let recurrence = distance(&system.run(&u).unwrap(), &y);
        assert!(recurrence <= 1e-9, "{case}, recurrence: {recurrence:e}");
        let kernel = system.kernel().unwrap();
        let kernel = distance(&system.apply_kernel(&kernel, &u).unwrap(), &y);
        assert!(kernel <= 1e-9, "{case}, kernel: {kernel:e}");
    });
}

/// Retention has no output map: its output is what the norm leaves.
#[test]
fn a_norm_behind_the_state_gives_every_head_of_every_token_the_same_size() {
    for case in Case::normed().iter().filter(|case| case.entry.name == "retention") {
        let (heads, x) = (case.config.n_heads, case.input(2, 9));
        let normed = case.mixer(&parameters()).forward(&x, &Cx::eval()).unwrap();
        let by_head = normed.reshape((2 * 9 * heads, 12 / heads)).unwrap();
        let bare = Case::new(case.entry, "paper", heads).mixer(&parameters()).forward(&x, &Cx::eval()).unwrap();
        let bare = bare.reshape(by_head.shape()).unwrap();
        let length = (bare.sqr().unwrap().mean_keepdim(1).unwrap() + 1e-10).unwrap().sqrt().unwrap();
        assert!(distance(&bare.broadcast_div(&length).unwrap(), &by_head) < 1e-12, "{case}");
    }
}

#[test]
fn a_mixer_reads_its_parameters_when_it_runs_and_not_when_it_is_built() {
    for case in Case::all() {
        let params = parameters();
        let (before, view) = (case.mixer(&params), case.mixer(&params.detached()));
        perturb(&params);
        let after = case.mixer(&params);
        let x = case.input(3, 7);
        let y = after.forward(&x, &Cx::eval()).unwrap();
        for early in [before, view] {
            let early = early.forward(&x, &Cx::eval()).unwrap();
            assert_eq!(distance(&early, &y), 0.0, "{case}");
        }
    }
}

#[test]
fn attention_drops_weights_in_training_by_seed_and_step_and_none_in_evaluation() {
    for mut case in Case::all() {
        let x = case.input(3, 7);
        let exact = case.build().0.forward(&x, &Cx::eval()).unwrap();
        case.config.attn_dropout = 0.4;
        let (mixer, _) = case.build();
        let run = |cx: Cx| mixer.forward(&x, &cx).unwrap();
        assert_eq!(distance(&run(Cx::eval()), &exact), 0.0, "{case}: evaluation");
        let first = run(Cx::train(1, 5));
        assert_eq!(distance(&run(Cx::train(1, 5)), &first), 0.0, "{case}: again");
        let differs = |cx: Cx| distance(&run(cx), &first) > 1e-3;
        let others = [Cx::train(1, 6), Cx::train(2, 5), Cx::train(1, 5).layer(1), Cx::eval()];
        let drops = case.entry.family.is_attention();
        for (i, cx) in others.into_iter().enumerate() {
            assert_eq!(differs(cx), drops, "{case}: other mask {i}");
        }
    }
}
