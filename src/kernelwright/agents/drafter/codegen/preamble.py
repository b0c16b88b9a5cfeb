"""The few lines that generated kernels put between themselves and kw_vector.h."""

PREAMBLE = """\
#include "kernelwright.h"
#include "kw_vector.h"
#include "kw_parallel.h"

namespace {

// How many lanes of a vector are in use: all of them, or the first n.
struct whole {};

template <int W, class T> KW_INLINE auto read(const T* p, whole) { return kw::load<W>(p); }
template <int W, class T> KW_INLINE auto read(const T* p, int64_t n) { return kw::load_partial<W>(p, n); }
template <class T, class V> KW_INLINE void write(T* p, V v, whole) { kw::store(p, v); }
template <class T, class V> KW_INLINE void write(T* p, V v, int64_t n) { kw::store_partial(p, v, n); }
template <class T, class V> KW_INLINE void write_past_cache(T* p, V v, int64_t n) { kw::store_partial(p, v, n); }
template <class T, class V> KW_INLINE void write_past_cache(T* p, V v, whole) {
    if ((uintptr_t(p) & (sizeof(T) * kw::lanes<V> - 1)) == 0) kw::store_stream(p, v);
    else kw::store(p, v);
}

// The lanes in use of v; `other` in the rest.
template <class V> KW_INLINE V keep(V v, V, whole) { return v; }
template <class V> KW_INLINE V keep(V v, V other, int64_t n) {
    typedef kw::lane<kw::integers<V>> I;
    return kw::select(kw::iota<I, kw::lanes<V>>(0) < I(n), v, other);
}
template <int W> KW_INLINE int64_t count(whole) { return W; }
template <int W> KW_INLINE int64_t count(int64_t n) { return n; }

// A vector whose lanes in use are computed one by one.
template <class T, int W, class Lanes, class F> KW_INLINE kw::vec<T, W> each_lane(Lanes lanes, F f) {
    kw::vec<T, W> v{};
    for (int64_t lane = 0; lane < count<W>(lanes); ++lane) {
        if constexpr (W == 1) v = f(lane);
        else v[lane] = f(lane);
    }
    return v;
}

// step(i, u, lanes) over [begin, end): U vectors of W lanes at a time, then one at a time, then a partial one.
template <int W, class Step, int... U>
KW_INLINE void sweep_by(int64_t begin, int64_t end, Step&& step, kw::indices<U...>) {
    constexpr int64_t stride = W * sizeof...(U);
    int64_t i = begin;
    for (; i + stride <= end; i += stride) (step(i + U * W, U, whole{}), ...);
    for (; i + W <= end; i += W) step(i, 0, whole{});
    if (i < end) step(i, 0, end - i);
}
template <int W, int U, class Step> KW_INLINE void sweep(int64_t begin, int64_t end, Step&& step) {
    sweep_by<W>(begin, end, step, kw::index_range<U>());
}

// f(u) for each of U vectors, written out.
template <class F, int... U> KW_INLINE void each_vector_of(F&& f, kw::indices<U...>) { (f(U), ...); }
template <int U, class F> KW_INLINE void each_vector(F&& f) { each_vector_of(f, kw::index_range<U>()); }

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a < b ? b : a; }
"""

EXTRAS = {
    "_back": """\
// The lanes in the opposite order, from p downwards.
template <class V, int... I> KW_INLINE V reversed(V v, kw::indices<I...>) {
    if constexpr (kw::lanes<V> == 1) return v;
    else return __builtin_shufflevector(v, v, (kw::lanes<V> - 1 - I)...);
}
template <int W, class T> KW_INLINE auto read_back(const T* p, whole) {
    return reversed(kw::load<W>(p - (W - 1)), kw::index_range<W>());
}
template <int W, class T> KW_INLINE auto read_back(const T* p, int64_t n) {
    decltype(kw::load<W>(p)) v{};
    for (int64_t lane = 0; lane < n; ++lane) {
        if constexpr (W == 1) v = kw::load<1>(p - lane);
        else v[lane] = kw::load<1>(p - lane);
    }
    return v;
}
template <class T, class V> KW_INLINE void write_back(T* p, V v, whole) {
    kw::store(p - (kw::lanes<V> - 1), reversed(v, kw::index_range<kw::lanes<V>>()));
}
template <class T, class V> KW_INLINE void write_back(T* p, V v, int64_t n) {
    for (int64_t lane = 0; lane < n; ++lane) {
        if constexpr (kw::lanes<V> == 1) kw::store(p - lane, v);
        else kw::store(p - lane, v[lane]);
    }
}
""",
    "rounded(": """\
// v as it is rounded: the compiler does not see that it is a product, so it cannot fuse it with a sum.
template <class V> KW_INLINE V rounded(V v) {
#if defined(__AVX512F__)
    if constexpr (sizeof(V) <= 64) asm("" : "+v"(v));
#elif defined(__AVX__)
    if constexpr (sizeof(V) <= 32) asm("" : "+x"(v));
#elif defined(__aarch64__)
    if constexpr (sizeof(V) <= 16) asm("" : "+w"(v));
#else
    if constexpr (false);
#endif
    else asm("" : "+m"(v));
    return v;
}
""",
    "vectors<": """\
// A number of vectors, known when compiled.
template <int N> struct vectors { static constexpr int count = N; };

// tile(first, vectors, lanes) over the columns of one tile that begins at `first`.
template <int W, int U, class Tile> KW_INLINE void cover(int64_t first, int64_t columns, Tile&& tile) {
    if (first + W * U <= columns) return tile(first, vectors<U>(), whole{});
    for (; first + W <= columns; first += W) tile(first, vectors<1>(), whole{});
    if (first < columns) tile(first, vectors<1>(), columns - first);
}
""",
    "flag(": """\
// A truth value as 0 or 1.
template <class M> KW_INLINE auto flag(M mask) {
    if constexpr (kw::lanes<M> == 1) return int32_t(mask != 0);
    else return kw::cast<int32_t>(mask) & 1;
}
""",
    "lane_of(": """\
// One lane of a vector.
template <class V> KW_INLINE kw::lane<V> lane_of(V v, int64_t lane) {
    if constexpr (kw::lanes<V> == 1) return v;
    else return v[lane];
}
""",
    "floor_divide": """\
// Integer quotient, rounded down.
template <class V> KW_INLINE V floor_divide(V a, V b) {
    V q = a / b;
    return kw::select((a % b != 0) && ((a < 0) != (b < 0)), V(q - 1), q);
}
""",
    "remainder_int": """\
// Integer remainder with the sign of the divisor.
template <class V> KW_INLINE V remainder_int(V a, V b) {
    V r = a % b;
    return kw::select((r != 0) && ((r < 0) != (b < 0)), V(r + b), r);
}
""",
    "add_exactly(": """\
// high + low += x, with the rounding error of the sum kept in `low`.
KW_INLINE void add_exactly(float& high, float& low, float x) {
    float sum = high + x, part = sum - high;
    low += (high - (sum - part)) + (x - part);
    high = sum;
}
""",
    "prefix(": """\
// Running combination over the lanes of one vector, in a logarithmic number of steps.
template <int shift, class V, int... I> KW_INLINE V shifted(V v, V neutral, kw::indices<I...>) {
    return __builtin_shufflevector(v, neutral, (I < shift ? kw::lanes<V> : I - shift)...);
}
template <int shift = 1, class V, class F> KW_INLINE V prefix(V v, V neutral, F combine) {
    if constexpr (shift >= kw::lanes<V>) return v;
    else {
        V moved = shifted<shift>(v, neutral, kw::index_range<kw::lanes<V>>());
        return prefix<shift * 2>(V(combine(moved, v)), neutral, combine);
    }
}
template <class V> KW_INLINE kw::lane<V> last(V v) {
    if constexpr (kw::lanes<V> == 1) return v;
    else return v[kw::lanes<V> - 1];
}
""",
    "better<": """\
// Best value so far and its place, for each lane; the first place wins among equals, and NaN beats everything.
template <bool largest, class V, class I> KW_INLINE void better(V v, I place, V& best, I& best_place) {
    auto wins = largest ? v > best : v < best;
    if constexpr (kw::is_float<kw::lane<V>>) wins = (wins || v != v) && best == best;
    auto take = wins || (best_place < 0);
    best = kw::select(take, v, best);
    best_place = kw::select(take, place, best_place);
}
template <bool largest, class V, class I>
KW_INLINE void best_lane(V v, I place, kw::lane<V>& best, kw::lane<I>& best_place) {
    for (int lane = 0; lane < kw::lanes<V>; ++lane) {
        kw::lane<V> x;
        kw::lane<I> at;
        if constexpr (kw::lanes<V> == 1) x = v, at = place;
        else x = v[lane], at = place[lane];
        if (at < 0) continue;
        bool wins = best_place < 0 || (largest ? x > best : x < best);
        bool equal = x == best;
        if constexpr (kw::is_float<kw::lane<V>>) {
            wins = best_place < 0 || ((wins || x != x) && best == best);
            equal = equal || (x != x && best != best);
        }
        if (wins || (equal && at < best_place)) best = x, best_place = at;
    }
}
""",
}


def preamble_for(body: str) -> str:
    """The preamble with just the extras that `body` uses."""
    extras = "\n".join(text for key, text in EXTRAS.items() if key in body)
    return f"{PREAMBLE}\n{extras}\n}}  // namespace\n" if extras else f"{PREAMBLE}\n}}  // namespace\n"
