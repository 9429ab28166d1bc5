//! Conversion of a config back into a choice of settings, to train another run that differs in a few of them.

use super::rules::without_kernel_length;
use super::{quoted, resolve, Choice, FixedSettings, InitialModel, TaskRow, PRESETS};
use crate::config::{spelt, At, Decides, Omitted, RunConfig, Setting, ValueKind, NAMED_BLOCKS, SETTINGS};
use crate::error::{refuse, Result};
use serde_json::Value;

impl Choice {
    /// All settings of `config`, with `place` as their origin. Fails if the task is unknown.
    pub fn again(config: &RunConfig, place: &str) -> Result<Self> {
        let objective = super::task(config.task.name())?.objective;
        let initial = InitialModel::of_run(config);
        // The options of a model of trained weights stay as they are.
        let config = &if initial.is_some() { config.clone() } else { without_kernel_length(config)? };
        let fields = config.task.entry()?.fields;
        let document = serde_json::to_value(config).expect("a run config is plain data");
        let mut choice = Self { initial, ..Self::default() };
        let settings = choice.settings;
        let value = |setting: &Setting| {
            let at = setting.pointer(objective)?;
            let found = |at: &str| document.pointer(at).filter(|value| !value.is_null()).cloned();
            let has = |setting: &Setting| !matches!(setting.at, At::Task(field) if !fields.contains(&field));
            found(&at).or_else(|| match setting.omitted {
                Omitted::Is(text) if has(setting) => setting.parse(text).ok(),
                // Also where a layer of the recipe has another value than the neutral one.
                Omitted::Neutral(_) => has(setting).then_some(Value::Null),
                Omitted::As(name) => found(&settings.find(name)?.pointer(objective)?),
                _ => None,
            })
        };
        let values = settings.iter().filter_map(|setting| Some((setting.name, value(setting)?)));
        let (values, options) = (values.collect(), config.model.options.clone());
        choice.fixed = FixedSettings { values, options, place: place.to_owned() };
        Ok(choice)
    }

    /// Settings of `other` on top of the config from which this choice was made. Fails if `other` sets one that
    /// determines the defaults of others, since those are already fixed.
    pub fn with(self, mut other: Self) -> Result<Self> {
        let chosen: Vec<&Setting> = other.settings.iter().filter(|s| other.values.contains_key(s.name)).collect();
        let deciding = chosen.iter().find(|setting| setting.decides == Decides::Defaults);
        if let Some(name) = deciding.map(|setting| setting.name).or(other.preset.map(|_| "preset")) {
            refuse!(flag(format!("--{name}")), "decides other settings, which --config has fixed: give one of the two");
        }
        (other.fixed, other.initial) = (self.fixed, self.initial);
        for name in chosen.iter().flat_map(|setting| setting.decides.replaced()) {
            other.fixed.values.remove(name);
        }
        Ok(other)
    }
}

/// Shortest command that trains `config`, such as `dsf mqar --mixer s6 --d 64`. A run on files assumes the same files
/// in `--data-dir`. `None` if no flags describe the run, as for runs of a version with other recipes.
pub fn command(config: &RunConfig) -> Option<String> {
    Some(format!("dsf {}{}", config.task.name(), words(&shortest(config)?)))
}

/// Command of a sweep of `config` at half, once and twice its learning rate. `None` as for [`command`].
pub fn sweep_of_rates(config: &RunConfig) -> Option<String> {
    let task = super::task(config.task.name()).ok()?;
    let values = Choice::again(config, "").ok()?.fixed.values;
    let mut flags = shortest(config)?;
    // Settings of which a sweep would take several values.
    for (name, value) in task.layers().sweep.keys().filter_map(|name| values.get_key_value(name.as_str())) {
        if flags.iter().all(|(flag, _)| flag != name) {
            flags.insert(0, ((*name).to_owned(), as_typed(value)));
        }
    }
    flags.retain(|(name, _)| name != "lr");
    let rates = [0.5, 1.0, 2.0].map(|factor| format!("{:e}", factor * config.train.lr));
    flags.push(("lr".to_owned(), rates.join(",")));
    Some(format!("dsf sweep --task {}{}", config.task.name(), words(&flags)))
}

fn words(flags: &[(String, String)]) -> String {
    flags.iter().map(|(name, value)| format!(" --{name} {}", quoted(value))).collect()
}

/// Fewest flags that make `config`.
fn shortest(config: &RunConfig) -> Option<Flagged> {
    let config = &RunConfig { task: config.task.clone().of_any_files(), ..config.clone() };
    let wanted = Wanted {
        task: super::task(config.task.name()).ok()?,
        config,
        settings: Choice::again(config, "").ok()?.fixed,
        initial: InitialModel::of_run(config),
    };
    let from = wanted.initial.as_ref().map(|initial| ("from".to_owned(), initial.weights.name.clone()));
    let blocks = NAMED_BLOCKS.iter().filter(|named| named.layout == config.model.layout);
    let blocks = blocks.filter(|named| named.state_mixer == config.model.state_mixer);
    let blocks = blocks.filter_map(|named| config.model.block.within(named));
    let blocks: Vec<_> = [None].into_iter().chain(blocks.map(|block| Some(("block".to_owned(), block)))).collect();
    let presets = [None].into_iter().chain(PRESETS.iter().map(|preset| Some(preset.name)));
    let presets = presets.map(|preset| preset.map(|preset| ("preset".to_owned(), preset.to_owned())));
    let ways = presets.flat_map(|preset| {
        blocks.iter().filter_map(|block| wanted.after(preset.iter().chain(block).chain(&from))).collect::<Vec<_>>()
    });
    let mut typed = ways.min_by_key(Vec::len)?;
    // A flag that was needed when it was added may follow from later ones.
    for place in (0..typed.len()).rev() {
        let mut fewer = typed.clone();
        fewer.remove(place);
        if wanted.is_made_by(&fewer) {
            typed = fewer;
        }
    }
    Some(typed)
}

/// Flags and their values.
type Flagged = Vec<(String, String)>;

/// A run whose flags are sought.
struct Wanted<'a> {
    task: TaskRow,
    config: &'a RunConfig,
    settings: FixedSettings,
    initial: Option<InitialModel>,
}

impl Wanted<'_> {
    /// Flags that make the run, the first of which are `first`; `None` if none do.
    fn after<'a>(&self, first: impl Iterator<Item = &'a (String, String)>) -> Option<Flagged> {
        let mut typed: Flagged = first.cloned().collect();
        // Settings that determine others come first: once they are set, fewer of the others differ.
        let mut settings: Vec<&Setting> = SETTINGS.typed().collect();
        settings.sort_by_key(|setting| setting.decides.min(Decides::Files));
        let mut now = self.made_by(&typed);
        // Until none is added: one that is added later may change one that was right before.
        loop {
            let before = typed.len();
            for setting in &settings {
                let name = setting.name;
                let Some(value) = self.settings.values.get(name) else { continue };
                // While the flags so far make no run, all values may be needed but the neutral ones.
                let differs = now.as_ref().map_or(!value.is_null(), |now| now.values.get(name) != Some(value));
                if differs && typed.iter().all(|(known, _)| known != name) {
                    typed.push((name.to_owned(), typed_of(setting, value)));
                    now = self.made_by(&typed);
                }
            }
            if typed.len() == before {
                break;
            }
        }
        // The preset and the name of weights come before all settings, and the seed after them.
        typed.sort_by_key(|(name, _)| {
            let place = settings.iter().position(|setting| setting.name == name && name != "from")?;
            Some((settings[place].decides == Decides::Seeds, place))
        });
        let flag = settings.iter().find(|setting| setting.kind == ValueKind::MixerOption)?.name;
        let now = now?;
        let options = self.settings.options.iter().filter(|(name, value)| now.options.get(*name) != Some(value));
        typed.extend(options.map(|(name, value)| (flag.to_owned(), format!("{name}={value}"))));
        self.is_made_by(&typed).then_some(typed)
    }

    /// Run that `typed` describes; `None` if a flag is refused.
    fn resolved(&self, typed: &Flagged) -> Option<RunConfig> {
        let mut chosen = Choice::default();
        for (name, value) in typed {
            match name.as_str() {
                "preset" => chosen.preset = Some(super::preset(value).ok()?),
                "from" => chosen.start_from(self.initial.clone()?, ""),
                name => chosen.set(name, value, "").ok()?,
            }
        }
        Some(resolve(self.task, &chosen).ok()?.config)
    }

    fn made_by(&self, typed: &Flagged) -> Option<FixedSettings> {
        Some(Choice::again(&self.resolved(typed)?, "").ok()?.fixed)
    }

    fn is_made_by(&self, typed: &Flagged) -> bool {
        self.resolved(typed).as_ref() == Some(self.config)
    }
}

/// Value of a setting as typed; null stands for the neutral one.
fn typed_of(setting: &Setting, value: &Value) -> String {
    match setting.omitted {
        Omitted::Neutral(text) if value.is_null() => {
            setting.parse(text).map_or_else(|_| String::new(), |_| text.to_owned())
        }
        _ => as_typed(value),
    }
}

/// Value as typed on the command line.
pub fn as_typed(value: &Value) -> String {
    match value.as_str() {
        Some("warmup-constant") => "constant".to_owned(),
        _ => spelt(value),
    }
}
