//! Blocks have the right address and contents, and their number is bounded.

use super::*;
use std::thread;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

/// Byte pattern that differs between blocks.
fn pattern(size: usize, seed: usize) -> impl Iterator<Item = u8> {
    (0..size).map(move |i| (i / 97 + seed * 31) as u8)
}

/// Bytes of a block.
fn bytes<'a>(address: *mut u8, size: usize) -> &'a mut [u8] {
    assert!(!address.is_null());
    // SAFETY: the tests request blocks of that size, and use none after it is freed.
    unsafe { std::slice::from_raw_parts_mut(address, size) }
}

fn fill(block: &mut [u8], seed: usize) {
    let size = block.len();
    block.iter_mut().zip(pattern(size, seed)).for_each(|(to, x)| *to = x);
}

#[test]
fn blocks_of_every_size_hold_what_is_written_and_begin_where_the_layout_says() {
    let sizes = [1, LARGE - 1, LARGE, LARGE + 1, HUGE - 1, HUGE, HUGE + PAGE, 3 * HUGE + 5];
    for align in [1, 16, ALIGN] {
        let made = sizes.map(|size| {
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: no layout is empty.
            (unsafe { Allocator.alloc(layout) }, layout)
        });
        for (seed, (address, layout)) in made.iter().enumerate() {
            assert_eq!(address.align_offset(align), 0);
            fill(bytes(*address, layout.size()), seed);
        }
        for (seed, (address, layout)) in made.into_iter().enumerate() {
            let size = layout.size();
            assert!(pattern(size, seed).eq(bytes(address, size).iter().copied()));
            // SAFETY: allocated with that layout above.
            unsafe { Allocator.dealloc(address, layout) };
        }
    }
}

#[test]
fn what_is_to_be_zero_is_so_in_a_block_that_was_used() {
    for size in [LARGE - 1, LARGE + 7, 5 * LARGE] {
        for _ in 0..3 {
            // SAFETY: the layout is not empty and is that of the block.
            unsafe {
                let address = Allocator.alloc_zeroed(layout(size));
                assert!(bytes(address, size).iter().all(|&x| x == 0));
                fill(bytes(address, size), 1);
                Allocator.dealloc(address, layout(size));
            }
        }
    }
}

#[test]
fn a_block_that_grows_or_shrinks_keeps_its_content() {
    let sizes = [10, LARGE - 1, LARGE, LARGE + 1, 4 * LARGE, 4 * LARGE + 9, LARGE, 100];
    // SAFETY: every call has the current layout of the block.
    unsafe {
        let mut size = sizes[0];
        let mut address = Allocator.alloc(layout(size));
        fill(bytes(address, size), 2);
        let mut known = size;
        for new in sizes {
            address = Allocator.realloc(address, layout(size), new);
            known = known.min(new);
            let kept = bytes(address, known).iter().copied();
            assert!(pattern(known, 2).eq(kept), "{size} -> {new}");
            size = new;
            fill(bytes(address, size), 2);
            known = size;
        }
        Allocator.dealloc(address, layout(size));
    }
}

#[test]
fn more_than_the_system_has_is_refused_with_its_size_and_is_not_remembered() {
    let (much, most) = (1 << 46, blocks().peak);
    let used = try_obtain(much).unwrap_err();
    let said = refusal(much, used);
    assert!(said.starts_with("memory allocation of 70368.7 GB failed"), "{said}");
    assert!(blocks().peak < most + much);
}

#[test]
fn threads_that_take_and_free_at_once_share_no_block() {
    thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                for round in 0..50 {
                    let size = LARGE * (1 + (seed + round) % 3);
                    // SAFETY: allocated and freed with one layout.
                    unsafe {
                        let address = Allocator.alloc(layout(size));
                        let block = bytes(address, size);
                        let all = [seed as u8 + 1; 64];
                        block.chunks_mut(1 << 12).for_each(|page| page[..64].copy_from_slice(&all));
                        thread::yield_now();
                        assert!(block.chunks(1 << 12).all(|page| page[..64] == all));
                        Allocator.dealloc(address, layout(size));
                    }
                }
            });
        }
    });
}

fn block(name: usize, bytes: usize) -> FreeBlock {
    let address = null_mut::<u8>().wrapping_add(name);
    FreeBlock { address, bytes }
}

#[test]
fn the_block_of_a_size_that_was_freed_last_is_used_first() {
    let mut blocks = BlockCache::new();
    blocks.use_more(70);
    for (name, bytes) in [(1, 10), (2, 20), (3, 10), (4, 30)] {
        assert_eq!(blocks.put(block(name, bytes)), None);
    }
    assert_eq!(blocks.take(10), Some(block(3, 10)));
    assert_eq!(blocks.take(10), Some(block(1, 10)));
    assert_eq!(blocks.take(10), None);
    assert_eq!((blocks.used, blocks.spare, blocks.peak), (20, 50, 70));
}

#[test]
fn used_and_waiting_blocks_are_a_quarter_more_than_were_ever_in_use() {
    let mut blocks = BlockCache::new();
    blocks.use_more(80);
    for name in 0..8 {
        blocks.put(block(name, 10));
    }
    // Two blocks of another size fit without removing a cached one.
    assert_eq!(blocks.surplus(20), None);
    blocks.use_more(20);
    assert_eq!(blocks.surplus(15), Some(block(0, 10)));
    assert_eq!(blocks.surplus(15), Some(block(1, 10)));
    assert_eq!(blocks.surplus(15), None);
    blocks.use_more(15);
    // This exceeds the peak so far, so that the cached blocks are small in comparison.
    assert_eq!(blocks.surplus(1000), None);
}

#[test]
fn the_oldest_block_goes_where_there_are_too_many() {
    let mut blocks = BlockCache::new();
    blocks.use_more(SLOTS + 1);
    for name in 0..SLOTS {
        assert_eq!(blocks.put(block(name, 1)), None);
    }
    assert_eq!(blocks.put(block(SLOTS, 1)), Some(block(0, 1)));
    assert_eq!((blocks.count, blocks.spare, blocks.used), (SLOTS, SLOTS, 0));
}
