// Matrix product with a fused prologue on each operand's elements and a fused epilogue on the result:
//
//     epilogue(sum over k of f_a(a[row, k]) * f_b(b[k, column]))        for each batch index
//
// Operands may be float, double, bfloat16 or float16 with any strides (a transposed operand is just other strides); sums are
// float (double for double). The epilogue gets the complete sum and stores what it likes:
//
//     epilogue(kw::vec<float, W> sum, int64_t row, int64_t column, int lanes)            // or (…, int64_t batch)
//
// for `lanes` consecutive columns from `column`; lanes beyond that are garbage. Prologues: float operator()(float value,
// int64_t row, int64_t column[, int64_t batch]) on the operand's own rows and columns, or kw::as_stored; they may be
// evaluated several times for one element, and on vectors of consecutive columns if `static constexpr bool takes_lanes = true`.
// With fixed threads and schedule the result is the same on every call.
//
//     // out[m, n] = gelu(x[m, k] @ w[n, k]^T + bias[n])
//     typedef kw::matmul_schedule<float> S;
//     kw::matmul<S>(threads, {1, m, n, k}, kw::operand<float>{x, k, 1, 0}, kw::operand<float>{w, 1, k, 0},
//                   kw::as_stored(), kw::as_stored(),
//                   [=](kw::vec<float, S::W> v, int64_t row, int64_t column, int lanes) {
//                       v = kw::gelu_erf(v + kw::load_partial<S::W>(bias + column, lanes));
//                       kw::store_partial(out + row * n + column, v, lanes);
//                   }, workspace);                  // of kw::matmul_workspace_bytes<S>(threads, {1, m, n, k}) bytes
#ifndef KW_MATMUL_H
#define KW_MATMUL_H
#include "kw_parallel.h"
#include "kw_tile.h"

namespace kw {

// An epilogue with a second function, p(row, column, batch), that asks for the memory which the first one will read or write
// there (by kw::prefetch); it is called for each vector of a tile well before.
template <class E, class P> struct epilogue_with_prefetch {
    typedef void prefetches;
    E epilogue;
    P ask;
    template <class V> KW_INLINE void operator()(V v, int64_t row, int64_t column, int lanes, int64_t batch) {
        if constexpr (detail::takes<E, V, int64_t, int64_t, int, int64_t>(0)) epilogue(v, row, column, lanes, batch);
        else epilogue(v, row, column, lanes);
    }
    KW_INLINE void prefetch(int64_t row, int64_t column, int64_t batch) const { ask(row, column, batch); }
};
template <class E, class P> inline epilogue_with_prefetch<E, P> with_prefetch(E epilogue, P ask) { return {epilogue, ask}; }

struct matmul_shape {
    int64_t batch, rows, columns, depth;
};

// How the work is cut. Register tile: tile_rows x (tile_vectors * W). depth_block: how much of k is packed at a time; the
// packed panel of b, depth_block x tile columns, should fit the first-level cache. row_block: rows of a packed at a time, in
// the second-level cache. column_block: columns for which they are used before they are packed again. unroll: steps of k in
// one loop iteration. streaming: products of at most eight rows (1), columns (2) or either (3) read the large operand once,
// without packing; 0: never, which compiles in a third of the time.
template <class T = float, int tile_rows_ = register_count == 32 ? (register_bytes == 64 ? 14 : 8) : 6,
          int tile_vectors_ = register_count == 32 && register_bytes == 16 ? 3 : 2, int depth_block_ = 384, int row_block_ = 504,
          int column_block_ = 2048, int unroll_ = 2, int streaming_ = 3>
struct matmul_schedule {
    typedef T type;
    static constexpr int W = native_lanes<T>;
    static constexpr int tile_rows = tile_rows_, tile_vectors = tile_vectors_, depth_block = depth_block_, unroll = unroll_;
    static constexpr int tile_columns = tile_vectors * W;
    static constexpr int row_block = row_block_, column_block = column_block_;
    static constexpr int streaming = streaming_;
    // Padded so that the rows of a tile do not share one set of the first-level cache.
    static constexpr int left_stride = depth_block + 64 / int(sizeof(T));
    static constexpr int64_t tile_size = int64_t(tile_rows) * tile_columns;
    static constexpr int64_t right_size = int64_t(depth_block) * tile_columns;
};

namespace detail {

KW_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
KW_INLINE int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }
KW_INLINE int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }

template <class V, class E> KW_INLINE void finish(E& epilogue, V v, int64_t row, int64_t column, int lanes_valid, int64_t batch) {
    if constexpr (takes<E, V, int64_t, int64_t, int, int64_t>(0)) epilogue(v, row, column, lanes_valid, batch);
    else epilogue(v, row, column, lanes_valid);
}

// The grid of blocks that threads share: `row_parts` x `column_parts` for each batch index, times `depth_parts` slices of k
// where there would be too few blocks otherwise. Sizes are in register tiles, depth in elements.
struct matmul_grid {
    int64_t row_tiles, column_tiles, row_parts, column_parts, depth_parts, rows_each, columns_each, depth_each;
};

template <class S> inline matmul_grid plan_matmul(int threads, const matmul_shape& shape) {
    matmul_grid g;
    g.row_tiles = larger_of(1, ceil_div(shape.rows, S::tile_rows));
    g.column_tiles = larger_of(1, ceil_div(shape.columns, S::tile_columns));
    g.row_parts = ceil_div(g.row_tiles, larger_of(1, S::row_block / S::tile_rows));
    g.column_parts = ceil_div(g.column_tiles, larger_of(1, S::column_block / S::tile_columns));
    for (;;) {
        int64_t blocks = shape.batch * g.row_parts * g.column_parts, turns = ceil_div(blocks, threads);
        if (blocks >= 8 * threads || blocks * 10 >= turns * threads * 9) break;
        int64_t tall = g.row_tiles / g.row_parts * S::tile_rows, wide = g.column_tiles / g.column_parts * S::tile_columns;
        if (wide >= tall && g.column_parts < g.column_tiles) ++g.column_parts;
        else if (g.row_parts < g.row_tiles) ++g.row_parts;
        else if (g.column_parts < g.column_tiles) ++g.column_parts;
        else break;
    }
    g.rows_each = ceil_div(g.row_tiles, g.row_parts);
    g.columns_each = ceil_div(g.column_tiles, g.column_parts);
    g.row_parts = ceil_div(g.row_tiles, g.rows_each);
    g.column_parts = ceil_div(g.column_tiles, g.columns_each);
    int64_t blocks = shape.batch * g.row_parts * g.column_parts, depth_blocks = larger_of(1, ceil_div(shape.depth, S::depth_block));
    g.depth_parts = blocks >= threads ? 1 : larger_of(1, smaller_of(ceil_div(threads, larger_of(1, blocks)), depth_blocks / 2));
    g.depth_each = ceil_div(depth_blocks, g.depth_parts) * S::depth_block;
    g.depth_parts = larger_of(1, ceil_div(shape.depth, g.depth_each));
    return g;
}

// Elements of scratch for one thread: packed a, one packed panel of b, and the partial sums of one block.
template <class S> inline int64_t thread_scratch(const matmul_grid& g, const matmul_shape& shape) {
    int64_t left = g.rows_each * S::tile_rows * S::left_stride;
    int64_t sums = shape.depth > S::depth_block ? g.rows_each * g.columns_each * S::tile_size : S::tile_size;
    return ceil_div(left + S::right_size + sums, 64) * 64 + 64;
}

// Results smaller than this are read by whole rows or columns of the large operand.
constexpr int64_t few_lines = 8;

template <class E> constexpr bool prefetches(typename E::prefetches*) { return true; }
template <class E> constexpr bool prefetches(...) { return false; }

// Asks for what the epilogue of a tile will touch, before the tile's product: rows are too far apart for the hardware to guess.
template <class S, class E>
KW_INLINE void prefetch_tile(const E& epilogue, int64_t row, int64_t column, const matmul_shape& shape, int64_t batch) {
    int64_t row_end = smaller_of(shape.rows - row, S::tile_rows);
    for (int64_t i = 0; i < row_end; ++i)
        for (int j = 0; j < S::tile_vectors && column + j * S::W < shape.columns; ++j)
            epilogue.prefetch(row + i, column + j * S::W, batch);
}

template <class S, class E>
__attribute__((noinline)) void finish_tile(E& epilogue, const typename S::type* sums, int64_t row, int64_t column, const matmul_shape& shape, int64_t batch) {
    constexpr int W = S::W;
    int64_t row_end = smaller_of(shape.rows - row, S::tile_rows);
    if (column + S::tile_columns <= shape.columns) {
        for (int64_t i = 0; i < row_end; ++i)
            for (int j = 0; j < S::tile_vectors; ++j)
                finish(epilogue, load<W>(sums + (i * S::tile_vectors + j) * W), row + i, column + j * W, W, batch);
        return;
    }
    for (int64_t i = 0; i < row_end; ++i)
        for (int j = 0; j < S::tile_vectors; ++j) {
            int64_t left = shape.columns - column - j * W;
            if (left > 0) finish(epilogue, load<W>(sums + (i * S::tile_vectors + j) * W), row + i, column + j * W, int(smaller_of(left, W)), batch);
        }
}

template <class S, class A, class B, class FA, class FB, class E>
inline void matmul_blocked(int threads, const matmul_shape& shape, const operand<A>& a, const operand<B>& b, FA f_a, FB f_b, E epilogue,
                           void* workspace) {
    typedef typename S::type T;
    const matmul_grid g = plan_matmul<S>(threads, shape);
    const int64_t scratch = thread_scratch<S>(g, shape);
    T* const base = (T*)workspace;
    T* const slices = base + scratch * threads;
    const int64_t slice = g.row_tiles * g.column_tiles * S::tile_size;
    parallel_blocks(threads, shape.batch * g.row_parts * g.column_parts * g.depth_parts, [&](int64_t block, int thread) {
        int64_t part = block % g.depth_parts, rest = block / g.depth_parts;
        int64_t row_part = rest % g.row_parts, column_part = rest / g.row_parts % g.column_parts;
        int64_t batch = rest / (g.row_parts * g.column_parts);
        int64_t row_tile = row_part * g.rows_each, row_tiles = smaller_of(g.rows_each, g.row_tiles - row_tile);
        int64_t column_tile = column_part * g.columns_each, column_tiles = smaller_of(g.columns_each, g.column_tiles - column_tile);
        int64_t depth_begin = part * g.depth_each, depth_end = smaller_of(shape.depth, depth_begin + g.depth_each);
        int64_t row = row_tile * S::tile_rows;
        T* left = base + scratch * thread;
        T* right = left + g.rows_each * S::tile_rows * S::left_stride;
        T* sums = right + S::right_size;
        const A* a_data = a.data + batch * a.batch_stride;
        const B* b_data = b.data + batch * b.batch_stride;
        bool whole = depth_end - depth_begin <= S::depth_block, sliced = g.depth_parts > 1;
        int64_t k = depth_begin;
        do {
            int64_t depth = smaller_of(S::depth_block, depth_end - k);
            bool first = k == depth_begin, last = k + depth >= depth_end;
            int64_t padded_rows = row_tiles * S::tile_rows, rows = smaller_of(padded_rows, shape.rows - row);
            copy_tile<S::W>(a_data + row * a.row_stride + k * a.column_stride, a.row_stride, a.column_stride, rows, depth, left,
                            S::left_stride, padded_rows, ceil_div(depth, S::W) * S::W, f_a, row, k, batch);
            for (int64_t j = 0; j < column_tiles; ++j) {
                int64_t column = (column_tile + j) * S::tile_columns;
                copy_tile<S::W>(b_data + k * b.row_stride + column * b.column_stride, b.row_stride, b.column_stride, depth,
                                smaller_of(S::tile_columns, shape.columns - column), right, S::tile_columns, depth, S::tile_columns,
                                f_b, k, column, batch);
                for (int64_t i = 0; i < row_tiles; ++i) {
                    T* tile = sums;
                    if (sliced)
                        tile = slices + (batch * g.depth_parts + part) * slice +
                               ((column_tile + j) * g.row_tiles + row_tile + i) * S::tile_size;
                    else if (!whole)
                        tile = sums + (j * g.rows_each + i) * S::tile_size;
                    if constexpr (prefetches<E>(nullptr)) {
                        if (last && !sliced) prefetch_tile<S>(epilogue, row + i * S::tile_rows, column, shape, batch);
                    }
                    tile_product<T, S::W, S::tile_rows, S::tile_vectors, S::left_stride, S::unroll>(
                        left + i * S::tile_rows * S::left_stride, right, depth, tile, !first);
                    if (last && !sliced) finish_tile<S>(epilogue, tile, row + i * S::tile_rows, column, shape, batch);
                }
            }
            k += S::depth_block;
        } while (k < depth_end);
    });
    if (g.depth_parts == 1) return;
    // The slices are added in their order, whichever thread made them.
    parallel_for(threads, shape.batch * g.column_tiles * g.row_tiles, [&](int64_t begin, int64_t end, int) {
        for (int64_t index = begin; index < end; ++index) {
            int64_t batch = index / (g.column_tiles * g.row_tiles), tile = index % (g.column_tiles * g.row_tiles);
            T* total = slices + batch * g.depth_parts * slice + tile * S::tile_size;
            for (int64_t part = 1; part < g.depth_parts; ++part)
                for (int64_t i = 0; i < S::tile_size; i += S::W) store(total + i, load<S::W>(total + i) + load<S::W>(total + part * slice + i));
            finish_tile<S>(epilogue, total, tile % g.row_tiles * S::tile_rows, tile / g.row_tiles * S::tile_columns, shape, batch);
        }
    });
}

template <class S> inline int64_t blocked_workspace(int threads, const matmul_shape& shape) {
    const matmul_grid g = plan_matmul<S>(threads, shape);
    int64_t slices = g.depth_parts > 1 ? shape.batch * g.depth_parts * g.row_tiles * g.column_tiles * S::tile_size : 0;
    return (thread_scratch<S>(g, shape) * threads + slices) * int64_t(sizeof(typename S::type)) + 64;
}

}  // namespace detail
}  // namespace kw

#include "kw_streamed.h"

namespace kw {

// Bytes of scratch that `matmul` needs at `workspace` (64-byte aligned).
template <class S> inline int64_t matmul_workspace_bytes(int threads, const matmul_shape& shape) {
    int64_t bytes = detail::blocked_workspace<S>(threads, shape);
    if constexpr (S::streaming != 0) bytes = detail::larger_of(bytes, detail::streamed_workspace<S>(threads, shape));
    return bytes;
}

template <class S, class A, class B, class FA, class FB, class E>
inline void matmul(int threads, const matmul_shape& shape, const operand<A>& a, const operand<B>& b, FA f_a, FB f_b, E epilogue,
                   void* workspace) {
    if (shape.batch <= 0 || shape.rows <= 0 || shape.columns <= 0) return;
    if constexpr (S::streaming != 0) {
        if (detail::matmul_streamed<S>(threads, shape, a, b, f_a, f_b, epilogue, workspace)) return;
    }
    detail::matmul_blocked<S>(threads, shape, a, b, f_a, f_b, epilogue, workspace);
}

}  // namespace kw
#endif
