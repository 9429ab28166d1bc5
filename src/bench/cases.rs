//! What `dsf bench all` and `dsf bench lengths` measure: command lines of `dsf bench`, and the
//! peers that do the same in PyTorch.

/// A command line of `dsf bench`, and command lines of peer scripts to be timed beside it.
#[derive(Clone, Debug)]
pub struct Case {
    /// As typed behind `dsf bench`.
    pub line: String,
    /// Script and arguments.
    pub peers: &'static [&'static str],
}

/// The head at every position, as released, and where a label is.
const HEADS: &[&str] = &["step.py --head all", "step.py --head labelled"];

const S6: &[&str] = &[
    "step.py --head all --micro 32 --form replay",
    "step.py --head all --micro 32 --form loop --warm 0 --steps 1",
    "step.py --head labelled --micro 32 --form compiled",
];

const SCANS: &[&str] = &[
    "scan.py --form compiled",
    "scan.py --form replay",
    "scan.py --form walk",
];

const STEPS: &[(&str, &[&str])] = &[
    ("softmax", HEADS),
    ("linear", HEADS),
    ("normalized", HEADS),
    ("ssd", HEADS),
    ("qlstm", HEADS),
    ("s6", S6),
];

const OPS: &[(&str, &[&str])] = &[
    ("selective_scan --shape 8,512,128,64", SCANS),
    ("selective_scan --shape 32,64,64,64", SCANS),
    ("selective_scan --shape 2,512,128,1024", &[]),
    ("ssd --shape 8,512,128,64", &[]),
    ("causal_attention --shape 8,512,128,64", &[]),
    ("causal_attention_linear --shape 8,512,128,64", &[]),
    ("causal_attention_plain --shape 8,512,128,64", &[]),
    ("linear_scan --shape 64,512,128", &[]),
    ("complex_scan --shape 64,512,64", &[]),
    ("gated_scan --shape 64,512,128", &[]),
    ("causal_conv1d --shape 64,512,128", &[]),
    ("layer_norm --shape 64,512,128", &[]),
    ("add_layer_norm --shape 64,512,128", &[]),
    ("linear --shape 64,512,128,128", &[]),
    ("mlp --shape 64,512,128,512", &[]),
    ("embedding --shape 64,512,128,8192", &[]),
    ("dropout --shape 64,512,128", &[]),
    ("cross_entropy --shape 512,4,64,8192", &[]),
    ("sigmoid --shape 64,512,128", &[]),
    ("softplus --shape 64,512,128", &[]),
    ("elu1 --shape 64,512,128", &[]),
    ("gelu --shape 64,512,128", &[]),
    ("silu --shape 64,512,128", &[]),
    ("tanh --shape 64,512,128", &[]),
];

/// The steps of the paper's smallest task, then the ops.
pub fn all() -> Vec<Case> {
    let step =
        |mixer: &str| format!("step --preset full --mixer {mixer} --d 64 --n 64 --batch-size 512");
    let steps = STEPS.iter().map(|(mixer, peers)| (step(mixer), *peers));
    let ops = OPS.iter().map(|(op, peers)| (format!("op {op}"), *peers));
    let case = |(line, peers)| Case { line, peers };
    steps.chain(ops).map(case).collect()
}

/// A step of `tokens` tokens in sequences of `length`, one label in 16 tokens. Dropout on attention
/// weights is off, since it alone forbids linear attention to run as a recurrence; the vocabulary
/// is above `longest`, as the task wants it, at every length.
pub fn of_length(mixer: &str, length: usize, longest: usize, tokens: usize, steps: usize) -> Case {
    let (pairs, batch, vocabulary) = ((length / 16).max(1), tokens / length, longest + 64);
    Case {
        line: format!(
            "step --preset full --mixer {mixer} --d 64 --n 64 --seq-len {length} --kv-pairs {pairs} \
             --batch-size {batch} --vocab-size {vocabulary} --attn-dropout 0 --steps {steps}"
        ),
        peers: &[],
    }
}
