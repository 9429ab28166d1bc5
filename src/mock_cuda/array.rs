//! Elements of several types in memory of a GPU, read and written one by one as f64.

use crate::answer::{broken, Answer, Code};
use crate::memory::Memory;
use half::bf16;

/// Type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    F32,
    F64,
    Bf16,
    U8,
    U32,
    I64,
}

impl Type {
    /// Returns a type by Candle's name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "f32" => Self::F32,
            "f64" => Self::F64,
            "bf16" => Self::Bf16,
            "u8" => Self::U8,
            "u32" => Self::U32,
            "i64" => Self::I64,
            _ => return None,
        })
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::Bf16 => 2,
            Self::F32 | Self::U32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// Returns the number that some bytes stand for.
    pub(crate) fn read(self, bytes: &[u8]) -> f64 {
        /// The first bytes; callers pass as many as the type has.
        fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
            bytes[..N].try_into().unwrap_or([0; N])
        }
        match self {
            Self::U8 => f64::from(bytes[0]),
            Self::Bf16 => bf16::from_le_bytes(first(bytes)).to_f64(),
            Self::F32 => f64::from(f32::from_le_bytes(first(bytes))),
            Self::U32 => f64::from(u32::from_le_bytes(first(bytes))),
            Self::F64 => f64::from_le_bytes(first(bytes)),
            Self::I64 => i64::from_le_bytes(first(bytes)) as f64,
        }
    }

    /// Writes the nearest number of this type. Whole numbers are cut towards zero, as a cast does.
    fn write(self, value: f64, bytes: &mut [u8]) {
        match self {
            Self::U8 => bytes[0] = value as u8,
            Self::Bf16 => bytes.copy_from_slice(&bf16::from_f64(value).to_le_bytes()),
            Self::F32 => bytes.copy_from_slice(&(value as f32).to_le_bytes()),
            Self::U32 => bytes.copy_from_slice(&(value as u32).to_le_bytes()),
            Self::F64 => bytes.copy_from_slice(&value.to_le_bytes()),
            Self::I64 => bytes.copy_from_slice(&(value as i64).to_le_bytes()),
        }
    }
}

/// Elements from an address up to the end of its allocation.
#[derive(Clone, Copy)]
pub(crate) struct Array {
    address: u64,
    kind: Type,
    count: usize,
}

impl Array {
    /// Returns the elements at an address, which must be aligned to them.
    pub(crate) fn at(address: u64, kind: Type, memory: &Memory) -> Answer<Self> {
        if !address.is_multiple_of(kind.bytes() as u64) {
            return Err(broken(Code::IllegalAddress, format!("{address:#x} is not aligned to elements of {kind:?}")));
        }
        Ok(Self { address, kind, count: memory.room(address)? / kind.bytes() })
    }

    fn place(&self, i: usize) -> Answer<*mut u8> {
        if i >= self.count {
            let rule = format!("element {i} of {} at {:#x}", self.count, self.address);
            return Err(broken(Code::IllegalAddress, rule));
        }
        Ok((self.address as usize + i * self.kind.bytes()) as *mut u8)
    }

    pub(crate) fn get(&self, i: usize) -> Answer<f64> {
        let place = self.place(i)?;
        // SAFETY: the element lies in an allocation in use.
        Ok(self.kind.read(unsafe { std::slice::from_raw_parts(place, self.kind.bytes()) }))
    }

    pub(crate) fn set(&self, i: usize, value: f64) -> Answer {
        let place = self.place(i)?;
        // SAFETY: as above, and nothing else refers to device memory while a kernel runs.
        self.kind.write(value, unsafe { std::slice::from_raw_parts_mut(place, self.kind.bytes()) });
        Ok(())
    }
}
