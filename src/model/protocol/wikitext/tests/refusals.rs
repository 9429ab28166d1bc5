//! What is refused, and how.

use super::*;
use crate::config::{Dual, Input, Loss, Pool};
use crate::tasks::lra::LraDataset;
use crate::tasks::Generator;

fn refusal(asked: Asked) -> String {
    asked.resolve(Task::Wikitext).unwrap_err().to_string()
}

/// A flag, and what sets it.
type Change = (&'static str, fn(&mut Asked));

#[test]
fn only_the_protocol_of_the_paper_is_there() {
    run(Asked {
        protocol: Some(Protocol::Paper),
        ..Asked::default()
    });
    for protocol in [Protocol::Reference, Protocol::Matched] {
        let message = refusal(Asked {
            protocol: Some(protocol),
            ..Asked::default()
        });
        assert!(message.contains("no code of the experiment"), "{message}");
    }
}

#[test]
fn flags_of_other_tasks_are_refused_by_name() {
    let strange: [Change; 8] = [
        ("--kv-pairs", |a| a.kv_pairs = Some(4)),
        ("--data", |a| a.data = Some(Generator::Native)),
        ("--data-seed", |a| a.data_seed = Some(1)),
        ("--dataset", |a| a.dataset = Some(LraDataset::Text)),
        ("--input", |a| a.input = Some(Input::Scalar)),
        ("--pool", |a| a.pool = Some(Pool::Last)),
        ("--dual", |a| a.dual = Some(Dual::Logits)),
        ("--loss", |a| a.loss = Some(Loss::Ce)),
    ];
    for (flag, set) in strange {
        let mut asked = Asked::default();
        set(&mut asked);
        let expected = format!("{flag} means nothing to the task wikitext: leave it out");
        assert_eq!(refusal(asked), expected);
    }
}

#[test]
fn flags_of_text_are_refused_by_the_other_tasks() {
    let of_text: [Change; 9] = [
        ("--corpus", |a| a.corpus = Some(Corpus::Sample)),
        ("--tokenizer", |a| a.tokenizer = Some(GPT_NEOX)),
        ("--eos-between-articles", |a| {
            a.eos_between_articles = Some(true)
        }),
        ("--rotary", |a| a.rotary = Some(Rotary::Pre)),
        ("--init", |a| a.init = Some(InitScheme::Hf)),
        ("--schedule", |a| a.schedule = Some(Schedule::Cosine)),
        ("--beta2", |a| a.beta2 = Some(0.9)),
        ("--clip", |a| a.clip = Some(1.0)),
        ("--decay", |a| a.decay = Some(Decay::All)),
    ];
    for (flag, set) in of_text {
        for task in [Task::Mqar, Task::Lra] {
            let mut asked = Asked::default();
            set(&mut asked);
            let message = asked.resolve(task).unwrap_err().to_string();
            let start = format!("{flag} means nothing to the task {}", task.name());
            assert!(message.starts_with(&start), "{message}");
        }
    }
    let wide = Asked {
        mlp_width: Some(64),
        ..Asked::default()
    };
    assert!(wide.resolve(Task::Mqar).is_err() && wide.resolve(Task::Lra).is_ok());
}

#[test]
fn numbers_out_of_range_name_their_flag() {
    let wrong: [Change; 7] = [
        ("--clip must be a norm", |a| a.clip = Some(-1.0)),
        ("--clip must be a norm", |a| a.clip = Some(f64::NAN)),
        ("--beta2 must be in [0, 1)", |a| a.beta2 = Some(1.0)),
        ("--lr must be a positive number", |a| a.lr = Some(0.0)),
        ("--seq-len must be 1 to", |a| a.seq_len = Some(0)),
        ("--vocab-size must be 1 to 65536", |a| {
            a.vocab_size = Some(65_537)
        }),
        ("--heads 3 does not divide --d 128", |a| a.heads = Some(3)),
    ];
    for (sentence, set) in wrong {
        let mut asked = Asked::default();
        set(&mut asked);
        let message = refusal(asked);
        assert!(message.contains(sentence), "{message}");
    }
}
