// Causal convolution of every channel with its own long kernel by Fourier transforms (fft.cuh); few taps: long_conv.cu.
//
// Bound by arithmetic and shared memory: a level takes 3 instructions a coefficient forward and 4 back, so a sequence
// of L = M takes 7 log2 M, and some 30 to load, exchange, multiply and store, and nothing that grows with L. A block
// transforms `each` sequences of its channels one after the other. Spectra of kernels are computed by a launch before,
// in the order in which threads read them. Up to M = 1,024 a block has 8 channels or more, and reads whole sectors of
// 32 bytes in f32; of longer rows neighbouring blocks share sectors, which the cache holds between them.
//
// Above M = 4,096, the first levels are a launch of their own, `split`, with up to 16 coefficients per thread. The
// nodes that they end at are independent of each other: each is a sequence of 2 x 4,096 numbers, of two channels, in
// scratch memory, and is transformed like the others but for its turn. `merge` undoes the first levels.
//
// The gradient of u is the convolution with time mirrored. For the gradient of the kernel, products of the gradient of
// y with conjugates of u are summed over `each` sequences before they are transformed back.
#include "fft.cuh"

constexpr int MOVERS = LONG_CONV_FFT_MOVERS;  // threads of a block that splits or merges
constexpr uint32_t LOG_MOST = 12, MOST = 1 << LOG_MOST;  // coefficients of a node
constexpr uint32_t PAIR = 2;                  // channels of a block with so many

// Numbers of one channel whose times are equally far apart, one after the other.
template <class T>
struct Track {
    Ptr<T> next;
    uint64_t apart;
    uint32_t count;  // of them that are in the sequence

    // Number `i`, or zero outside the sequence. A pointer that moves keeps fewer registers than offsets, which the
    // compiler would hold from where a row is read to where it is written.
    DEVICE float read(uint32_t i) {
        float value = 0.0f;
        if (i < count) value = to_float(next[0]);
        next += apart;
        return value;
    }
    DEVICE void write(uint32_t i, float value) {
        if (i < count) next[0] = from_float<T>(value);
        next += apart;
    }
};

// The order of numbers in a tensor: (sequences, len, width), or (sequences, width, taps) if there are taps, of which
// `len` count. Mirrored, the last time comes first.
struct Rows {
    uint32_t len, width, taps;
    bool mirrored;

    DEVICE uint64_t step() const { return taps > 0 ? 1 : width; }
    // What lies between times that are 2^log_stride apart.
    DEVICE uint64_t apart(uint32_t log_stride) const {
        uint64_t size = step() << log_stride;
        return mirrored ? 0 - size : size;
    }
    // From time `start` on, 2^log_stride apart.
    template <class T>
    DEVICE Track<T> track(Ptr<T> x, uint64_t index, uint32_t channel, uint32_t start, uint32_t log_stride,
                          uint64_t apart) const {
        uint32_t count = start < len && channel < width ? ((len - 1 - start) >> log_stride) + 1 : 0;
        uint64_t time = mirrored ? uint64_t(len - 1) - start : start;
        uint64_t first = taps > 0 ? (index * width + channel) * taps : index * len * width + channel;
        return {x + (first + time * step()), apart, count};
    }
};

// A block's spectrum, one of gridDim.x: of a group of channels, or of a node below one.
struct Spectrum {
    uint32_t nodes;

    // In which both kinds are found: sequence `batch` of the tensor, or the node's own.
    DEVICE uint64_t index(uint32_t batch) const {
        return nodes == 1 ? uint64_t(batch) : uint64_t(batch) * gridDim.x + blockIdx.x;
    }
    DEVICE uint32_t group() const { return nodes == 1 ? blockIdx.x : 0; }
    // z^M = i above all nodes.
    DEVICE float turn() const { return (0.25f + float(blockIdx.x % nodes)) / float(nodes); }
    // The place of part `part` of a thread's number `i`.
    DEVICE uint64_t place(int i, int part) const {
        return (uint64_t(blockIdx.x) * EACH * 2 + i * 2 + part) * THREADS + threadIdx.x;
    }
};

// A block's transform, and the order of what it reads or writes.
struct Block {
    Transform transform;
    Rows rows;
    // The distance of a thread's numbers, and the length of a sequence. They are read from shared memory for each
    // track: of values that it knows to stay the same, the compiler would hold all multiples in registers, or spill
    // them.
    Ptr<uint64_t> order;

    DEVICE Block(Transform transform, Rows rows, Ptr<uint64_t> order) : transform(transform), rows(rows), order(order) {
        if (threadIdx.x == 0) {
            order[0] = rows.apart(log_stride());
            order[1] = rows.len;
        }
        __syncthreads();
    }

    DEVICE uint32_t log_stride() const { return 4 + transform.levels; }

    template <class T>
    DEVICE Track<T> track(Ptr<T> x, uint64_t index, uint32_t group, uint32_t later) const {
        uint64_t apart = order[0], len = order[1];
        uint32_t channel = group * transform.channels() + transform.channel();
        Rows same = {uint32_t(len), rows.width, rows.taps, rows.mirrored};
        return same.track(x, index, channel, transform.index(0) + later, log_stride(), apart);
    }

    template <class T>
    DEVICE void load(Complex (&z)[EACH], Ptr<const T> x, uint64_t index, uint32_t group) const {
        auto real = track(x, index, group, 0);
#pragma unroll
        for (int i = 0; i < EACH; ++i) z[i] = Complex::of(real.read(i));
        if (rows.len <= transform.size()) return;
        auto imaginary = track(x, index, group, transform.size());
#pragma unroll
        for (int i = 0; i < EACH; ++i) z[i].im = imaginary.read(i);
    }

    template <class T>
    DEVICE void store(const Complex (&z)[EACH], Ptr<T> y, uint64_t index, uint32_t group) const {
        auto real = track(y, index, group, 0);
#pragma unroll
        for (int i = 0; i < EACH; ++i) real.write(i, z[i].re);
        if (rows.len <= transform.size()) return;
        auto imaginary = track(y, index, group, transform.size());
#pragma unroll
        for (int i = 0; i < EACH; ++i) imaginary.write(i, z[i].im);
    }
};

#define BLOCK(name, rows, levels, turn)            \
    SHARED(float, room, SHARED_NUMBERS);           \
    SHARED(Complex, roots, SHARED_FACTORS);        \
    SHARED(uint64_t, order, 2);                    \
    Block name(Transform(room, roots, levels, turn), rows, order)

// spectra: (spectra, 16, 2, 512), divided by the M of all nodes together.
KERNEL_FITTING(long_conv_fft_spectrum_f32, THREADS, 2, Global<const float> kernel, Global<float> spectra, uint32_t len,
               uint32_t width, uint32_t taps, uint32_t levels, uint32_t nodes) {
    Spectrum spectrum = {nodes};
    Rows rows = {len, width, taps, false};
    BLOCK(block, rows, levels, spectrum.turn());
    const Transform& transform = block.transform;
    Complex z[EACH];
    block.load(z, Ptr<const float>(kernel), spectrum.index(0), spectrum.group());
    transform.forward(z);
    float scale = 1.0f / float(transform.size() * nodes);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        spectra[spectrum.place(i, 0)] = z[i].re * scale;
        spectra[spectrum.place(i, 1)] = z[i].im * scale;
    }
}

// y of the shape of x, which may be the same memory.
template <class T>
DEVICE void convolve(Ptr<const T> x, Ptr<const float> spectra, Ptr<T> y, uint32_t batch, uint32_t len, uint32_t width,
                     uint32_t levels, uint32_t nodes, uint32_t each, bool mirrored) {
    Spectrum spectrum = {nodes};
    Rows rows = {len, width, 0, mirrored};
    BLOCK(block, rows, levels, spectrum.turn());
    uint32_t first = blockIdx.y * each, last = min(first + each, batch);
    for (uint32_t b = first; b < last; ++b) {
        Complex z[EACH];
        block.load(z, x, spectrum.index(b), spectrum.group());
        block.transform.forward(z);
#pragma unroll
        for (int i = 0; i < EACH; ++i) z[i] = z[i] * Complex::load(spectra, spectrum.place(i, 0), THREADS);
        block.transform.inverse(z);
        block.store(z, y, spectrum.index(b), spectrum.group());
    }
}

// parts: (pieces, width, taps), sums over `each` sequences. Nodes have no taps: (pieces, spectra, 2 x 4,096, 2).
template <class T>
DEVICE void correlate(Ptr<const T> u, Ptr<const T> gy, Ptr<float> parts, uint32_t batch, uint32_t len, uint32_t width,
                      uint32_t taps, uint32_t levels, uint32_t nodes, uint32_t each) {
    Spectrum spectrum = {nodes};
    Rows rows = {len, width, 0, false};
    BLOCK(block, rows, levels, spectrum.turn());
    const Transform& transform = block.transform;
    Complex sums[EACH] = {};
    uint32_t first = blockIdx.y * each, last = min(first + each, batch);
    for (uint32_t b = first; b < last; ++b) {
        Complex of_u[EACH], of_gy[EACH];
        block.load(of_u, u, spectrum.index(b), spectrum.group());
        transform.forward(of_u);
        block.load(of_gy, gy, spectrum.index(b), spectrum.group());
        transform.forward(of_gy);
#pragma unroll
        for (int i = 0; i < EACH; ++i) sums[i] = sums[i] + of_gy[i] * of_u[i].conjugate();
    }
    transform.inverse(sums);
    // Taps beyond the sequence have no effect.
    float scale = 1.0f / float(transform.size() * nodes);
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        uint32_t at = transform.index(i);
        sums[i].re = at < len ? sums[i].re * scale : 0.0f;
        sums[i].im = at + transform.size() < len ? sums[i].im * scale : 0.0f;
    }
    Rows to = {taps > 0 ? taps : len, width, taps, false};
    __syncthreads();
    Block(transform, to, block.order).store(sums, parts, spectrum.index(blockIdx.y), spectrum.group());
}

// A thread of `split` or `merge`: coefficient `n` of every node, for one channel of one sequence.
struct Mover {
    uint64_t index;
    uint32_t n, channel, pairs;

    DEVICE Mover(uint32_t width) : pairs((width + PAIR - 1) / PAIR) {
        uint64_t i = uint64_t(blockIdx.x) * MOVERS + threadIdx.x;
        channel = i % (pairs * PAIR);
        i /= pairs * PAIR;
        n = i % MOST;
        index = i / MOST;
    }
    // Its real part in parts (sequences, pairs, nodes, 2, 4,096, 2); the imaginary part is MOST x PAIR further.
    DEVICE uint64_t place(uint32_t node, uint32_t nodes) const {
        return (((index * pairs + channel / PAIR) * nodes + node) * 2 * MOST + n) * PAIR + channel % PAIR;
    }
};

// A factor of the first levels.
DEVICE Complex first_factor(int i) {
    Complex root;
    sincospif(half_turns(0.25f, i), &root.im, &root.re);
    return root;
}

// The number of a node with turn (1/4 + number) / nodes, from its place among the coefficients.
template <int LEVELS>
DEVICE constexpr uint32_t node_at(int place) { return reversed(uint32_t(place)) >> (4 - LEVELS); }

template <class T, int LEVELS>
DEVICE void split(const Mover& mover, Ptr<const T> x, Ptr<float> parts, const Rows& rows) {
    constexpr int NODES = 1 << LEVELS;
    Complex z[EACH];
    auto real = rows.track(x, mover.index, mover.channel, mover.n, LOG_MOST, rows.apart(LOG_MOST));
    auto imaginary = rows.track(x, mover.index, mover.channel, mover.n + NODES * MOST, LOG_MOST, rows.apart(LOG_MOST));
#pragma unroll
    for (int i = 0; i < NODES; ++i) z[i] = {real.read(i), imaginary.read(i)};
    pass<LEVELS, false>(z, 0, first_factor);
#pragma unroll
    for (int i = 0; i < NODES; ++i) z[i].store(parts, mover.place(node_at<LEVELS>(i), NODES), MOST * PAIR);
}

template <class T, int LEVELS>
DEVICE void merge(const Mover& mover, Ptr<const float> parts, Ptr<T> y, const Rows& rows, uint32_t reach) {
    constexpr int NODES = 1 << LEVELS;
    Complex z[EACH];
#pragma unroll
    for (int i = 0; i < NODES; ++i)
        z[i] = Complex::load(parts, mover.place(node_at<LEVELS>(i), NODES), MOST * PAIR);
    pass<LEVELS, true>(z, 0, first_factor);
    auto real = rows.track(y, mover.index, mover.channel, mover.n, LOG_MOST, rows.apart(LOG_MOST));
    auto imaginary = rows.track(y, mover.index, mover.channel, mover.n + NODES * MOST, LOG_MOST, rows.apart(LOG_MOST));
#pragma unroll
    for (int i = 0; i < NODES; ++i) {
        uint32_t time = mover.n + i * MOST;
        real.write(i, time < reach ? z[i].re : 0.0f);
        imaginary.write(i, time + NODES * MOST < reach ? z[i].im : 0.0f);
    }
}

template <class T>
DEVICE void split_levels(Ptr<const T> x, Ptr<float> parts, uint32_t batch, const Rows& rows, uint32_t levels) {
    Mover mover(rows.width);
    if (mover.index >= batch) return;
    if (levels == 1) split<T, 1>(mover, x, parts, rows);
    if (levels == 2) split<T, 2>(mover, x, parts, rows);
    if (levels == 3) split<T, 3>(mover, x, parts, rows);
    if (levels == 4) split<T, 4>(mover, x, parts, rows);
}

template <class T>
DEVICE void merge_levels(Ptr<const float> parts, Ptr<T> y, uint32_t batch, const Rows& rows, uint32_t levels,
                         uint32_t reach) {
    Mover mover(rows.width);
    if (mover.index >= batch) return;
    if (levels == 1) merge<T, 1>(mover, parts, y, rows, reach);
    if (levels == 2) merge<T, 2>(mover, parts, y, rows, reach);
    if (levels == 3) merge<T, 3>(mover, parts, y, rows, reach);
    if (levels == 4) merge<T, 4>(mover, parts, y, rows, reach);
}

#define LONG_CONV_FFT(io, T)                                                                                       \
    KERNEL_FITTING(long_conv_fft_##io, THREADS, 2, Global<const T> x, Global<const float> spectra, Global<T> y,    \
                   uint32_t batch, uint32_t len, uint32_t width, uint32_t levels, uint32_t each,                   \
                   uint32_t mirrored) {                                                                            \
        convolve<T>(x, spectra, y, batch, len, width, levels, 1, each, mirrored != 0);                             \
    }                                                                                                              \
    KERNEL(long_conv_fft_kernel_##io, THREADS, Global<const T> u, Global<const T> gy, Global<float> parts,         \
           uint32_t batch, uint32_t len, uint32_t width, uint32_t taps, uint32_t levels, uint32_t nodes,           \
           uint32_t each) {                                                                                        \
        correlate<T>(u, gy, parts, batch, len, width, taps, levels, nodes, each);                                  \
    }                                                                                                              \
    KERNEL(long_conv_fft_split_##io, MOVERS, Global<const T> x, Global<float> parts, uint32_t batch, uint32_t len, \
           uint32_t width, uint32_t taps, uint32_t levels, uint32_t mirrored) {                                    \
        split_levels<T>(x, parts, batch, {len, width, taps, mirrored != 0}, levels);                           \
    }                                                                                                              \
    KERNEL(long_conv_fft_merge_##io, MOVERS, Global<const float> parts, Global<T> y, uint32_t batch, uint32_t len, \
           uint32_t width, uint32_t taps, uint32_t levels, uint32_t mirrored, uint32_t reach) {                    \
        merge_levels<T>(parts, y, batch, {len, width, taps, mirrored != 0}, levels, reach);                    \
    }

LONG_CONV_FFT(f32, float)
LONG_CONV_FFT(bf16, bf16)

// The convolutions of nodes, in place.
KERNEL_FITTING(long_conv_fft_nodes_f32, THREADS, 2, Global<const float> spectra, Global<float> parts, uint32_t batch,
               uint32_t len, uint32_t width, uint32_t levels, uint32_t nodes, uint32_t each) {
    convolve<float>(Ptr<float>(parts), spectra, parts, batch, len, width, levels, nodes, each, false);
}
