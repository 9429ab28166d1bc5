// Memory with checks of bounds and of races.
#pragma once

#include "fibers.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <sys/mman.h>

namespace emulation {

// The upper half of a float, rounded to the nearest, ties to even.
struct bf16 {
    uint16_t bits;
    float wide() const {
        uint32_t wide = uint32_t(bits) << 16;
        float x;
        memcpy(&x, &wide, 4);
        return x;
    }
    static bf16 of(float x) {
        uint32_t wide;
        memcpy(&wide, &x, 4);
        if (x != x) return {uint16_t(wide >> 16 | 0x40)};
        return {uint16_t((wide + 0x7fff + (wide >> 16 & 1)) >> 16)};
    }
};

// An access: its thread and block, and the number of barriers of its block and its warp before it.
struct Access {
    uint32_t block, thread /* and 1; 0: none yet */, block_epoch, warp_epoch;

    static Access now() {
        const Place& place = here();
        return {place.block_index, place.thread.x + 1, place.block_epoch(), place.warp_epoch()};
    }
    bool happened() const { return thread != 0; }
    bool is_before(const Access& now) const {
        if (!happened()) return true;
        if (block != now.block) return false;
        if (thread == now.thread || block_epoch < now.block_epoch) return true;
        return (thread - 1) / 32 == (now.thread - 1) / 32 && warp_epoch < now.warp_epoch;
    }
};

// The last accesses to an element. Two readers suffice: of several different readers since the last
// barrier, at least one is not the thread that writes.
struct Shadow {
    Access write, read, other_read;
};

// The shadow state of a region, zero at first. For a large region the system provides only the pages that are used, so
// that tensors may be larger than the memory of the machine.
class Shadows {
public:
    explicit Shadows(size_t count) : count(count) {
        if (count < MAPPED) {
            owned.resize(count);
            all = owned.data();
            return;
        }
        void* pages = mmap(nullptr, count * sizeof(Shadow), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pages == MAP_FAILED) abort();
        all = (Shadow*)pages;
    }
    ~Shadows() {
        if (count >= MAPPED) munmap((void*)all, count * sizeof(Shadow));
    }
    Shadows(const Shadows&) = delete;
    Shadows& operator=(const Shadows&) = delete;
    Shadow& operator[](size_t i) { return all[i]; }

private:
    static constexpr size_t MAPPED = 1 << 20;
    size_t count;
    std::vector<Shadow> owned;
    Shadow* all;
};

// A memory region with shadow state for every `grain` bytes.
struct Region {
    std::string name;
    char* base;
    size_t bytes, grain;
    Shadows shadow;
    bool restricted = false;  // two arguments name it, each as if it were the only one

    Region(std::string name, char* base, size_t bytes, size_t grain)
        : name(std::move(name)), base(base), bytes(bytes), grain(grain), shadow((bytes + grain - 1) / grain) {}

    void reading(size_t at, size_t size) {
        Access now = Access::now();
        for (size_t i = at / grain; i * grain < at + size; ++i) {
            Shadow& s = shadow[i];
            if (!s.write.is_before(now)) race("reads what", s.write, at);
            if (!s.read.is_before(now)) s.other_read = s.read;
            s.read = now;
        }
    }

    void writing(size_t at, size_t size) {
        if (restricted) fail("%s is written and another argument names the same memory", name.c_str());
        Access now = Access::now();
        for (size_t i = at / grain; i * grain < at + size; ++i) {
            Shadow& s = shadow[i];
            if (!s.write.is_before(now)) race("writes what", s.write, at);
            if (!s.read.is_before(now)) race("writes what was read and what", s.read, at);
            if (!s.other_read.is_before(now)) race("writes what was read and what", s.other_read, at);
            s = Shadow{now, {}, {}};
        }
    }

    [[noreturn]] void race(const char* does, const Access& other, size_t at) {
        fail("race: thread %u of block %u %s thread %u of block %u touched in byte %zu of %s, with no barrier between",
             here().thread.x, here().block_index, does, other.thread - 1, other.block, at, name.c_str());
    }
};

template <class T>
class Checked;

// A reference to a writable element.
template <class T>
class Ref {
public:
    Ref(Region* region, T* p) : region(region), p(p) {}
    operator T() const {
        region->reading((char*)p - region->base, sizeof(T));
        return *p;
    }
    Ref& operator=(T x) {
        region->writing((char*)p - region->base, sizeof(T));
        *p = x;
        return *this;
    }
    Ref& operator=(const Ref& other) { return *this = T(other); }
    Ref& operator+=(T x) { return *this = T(*this) + x; }
    Ref& operator-=(T x) { return *this = T(*this) - x; }
    Ref& operator*=(T x) { return *this = T(*this) * x; }

private:
    Region* region;
    T* p;
};

// A pointer into a region.
template <class T>
class Checked {
    using Plain = std::remove_const_t<T>;

public:
    Checked() = default;
    Checked(std::nullptr_t) {}
    Checked(Region* region, char* p) : region(region), p((T*)p) {}
    // from T to const T
    template <class U, class = std::enable_if_t<std::is_same<const U, T>::value>>
    Checked(const Checked<U>& other) : region(other.whole()), p((T*)other.address()) {}

    template <class I>
    auto operator[](I i) const {
        T* at = p + i;
        inside(at, 1);
        if constexpr (std::is_const<T>::value) {
            region->reading((char*)at - region->base, sizeof(T));
            return Plain(*at);
        } else {
            return Ref<T>(region, at);
        }
    }
    auto operator*() const { return (*this)[0]; }

    template <class I>
    Checked operator+(I i) const { return Checked(region, (char*)(p + i)); }
    template <class I>
    Checked operator-(I i) const { return Checked(region, (char*)(p - i)); }
    template <class I>
    Checked& operator+=(I i) { p += i; return *this; }
    template <class I>
    Checked& operator-=(I i) { p -= i; return *this; }
    Checked& operator++() { ++p; return *this; }
    bool operator==(std::nullptr_t) const { return p == nullptr; }
    bool operator!=(std::nullptr_t) const { return p != nullptr; }

    void aligned(size_t count) const {
        if (uintptr_t(p) % (count * sizeof(T)))
            fail("a vector access of %s is not aligned to %zu bytes", region ? region->name.c_str() : "null", count * sizeof(T));
    }
    Region* whole() const { return region; }
    char* address() const { return (char*)p; }

private:
    void inside(T* at, size_t count) const {
        if (!region) fail("thread %u of block %u follows a null pointer", here().thread.x, here().block_index);
        if ((char*)at < region->base || (char*)(at + count) > region->base + region->bytes)
            fail("out of bounds: thread %u of block %u touches element %td of %s, which has %zu",
                 here().thread.x, here().block_index, at - (T*)region->base, region->name.c_str(), region->bytes / sizeof(T));
    }

    Region* region = nullptr;
    T* p = nullptr;
};

template <class T, int N>
struct Table {
    Checked<T> at[N];
    Checked<T> operator[](int i) const {
        if (i < 0 || i >= N) fail("out of bounds: entry %d of a table of %d", i, N);
        return at[i];
    }
};

}  // namespace emulation
