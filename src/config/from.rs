//! Trained weights that a run starts from.

use serde::{Deserialize, Serialize};

/// Weights that a run starts from. Only their digest is a part of the run's identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitialWeights {
    /// Name from which they are opened: a file, a folder or a name on the hub.
    pub name: String,
    /// Twelve hex digits of a SHA-256 over the files of the weights.
    pub digest: String,
}

impl InitialWeights {
    /// Same weights without a name.
    pub(super) fn unnamed(&self) -> Self {
        Self { name: String::new(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::store::samples::text_config;

    #[test]
    fn the_digest_of_weights_is_a_part_of_the_id_and_their_name_is_not() {
        let plain = text_config();
        assert!(!plain.canonical().contains("from"));
        let of = |name: &str, digest: &str| {
            let from = InitialWeights { name: name.to_owned(), digest: digest.to_owned() };
            RunConfig { from: Some(from), ..plain.clone() }
        };
        let run = of("llama", "0123456789ab");
        assert_ne!(run.id(), plain.id());
        assert_eq!(of("elsewhere/llama", "0123456789ab").id(), run.id());
        assert_ne!(of("llama", "1123456789ab").id(), run.id());
        assert_eq!(RunConfig::parse(&run.canonical(), "here").unwrap(), run);
    }
}
