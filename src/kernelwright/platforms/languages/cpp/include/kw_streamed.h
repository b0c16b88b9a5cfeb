// Products that are bound by memory: few rows or few columns, so that the large operand is read once, in its own order, and
// never packed. Included through kw_matmul.h, which chooses.
#ifndef KW_STREAMED_H
#define KW_STREAMED_H
#include "kw_matmul.h"

namespace kw {
namespace detail {

// The same function, asked with row and column exchanged, one element at a time.
template <class F> struct exchanged_order {
    F f;
    template <class T> KW_INLINE T operator()(T value, int64_t row, int64_t column, int64_t batch) const {
        return element_through(f, value, column, row, batch);
    }
};
template <class F> KW_INLINE auto exchange_order(F f) {
    if constexpr (same_type<F, as_stored>) return f;
    else return exchanged_order<F>{f};
}

struct streamed_grid {
    bool adding;             // rows of the large operand are added up (axpy); otherwise they are multiplied and summed (dot)
    int64_t lines, depth;    // rows (or columns) of the small operand, and their padded length in scratch
    int64_t each, blocks;    // result positions of one block, blocks for each batch index
    int64_t parts, part_depth;
};

template <class S> inline streamed_grid plan_streamed(int threads, const matmul_shape& shape, bool adding, int64_t lines, int64_t results) {
    constexpr int64_t W = S::W;
    streamed_grid g;
    g.adding = adding;
    g.lines = lines;
    g.depth = ceil_div(larger_of(shape.depth, 1), W) * W;
    int64_t wanted = larger_of(1, ceil_div(2 * threads, shape.batch));
    int64_t most = adding ? larger_of(16 * W, 32768 / int64_t(sizeof(typename S::type)) / (lines < 2 ? 2 : lines) / W * W) : 64 * W;
    int64_t least = adding ? 16 * W : W;
    g.each = larger_of(least, smaller_of(most, ceil_div(ceil_div(results, wanted), W) * W));
    g.blocks = ceil_div(results, g.each);
    int64_t tasks = g.blocks * shape.batch;
    g.parts = tasks >= threads ? 1 : larger_of(1, smaller_of(ceil_div(threads, tasks), shape.depth / 512));
    g.part_depth = ceil_div(ceil_div(larger_of(shape.depth, 1), g.parts), 8 * W) * 8 * W;
    g.parts = larger_of(1, ceil_div(shape.depth, g.part_depth));
    return g;
}
// Elements for: the small operand, then for each slice of the depth the results (or each thread's running sums).
template <class S> inline int64_t streamed_small(const streamed_grid& g, const matmul_shape& shape) {
    return ceil_div(shape.batch * g.lines * g.depth, 64) * 64;
}
template <class S> inline int64_t streamed_bytes(int threads, const streamed_grid& g, const matmul_shape& shape) {
    int64_t sums = g.lines * g.each;
    int64_t partial = g.parts > 1 ? shape.batch * g.blocks * g.parts * sums : threads * sums;
    return (streamed_small<S>(g, shape) + partial) * int64_t(sizeof(typename S::type)) + 64;
}
template <class S> inline int64_t streamed_workspace(int threads, const matmul_shape& shape) {
    int64_t bytes = 0;
    for (int adding = 0; adding < 2; ++adding) {
        if (shape.rows <= few_lines)
            bytes = larger_of(bytes, streamed_bytes<S>(threads, plan_streamed<S>(threads, shape, adding, shape.rows, shape.columns), shape));
        if (shape.columns <= few_lines)
            bytes = larger_of(bytes, streamed_bytes<S>(threads, plan_streamed<S>(threads, shape, adding, shape.columns, shape.rows), shape));
    }
    return bytes;
}

// sums[line][position] += sum over k of small[line][k] * large[k][position], for positions [0, count); reads eight rows of
// the large operand side by side.
template <class S, class B, class F>
__attribute__((noinline)) void add_rows(const typename S::type* small, int64_t small_stride, int64_t lines, const B* large, int64_t row_stride, int64_t depth,
                     int64_t count, typename S::type* sums, int64_t sums_stride, F& f, int64_t k0, int64_t column0, int64_t batch) {
    typedef typename S::type T;
    typedef vec<T, S::W> V;
    constexpr int W = S::W, group = 8;
    int64_t k = 0;
    for (; k + group <= depth; k += group) {
        const B* from = large + k * row_stride;
        int64_t c = 0;
        for (; c + W <= count; c += W) {
            V row[group];
#pragma GCC unroll 8
            for (int u = 0; u < group; ++u)
                row[u] = lanes_through(f, load<W>(from + u * row_stride + c), k0 + k + u, column0 + c, batch, W);
            for (int64_t line = 0; line < lines; ++line) {
                const T* factor = small + line * small_stride + k;
                V even = load<W>(sums + line * sums_stride + c), odd = splat<T, W>(factor[1]) * row[1];
                even += splat<T, W>(factor[0]) * row[0];
#pragma GCC unroll 8
                for (int u = 2; u < group; u += 2) {
                    even += splat<T, W>(factor[u]) * row[u];
                    odd += splat<T, W>(factor[u + 1]) * row[u + 1];
                }
                store(sums + line * sums_stride + c, V(even + odd));
            }
        }
        if (c < count)
            for (int u = 0; u < group; ++u) {
                int left = int(count - c);
                V row = lanes_through(f, load_partial<W>(from + u * row_stride + c, left), k0 + k + u, column0 + c, batch, left);
                for (int64_t line = 0; line < lines; ++line)
                    store(sums + line * sums_stride + c,
                          V(load<W>(sums + line * sums_stride + c) + splat<T, W>(small[line * small_stride + k + u]) * row));
            }
    }
    for (; k < depth; ++k)
        for (int64_t c = 0; c < count; c += W) {
            int left = int(smaller_of(W, count - c));
            V row = lanes_through(f, load_partial<W>(large + k * row_stride + c, left), k0 + k, column0 + c, batch, left);
            for (int64_t line = 0; line < lines; ++line)
                store(sums + line * sums_stride + c,
                      V(load<W>(sums + line * sums_stride + c) + splat<T, W>(small[line * small_stride + k]) * row));
        }
}

// Dot products of `RB` rows of the large operand with `SB` lines of the small one.
template <class S, int RB, int SB, class B, class F>
__attribute__((noinline)) void dot_rows(const typename S::type* small, int64_t small_stride, const B* large, int64_t row_stride, int64_t depth,
                     typename S::type* sums, int64_t position_stride, int64_t line_stride, F& f, int64_t row0, int64_t k0, int64_t batch) {
    typedef typename S::type T;
    typedef vec<T, S::W> V;
    constexpr int W = S::W;
    V sum[RB][SB];
#pragma GCC unroll 8
    for (int r = 0; r < RB; ++r)
#pragma GCC unroll 8
        for (int s = 0; s < SB; ++s) sum[r][s] = V{};
    int64_t k = 0;
    for (; k + W <= depth; k += W) {
        V line[SB];
#pragma GCC unroll 8
        for (int s = 0; s < SB; ++s) line[s] = load<W>(small + s * small_stride + k);
#pragma GCC unroll 8
        for (int r = 0; r < RB; ++r) {
            V row = lanes_through(f, load<W>(large + r * row_stride + k), row0 + r, k0 + k, batch, W);
#pragma GCC unroll 8
            for (int s = 0; s < SB; ++s) sum[r][s] += row * line[s];
        }
    }
    if (k < depth) {
        int left = int(depth - k);
        auto valid = iota<typename integer_of<sizeof(T)>::type, W>(0) < left;
        for (int r = 0; r < RB; ++r) {
            V row = lanes_through(f, load_partial<W>(large + r * row_stride + k, left), row0 + r, k0 + k, batch, left);
#pragma GCC unroll 8
            for (int s = 0; s < SB; ++s) sum[r][s] += select(valid, V(row * load<W>(small + s * small_stride + k)), V{});
        }
    }
    for (int r = 0; r < RB; ++r)
#pragma GCC unroll 8
        for (int s = 0; s < SB; ++s)
            sums[r * position_stride + s * line_stride] = reduce(sum[r][s], [](auto x, auto y) { return x + y; });
}
template <class S, int RB, class B, class F>
inline void dot_lines(const typename S::type* small, int64_t small_stride, int64_t lines, const B* large, int64_t row_stride, int64_t depth,
                      typename S::type* sums, int64_t position_stride, int64_t line_stride, F& f, int64_t row0, int64_t k0, int64_t batch) {
    int64_t s = 0;
    for (; RB > 1 && s + 4 <= lines; s += 4)
        dot_rows<S, RB, RB>(small + s * small_stride, small_stride, large, row_stride, depth, sums + s * line_stride, position_stride,
                           line_stride, f, row0, k0, batch);
    for (; s < lines; ++s)
        dot_rows<S, RB, 1>(small + s * small_stride, small_stride, large, row_stride, depth, sums + s * line_stride, position_stride,
                           line_stride, f, row0, k0, batch);
}

template <class S, bool by_column, class E>
__attribute__((noinline)) void finish_lines(E& epilogue, const typename S::type* sums, int64_t lines, int64_t each, int64_t first,
                                            int64_t count, int64_t batch) {
    constexpr int W = S::W;
    int64_t outer = by_column ? lines : count, inner = by_column ? count : lines, stride = by_column ? each : lines;
    for (int64_t i = 0; i < outer; ++i) {
        int64_t row = by_column ? i : first + i, column = by_column ? first : 0, c = 0;
        if constexpr (by_column)
            for (; c + W <= inner; c += W) finish(epilogue, load<W>(sums + i * stride + c), row, column + c, W, batch);
        for (; c < inner; c += W) {
            int left = int(smaller_of(W, inner - c));
            finish(epilogue, load_partial<W>(sums + i * stride + c, left), row, column + c, left, batch);
        }
    }
}

// Results are `lines` x `results`; with `by_column` a line is a row of the result, otherwise a column. Sums of one block lie in
// scratch with consecutive result columns side by side, so that the epilogue gets its lanes from there.
template <class S, bool by_column, bool adding, class A, class B, class FA, class FB, class E>
inline void streamed_product(int threads, const matmul_shape& shape, const operand<A>& small, const operand<B>& large, FA& f_small,
                             FB& f_large, E& epilogue, void* workspace) {
    typedef typename S::type T;
    constexpr int W = S::W;
    int64_t lines = by_column ? shape.rows : shape.columns, results = by_column ? shape.columns : shape.rows;
    const streamed_grid g = plan_streamed<S>(threads, shape, adding, lines, results);
    T* const packed = (T*)workspace;
    T* const sums_base = packed + streamed_small<S>(g, shape);
    const int64_t sums_size = g.lines * g.each;
    // `small` and `large` come with rows = lines or results, columns = depth.
    const int64_t run = 64 * W, runs = ceil_div(g.depth, run);
    parallel_for(threads, shape.batch * runs, [&](int64_t begin, int64_t end, int) {
        for (int64_t index = begin; index < end; ++index) {
            int64_t batch = index / runs, k = index % runs * run, count = smaller_of(run, shape.depth - k);
            copy_tile<W>(small.data + batch * small.batch_stride + k * small.column_stride, small.row_stride, small.column_stride, lines,
                         larger_of(count, 0), packed + batch * lines * g.depth + k, g.depth, lines, smaller_of(run, g.depth - k),
                         f_small, 0, k, batch);
        }
    });
    const int64_t position_stride = by_column ? 1 : lines, line_stride = by_column ? g.each : 1;
    parallel_blocks(threads, shape.batch * g.blocks * g.parts, [&](int64_t index, int thread) {
        int64_t part = index % g.parts, block = index / g.parts % g.blocks, batch = index / (g.parts * g.blocks);
        int64_t first = block * g.each, count = smaller_of(g.each, results - first);
        int64_t k = part * g.part_depth, depth = larger_of(0, smaller_of(g.part_depth, shape.depth - k));
        T* sums = sums_base + (g.parts > 1 ? index : thread) * sums_size;
        const T* lines_at = packed + batch * lines * g.depth + k;
        const B* at = large.data + batch * large.batch_stride + first * large.row_stride + k * large.column_stride;
        if constexpr (adding) {
            for (int64_t i = 0; i < sums_size; i += W) store(sums + i, vec<T, W>{});
            add_rows<S>(lines_at, g.depth, lines, at, large.column_stride, depth, count, sums, g.each, f_large, k, first, batch);
        } else {
            int64_t r = 0;
            for (; r + 4 <= count; r += 4)
                dot_lines<S, 4>(lines_at, g.depth, lines, at + r * large.row_stride, large.row_stride, depth, sums + r * position_stride,
                                position_stride, line_stride, f_large, first + r, k, batch);
            for (; r < count; ++r)
                dot_lines<S, 1>(lines_at, g.depth, lines, at + r * large.row_stride, large.row_stride, depth, sums + r * position_stride,
                                position_stride, line_stride, f_large, first + r, k, batch);
        }
        if (g.parts == 1) finish_lines<S, by_column>(epilogue, sums, lines, g.each, first, count, batch);
    });
    if (g.parts == 1) return;
    parallel_for(threads, shape.batch * g.blocks, [&](int64_t begin, int64_t end, int) {
        for (int64_t index = begin; index < end; ++index) {
            T* total = sums_base + index * g.parts * sums_size;
            for (int64_t part = 1; part < g.parts; ++part)
                for (int64_t i = 0; i < sums_size; i += W) store(total + i, load<W>(total + i) + load<W>(total + part * sums_size + i));
            int64_t first = index % g.blocks * g.each;
            finish_lines<S, by_column>(epilogue, total, lines, g.each, first, smaller_of(g.each, results - first), index / g.blocks);
        }
    });
}

// Whether it did the product.
template <class S, class A, class B, class FA, class FB, class E>
inline bool matmul_streamed(int threads, const matmul_shape& shape, const operand<A>& a, const operand<B>& b, FA& f_a, FB& f_b, E& epilogue,
                            void* workspace) {
    const bool few_rows = shape.rows <= few_lines, few_columns = shape.columns <= few_lines;
    const operand<B> b_turned{b.data, b.column_stride, b.row_stride, b.batch_stride};
    if constexpr ((S::streaming & 2) != 0) {
        if (few_columns && a.column_stride == 1) {
            auto f_turned = exchange_order(f_b);
            streamed_product<S, false, false>(threads, shape, b_turned, a, f_turned, f_a, epilogue, workspace);
            return true;
        }
    }
    if constexpr ((S::streaming & 1) != 0) {
        if (few_rows && b.column_stride == 1) {
            streamed_product<S, true, true>(threads, shape, a, b_turned, f_a, f_b, epilogue, workspace);
            return true;
        }
        if (few_rows && b.row_stride == 1) {
            auto f_turned = exchange_order(f_b);
            streamed_product<S, true, false>(threads, shape, a, b_turned, f_a, f_turned, epilogue, workspace);
            return true;
        }
    }
    return false;
}

}  // namespace detail
}  // namespace kw
#endif
