//! Task of a run as a JSON object: a name, and fields that only the task's own code interprets.

use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Task of a run: a JSON object of its `name` and its settings. The settings are parsed by the task itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct TaskConfig {
    name: String,
    settings: Map<String, Value>,
}

/// Key of the name among the settings.
const NAME: &str = "name";

impl TaskConfig {
    /// Creates the task called `name` with `settings`, which must serialise as an object of plain data.
    pub fn new(name: &str, settings: &impl Serialize) -> Self {
        match serde_json::to_value(settings) {
            Ok(Value::Object(settings)) => Self { name: name.to_owned(), settings },
            other => unreachable!("the settings of {name} are no object: {other:?}"),
        }
    }

    /// Name of the task as typed.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Canonical text: JSON with sorted keys and no whitespace.
    pub fn canonical(&self) -> String {
        Value::Object(self.clone().into()).to_string()
    }

    /// Value of one setting, if the task has it.
    pub fn get(&self, setting: &str) -> Option<&Value> {
        self.settings.get(setting)
    }

    /// Replaces the value of one setting, or adds it.
    pub fn set(&mut self, setting: &str, value: impl Into<Value>) {
        self.settings.insert(setting.to_owned(), value.into());
    }

    /// Removes one setting.
    pub fn remove(&mut self, setting: &str) {
        self.settings.remove(setting);
    }

    /// Settings as the task's own type.
    ///
    /// # Errors
    ///
    /// Fails with the name of a field that is missing, unknown or of another type.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<T> {
        let settings = Value::Object(self.settings.clone());
        serde_json::from_value(settings).map_err(|e| Error::usage(format!("task {}: {e}", self.name)))
    }
}

impl TryFrom<Map<String, Value>> for TaskConfig {
    type Error = String;

    fn try_from(mut settings: Map<String, Value>) -> Result<Self, String> {
        match settings.remove(NAME) {
            Some(Value::String(name)) => Ok(Self { name, settings }),
            Some(other) => Err(format!("the name of the task is no text but {other}")),
            None => Err("the task has no `name`".to_owned()),
        }
    }
}

impl From<TaskConfig> for Map<String, Value> {
    fn from(task: TaskConfig) -> Self {
        let mut object = task.settings;
        object.insert(NAME.to_owned(), task.name.into());
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;
    use serde_json::json;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sorting {
        seq_len: usize,
    }

    #[test]
    fn a_task_is_an_object_of_its_name_and_its_settings() {
        let task = TaskConfig::new("sorting", &Sorting { seq_len: 8 });
        let text = serde_json::to_string(&task).unwrap();
        assert_eq!(text, r#"{"name":"sorting","seq_len":8}"#);
        assert_eq!(serde_json::from_str::<TaskConfig>(&text).unwrap(), task);
        assert_eq!(task.typed::<Sorting>().unwrap(), Sorting { seq_len: 8 });
    }

    #[test]
    fn unknown_and_missing_settings_are_refused_by_name() {
        let refused = |settings: Value| {
            let task = TaskConfig::new("sorting", &settings);
            task.typed::<Sorting>().fails("refused")
        };
        refused(json!({ "seq_len": 8, "order": "falling" })).names(&["sorting", "`order`"]);
        refused(json!({})).names(&["sorting", "`seq_len`"]);
    }

    #[test]
    fn a_task_without_a_name_is_refused() {
        for text in [r#"{"seq_len":8}"#, r#"{"name":3}"#] {
            let message = serde_json::from_str::<TaskConfig>(text).unwrap_err();
            assert!(message.to_string().contains("name"), "{message}");
        }
    }
}
