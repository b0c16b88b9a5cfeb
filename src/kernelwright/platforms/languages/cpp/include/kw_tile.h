// Copies tiles of strided matrices into contiguous scratch memory, converting and transposing on the way, and the
// register-tile product on such scratch. The ground that kw_matmul.h and kw_attention.h stand on.
#ifndef KW_TILE_H
#define KW_TILE_H
#include "kw_lanes.h"

namespace kw {

// A matrix (one for each batch index) anywhere in memory; strides are in elements, and may be 0 to broadcast.
template <class T> struct operand {
    const T* data;
    int64_t row_stride;
    int64_t column_stride;
    int64_t batch_stride;
};

// Leaves an element as it is.
struct as_stored {
    template <class V> KW_INLINE V operator()(V value, int64_t, int64_t) const { return value; }
};

namespace detail {

template <class F, class... A> constexpr auto takes(int) -> decltype(((F*)nullptr)->operator()(*(A*)nullptr...), true) { return true; }
template <class F, class... A> constexpr bool takes(...) { return false; }
template <class F> constexpr bool takes_lanes(decltype(F::takes_lanes)*) { return F::takes_lanes; }
template <class F> constexpr bool takes_lanes(...) { return same_type<F, as_stored>; }

template <class T, class F> KW_INLINE T element_through(F& f, T value, int64_t row, int64_t column, int64_t batch) {
    if constexpr (takes<F, T, int64_t, int64_t, int64_t>(0)) return f(value, row, column, batch);
    else return f(value, row, column);
}
// f on lanes that hold consecutive columns. f sees one element at a time unless it has `static constexpr bool takes_lanes`.
template <class V, class F> KW_INLINE V lanes_through(F& f, V v, int64_t row, int64_t column, int64_t batch, int count) {
    if constexpr (same_type<F, as_stored>) return v;
    else if constexpr (takes_lanes<F>(nullptr)) return element_through(f, v, row, column, batch);
    else {
        for (int i = 0; i < count; ++i) v[i] = element_through(f, lane<V>(v[i]), row, column + i, batch);
        return v;
    }
}

// One half of exchanging blocks of `step` lanes between two rows; log2(W) rounds of it transpose a square.
template <int step, bool high, class V, int... I> KW_INLINE V exchanged(V a, V b, indices<I...>) {
    constexpr int W = lanes<V>;
    return __builtin_shufflevector(a, b, ((I & step) ? (high ? W + I : W + I - step) : (high ? I + step : I))...);
}
template <int step, class V> KW_INLINE void transpose_rounds(V (&rows)[lanes<V>]) {
    constexpr int W = lanes<V>;
    if constexpr (step < W) {
#pragma GCC unroll 32
        for (int i = 0; i < W; ++i) {
            if (i & step) continue;
            V a = rows[i], b = rows[i + step];
            rows[i] = exchanged<step, false>(a, b, index_range<W>());
            rows[i + step] = exchanged<step, true>(a, b, index_range<W>());
        }
        transpose_rounds<step * 2>(rows);
    }
}

// target[r * target_stride + c] = f(source[r, c]) for r < rows, c < columns; zero for the rest of padded_rows x padded_columns
// (padded_columns a multiple of W). `row0`, `column0`, `batch`: where the tile lies in its matrix, for f.
template <int W, class T, class S, class F>
KW_INLINE void copy_tile(const S* source, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns, T* target,
                         int64_t target_stride, int64_t padded_rows, int64_t padded_columns, F& f, int64_t row0, int64_t column0,
                         int64_t batch) {
    typedef vec<T, W> V;
    if (column_stride == 1 || columns == 1) {
        for (int64_t r = 0; r < rows; ++r) {
            const S* from = source + r * row_stride;
            T* to = target + r * target_stride;
            int64_t c = 0;
            for (; c + W <= columns; c += W)
                store(to + c, lanes_through(f, load<W>(from + c), row0 + r, column0 + c, batch, W));
            if (c < columns) {
                int left = int(columns - c);
                V v = lanes_through(f, load_partial<W>(from + c, left), row0 + r, column0 + c, batch, left);
                store(to + c, select(iota<typename integer_of<sizeof(T)>::type, W>(0) < left, v, V{}));
                c += W;
            }
            for (; c < padded_columns; c += W) store(to + c, V{});
        }
    } else if (row_stride == 1) {
        for (int64_t r = 0; r < rows; r += W) {
            int64_t down = rows - r < W ? rows - r : W;
            for (int64_t c = 0; c < padded_columns; c += W) {
                V square[W];
                int64_t across = columns - c < W ? columns - c : W;
                for (int i = 0; i < W; ++i) {
                    const S* from = source + (c + i) * column_stride + r;
                    square[i] = i >= across ? V{} : down == W ? load<W>(from) : load_partial<W>(from, down);
                }
                transpose_rounds<1>(square);
                for (int64_t i = 0; i < down; ++i) {
                    V v = square[i];
                    if constexpr (!same_type<F, as_stored>) {
                        v = lanes_through(f, v, row0 + r + i, column0 + c, batch, int(across < 0 ? 0 : across));
                        v = select(iota<typename integer_of<sizeof(T)>::type, W>(0) < int(across), v, V{});
                    }
                    store(target + (r + i) * target_stride + c, v);
                }
            }
        }
    } else {
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < padded_columns; ++c) {
                T value = T(0);
                if (c < columns) value = element_through(f, load<1>(source + r * row_stride + c * column_stride), row0 + r, column0 + c, batch);
                target[r * target_stride + c] = value;
            }
    }
    for (int64_t r = rows; r < padded_rows; ++r)
        for (int64_t c = 0; c < padded_columns; c += W) store(target + r * target_stride + c, V{});
}

// c[MR][NV * W] (+)= a[MR][k] b[k][NV * W]: rows of a are `a_stride` apart, everything else is dense. MR * NV accumulators
// live in registers through the whole loop over k.
template <class T, int W, int MR, int NV, int a_stride, int unroll>
__attribute__((noinline)) void tile_product(const T* __restrict a, const T* __restrict b, int64_t k_count, T* __restrict c, bool add) {
    typedef vec<T, W> V;
    V sum[MR][NV];
#pragma GCC unroll 32
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < NV; ++j) sum[i][j] = V{};
    // Sums of a large block lie beyond the second-level cache: they come while the products run.
    if (add) {
#pragma GCC unroll 1
        for (int i = 0; i < MR * NV; ++i) __builtin_prefetch(c + i * W, 1, 3);
    }
    auto step = [&](const T* left_column, const T* right_row) __attribute__((always_inline)) {
        V right[NV];
#pragma GCC unroll 8
        for (int j = 0; j < NV; ++j) right[j] = load<W>(right_row + j * W);
#pragma GCC unroll 32
        for (int i = 0; i < MR; ++i) {
            V left = splat<T, W>(left_column[i * a_stride]);
#pragma GCC unroll 8
            for (int j = 0; j < NV; ++j) sum[i][j] += left * right[j];
        }
    };
    const T* last = a + k_count;
    for (; a + unroll <= last; a += unroll, b += unroll * NV * W) {
#pragma GCC unroll 16
        for (int u = 0; u < unroll; ++u) step(a + u, b + u * NV * W);
    }
    for (; a < last; ++a, b += NV * W) step(a, b);
#pragma GCC unroll 32
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < NV; ++j) {
            T* to = c + (i * NV + j) * W;
            store(to, add ? V(load<W>(to) + sum[i][j]) : sum[i][j]);
        }
}

}  // namespace detail
}  // namespace kw
#endif
