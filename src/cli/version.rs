//! `dsf --version --json`: the build, and the versions of the formats that it reads and writes.

use super::{exit, print};
use crate::config::FORMAT;
use crate::error::Result;
use crate::store::{Provenance, SCHEMA};
use serde_json::json;

/// Cargo features that change what the program can do, and whether this build has them.
const FEATURES: [(&str, bool); 1] = [("cuda", cfg!(feature = "cuda"))];

pub(super) fn main() -> Result<u8> {
    let build = Provenance::collect("", 0);
    let built = FEATURES.iter().filter(|(_, built)| *built);
    let features: Vec<&str> = built.map(|(name, _)| *name).collect();
    print::line(json!({
        "event": "version", "schema": 1, "version": build.version, "commit": build.commit(), "target": env!("DSF_TARGET"),
        "features": features, "simd": build.simd, "config_format": FORMAT, "results_schema": SCHEMA,
    }))?;
    Ok(exit::DONE)
}
