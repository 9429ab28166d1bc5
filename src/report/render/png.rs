//! A bitmap, with two pixels per unit of length.

use super::super::{panels, picture, Report};
use crate::error::{Error, Result};
use png::{BitDepth, ColorType, Compression, Encoder};

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let ((width, height), pixels) = picture::bitmap(&panels::picture(report))?;
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::Balanced);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&pixels)?;
        writer.finish()
    });
    let failed = |e: png::EncodingError| Error::io("write", "a picture")(std::io::Error::other(e));
    written.map_err(failed)?;
    Ok(file)
}
