//! The table of mixers as a table.

use crate::world::{parameters, Case, PROTOCOLS};
use dsf::mixers::{find, Entry, Family, Growth, MIXERS};
use std::collections::BTreeSet;

#[test]
fn names_are_unique_and_found() {
    let names: BTreeSet<&str> = MIXERS.iter().map(|e| e.name).collect();
    assert_eq!(names.len(), MIXERS.len());
    for entry in MIXERS {
        assert_eq!(find(entry.name).unwrap().equation, entry.equation);
        let typed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(entry.name.chars().all(typed), "{}", entry.name);
    }
}

/// Rows that name a mixer and no variant are about all of its variants.
#[test]
fn the_guide_says_which_published_form_every_variant_has() {
    let page = include_str!("../guide/mixers.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| ")?.split(" | ").next()?.split(", ").collect()))
        .collect();
    for entry in MIXERS {
        let quoted = |name: &str| format!("`{name}`");
        let of_mixer: Vec<&Vec<&str>> = rows.iter().filter(|row| row.contains(&&*quoted(entry.name))).collect();
        for variant in entry.variants {
            let names = |row: &Vec<&str>, variant: &str| row.contains(&&*quoted(variant));
            let about =
                |row: &&&Vec<&str>| names(row, variant) || !entry.variants.iter().any(|other| names(row, other));
            assert_eq!(of_mixer.iter().filter(about).count(), 1, "{} {variant}", entry.name);
        }
    }
}

#[test]
fn every_row_is_filled_in_and_fits_a_line() {
    for entry in MIXERS {
        let texts = [entry.name, entry.equation, entry.cite, entry.dsf, entry.stem];
        for text in texts {
            assert!(!text.trim().is_empty(), "{}", entry.name);
            assert!(text.chars().count() < 80 && !text.contains('\n'), "{text}");
        }
    }
}

/// The defaults say that there is no n.
#[test]
fn a_mixer_with_a_state_expansion_says_how_it_grows() {
    let reason = |growth| match growth {
        Growth::No(reason) => Some(reason),
        _ => None,
    };
    for entry in MIXERS.iter().filter(|entry| entry.expands) {
        let default = reason(Entry::of(Family::Recurrent).growth);
        assert!(reason(entry.growth).is_none_or(|reason| Some(reason) != default), "{}", entry.name);
    }
}

#[test]
fn parameters_that_a_row_names_are_parameters_of_its_mixer() {
    for entry in MIXERS {
        let variants = entry.variants.iter().map(|variant| Case::new(entry, variant, 1));
        let optional = Case::optional().into_iter().filter(|case| case.entry.name == entry.name);
        let built = variants.chain(optional).flat_map(|case| {
            let params = parameters();
            case.mixer(&params);
            params.vars().into_iter().map(|(name, _)| name)
        });
        let built: BTreeSet<String> = built.collect();
        let lists = [entry.own_init, entry.depth_init, entry.uncounted];
        let gradients = entry.gradient.iter().map(|(name, _)| name);
        for name in lists.into_iter().flatten().chain(gradients) {
            assert!(built.contains(*name), "{} {name}", entry.name);
        }
    }
}

#[test]
fn golden_names_tell_mixers_apart() {
    let stems = MIXERS.iter().flat_map(|e| e.variants.iter().map(|v| format!("{}_{v}", e.stem)));
    let stems: Vec<String> = stems.collect();
    let unique: BTreeSet<&String> = stems.iter().collect();
    assert_eq!(unique.len(), stems.len(), "{stems:?}");
}

#[test]
fn every_protocol_trains_a_variant_that_exists() {
    for entry in MIXERS {
        let unique: BTreeSet<&&str> = entry.variants.iter().collect();
        assert_eq!(unique.len(), entry.variants.len(), "{}", entry.name);
        for protocol in PROTOCOLS {
            let variant = entry.default_variant(protocol);
            entry.check_variant(variant).unwrap();
        }
    }
}

#[test]
fn options_explain_themselves_and_accept_their_own_defaults_only() {
    for entry in MIXERS {
        for option in entry.options {
            let place = format!("{} {}", entry.name, option.name);
            assert!(!option.name.is_empty() && !option.help.is_empty(), "{place}");
            for protocol in PROTOCOLS {
                let default = (option.default)(protocol);
                assert!((option.accepts)(default), "{place}: {default}");
                assert!(option.help.contains(default), "{place}: {default}");
            }
            for wrong in ["", " ", "-1", "nonsense"] {
                assert!(!(option.accepts)(wrong), "{place}: `{wrong}`");
            }
        }
    }
}

#[test]
fn the_arithmetic_of_a_mixer_counts_the_weights_that_it_builds() {
    for case in Case::all().into_iter().chain(Case::optional()).chain(Case::both_directions()) {
        let Some(work) = case.entry.work(&case.config) else {
            continue; // no bound is known, and estimates say so
        };
        let params = parameters();
        case.mixer(&params);
        let counted = params
            .vars()
            .into_iter()
            .map(|(name, var)| (name.strip_prefix("backward.").unwrap_or(&name).to_owned(), var))
            .filter(|(name, var)| var.rank() == 2 && !case.entry.uncounted.contains(&name.as_str()))
            // They multiply no token, and all layers share them.
            .filter(|(name, _)| name != "lower_bounds");
        let weights: usize = counted.map(|(_, var)| var.elem_count()).sum();
        assert_eq!(work.projections, weights, "{case}");
        // Heads without an expansion make a state as wide as they are.
        if case.entry.expands || !case.entry.heads {
            assert_eq!(work.states > 1, case.entry.expands, "{case}");
        }
    }
}
