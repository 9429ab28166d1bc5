//! The pages part by part: no number in them is without a check.

use super::page::Page;
use super::{cells, figures, frontier, mad, parts, readme, tasks, text_of, RESULTS};

/// A comparison of a part of a page with files.
type Check = fn(&Page);

/// Parts of `results/README.md`, by their first words.
const PARTS: [(&str, Check); 23] = [
    ("## What they show", figures::accuracy_without_recall),
    ("Figure 1 at a small size (", figures::figure1),
    ("Figure 2 at that size, n", figures::figure2),
    ("**Is normalized attention above linear attention", figures::figure2_matched),
    ("**What makes a mixer recall", parts::parts_of_recall),
    ("**What can each mixer do?", mad::mad),
    ("**Who tracks a state?", tasks::state_tracking),
    ("**Who copies longer strings", tasks::copying),
    ("**Who solves what", tasks::verdicts),
    ("**Is H3 as good", tasks::tasks_of_h3),
    ("**Do hybrids recall better?", parts::hybrids),
    ("**What is HiPPO worth?", parts::starts_of_s4),
    ("**Do heads help?", parts::heads),
    ("**Do more states per channel", parts::states),
    ("**Is SSD above S6?", figures::ssd_and_s6),
    ("Figure 3 at that size (", figures::figure3),
    ("**One cell of Figure 7", cells::figure7_cell),
    ("**Is SSD above S6 in Figure 7", cells::starts_of_s6_and_ssd),
    ("At a size that anyone can repeat", cells::small_task),
    ("**How many pairs does a mixer", frontier::frontier),
    ("The five tasks of the Long Range Arena", tasks::arena),
    ("Language models of two layers", tasks::language_models),
    ("One cell of the paper's smallest task", cells::smallest_task),
];

/// Parts of the README, by their first words and by those after them.
const PARTS_OF_README: [(&str, &str, Check); 4] = [
    ("The paper's five mixers on a small", "## Install", readme::picture),
    ("## What was reproduced", "## Limits", readme::reproduced),
    ("## Limits", "## I want to", readme::limits),
    ("## I want to", "## The idea", readme::wishes),
];

fn assert_all_compared(part: &str, check: Check) {
    let page = Page::new(part);
    check(&page);
    page.assert_all_compared();
}

#[test]
fn every_number_that_the_results_show_is_that_of_a_file() {
    let text = text_of(RESULTS);
    let starts = PARTS.map(|(first, _)| text.find(first).unwrap_or_else(|| panic!("no part begins with {first}")));
    assert!(starts.is_sorted());
    for (at, (_, check)) in PARTS.into_iter().enumerate() {
        let end = starts.get(at + 1).copied().unwrap_or(text.len());
        assert_all_compared(&text[starts[at]..end], check);
    }
}

#[test]
fn every_measured_number_of_the_readme_is_that_of_a_file() {
    let text = text_of("README.md");
    for (first, behind, check) in PARTS_OF_README {
        let part = &text[text.find(first).unwrap()..];
        assert_all_compared(&part[..part.find(behind).unwrap()], check);
    }
}
