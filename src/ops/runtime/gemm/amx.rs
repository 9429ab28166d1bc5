//! The instructions of AMX. Rust has no stable functions for them, so they are written in assembly, a match arm for
//! each register, since registers are parts of the instructions.

#![allow(unsafe_code)]

use std::arch::asm;

/// The instructions that a product needs. Every register holds 16 rows of 16 words.
pub(super) trait TileInstructions {
    /// Returns the instructions with all registers configured on this thread, until the value is dropped.
    fn configured() -> Self;

    /// Sets a register to zero.
    fn zero(&mut self, register: u8);

    /// Loads rows that are `distance` words apart.
    ///
    /// # Safety
    ///
    /// The rows can be read.
    unsafe fn load(&mut self, register: u8, from: *const u32, distance: usize);

    /// Stores rows that are `distance` words apart.
    ///
    /// # Safety
    ///
    /// The rows can be written.
    unsafe fn store(&mut self, register: u8, to: *mut u32, distance: usize);

    /// Adds to each sum (i, j) of `sums`, in f32, the products of the pairs of row i of `left` with those in column j of
    /// `right`, both in bf16.
    fn add_products(&mut self, sums: u8, left: u8, right: u8);
}

/// The instructions of this processor.
pub(super) struct Processor(());

/// Palette 1: eight registers of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Configuration([u8; 64]);

static WHOLE: Configuration = {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    let mut register = 0;
    while register < 8 {
        bytes[16 + 2 * register] = 64;
        bytes[48 + register] = 16;
        register += 1;
    }
    Configuration(bytes)
};

impl Drop for Processor {
    /// Releases the registers, so that the system need not save them for other code of the thread.
    fn drop(&mut self) {
        // SAFETY: the processor has the instruction, since `configured` was called.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }
}

/// Executes an instruction with the register of a number: the text before and after the register, then the operands.
macro_rules! with_register {
    ($register:expr, $before:literal, $after:literal, $($operand:tt)*) => {
        with_register!(@ $register, $before, $after, ($($operand)*), 0 1 2 3 4 5 6 7)
    };
    (@ $register:expr, $before:literal, $after:literal, $operands:tt, $($number:literal)*) => {
        match $register {
            $($number => with_register!(~ concat!($before, $number, $after), $operands),)*
            _ => unreachable!("there are eight registers"),
        }
    };
    (~ $text:expr, ($($operand:tt)*)) => {
        asm!($text, $($operand)* options(nostack, preserves_flags))
    };
}

/// Executes `tdpbf16ps` for the registers that a product uses.
macro_rules! add_products {
    ($which:expr, $($sums:literal $left:literal $right:literal),*) => {
        match $which {
            $(($sums, $left, $right) => asm!(
                concat!("tdpbf16ps tmm", $sums, ", tmm", $left, ", tmm", $right),
                options(nostack, nomem, preserves_flags)
            ),)*
            _ => unreachable!("no product uses these registers"),
        }
    };
}

impl TileInstructions for Processor {
    fn configured() -> Self {
        // SAFETY: AMX is the current instruction set only if the processor has it and the system permits it.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const WHOLE, options(nostack, readonly, preserves_flags)) };
        Self(())
    }

    fn zero(&mut self, register: u8) {
        // SAFETY: registers are configured.
        unsafe { with_register!(register, "tilezero tmm", "",) }
    }

    unsafe fn load(&mut self, register: u8, from: *const u32, distance: usize) {
        let bytes = 4 * distance;
        // SAFETY: the caller's.
        unsafe { with_register!(register, "tileloadd tmm", ", [{} + {} * 1]", in(reg) from, in(reg) bytes,) }
    }

    unsafe fn store(&mut self, register: u8, to: *mut u32, distance: usize) {
        let bytes = 4 * distance;
        // SAFETY: the caller's.
        unsafe { with_register!(register, "tilestored [{} + {} * 1], tmm", "", in(reg) to, in(reg) bytes,) }
    }

    fn add_products(&mut self, sums: u8, left: u8, right: u8) {
        // SAFETY: registers are configured.
        unsafe { add_products!((sums, left, right), 0 4 6, 1 4 7, 2 5 6, 3 5 7) }
    }
}
