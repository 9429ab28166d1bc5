use super::*;
use crate::runtime::check::{self, Case, Suite};
use candle_core::Device;
use dsf_emulation::{at_ends, emulated};

const DROPPED: Dropout = Dropout { p: 0.3, key: [3, 5], index: 2 };

fn tokens(batch: usize, len: usize, rows: usize) -> Tensor {
    // Half of the tokens are zero, like padding, and each row is used.
    let token = |i: usize| (i % 2 * (i / 2 % rows)) as u32;
    let ids: Vec<u32> = (0..batch * len).map(token).collect();
    Tensor::from_vec(ids, (batch, len), &Device::Cpu).unwrap()
}

fn both(batch: usize, len: usize) -> impl Fn(&[Tensor]) -> Result<Tensor> + Sync {
    move |ins| {
        let tokens = tokens(batch, len, ins[0].dim(0)?);
        let dtype = ins[0].dtype();
        embedding(&tokens, &ins[0], Some(&ins[1]), Some(DROPPED), dtype)
    }
}

fn by_reference(batch: usize, len: usize) -> impl Fn(&[Tensor]) -> Result<Tensor> {
    move |ins| {
        let tokens = tokens(batch, len, ins[0].dim(0)?);
        let dtype = ins[0].dtype();
        let op = Embedding::check(&tokens, &ins[0], Some(&ins[1]), Some(DROPPED), dtype)?;
        reference::embedding(&op, &ins[0], Some(&ins[1]))
    }
}

fn case(rows: usize, positions: usize, width: usize) -> Case {
    Case::new(format!("{rows}, {positions} x {width}"))
        .normal("table", &[rows, width])
        .parameter()
        .normal("positions", &[positions, width])
        .parameter()
}

#[test]
fn it_passes_the_suite() {
    for (batch, len, rows, positions, width) in
        [(1, 1, 1, 1, 1), (7, 65, 40, 70, 5), (33, 2, 100, 2, 64), (1, 1000, 9, 1000, 17)]
    {
        let agree = [case(rows, positions, width)];
        let one = Suite { agree: &agree, differences: &[], bits: &[], tracked: &[], refused: &[] };
        check::suite(one, both(batch, len), by_reference(batch, len));
    }
    let small = Suite { agree: &[], differences: &[case(3, 4, 2)], bits: &[], tracked: &[case(3, 4, 2)], refused: &[] };
    check::suite(small, both(2, 3), by_reference(2, 3));
    check::same_bits(&case(50, 20, 8), both(100, 20));
}

#[test]
fn kernels_equal_the_reference() {
    // many tokens of one row, cut and long segments, several chunks, columns beyond one tile
    for (batch, len, rows, positions, width) in [
        (1, 1, 1, 1, 1),
        (7, 65, 40, 70, 5),
        (9, 80, 100, 80, 8),
        (2, 1100, 9, 1100, 3),
        (3, 40, 21, 41, 66),
        (2, 17, 5, 17, 132),
    ] {
        let case = case(rows, positions, width);
        check::kernels_agree(&[case], both(batch, len), by_reference(batch, len));
    }
}

#[test]
fn activations_can_be_narrower_than_the_table() {
    let case = case(12, 20, 8);
    let narrow = |ins: &[Tensor]| {
        let tokens = tokens(5, 20, 12);
        embedding(&tokens, &ins[0], Some(&ins[1]), Some(DROPPED), DType::BF16)
    };
    let run = || {
        let vars = case.vars(DType::F32);
        let x = narrow(&[vars[0].as_tensor().clone(), vars[1].as_tensor().clone()]).unwrap();
        let grads = x.sqr().unwrap().backward().unwrap();
        let grads = vars.iter().map(|var| grads.get(var).unwrap().clone());
        std::iter::once(x.detach()).chain(grads).collect::<Vec<_>>()
    };
    for (got, expected) in emulated(run).iter().zip(run()) {
        assert_eq!(got.dtype(), expected.dtype());
        let [got, expected] = [got, &expected].map(|x| x.to_dtype(DType::F32).unwrap());
        let apart = (&got - &expected).unwrap().abs().unwrap().max_all().unwrap();
        let most = expected.abs().unwrap().max_all().unwrap();
        let [apart, most] = [apart, most].map(|x| x.to_scalar::<f32>().unwrap());
        assert!(apart <= 1e-2 * most, "{apart} of {most}");
    }
}

/// The last tokens of an output of nearly 2^32 elements get the embeddings that they get alone.
#[test]
fn kernels_index_large_outputs() {
    const BEFORE: usize = (1 << 20) - 2;
    let [table, positions] = &case(9, 4, 1024).vars(DType::F32)[..] else { unreachable!() };
    let embed = |tokens: &Tensor| embedding(tokens, table, Some(positions), None, DType::BF16);
    let numbers = |y: Tensor| y.to_dtype(DType::F32)?.to_vec3::<f32>();
    let last = Tensor::new(&[[8u32, 1, 0, 5]], &Device::Cpu).unwrap();
    let all = Tensor::cat(&[&Tensor::zeros((BEFORE, 4), DType::U32, &Device::Cpu).unwrap(), &last], 0).unwrap();
    let got = emulated(|| at_ends(16, || embed(&all)?.narrow(0, BEFORE, 1)).and_then(numbers));
    assert_eq!(got.unwrap(), embed(&last).and_then(numbers).unwrap());
}

#[test]
fn positions_and_dropout_are_optional() {
    let case = Case::new("table").normal("table", &[9, 4]);
    let bare = |ins: &[Tensor]| embedding(&tokens(3, 5, 9), &ins[0], None, None, ins[0].dtype());
    check::agree(&[case], bare, |ins| {
        let rows = ins[0].index_select(&tokens(3, 5, 9).flatten_all()?, 0)?;
        rows.reshape((3, 5, 4))
    });
}

#[test]
fn a_token_beyond_the_table_and_missing_positions_are_errors() {
    let error = |positions: usize| {
        let table = Tensor::zeros((2, 3), candle_core::DType::F32, &Device::Cpu).unwrap();
        let positions = Tensor::zeros((positions, 3), table.dtype(), &Device::Cpu).unwrap();
        let tokens = tokens(1, 8, 4);
        embedding(&tokens, &table, Some(&positions), None, table.dtype()).unwrap_err().to_string()
    };
    assert!(error(8).contains("token 2, but the table has 2 rows"));
    assert!(error(7).contains("positions has shape [7, 3], but table of shape [2, 3] asks for [8, 3]"));
}
