//! stub
use super::*;
/// x
pub const FOLDER: &str = "pathfinder/pathfinder32/curv_contour_length_14";
pub(super) fn splits(_: &LraConfig) -> Result<Splits> {
    Err(Error::usage("x"))
}
