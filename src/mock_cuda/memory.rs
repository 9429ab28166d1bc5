//! Memory of a GPU, which is memory of the host.

use crate::answer::{broken, Answer, Code};
use std::alloc::{alloc, dealloc, Layout};
use std::collections::BTreeMap;

/// Alignment of every allocation, as on a GPU.
const ALIGNMENT: usize = 256;
/// Bytes of memory that nothing has written: NaN in every floating-point type.
const UNWRITTEN: u8 = 0xff;

/// An allocation.
pub(crate) struct Block {
    bytes: usize,
    /// Context in which it was made.
    pub(crate) context: u64,
    /// Whether a call has freed it. What was queued before may still use it.
    pub(crate) freed: bool,
    /// Whether it may be used by what runs now: for memory of a graph, between its allocation and its free.
    alive: bool,
}

/// All allocations of all GPUs, by address.
#[derive(Default)]
pub(crate) struct Memory {
    blocks: BTreeMap<u64, Block>,
    /// Bytes that are allocated in each context.
    used: BTreeMap<u64, usize>,
    /// Memory is zero, not NaN, if kernels do nothing.
    zero: bool,
}

impl Memory {
    pub(crate) fn new(zero: bool) -> Self {
        Self { zero, ..Self::default() }
    }

    fn layout(bytes: usize) -> Answer<Layout> {
        Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| Code::InvalidValue.into())
    }

    /// Bytes that are allocated in a context.
    pub(crate) fn used(&self, context: u64) -> usize {
        self.used.get(&context).copied().unwrap_or(0)
    }

    /// Allocates memory in a context, where at most `limit` bytes may be in use.
    pub(crate) fn allocate(&mut self, context: u64, bytes: usize, limit: usize) -> Answer<u64> {
        if bytes > limit.saturating_sub(self.used(context)) {
            return Err(Code::OutOfMemory.into());
        }
        // SAFETY: `bytes` is not zero, which the callers answer themselves.
        let memory = unsafe { alloc(Self::layout(bytes)?) };
        if memory.is_null() {
            return Err(Code::OutOfMemory.into());
        }
        let address = memory as u64;
        self.blocks.insert(address, Block { bytes, context, freed: false, alive: true });
        *self.used.entry(context).or_default() += bytes;
        self.clear(address);
        Ok(address)
    }

    /// Makes the contents of a block undefined.
    fn clear(&mut self, address: u64) {
        let value = if self.zero { 0 } else { UNWRITTEN };
        if let Some(block) = self.blocks.get(&address) {
            // SAFETY: the block has that many bytes.
            unsafe { (address as *mut u8).write_bytes(value, block.bytes) };
        }
    }

    /// The block that begins at `address`.
    pub(crate) fn block(&mut self, address: u64) -> Answer<&mut Block> {
        self.blocks.get_mut(&address).ok_or_else(|| {
            broken(Code::InvalidValue, format!("no allocation begins at {address:#x}; was it freed before?"))
        })
    }

    /// Lets what runs from now on use a block, with undefined contents.
    pub(crate) fn begin(&mut self, address: u64) -> Answer {
        self.block(address)?.alive = true;
        self.clear(address);
        Ok(())
    }

    /// Ends the use of a block, which stays reserved.
    pub(crate) fn end(&mut self, address: u64) -> Answer {
        self.block(address)?.alive = false;
        Ok(())
    }

    /// Returns a block to the host.
    pub(crate) fn release(&mut self, address: u64) -> Answer {
        let Some(block) = self.blocks.remove(&address) else {
            return Err(broken(Code::InvalidValue, format!("no allocation begins at {address:#x}")));
        };
        *self.used.entry(block.context).or_default() -= block.bytes;
        // SAFETY: allocated with this layout.
        unsafe { dealloc(address as *mut u8, Self::layout(block.bytes)?) };
        Ok(())
    }

    /// Returns the block that holds `address`, and the bytes from there to its end.
    fn block_at(&self, address: u64) -> Answer<(&Block, usize)> {
        let found = self.blocks.range(..=address).next_back();
        let found = found.and_then(|(base, block)| Some((block, (base + block.bytes as u64).checked_sub(address)?)));
        let (block, room) =
            found.ok_or_else(|| broken(Code::IllegalAddress, format!("{address:#x} is in no allocation")))?;
        Ok((block, room as usize))
    }

    /// Returns the block that holds `bytes` bytes from `address` on.
    pub(crate) fn holding(&self, address: u64, bytes: usize) -> Answer<&Block> {
        let (block, room) = self.block_at(address)?;
        if bytes > room {
            let rule = format!("{bytes} bytes at {address:#x}, where the allocation has {room} left");
            return Err(broken(Code::IllegalAddress, rule));
        }
        Ok(block)
    }

    /// Returns the number of bytes from `address` to the end of its allocation, which must be in use.
    pub(crate) fn room(&self, address: u64) -> Answer<usize> {
        let (block, room) = self.block_at(address)?;
        match block.alive {
            true => Ok(room),
            false => Err(broken(Code::IllegalAddress, format!("{address:#x} is memory of a graph that has freed it"))),
        }
    }

    /// Checks that `bytes` bytes from `address` on are allocated and in use.
    pub(crate) fn check(&self, address: u64, bytes: usize) -> Answer {
        self.room(address)?;
        self.holding(address, bytes).map(drop)
    }
}
