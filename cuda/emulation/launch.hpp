// Launches of kernels by name, with typed arguments.
#pragma once

#include "checked.hpp"

#include <map>
#include <utility>

#include <sys/prctl.h>

namespace emulation {

// An argument in the caller's format; the loader in the tests has the same layout.
struct Argument {
    enum Kind : uint32_t { POINTER, U32, F32, TABLE, F64 };
    Kind kind;
    uint32_t element;  // bytes of an element behind a pointer
    uint64_t value;    // address, bits of the number, or address of the entries of a table
    uint64_t count;    // elements behind a pointer, entries of a table
};

// Shared memory of one block. It is initialised with NaN in every type, so that reads of unwritten
// memory show.
struct Shared {
    std::vector<uint64_t> bytes;
    Region region;

    Shared(size_t size, size_t grain)
        : bytes((size + 15) / 16 * 2 + 1, ~uint64_t(0)),
          region("shared memory", (char*)((uintptr_t(bytes.data()) + 15) & ~uintptr_t(15)), size, grain) {}
};

// The memory regions of one launch.
struct Memory {
    std::map<uint64_t, std::unique_ptr<Region>> tensors;
    std::map<const void*, std::unique_ptr<Shared>> shared;
    size_t dynamic = 0, in_use = 0;

    // Two arguments may refer to the same tensor; its region extends to the end of the longer one.
    void add(const Argument& a, const std::string& name) {
        if (a.kind == Argument::TABLE)
            for (uint64_t i = 0; i < a.count; ++i)
                add(((const Argument*)a.value)[i], name + "[" + std::to_string(i) + "]");
        if (a.kind != Argument::POINTER || !a.value) return;
        auto& region = tensors[a.value];
        bool again = bool(region);
        if (!region || region->bytes < a.count * a.element)
            region.reset(new Region(name, (char*)a.value, a.count * a.element, a.element));
        region->restricted = again;
    }

    void next_block() {
        shared.clear();
        in_use = 0;
    }

    Region* shared_at(const void* tag, size_t size, size_t grain) {
        auto& part = shared[tag];
        if (!part) {
            in_use += size;
            // of a block: what every GPU has, and what a launch may ask for; src/emulation/compile.rs gives both
            size_t most = dynamic > SHARED_BYTES ? MOST_SHARED_BYTES : SHARED_BYTES;
            if (in_use > most) fail("%zu bytes of shared memory, a block has %zu", in_use, most);
            part.reset(new Shared(size, grain));
        }
        return &part->region;
    }
};

inline Memory*& memory() {
    static thread_local Memory* it = nullptr;
    return it;
}

template <class T>
Checked<T> shared(const void* tag, size_t count) {
    Region* region = memory()->shared_at(tag, count * sizeof(T), sizeof(T));
    return Checked<T>(region, region->base);
}

template <class T>
Checked<T> dynamic_part(uint32_t offset, uint32_t count) {
    if (offset + count * sizeof(T) > memory()->dynamic)
        fail("bytes %u to %zu of dynamic shared memory, launched with %zu", offset, offset + count * sizeof(T), memory()->dynamic);
    if (offset % sizeof(T)) fail("dynamic shared memory at byte %u is not aligned", offset);
    Region* region = memory()->shared_at(&memory()->dynamic, memory()->dynamic, 2);
    return Checked<T>(region, region->base + offset);
}

// Converts an argument to a parameter of the kernel, which `described` returns without a value.
template <class P>
struct Unpack;

template <>
struct Unpack<uint32_t> {
    static Argument described() { return {Argument::U32, 0, 0, 0}; }
    static uint32_t from(const Argument& a, uint32_t index) {
        if (a.kind != Argument::U32) fail("argument %u is not the u32 that the kernel takes", index);
        return uint32_t(a.value);
    }
};

template <>
struct Unpack<float> {
    static Argument described() { return {Argument::F32, 0, 0, 0}; }
    static float from(const Argument& a, uint32_t index) {
        if (a.kind != Argument::F32) fail("argument %u is not the f32 that the kernel takes", index);
        uint32_t bits = uint32_t(a.value);
        float x;
        memcpy(&x, &bits, 4);
        return x;
    }
};

template <>
struct Unpack<double> {
    static Argument described() { return {Argument::F64, 0, 0, 0}; }
    static double from(const Argument& a, uint32_t index) {
        if (a.kind != Argument::F64) fail("argument %u is not the f64 that the kernel takes", index);
        double x;
        memcpy(&x, &a.value, 8);
        return x;
    }
};

template <class T>
struct Unpack<Checked<T>> {
    static Argument described() { return {Argument::POINTER, sizeof(T), 0, 0}; }
    static Checked<T> from(const Argument& a, uint32_t index) {
        if (a.kind != Argument::POINTER) fail("argument %u is not the pointer that the kernel takes", index);
        if (!a.value) return nullptr;
        if (a.element != sizeof(T)) fail("argument %u has elements of %u bytes, the kernel's have %zu", index, a.element, sizeof(T));
        return Checked<T>(memory()->tensors[a.value].get(), (char*)a.value);
    }
};

template <class T, int N>
struct Unpack<Table<T, N>> {
    static Argument described() { return {Argument::TABLE, sizeof(T), 0, N}; }
    static Table<T, N> from(const Argument& a, uint32_t index) {
        if (a.kind != Argument::TABLE) fail("argument %u is not the table that the kernel takes", index);
        if (a.count != N) fail("argument %u has %zu entries, the kernel's table %d", index, size_t(a.count), N);
        Table<T, N> table;
        for (int i = 0; i < N; ++i) table.at[i] = Unpack<Checked<T>>::from(((const Argument*)a.value)[i], index);
        return table;
    }
};

using Run = void (*)(const Argument*, size_t, const Place&, uint32_t);
using Parameters = std::vector<Argument> (*)();

template <auto F>
struct Entry;

template <class... P, void (*F)(P...)>
struct Entry<F> {
    static void run(const Argument* arguments, size_t count, const Place& place, uint32_t threads) {
        run_with(arguments, count, place, threads, std::index_sequence_for<P...>());
    }
    static std::vector<Argument> parameters() { return {Unpack<P>::described()...}; }
    template <size_t... I>
    static void run_with(const Argument* a, size_t count, const Place& place, uint32_t threads, std::index_sequence<I...>) {
        Scheduler& s = scheduler();
        s.kernel = [=] {
            if (count != sizeof...(P)) fail("%zu arguments, the kernel takes %zu", count, sizeof...(P));
            F(Unpack<P>::from(a[I], I)...);
        };
        s.run_block(threads, place);
    }
};

struct Kernel {
    uint32_t most;
    Run run;
    Parameters parameters;
};

inline std::map<std::string, Kernel>& kernels() {
    static std::map<std::string, Kernel> all;
    return all;
}

struct Registered {
    template <class E>
    Registered(const char* name, uint32_t most, E) {
        kernels()[name] = {most, E::run, E::parameters};
    }
};

}  // namespace emulation

// Writes the kinds of a kernel's parameters, at most `room`, and returns their number; -1 if there is no such kernel.
extern "C" inline __attribute__((used, visibility("default"))) int emulation_parameters(
    const char* name, emulation::Argument* parameters, size_t room) {
    auto found = emulation::kernels().find(name);
    if (found == emulation::kernels().end()) return -1;
    std::vector<emulation::Argument> all = found->second.parameters();
    for (size_t i = 0; i < all.size() && i < room; ++i) parameters[i] = all[i];
    return int(all.size());
}

// Runs a kernel, or only its last `ends` blocks along x if that is not zero. Returns true on success; otherwise
// `message` describes the error.
extern "C" inline __attribute__((used, visibility("default"))) bool emulation_launch(
    const char* name, const uint32_t blocks[3], uint32_t threads, uint32_t dynamic, uint32_t ends,
    const emulation::Argument* arguments, size_t count, char* message, size_t room) {
    using namespace emulation;
    Scheduler& s = scheduler();
    s.failed = false;
    s.message[0] = 0;
    auto found = kernels().find(name);
    auto refuse = [&](const char* why) {
        snprintf(message, room, "%s: %s", name, why);
        return false;
    };
    if (found == kernels().end()) return refuse("no such kernel");
    if (threads == 0 || threads % 32 || threads > found->second.most)
        return refuse("the number of threads is no multiple of 32 or above the kernel's bound");
    if (blocks[0] == 0 || blocks[1] == 0 || blocks[2] == 0 || blocks[1] > 65535 || blocks[2] > 65535)
        return refuse("no blocks, or more than 65535 along y or z");
    Memory memory_of_launch;
    memory_of_launch.dynamic = dynamic;
    for (size_t i = 0; i < count; ++i) memory_of_launch.add(arguments[i], "argument " + std::to_string(i));
    memory() = &memory_of_launch;
    Place place;
    place.threads = {threads, 1, 1};
    place.blocks = {blocks[0], blocks[1], blocks[2]};
    // Pages of two megabytes would be filled with zeros for each number in the middle of a large tensor.
    if (ends > 0) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    uint32_t first = ends > 0 && blocks[0] > ends ? blocks[0] - ends : 0;
    for (uint32_t z = 0; z < blocks[2] && !s.failed; ++z)
        for (uint32_t y = 0; y < blocks[1] && !s.failed; ++y)
            for (uint32_t x = first; x < blocks[0] && !s.failed; ++x) {
                memory_of_launch.next_block();
                place.block = {x, y, z};
                place.block_index = x + blocks[0] * (y + blocks[1] * z);
                found->second.run(arguments, count, place, threads);
            }
    memory() = nullptr;
    if (s.failed) {
        s.fibers.clear();  // they stand where they failed
        return refuse(s.message);
    }
    return true;
}
