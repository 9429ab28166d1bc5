// The threads of a block, as fibers of one thread of the operating system.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include <ucontext.h>

namespace emulation {

struct Index {
    uint32_t x = 0, y = 0, z = 0;
};

// The maximum of words that a lane exchanges at once.
constexpr int WORDS = 8;

// A barrier of the lanes of a warp, or of all threads of a block.
struct Meeting {
    uint32_t members = 0, arrived = 0, epoch = 0;
    uint32_t barriers = 0;  // those of the meetings that order memory
    uint64_t values[2][32] = {};
    uint32_t words[2][32][WORDS] = {};
};

// The position of the running fiber in the launch.
struct Place {
    Index thread, block, threads, blocks;
    uint32_t block_index = 0;
    Meeting *in_block = nullptr, *in_warp = nullptr;
    uint32_t block_epoch() const { return in_block->barriers; }
    uint32_t warp_epoch() const { return in_warp->barriers; }
};

// A jump target in the format of the compiler's own setjmp: that of the C library saves every register and unwinds.
using Jump = void* [5];

struct Scheduler;

// A suspended thread. Fibers are reused for one block after another, so that their stacks are allocated once. The
// lowest word of a stack points to its fiber: every access to memory needs its thread, and masking the stack pointer is
// faster than reading a thread-local variable in a shared library.
struct Fiber {
    static constexpr size_t STACK = 256 * 1024;

    Place place;
    Jump resume;
    bool started = false, finished = false;
    const Meeting* awaits = nullptr;  // until its epoch is no longer this one:
    uint32_t epoch = 0;
    Scheduler* of;
    std::unique_ptr<char, decltype(&free)> stack{(char*)aligned_alloc(STACK, STACK), free};
    ucontext_t context;

    explicit Fiber(Scheduler* of) : of(of) {
        if (!stack) abort();
        *(Fiber**)stack.get() = this;
    }
};

// The calling fiber.
inline Fiber& self() { return **(Fiber**)(uintptr_t(__builtin_frame_address(0)) & ~(Fiber::STACK - 1)); }

inline const Place& here() { return self().place; }

struct Scheduler {
    std::vector<std::unique_ptr<Fiber>> fibers;
    Jump back;
    std::function<void()> kernel;
    char message[512] = {};
    bool failed = false;

    void run_block(uint32_t count, const Place& place);
};

inline Scheduler& scheduler() {
    static thread_local Scheduler it;
    return it;
}

// Separate functions: a function must not contain both the compiler's jump and its target.
[[noreturn, gnu::noinline]] inline void jump(Jump& to) { __builtin_longjmp(to, 1); }

[[gnu::noinline]] inline void suspend(Fiber& fiber) {
    if (!__builtin_setjmp(fiber.resume)) jump(fiber.of->back);
}

// Ends the launch with a message; suspended fibers are dropped.
[[noreturn]] inline void fail(const char* format, ...) {
    Scheduler& s = scheduler();
    va_list values;
    va_start(values, format);
    vsnprintf(s.message, sizeof s.message, format, values);
    va_end(values);
    s.failed = true;
    jump(s.back);
}

inline void meet(Meeting& meeting, bool orders_memory) {
    uint32_t epoch = meeting.epoch;
    if (++meeting.arrived == meeting.members) {
        meeting.arrived = 0;
        ++meeting.epoch;
        meeting.barriers += orders_memory;
        return;
    }
    Fiber& fiber = self();
    fiber.awaits = &meeting;
    fiber.epoch = epoch;
    suspend(fiber);
}

inline void barrier() { meet(*here().in_block, true); }

inline void warp_barrier() { meet(*here().in_warp, true); }

// Every lane passes a value and returns that of lane `source`. There are two buffers: a lane writes
// to a buffer again only after all lanes have read from it and met at the other one.
inline uint64_t exchange(uint64_t value, int source) {
    Meeting& warp = *here().in_warp;
    uint64_t* values = warp.values[warp.epoch & 1];
    values[here().thread.x % 32] = value;
    meet(warp, false);  // a shuffle promises nothing about memory
    return values[source];
}

// Exchanges several words, which every lane may read until the next exchange.
inline const uint32_t (*exchange_words(const uint32_t* mine, int count))[WORDS] {
    Meeting& warp = *here().in_warp;
    auto words = warp.words[warp.epoch & 1];
    for (int i = 0; i < count; ++i) words[here().thread.x % 32][i] = mine[i];
    meet(warp, false);
    return words;
}

// The main function of a fiber: a thread of one block after another.
inline void live() {
    Fiber& fiber = self();
    for (;;) {
        fiber.of->kernel();
        fiber.finished = true;
        suspend(fiber);
    }
}

inline void Scheduler::run_block(uint32_t count, const Place& place) {
    Meeting block;
    block.members = count;
    std::vector<Meeting> warps(count / 32);
    for (uint32_t i = 0; i < count; ++i) {
        if (i == fibers.size()) fibers.push_back(std::make_unique<Fiber>(this));
        Fiber& fiber = *fibers[i];
        fiber.place = place;
        fiber.place.thread.x = i;
        fiber.place.in_block = &block;
        fiber.place.in_warp = &warps[i / 32];
        warps[i / 32].members = 32;
        fiber.finished = false;
        fiber.awaits = nullptr;
    }
    // Repeat as long as any fiber makes progress in a round.
    volatile bool moved = true;
    volatile uint32_t left = count;
    while (left > 0) {
        if (!moved)
            fail("deadlock: %u of %u threads of block %u wait for threads that have ended or wait elsewhere",
                 unsigned(left), count, place.block_index);
        moved = false;
        for (volatile uint32_t i = 0; i < count; i = i + 1) {
            Fiber& fiber = *fibers[i];
            if (fiber.finished || (fiber.awaits && fiber.awaits->epoch == fiber.epoch)) continue;
            fiber.awaits = nullptr;
            moved = true;
            if (!__builtin_setjmp(back)) {
                if (fiber.started) jump(fiber.resume);
                fiber.started = true;
                getcontext(&fiber.context);
                fiber.context.uc_stack.ss_sp = fiber.stack.get() + alignof(max_align_t);
                fiber.context.uc_stack.ss_size = Fiber::STACK - alignof(max_align_t);
                makecontext(&fiber.context, live, 0);
                setcontext(&fiber.context);
            }
            if (failed) return;
            if (fibers[i]->finished) left = left - 1;
        }
    }
}

}  // namespace emulation
