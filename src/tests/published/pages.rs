//! The pages part by part: no number in them is without a check.

use super::page::Page;
use super::{cells, figures, mad, parts, readme, survey, tasks, text_of, RESULTS};

/// A comparison of a part of a page with files.
type Check = fn(&Page);

/// Parts of `results/README.md`, by their first words.
const PARTS: [(&str, Check); 22] = [
    ("## What they show", figures::accuracy_without_recall),
    ("Figure 1 at a small size (", figures::figure1),
    ("Figure 2 at that size, n", figures::figure2),
    ("**Is normalized attention above linear attention", figures::figure2_matched),
    ("**What makes a mixer recall", parts::parts_of_recall),
    ("**What can each mixer do?", mad::mad),
    ("**Who tracks a state?", tasks::state_tracking),
    ("**Who copies longer strings", tasks::copying),
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
    ("The survey: 50 mixers", survey::survey),
    ("The five tasks of the Long Range Arena", tasks::arena),
    ("Language models of two layers", tasks::language_models),
    ("One cell of the paper's smallest task", cells::smallest_task),
];

/// Parts of the README, by their first words and by those behind them.
const PARTS_OF_README: [(&str, &str, Check); 4] = [
    ("The paper's five mixers on a small", "## Install", readme::picture),
    ("## What was reproduced", "## Limits", readme::reproduced),
    ("## Limits", "## I want to", readme::limits),
    ("## I want to", "## The idea", readme::wishes),
];

/// Texts with numbers that no published file holds, and why.
const NOT_IN_FILES: [(&str, &str); 9] = [
    (
        "An earlier version of this experiment, with twice as many pairs and 16 epochs, was too short for linear \
         attention to show any effect of n (20.8 to 42.7 %, with standard deviations of up to 19.5 between seeds).",
        "its runs are not published",
    ),
    (
        "Three runs of SSD at 4.64e-4 were cut off when the GPU's time was over: the two with the released start \
         after 60 epochs, at 94.0 and 97.2 %, the one with Mamba's steps after 29, at 98.0 %.",
        "a run that is not over has no row",
    ),
    (
        "gave the same accuracies within 0.5 points except for the two qLSTMs: 87.3 % for the reversed one and 64.2 \
         % for the plain one.",
        "runs of an earlier build",
    ),
    ("none of them left the baseline in 8 epochs.", "its runs are not published"),
    ("no mixer tried exceeded 50 % within ten minutes.", "its runs are not published"),
    (
        "(two windows of 1,024 tokens, f32, learning rate 1e-3) agree with those of PyTorch from the same weights: \
         for softmax attention 11.0566597 and 11.0566592, then 9.3804884 and 9.3804893, then 8.390350 and 8.390279. \
         For linear and normalized attention the first losses, 11.0579920 and 11.0703492, equal PyTorch's in every \
         digit, and the third differ by 7e-5 and 1e-5.",
        "losses of single steps",
    ),
    ("24.4, 25.4, 27.7, 34.9, 93.2, 97.2, 98.6, 99.0,", "a summary has the last epoch alone"),
    ("16.0, 25.2, 24.7, 26.3, 48.4, 98.9,", "a summary has the last epoch alone"),
    (
        "had this SSD run at 99.6 % after 5 epochs. SSD with seed 123 was still at 25.4 % after 13 epochs, when it \
         was stopped; at the small size, with 16 epochs, two of five seeds of SSD did not learn it. Normalized \
         attention at 2e-3 and the small size reached 99.2 %, 33.9 % and 99.0 % with three builds",
        "runs of earlier builds, and one that was stopped",
    ),
];

fn assert_all_compared(part: &str, check: Check) {
    let page = Page::new(part);
    check(&page);
    for (text, _) in NOT_IN_FILES {
        page.leave_out(text);
    }
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

#[test]
fn a_text_that_is_in_no_file_is_on_the_page() {
    let page = Page::new(&text_of(RESULTS));
    for (text, _) in NOT_IN_FILES {
        page.says(text, &[]);
    }
}
