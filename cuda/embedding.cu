// Token embeddings, with position embeddings and dropout. The backward pass sums, for every row of
// the table, the gradients of its tokens, in the order of the tokens and without atomics.
//
// Forward is bound by memory bandwidth: 4 bytes read (usually from the cache) and 2 or 4 written
// per element. The gradient sorts the tokens by their row: chunks of 1024 in shared memory, then
// every token finds its rank by a binary search in every other chunk (32 of them at the paper's
// 32,768 tokens; the work grows with the square of their number, so beyond some 300,000 tokens this
// is no longer small). A warp for each row of the table then reads its segment. Segments that cross
// a multiple of 32 are cut there, so that a token as frequent as padding is spread over the GPU.
#include "mask.cuh"

// Thread i writes output elements 4 i .. 4 i + 4. `vector`: rows are multiples of four elements,
// aligned.
template <class T>
DEVICE void embed(Ptr<const uint32_t> tokens, Ptr<const float> table, Ptr<const float> positions,
                  const GivenMask& given, Ptr<T> out, uint32_t count, uint32_t len, uint32_t width,
                  uint32_t vector) {
    uint32_t block = blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t first = uint64_t(block) * 4;
    if (first >= count) return;
    Mask mask = read_mask(given);
    Four factors = {1.0f, 1.0f, 1.0f, 1.0f};
    if (mask.any) factors = mask_factors(mask, block);
    if (vector) {
        uint32_t token = uint32_t(first) / width, column = uint32_t(first) % width;
        uint32_t row = tokens[token];
        Four values = load4(table + (uint64_t(row) * width + column));
        if (positions != nullptr) {
            Four places = load4(positions + (uint64_t(token % len) * width + column));
#pragma unroll
            for (int i = 0; i < 4; ++i) values.v[i] += places.v[i];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) values.v[i] *= factors.v[i];
        store4(out + first, values);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (first + i >= count) break;
        uint32_t token = uint32_t(first + i) / width, column = uint32_t(first + i) % width;
        uint32_t row = tokens[token];
        float value = table[uint64_t(row) * width + column];
        if (positions != nullptr) value += positions[uint64_t(token % len) * width + column];
        out[first + i] = from_float<T>(value * factors.v[i]);
    }
}

#define EMBED(io, T)                                                                             \
    KERNEL(embed_##io, 256, Global<const uint32_t> tokens, Global<const float> table,            \
           Global<const float> positions, MASK, Global<T> out, uint32_t count, uint32_t len,     \
           uint32_t width, uint32_t vector) {                                                    \
        embed<T>(tokens, table, positions, GIVEN_MASK, out, count, len, width, vector);          \
    }

EMBED(f32, float)
EMBED(bf16, bf16)

// Tokens sorted together, and threads that do so; keys are token 2^10 + place in the chunk.
constexpr uint32_t CHUNK = EMBEDDING_CHUNK;
constexpr uint32_t BITS = 10;

// A bitonic network on every chunk; keys beyond the last token are the largest.
KERNEL(sort_chunks, CHUNK / 2, Global<const uint32_t> tokens, Global<uint32_t> keys, uint32_t count) {
    SHARED(uint32_t, chunk, CHUNK);
    uint32_t first = blockIdx.x * CHUNK;
    for (uint32_t i = threadIdx.x; i < CHUNK; i += CHUNK / 2) {
        uint32_t key = 0xffffffffu;
        if (first + i < count) key = uint32_t(tokens[first + i]) << BITS | i;
        chunk[i] = key;
    }
    for (uint32_t size = 2; size <= CHUNK; size *= 2) {
        for (uint32_t apart = size / 2; apart > 0; apart /= 2) {
            __syncthreads();
            uint32_t low = 2 * apart * (threadIdx.x / apart) + threadIdx.x % apart;
            uint32_t a = chunk[low], b = chunk[low + apart];
            bool ascending = (low & size) == 0;
            if ((a > b) == ascending) {
                chunk[low] = b;
                chunk[low + apart] = a;
            }
        }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < CHUNK; i += CHUNK / 2) keys[first + i] = chunk[i];
}

constexpr uint32_t MERGED = EMBEDDING_MERGED, TOGETHER = 8;

// The number of the chunk's keys that are below a bound.
DEVICE uint32_t below(Ptr<const uint32_t> chunk, uint32_t bound) {
    uint32_t found = 0;
#pragma unroll
    for (uint32_t step = CHUNK / 2; step > 0; step /= 2)
        found += chunk[found + step - 1] < bound ? step : 0;
    return found + (chunk[found] < bound ? 1 : 0);
}

// The row and the index of every token, sorted by row and then by index. Each of `chunks` is sorted
// already.
KERNEL(merge_chunks, MERGED, Global<const uint32_t> keys, Global<uint32_t> rows, Global<uint32_t> places,
       uint32_t count, uint32_t chunks) {
    SHARED(uint32_t, others, TOGETHER * CHUNK);
    uint32_t at = blockIdx.x * MERGED + threadIdx.x, own = at / CHUNK;
    uint32_t key = keys[at], row = key >> BITS, rank = at % CHUNK;
    for (uint32_t first = 0; first < chunks; first += TOGETHER) {
        uint32_t many = min(TOGETHER, chunks - first);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < many * CHUNK; i += MERGED) others[i] = keys[first * CHUNK + i];
        __syncthreads();
        for (uint32_t other = first; other < first + many; ++other) {
            // tokens of the same row come first if their chunk does
            uint32_t bound = (row + (other < own ? 1 : 0)) << BITS;
            if (other != own) rank += below(others + (other - first) * CHUNK, bound);
        }
    }
    uint32_t place = own * CHUNK + key % CHUNK;
    if (key == 0xffffffffu || place >= count) return;
    rows[rank] = row;
    places[rank] = place;
}

// Sorted tokens are cut into pieces of a warp.
constexpr uint32_t PIECE = WARP;
constexpr uint32_t WARPS = EMBEDDING_WARPS;
// Segments over more pieces than this are summed by a whole block.
constexpr uint32_t LONG = 8;

// The first index at which the sorted rows reach x; called by a whole warp, which reads 32 places
// at a time.
DEVICE uint32_t first_of(Ptr<const uint32_t> rows, uint32_t count, uint32_t x) {
    uint32_t low = 0, high = count, lane = threadIdx.x % WARP;
    while (low < high) {
        uint32_t step = (high - low + WARP - 1) / WARP, probe = low + lane * step;
        bool less = probe < high && rows[probe] < x;
        uint32_t lanes = uint32_t(warp_sum(less ? 1.0f : 0.0f));
        high = min(high, low + lanes * step);
        low = lanes == 0 ? low : low + (lanes - 1) * step + 1;
    }
    return low;
}

// C columns of a lane, 32 apart, from `tile` on.
template <int C>
struct Columns {
    float sum[C];
    uint32_t tile, width;

    DEVICE uint32_t column(int i) const { return tile + i * WARP + threadIdx.x % WARP; }

    // Lanes beyond the last column compute that column and do not store it: no branches around
    // loads.
    template <class T>
    DEVICE void add(Ptr<const T> row) {
#pragma unroll
        for (int i = 0; i < C; ++i) sum[i] += to_float(row[min(column(i), width - 1)]);
    }

    DEVICE void store(Ptr<float> row) const {
#pragma unroll
        for (int i = 0; i < C; ++i)
            if (column(i) < width) row[column(i)] = sum[i];
    }
};

template <int C>
DEVICE Columns<C> no_columns(uint32_t width) {
    Columns<C> columns;
#pragma unroll
    for (int i = 0; i < C; ++i) columns.sum[i] = 0.0f;
    columns.tile = blockIdx.y * C * WARP;
    columns.width = width;
    return columns;
}

// The gradients of sorted tokens first .. last, at most 32 of them.
template <int C, class T>
DEVICE Columns<C> add_up(Ptr<const T> grads, Ptr<const uint32_t> places, uint32_t first, uint32_t last,
                         uint32_t width) {
    Columns<C> columns = no_columns<C>(width);
    uint32_t place = 0, lane = threadIdx.x % WARP;
    if (first + lane < last) place = places[first + lane];
#pragma unroll 16 / C
    for (uint32_t i = 0; i < last - first; ++i)
        columns.template add<T>(grads + uint64_t(shuffle(place, int(i))) * width);
    return columns;
}

// Sums over the parts of cut segments within one piece: its first segment, if that is cut, then its
// last, if that is another one and goes on. A warp for each piece.
template <int C, class T>
DEVICE void add_pieces(Ptr<const T> grads, Ptr<const uint32_t> rows, Ptr<const uint32_t> places,
                       Ptr<float> parts, uint32_t count, uint32_t width) {
    uint32_t piece = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t first = piece * PIECE, last = min(first + PIECE, count);
    if (first >= count) return;
    uint32_t row = rows[min(first + lane, count - 1)];
    uint32_t head = shuffle(row, 0), tail = shuffle(row, int(last - first) - 1);
    bool begun = first > 0 && rows[first == 0 ? 0 : first - 1] == head;
    bool goes_on = last < count && rows[min(last, count - 1)] == tail;
    bool in_head = first + lane < last && row == head, in_tail = first + lane < last && row == tail;
    uint32_t heads = uint32_t(warp_sum(in_head ? 1.0f : 0.0f));
    uint32_t tails = uint32_t(warp_sum(in_tail ? 1.0f : 0.0f));
    if (begun || (head == tail && goes_on))
        add_up<C, T>(grads, places, first, first + heads, width).store(parts + uint64_t(2 * piece) * width);
    if (head != tail && goes_on)
        add_up<C, T>(grads, places, last - tails, last, width).store(parts + uint64_t(2 * piece + 1) * width);
}

// The offset of the partial sum of a segment that begins at `first`, in a piece.
DEVICE uint64_t part_of(uint32_t piece, uint32_t first) {
    return 2 * uint64_t(piece) + (piece == first / PIECE && first % PIECE != 0 ? 1 : 0);
}

// One warp per row of the table; one block per row with a long segment.
template <int C, class T>
DEVICE void add_rows(Ptr<const T> grads, Ptr<const uint32_t> rows, Ptr<const uint32_t> places,
                     Ptr<const float> parts, Ptr<float> table, uint32_t count, uint32_t table_rows,
                     uint32_t width) {
    SHARED(uint32_t, firsts, WARPS);
    SHARED(uint32_t, lasts, WARPS);
    SHARED(float, sums, WARPS * C * WARP);
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t row = blockIdx.x * WARPS + warp;
    uint32_t first = first_of(rows, count, row), last = first_of(rows, count, row + 1);
    uint32_t head = first / PIECE, tail = last > first ? (last - 1) / PIECE : head;
    if (lane == 0) {
        firsts[warp] = first;
        lasts[warp] = last;
    }
    if (row < table_rows && tail - head <= LONG) {
        Columns<C> columns = no_columns<C>(width);
        if (head == tail)
            columns = add_up<C, T>(grads, places, first, last, width);
        else
            for (uint32_t piece = head; piece <= tail; ++piece)
                columns.template add<float>(parts + part_of(piece, first) * width);
        columns.store(table + uint64_t(row) * width);
    }
    __syncthreads();
    for (uint32_t turn = 0; turn < WARPS; ++turn) {
        uint32_t first = firsts[turn], last = lasts[turn];
        uint32_t head = first / PIECE, tail = last > first ? (last - 1) / PIECE : head;
        if (tail - head <= LONG) continue;
        Columns<C> columns = no_columns<C>(width);
#pragma unroll 8 / C
        for (uint32_t piece = head + warp; piece <= tail; piece += WARPS)
            columns.template add<float>(parts + part_of(piece, first) * width);
#pragma unroll
        for (int i = 0; i < C; ++i) sums[(warp * C + i) * WARP + lane] = columns.sum[i];
        __syncthreads();
        if (warp == turn) {
            for (uint32_t other = 0; other < WARPS; ++other)
#pragma unroll
                for (int i = 0; i < C; ++i)
                    columns.sum[i] = (other == 0 ? 0.0f : columns.sum[i]) + sums[(other * C + i) * WARP + lane];
            columns.store(table + uint64_t(row) * width);
        }
        __syncthreads();
    }
}

#define GRADIENTS(C, io, T)                                                                      \
    KERNEL(add_pieces_##C##_##io, WARPS * WARP, Global<const T> grads, Global<const uint32_t> rows, \
           Global<const uint32_t> places, Global<float> parts, uint32_t count, uint32_t width) { \
        add_pieces<C, T>(grads, rows, places, parts, count, width);                              \
    }                                                                                            \
    KERNEL(add_rows_##C##_##io, WARPS * WARP, Global<const T> grads, Global<const uint32_t> rows,   \
           Global<const uint32_t> places, Global<const float> parts, Global<float> table,        \
           uint32_t count, uint32_t table_rows, uint32_t width) {                                \
        add_rows<C, T>(grads, rows, places, parts, table, count, table_rows, width);             \
    }

#define ALL_GRADIENTS(io, T) \
    GRADIENTS(2, io, T)      \
    GRADIENTS(4, io, T)      \
    GRADIENTS(8, io, T)

ALL_GRADIENTS(f32, float)
ALL_GRADIENTS(bf16, bf16)

// Copies x, followed by zeros.
KERNEL(extend, 256, Global<const float> x, Global<float> y, uint32_t count, uint32_t total) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    float value = 0.0f;
    if (i < count) value = x[i];
    y[i] = value;
}
