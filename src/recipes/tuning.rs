//! Runs that start from trained weights, whose model they keep.

use super::draft::{check_option, Draft};
use super::rules::{batches, config, dropouts, explained, leave_out, note_n, task_config};
use super::{InitialModel, Resolved};
use crate::config::{spelt, ModelConfig, Omitted};
use crate::error::{refuse, Result};
use crate::tasks::wikitext::{check_fits, WikitextConfig};

/// Fails if the user chose another model than that of `initial`, with the flag that differs.
pub(super) fn check(draft: &Draft, initial: &InitialModel) -> Result<()> {
    let (entry, choice, name) = (draft.entry, draft.choice, &initial.weights.name);
    let own = initial.settings();
    for (flag, (value, _)) in &choice.values {
        let Some(setting) = choice.settings.find(flag).filter(|setting| setting.is_of_weights()) else { continue };
        let neutral = || match setting.omitted {
            Omitted::Neutral(text) => setting.parse(text).ok(),
            _ => None,
        };
        let found = own.get(flag).cloned().or_else(neutral);
        let unused = *flag == "n" && !entry.expands && initial.model.hybrid.is_none();
        if found.as_ref() == Some(value) || unused {
            continue;
        }
        let found = found.map_or("none".to_owned(), |found| spelt(&found));
        refuse!(
            flag(format!("--{flag}")) = spelt(value),
            "with --from the model is that of {name}, where it is {found}: leave --{flag} out"
        );
    }
    let protocol = draft.recipe.mixers_as_in.unwrap_or(draft.protocol);
    for (option, (value, _)) in &choice.options {
        check_option(entry, &initial.model.variant, option, value)?;
        let default = || entry.options.iter().find(|known| known.name == option).map(|known| (known.default)(protocol));
        let found = initial.model.options.get(option).map(String::as_str).or_else(default).unwrap_or("none");
        if found != value {
            refuse!(
                flag "--option" = format!("{option}={value}"),
                "with --from the model is that of {name}, where it is {option}={found}: leave --option out"
            );
        }
    }
    Ok(())
}

/// Applies the rules that concern no model to `draft` and returns the resulting run of the model of `initial`.
pub(super) fn finish(draft: &mut Draft, initial: &InitialModel) -> Result<Resolved> {
    dropouts(&mut draft.set);
    fit_window(draft, initial)?;
    let n = leave_out(draft);
    if initial.model.d_state == 1 {
        note_n(draft, n);
    }
    let settings = task_config(draft);
    check_fits(&settings.typed::<WikitextConfig>()?)?;
    let task = settings.read()?;
    task.check()?;
    let sizes = task.sizes();
    batches(&mut draft.set, &sizes);
    draft.set.n_positions.rule(initial.positions, "the positions of the weights");
    draft.set.n_positions.record(Some(initial.positions).filter(|positions| *positions > sizes.seq_len));
    let options = &initial.model.options;
    let mut config = config(draft, task.config(), options)?;
    let ModelConfig { n_positions, embed_dropout, attn_dropout, .. } = config.model;
    config.model = ModelConfig { n_positions, embed_dropout, attn_dropout, ..initial.model.clone() };
    Ok(Resolved { explained: explained(draft, options, options), notes: std::mem::take(&mut draft.notes), config })
}

/// Shortens the window of the recipe to the positions that the model has, and refuses a longer one.
fn fit_window(draft: &mut Draft, initial: &InitialModel) -> Result<()> {
    let seq_len = draft.set.seq_len.get();
    let Some((most, asked)) = initial.most_tokens().zip(seq_len).filter(|(most, asked)| asked > most) else {
        return Ok(());
    };
    if draft.set.seq_len.is_given() {
        let name = &initial.weights.name;
        refuse!(flag "--seq-len" = asked, "{name} has learnt embeddings for {most} positions: give {most} or less");
    }
    draft.set.seq_len.rule(most, "the positions of the weights");
    Ok(())
}
