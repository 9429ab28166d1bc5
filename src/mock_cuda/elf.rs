//! Kernels of a module, with the sizes of their parameters: from a fatbin with machine code (ELF), or from PTX.

use crate::answer::{broken, Answer, Code, Refusal};
use std::ffi::{c_char, CStr};

const FATBIN: u32 = 0xba55_ed50;
/// Kind of a fatbin's entry that holds machine code.
const MACHINE_CODE: u16 = 2;
/// Compression of a fatbin's entry, in its flags.
const ZSTD: u64 = 0x8000;
/// Attribute of a kernel in `.nv.info.NAME`: number, offset and size of a parameter.
const PARAMETER: u8 = 0x17;
/// Format of an attribute whose value follows in as many bytes as its header says.
const SIZED: u8 = 4;

/// A kernel, as its machine code describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Description {
    pub(crate) name: String,
    /// Bytes of each parameter.
    pub(crate) parameters: Vec<usize>,
}

/// The kernels of a module.
pub(crate) struct Image {
    pub(crate) kernels: Vec<Description>,
    /// Whether they come as PTX, as Candle's do.
    pub(crate) is_ptx: bool,
}

fn invalid(why: &str) -> Refusal {
    broken(Code::InvalidImage, why)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Answer<[u8; N]> {
    let part = bytes.get(at..at + N).ok_or_else(|| invalid("the image is cut off"))?;
    Ok(part.try_into().unwrap_or([0; N]))
}

fn u16_at(bytes: &[u8], at: usize) -> Answer<u16> {
    Ok(u16::from_le_bytes(number(bytes, at)?))
}

fn u32_at(bytes: &[u8], at: usize) -> Answer<u32> {
    Ok(u32::from_le_bytes(number(bytes, at)?))
}

fn u64_at(bytes: &[u8], at: usize) -> Answer<usize> {
    Ok(u64::from_le_bytes(number(bytes, at)?) as usize)
}

impl Image {
    /// Reads the image of a module for GPUs of capability `capability`, such as 90.
    ///
    /// # Safety
    ///
    /// `image` is a whole fatbin, or text that ends with a zero.
    pub(crate) unsafe fn read(image: *const u8, capability: u32) -> Answer<Self> {
        // SAFETY: a fatbin has at least a header of 16 bytes, and text at least its zero: it is read byte by byte.
        unsafe {
            let is_fatbin = FATBIN.to_le_bytes().iter().enumerate().all(|(i, byte)| image.add(i).read() == *byte);
            if !is_fatbin {
                let text = CStr::from_ptr(image.cast::<c_char>()).to_string_lossy();
                return Ok(Self { kernels: ptx(&text), is_ptx: true });
            }
            let header = std::slice::from_raw_parts(image, 16);
            let bytes = std::slice::from_raw_parts(image, 16 + u64_at(header, 8)?);
            Ok(Self { kernels: elf(&machine_code(bytes, capability)?)?, is_ptx: false })
        }
    }
}

/// Returns the machine code of a fatbin for a GPU.
fn machine_code(fatbin: &[u8], capability: u32) -> Answer<Vec<u8>> {
    let mut at = usize::from(u16_at(fatbin, 6)?);
    while at < fatbin.len() {
        let (kind, header, padded) = (u16_at(fatbin, at)?, u32_at(fatbin, at + 4)? as usize, u64_at(fatbin, at + 8)?);
        if kind == MACHINE_CODE && u32_at(fatbin, at + 28)? == capability {
            let (stored, flags, size) =
                (u32_at(fatbin, at + 16)? as usize, u64_at(fatbin, at + 40)? as u64, u64_at(fatbin, at + 56)?);
            let bytes =
                fatbin.get(at + header..at + header + padded).ok_or_else(|| invalid("the fatbin is cut off"))?;
            return match flags & ZSTD {
                0 => Ok(bytes.to_vec()),
                _ => zstd::bulk::decompress(&bytes[..stored], size)
                    .map_err(|e| invalid(&format!("machine code that zstd does not read: {e}"))),
            };
        }
        at += header + padded;
    }
    Err(invalid(&format!("the fatbin has no machine code for compute capability {}", capability as f64 / 10.0)))
}

/// Returns the kernels of machine code.
fn elf(bytes: &[u8]) -> Answer<Vec<Description>> {
    if bytes.get(..4) != Some(b"\x7fELF") {
        return Err(invalid("machine code that is no ELF file"));
    }
    let (sections, size) = (u64_at(bytes, 0x28)?, usize::from(u16_at(bytes, 0x3a)?));
    let (count, names) = (usize::from(u16_at(bytes, 0x3c)?), usize::from(u16_at(bytes, 0x3e)?));
    let names = u64_at(bytes, sections + names * size + 0x18)?;
    let mut all = Vec::new();
    for section in (0..count).map(|i| sections + i * size) {
        let name = bytes.get(names + u32_at(bytes, section)? as usize..).unwrap_or_default();
        let name = String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned();
        all.push((name, u64_at(bytes, section + 0x18)?, u64_at(bytes, section + 0x20)?));
    }
    let mut kernels = Vec::new();
    for (name, ..) in &all {
        let Some(kernel) = name.strip_prefix(".text.") else { continue };
        let info = all.iter().find(|(name, ..)| name.strip_prefix(".nv.info.") == Some(kernel));
        let (at, size) = info.map_or((0, 0), |(_, at, size)| (*at, *size));
        kernels.push(Description {
            name: kernel.to_owned(),
            parameters: parameters(bytes.get(at..at + size).unwrap_or_default())?,
        });
    }
    Ok(kernels)
}

/// Returns the bytes of each parameter from the attributes of a kernel.
fn parameters(info: &[u8]) -> Answer<Vec<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + 4 <= info.len() {
        let (format, attribute, size) = (info[at], info[at + 1], usize::from(u16_at(info, at + 2)?));
        at += 4;
        if format == SIZED {
            if attribute == PARAMETER {
                let bytes = (u32_at(info, at + 8)? >> 18) as usize;
                found.push((u16_at(info, at + 4)?, bytes));
            }
            at += size;
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, bytes)| bytes).collect())
}

/// Returns the kernels of PTX.
fn ptx(text: &str) -> Vec<Description> {
    let mut kernels = Vec::new();
    for entry in text.split(".entry ").skip(1) {
        let (name, rest) = entry.split_once('(').unwrap_or((entry, ""));
        let list = rest.split(')').next().unwrap_or_default();
        let parameters = list.split(".param").skip(1).map(bytes_of_parameter).collect();
        kernels.push(Description { name: name.trim().to_owned(), parameters });
    }
    kernels
}

/// Returns the bytes of a parameter, such as ` .u64 name,` or ` .align 2 .b8 name[2],`.
fn bytes_of_parameter(text: &str) -> usize {
    let words = text.split_whitespace();
    let bits: usize = words
        .filter_map(|word| word.strip_prefix(['.'])?.strip_prefix(['u', 's', 'f', 'b'])?.parse().ok())
        .next()
        .unwrap_or(0);
    let count = text.split_once('[').and_then(|(_, rest)| rest.split(']').next()?.parse().ok());
    bits / 8 * count.unwrap_or(1)
}
