//! Square PNG pictures.

use png::{BitDepth, ColorType, Decoder, Limits};
use std::io::Cursor;

/// Side in pixels of most pictures.
pub(super) const SIDE: u32 = 32;

/// Number of their pixels, L.
pub(super) const PIXELS: usize = (SIDE * SIDE) as usize;

/// Memory limit for chunks other than the pixels.
const LIMITS: Limits = Limits { bytes: 1 << 18 };

/// Decodes the channels of the pixels of a picture of `side` x `side` pixels, row by row: one value for each with
/// [`ColorType::Grayscale`], three with [`ColorType::Rgb`]. Fails with the expected and the found format, to be printed
/// after the file's name.
pub(super) fn decode(bytes: &[u8], side: u32, color: ColorType) -> Result<Vec<u8>, String> {
    let damaged = |why: png::DecodingError| format!("a damaged PNG ({why})");
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), LIMITS);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    // The header is checked before anything is allocated for the pixels.
    let header = decoder.read_header_info().map_err(damaged)?;
    let found = (header.width, header.height, header.bit_depth, header.color_type);
    let expected = (side, side, BitDepth::Eight, color);
    if found != expected {
        let [found, expected] = [found, expected]
            .map(|(width, height, depth, color)| format!("{width} x {height} pixels, {color:?}, {} bits", depth as u8));
        return Err(format!("expected a PNG of {expected}; found {found}"));
    }
    let mut reader = decoder.read_info().map_err(damaged)?;
    let mut pixels = vec![0; (side * side) as usize * color.samples()];
    let frame = reader.next_frame(&mut pixels).map_err(damaged)?;
    if frame.buffer_size() != pixels.len() {
        return Err("a damaged PNG (its first frame is smaller than the picture)".to_owned());
    }
    Ok(pixels)
}

/// Encodes a picture of `side` x `side` pixels with 8 bits per channel, whose value at index `i` is `value(i)`.
pub(super) fn encode(side: u32, color: ColorType, value: impl Fn(usize) -> u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, side, side);
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    let values: Vec<u8> = (0..(side * side) as usize * color.samples()).map(value).collect();
    encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(&values))
        .expect("memory takes a picture of this size");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_picture_comes_back_value_for_value() {
        for color in [ColorType::Grayscale, ColorType::Rgb] {
            let bytes = encode(SIDE, color, |i| (i * 7) as u8);
            let values: Vec<u8> = (0..PIXELS * color.samples()).map(|i| (i * 7) as u8).collect();
            assert_eq!(decode(&bytes, SIDE, color).unwrap(), values);
        }
    }

    #[test]
    fn another_size_or_colour_is_refused_by_what_was_found() {
        let of = |side, color| {
            let bytes = encode(side, color, |_| 0);
            decode(&bytes, SIDE, ColorType::Grayscale).unwrap_err()
        };
        let size = of(33, ColorType::Grayscale);
        assert!(size.contains("found 33 x 33 pixels"), "{size}");
        let color = of(SIDE, ColorType::Rgb);
        assert!(color.contains("found 32 x 32 pixels, Rgb, 8 bits"), "{color}");
    }

    /// Picture whose header has the width `width`, with a valid checksum.
    fn declaring(width: u32) -> Vec<u8> {
        let mut bytes = encode(SIDE, ColorType::Grayscale, |_| 0);
        bytes[16..20].copy_from_slice(&width.to_be_bytes());
        let mut crc = flate2::Crc::new();
        crc.update(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&crc.sum().to_be_bytes());
        bytes
    }

    #[test]
    fn a_huge_declared_size_is_refused_by_its_header() {
        let message = decode(&declaring(0x7FFF_FFFF), SIDE, ColorType::Grayscale).unwrap_err();
        assert!(message.contains("found 2147483647 x 32 pixels"), "{message}");
    }

    #[test]
    fn text_is_a_damaged_picture() {
        let message = decode(b"<html>not found</html>", SIDE, ColorType::Rgb).unwrap_err();
        assert!(message.starts_with("a damaged PNG"), "{message}");
    }

    proptest! {
        #[test]
        fn a_cut_or_changed_picture_is_pixels_or_a_sentence(
            cut in 0_usize..200,
            changes in proptest::collection::vec((0_usize..200, any::<u8>()), 0..4),
        ) {
            let mut bytes = encode(SIDE, ColorType::Grayscale, |i| (i / 40) as u8);
            for (at, value) in changes {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            match decode(&bytes, SIDE, ColorType::Grayscale) {
                Ok(pixels) => prop_assert_eq!(pixels.len(), PIXELS),
                Err(message) => prop_assert!(message.contains("PNG"), "{}", message),
            }
        }
    }
}
