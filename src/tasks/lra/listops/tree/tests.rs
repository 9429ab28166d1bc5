//! Trees compared with an independent evaluator of the printed files.

use super::super::{expression, write, ALPHABET};
use super::*;
use crate::error::testing::Fails;
use crate::tasks::lra::{load, testing, LraDataset};
use crate::tasks::Generator;
use std::fs;

fn config(train_examples: usize, seq_len: usize) -> LraConfig {
    LraConfig {
        data: Generator::Native,
        contour_length: None,
        data_seed: 3,
        seq_len,
        ..testing::config(LraDataset::Listops, [train_examples, 20, 30])
    }
}

fn trees(config: &LraConfig) -> Vec<Tree> {
    let mut trees = Vec::new();
    each(config, &mut |_, tree| {
        trees.push(tree.clone());
        Ok(())
    })
    .unwrap();
    trees
}

/// Value of a printed expression, by a stack of open operators. It shares no code with the generator.
fn value(expression: &str) -> u32 {
    let mut open: Vec<(&str, Vec<u32>)> = Vec::new();
    for word in expression.split_whitespace() {
        let value = match word {
            "(" | ")" => continue,
            "]" => {
                let (operator, mut v) = open.pop().unwrap();
                v.sort();
                match operator {
                    "[MIN" => v[0],
                    "[MAX" => *v.last().unwrap(),
                    "[SM" => v.iter().sum::<u32>() % 10,
                    "[MED" => {
                        let halves = [v[(v.len() - 1) / 2], v[v.len() / 2]];
                        (f64::from(halves[0] + halves[1]) / 2.0) as u32
                    }
                    other => panic!("{other}"),
                }
            }
            digit if digit.len() == 1 => digit.parse().unwrap(),
            operator => {
                open.push((operator, Vec::new()));
                continue;
            }
        };
        match open.last_mut() {
            Some((_, values)) => values.push(value),
            None => return value,
        }
    }
    panic!("no end: {expression}");
}

/// Asserts that the parentheses are those of a binary tree, each pair around two elements.
fn assert_binary(expression: &str) {
    let mut open = vec![0];
    for word in expression.split_whitespace() {
        match word {
            "(" => open.push(0),
            ")" => {
                assert_eq!(open.pop(), Some(2), "{expression}");
                *open.last_mut().unwrap() += 1;
            }
            _ => *open.last_mut().unwrap() += 1,
        }
    }
    assert_eq!(open, [1], "{expression}");
}

fn symbols(words: &str) -> Vec<u8> {
    let place = |word| ALPHABET.iter().position(|s| *s == word).unwrap() as u8;
    words.split_whitespace().map(place).collect()
}

#[test]
fn the_example_of_the_format_prints_as_it_stands() {
    let nested = symbols("[MED 3 7 [MIN 4 9 ] ]");
    let printed = "( ( ( ( [MED 3 ) 7 ) ( ( ( [MIN 4 ) 9 ) ] ) ) ] )";
    assert_eq!(expression(&nested), printed);
    assert_eq!(value(printed), 4);
}

#[test]
fn every_answer_is_what_another_evaluator_finds() {
    for tree in trees(&config(400, 2048)) {
        let printed = expression(&tree.symbols);
        assert_binary(&printed);
        assert_eq!(value(&printed), u32::from(tree.value), "{printed}");
    }
}

#[test]
fn the_evaluator_of_these_tests_reproduces_rows_of_the_original_generator() {
    let Some(root) = testing::real("listops-generated") else {
        return;
    };
    let path = root.join("listops-1000/basic_train.tsv");
    let text = fs::read_to_string(path).unwrap();
    for line in text.lines().skip(1) {
        let (source, target) = line.split_once('\t').unwrap();
        assert_eq!(value(source).to_string(), target);
        let words = source.replace(['(', ')'], "");
        assert_eq!(expression(&symbols(&words)), source);
    }
}

#[test]
fn lengths_lie_strictly_between_the_bounds_and_no_tree_comes_twice() {
    for seq_len in [16, 100, 2048] {
        let trees = trees(&config(500, seq_len));
        assert_eq!(trees.len(), 550);
        let (least, most) = (500 * seq_len / 2048, 2000 * seq_len / 2048);
        for tree in &trees {
            assert!(tree.symbols.len() > least && tree.symbols.len() < most);
        }
        let distinct: HashSet<_> = trees.iter().map(|t| &t.symbols).collect();
        assert_eq!(distinct.len(), trees.len());
    }
}

#[test]
fn the_distribution_is_that_of_the_original() {
    let trees = trees(&config(4000, 2048));
    let n = trees.len() as f64;
    let share = |is: &dyn Fn(&Tree) -> bool| trees.iter().filter(|t| is(t)).count() as f64 / n;
    let length = trees.iter().map(|t| t.symbols.len()).sum::<usize>() as f64 / n;
    assert!((length - 1038.0).abs() < 25.0, "mean length {length}");
    let answers = [17.5, 8.4, 8.1, 8.4, 9.4, 9.1, 7.6, 6.8, 8.5, 16.3];
    for (answer, percent) in (0..).zip(answers) {
        let got = 100.0 * share(&|t| t.value == answer);
        assert!((got - percent).abs() < 2.2, "answer {answer}: {got} %");
    }
    for root in 11..15 {
        let got = share(&|t| t.symbols[0] == root);
        assert!((got - 0.25).abs() < 0.03, "{}: {got}", usize::from(root));
    }
    let all: Vec<u8> = trees.iter().flat_map(|t| t.symbols.clone()).collect();
    let part = |s: u8| 100.0 * all.iter().filter(|x| **x == s).count() as f64 / all.len() as f64;
    assert!((part(10) - 14.2).abs() < 0.1, "{}", part(10));
    assert!((part(7) - 7.15).abs() < 0.1, "{}", part(7));
    assert!((part(12) - 3.55).abs() < 0.1, "{}", part(12));
}

#[test]
fn one_thread_and_many_draw_the_same_trees() {
    let config = config(100, 2048);
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| generated(&config).unwrap())
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn generated_splits_have_these_bits() {
    let splits = generated(&config(100, 2048)).unwrap();
    let sizes = [&splits.train, &splits.val, &splits.test].map(Documents::len);
    assert_eq!(sizes, [100, 20, 30]);
    assert_eq!(splits.fingerprint(), "b3856ae30959");
}

#[test]
fn ids_follow_counts_and_every_tree_ends_in_the_end_token() {
    let splits = generated(&config(200, 2048)).unwrap();
    let train = &splits.train;
    let tokens = (0..train.len()).flat_map(|e| train.document(e, 0).to_vec());
    let mut counts = [0; 18];
    tokens.for_each(|t| counts[usize::from(t)] += 1);
    assert_eq!(counts[..3], [0, 0, 200], "padding, unknown, end");
    assert!(counts[3..].windows(2).all(|w| w[0] >= w[1]), "{counts:?}");
    for example in 0..30 {
        assert_eq!(splits.test.document(example, 0).last(), Some(&2));
    }
}

#[test]
fn lengths_that_no_tree_reaches_are_refused() {
    check_generated(&config(10, 16_384)).refuses("--seq-len");
}

#[test]
fn written_files_load_as_the_splits_that_are_generated() {
    let generated = config(40, 512);
    let dir = tempfile::tempdir().unwrap();
    write(&generated, dir.path(), &mut |_| Ok(())).unwrap();
    let text = fs::read_to_string(dir.path().join("basic_val.tsv")).unwrap();
    assert!(text.starts_with("Source\tTarget\r\n( ( "), "{text}");
    assert!(text.ends_with("\r\n"));
    let read = LraConfig { data: Generator::Files, ..generated.clone() };
    let loaded = load(&read, Some(dir.path()), &mut |_, _| Ok(())).unwrap();
    assert_eq!(loaded, super::generated(&generated).unwrap());
}
