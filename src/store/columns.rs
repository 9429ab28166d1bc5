//! The columns of a summary: the one table that the README, the reports and the tests ask.

/// Version of the columns. Columns may be added at the end; a rename or a new meaning raises it.
pub const SCHEMA: u32 = 1;

/// One column of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// As in the header.
    pub name: &'static str,
    /// Empty for counts, names and ratios without a unit.
    pub unit: &'static str,
    /// What a report does with it.
    pub role: Role,
    /// One line for a stranger. A value that does not apply is empty.
    pub meaning: &'static str,
}

/// What a report does with a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Names the row.
    Id,
    /// Runs that differ here are never in one panel.
    Setting,
    /// An axis of the panel.
    Cell,
    /// A cell shows the best of these.
    Rate,
    /// A cell is a mean over these.
    Seed,
    /// What came out.
    Result,
    /// Where, when and by what.
    Origin,
}

impl Column {
    const fn new(
        name: &'static str,
        unit: &'static str,
        role: Role,
        meaning: &'static str,
    ) -> Self {
        Self {
            name,
            unit,
            role,
            meaning,
        }
    }
}

/// Every column, in order.
#[rustfmt::skip]
pub const COLUMNS: &[Column] = &[
    Column::new("schema", "", Role::Id, "version of these columns"),
    Column::new("run_id", "", Role::Id, "twelve hex digits over the config"),
    Column::new("format", "", Role::Setting, "version of the meaning of a config"),
    Column::new("task", "", Role::Setting, "task name"),
    Column::new("protocol", "", Role::Setting, "paper, reference or matched"),
    Column::new("mixer", "", Role::Setting, "sequence mixer"),
    Column::new("variant", "", Role::Setting, "variant of the mixer"),
    Column::new("options", "", Role::Setting, "options of the mixer, name=value;name=value"),
    Column::new("d", "", Role::Cell, "embedding width"),
    Column::new("n", "", Role::Cell, "state expansion; query and key width of attention"),
    Column::new("heads", "", Role::Setting, "heads"),
    Column::new("layers", "", Role::Setting, "blocks"),
    Column::new("layout", "", Role::Setting, "residual layout of a block"),
    Column::new("state_mixer", "", Role::Setting, "what follows the mixer in a block"),
    Column::new("positions", "", Role::Setting, "whether position embeddings are learnt"),
    Column::new("seq_len", "tokens", Role::Setting, "tokens an example, L"),
    Column::new("kv_pairs", "", Role::Setting, "key-value pairs an example, k"),
    Column::new("vocab_size", "", Role::Setting, "vocabulary, V"),
    Column::new("train_examples", "", Role::Setting, "training examples; of a text, windows, and 0 is all"),
    Column::new("test_examples", "", Role::Setting, "test examples; of a text as train_examples, validation alike"),
    Column::new("data", "", Role::Setting, "generator of the examples"),
    Column::new("data_seed", "", Role::Setting, "seed of the data"),
    Column::new("lr", "", Role::Rate, "peak learning rate"),
    Column::new("weight_decay", "", Role::Setting, "decoupled weight decay"),
    Column::new("precision", "", Role::Setting, "numbers computed with: f32, tf32 or bf16"),
    Column::new("embed_dropout", "", Role::Setting, "dropout on the embeddings"),
    Column::new("attn_dropout", "", Role::Setting, "dropout on attention weights"),
    Column::new("schedule", "", Role::Setting, "how the learning rate moves"),
    Column::new("batch_size", "", Role::Setting, "examples a step"),
    Column::new("epochs_max", "", Role::Setting, "epochs at most"),
    Column::new("stop_above", "", Role::Setting, "test accuracy above which training ends"),
    Column::new("seed", "", Role::Seed, "seed of initial weights and dropout"),
    Column::new("status", "", Role::Result, "done or failed"),
    Column::new("outcome", "", Role::Result, "converged, finished or diverged"),
    Column::new("reason", "", Role::Result, "why the run failed"),
    Column::new("accuracy", "0 to 1", Role::Result, "test accuracy after the last epoch"),
    Column::new("best_accuracy", "0 to 1", Role::Result, "highest test accuracy after any epoch"),
    Column::new("best_epoch", "", Role::Result, "epoch of the highest accuracy, from 1"),
    Column::new("epochs_run", "", Role::Result, "epochs trained"),
    Column::new("train_loss", "nats", Role::Result, "training loss of the last epoch"),
    Column::new("test_loss", "nats", Role::Result, "test loss after the last epoch"),
    Column::new("params", "", Role::Result, "trained numbers of the model"),
    Column::new("state_size", "", Role::Result, "numbers carried from token to token, all layers"),
    Column::new("steps", "", Role::Result, "optimizer steps"),
    Column::new("seconds", "s", Role::Result, "training and testing, summed over interruptions"),
    Column::new("tokens_per_s", "1/s", Role::Result, "training tokens a second"),
    Column::new("peak_memory_bytes", "bytes", Role::Result, "most memory the process held"),
    Column::new("device", "", Role::Origin, "device trained on"),
    Column::new("threads", "", Role::Origin, "threads in use"),
    Column::new("host", "", Role::Origin, "name of the host"),
    Column::new("cpu", "", Role::Origin, "model of the processor"),
    Column::new("version", "", Role::Origin, "version of dsf"),
    Column::new("git_commit", "", Role::Origin, "commit it was built from, -dirty with changes"),
    Column::new("started", "UTC", Role::Origin, "when the run was first begun"),
    Column::new("ended", "UTC", Role::Origin, "when it ended"),
    Column::new("ops", "", Role::Origin, "implementations that the ops took: fused, reference or both"),
    Column::new("dataset", "", Role::Setting, "task of the Long Range Arena, or corpus of a text"),
    Column::new("contour_length", "", Role::Setting, "paddles of Pathfinder's long paths, 14 in the hard set"),
    Column::new("val_examples", "", Role::Setting, "validation examples, which choose an epoch"),
    Column::new("expand", "", Role::Setting, "inner width over d, of mixers that widen"),
    Column::new("micro_batch", "", Role::Setting, "examples of a step whose activations exist at one time"),
    Column::new("warmup_epochs", "", Role::Setting, "epochs over which the learning rate rises"),
    Column::new("input", "", Role::Setting, "embedding, or a token as one number"),
    Column::new("mlp_width", "", Role::Setting, "hidden width of feed-forward halves and heads"),
    Column::new("dropout", "", Role::Setting, "dropout behind mixers and feed-forward halves"),
    Column::new("lambda_skip", "", Role::Setting, "whether a learnt number scales the residual beside mixers"),
    Column::new("pool", "", Role::Setting, "how positions become one vector: mean, last or max"),
    Column::new("mask", "", Role::Setting, "whether pooling leaves out padding"),
    Column::new("dual", "", Role::Setting, "what of two documents meets: logits or features"),
    Column::new("loss", "", Role::Setting, "ce, or double-softmax as in the released classifiers"),
    Column::new("val_accuracy", "0 to 1", Role::Result, "highest validation accuracy after any epoch"),
    Column::new("selected_epoch", "", Role::Result, "epoch of the highest validation accuracy, from 1"),
    Column::new("selected_accuracy", "0 to 1", Role::Result, "test accuracy after that epoch"),
    Column::new("majority", "0 to 1", Role::Result, "test accuracy of always giving the commonest answer"),
    Column::new("data_digest", "", Role::Origin, "twelve hex digits over the examples seen"),
    Column::new("tokenizer", "", Role::Setting, "bytes, gpt-neox, or the digest of another file"),
    Column::new("eos_between_articles", "", Role::Setting, "whether id 0 stands before each article"),
    Column::new("rotary", "", Role::Setting, "rotary positions: before or after the feature map, or none"),
    Column::new("rotary_dims", "", Role::Setting, "channels of each head that rotary positions turn"),
    Column::new("init", "", Role::Setting, "spread of initial weights: pythia or hf"),
    Column::new("beta1", "", Role::Setting, "decay of the mean of gradients, where it may be chosen"),
    Column::new("beta2", "", Role::Setting, "decay of the mean of their squares"),
    Column::new("eps", "", Role::Setting, "added to the root of that"),
    Column::new("clip", "", Role::Setting, "norm that gradients are scaled down to; 0 is none"),
    Column::new("decay", "", Role::Setting, "what decays: all, or matrices alone"),
    Column::new("train_ppl", "", Role::Result, "training perplexity as logged in the last epoch"),
    Column::new("train_ppl_eval", "", Role::Result, "of a hundredth of the training windows, final weights"),
    Column::new("val_ppl", "", Role::Result, "validation perplexity, final weights"),
    Column::new("best_val_ppl", "", Role::Result, "lowest validation perplexity after any epoch"),
    Column::new("test_ppl", "", Role::Result, "test perplexity, final weights"),
    Column::new("selected_test_ppl", "", Role::Result, "test perplexity after the epoch of best_val_ppl"),
    Column::new("val_word_ppl", "", Role::Result, "validation perplexity a word, an end of line being one"),
    Column::new("test_word_ppl", "", Role::Result, "the same of the test split"),
    Column::new("val_bits_per_byte", "bits", Role::Result, "a byte of the validation split, final weights"),
    Column::new("test_bits_per_byte", "bits", Role::Result, "a byte of the test split, final weights"),
    Column::new("unigram_ppl", "", Role::Result, "test perplexity of knowing token frequencies alone"),
    Column::new("train_tokens", "", Role::Result, "training tokens an epoch"),
];
