// Arithmetic on lanes: what needs no polynomial. Included through kw_vector.h.
#ifndef KW_ARITHMETIC_H
#define KW_ARITHMETIC_H
#include "kw_lanes.h"

namespace kw {

// One C library call for each lane.
#define KW_LANEWISE(x, function)                                          \
    {                                                                     \
        V result_{};                                                      \
        for (int i_ = 0; i_ < lanes<V>; ++i_) {                           \
            if constexpr (sizeof(lane<V>) == 4) result_[i_] = function##f(x[i_]); \
            else result_[i_] = function(x[i_]);                           \
        }                                                                 \
        return result_;                                                   \
    }
#define KW_LANEWISE_2(x, y, function)                                     \
    {                                                                     \
        V result_{};                                                      \
        for (int i_ = 0; i_ < lanes<V>; ++i_) {                           \
            if constexpr (sizeof(lane<V>) == 4) result_[i_] = function##f(x[i_], y[i_]); \
            else result_[i_] = function(x[i_], y[i_]);                    \
        }                                                                 \
        return result_;                                                   \
    }

// a * b + c, one instruction where the chip has it (compile with -ffp-contract=fast).
template <class V> KW_INLINE V fma(V a, V b, V c) { return a * b + c; }
template <class V> KW_INLINE V neg(V x) { return -x; }

template <class V> KW_INLINE V abs(V x) {
    typedef integers<V> I;
    typedef lane<I> L;
    if constexpr (is_float<lane<V>>) return bitcast<V>(bitcast<I>(x) & L(~(L(1) << (sizeof(L) * 8 - 1))));
    else return select(x < V{}, V(-x), x);
}
// Magnitude of the first, sign of the second.
template <class V> KW_INLINE V copysign(V magnitude, V sign) {
    typedef integers<V> I;
    typedef lane<I> L;
    constexpr L mask = L(1) << (sizeof(L) * 8 - 1);
    return bitcast<V>((bitcast<I>(magnitude) & L(~mask)) | (bitcast<I>(sign) & mask));
}
template <class V> KW_INLINE auto isnan(V x) { return x != x; }
template <class V> KW_INLINE auto isinf(V x) { return abs(x) == same<V>(__builtin_inf()); }

namespace detail {
// a > b ? a : b and a < b ? a : b in one instruction where there is one.
template <class V> KW_INLINE V larger(V a, V b) {
#if defined(KW_GCC_AVX512)
    if constexpr (same_type<V, vec<float, 16>>) return __builtin_ia32_maxps512_mask(a, b, a, (unsigned short)-1, 4);
    if constexpr (same_type<V, vec<double, 8>>) return __builtin_ia32_maxpd512_mask(a, b, a, (unsigned char)-1, 4);
#endif
#if defined(KW_GCC_AVX)
    if constexpr (same_type<V, vec<float, 8>>) return __builtin_ia32_maxps256(a, b);
#endif
    return select(a > b, a, b);
}
template <class V> KW_INLINE V smaller(V a, V b) {
#if defined(KW_GCC_AVX512)
    if constexpr (same_type<V, vec<float, 16>>) return __builtin_ia32_minps512_mask(a, b, a, (unsigned short)-1, 4);
    if constexpr (same_type<V, vec<double, 8>>) return __builtin_ia32_minpd512_mask(a, b, a, (unsigned char)-1, 4);
#endif
#if defined(KW_GCC_AVX)
    if constexpr (same_type<V, vec<float, 8>>) return __builtin_ia32_minps256(a, b);
#endif
    return select(a < b, a, b);
}
}  // namespace detail

// NaN where either is NaN, as torch.maximum and torch.minimum.
template <class V> KW_INLINE V maximum(V a, V b) {
    if constexpr (is_float<lane<V>>) return select(a != a, a, detail::larger(a, b));
    else return select(a > b, a, b);
}
template <class V> KW_INLINE V minimum(V a, V b) {
    if constexpr (is_float<lane<V>>) return select(a != a, a, detail::smaller(a, b));
    else return select(a < b, a, b);
}
// The number where one is NaN, as fmax and fmin.
template <class V> KW_INLINE V fmax_(V a, V b) { return select(b != b, a, detail::larger(a, b)); }
template <class V> KW_INLINE V fmin_(V a, V b) { return select(b != b, a, detail::smaller(a, b)); }
// -1, 0 or 1; 0 for NaN, as torch.sign.
template <class V> KW_INLINE V sign(V x) {
    V zero = same<V>(0), one = same<V>(1);
    return select(x > zero, one, zero) - select(x < zero, one, zero);
}

template <class V> KW_INLINE lane<V> reduce_sum(V v) {
    return reduce(v, [](auto a, auto b) { return a + b; });
}
template <class V> KW_INLINE lane<V> reduce_prod(V v) {
    return reduce(v, [](auto a, auto b) { return a * b; });
}
template <class V> KW_INLINE lane<V> reduce_max(V v) {
    return reduce(v, [](auto a, auto b) { return maximum(a, b); });
}
template <class V> KW_INLINE lane<V> reduce_min(V v) {
    return reduce(v, [](auto a, auto b) { return minimum(a, b); });
}

namespace detail {

template <class V> constexpr bool single = sizeof(lane<V>) == 4;

template <class T> KW_INLINE vec<T, 16 / int(sizeof(T))> widened(T x) { return splat<T, 16 / int(sizeof(T))>(x); }

template <class V> KW_INLINE V poly(V, lane<V> c) { return same<V>(c); }
template <class V, class... C> KW_INLINE V poly(V x, lane<V> c, C... rest) { return poly(x, rest...) * x + c; }

// Adding and subtracting this leaves the nearest integer; the sum's low bits hold it as an integer.
template <class V> constexpr lane<V> rounder = sizeof(lane<V>) == 4 ? lane<V>(0x1.8p23) : lane<V>(0x1.8p52);

enum rounding { to_even = 8, downwards = 9, upwards = 10, to_zero = 11 };

template <rounding mode, class V> KW_INLINE V rounded(V x) {
    if constexpr (sizeof(V) > register_bytes && lanes<V> > 2) {
        return join(rounded<mode>(lower(x)), rounded<mode>(upper(x)));
    } else {
#if defined(KW_GCC_AVX512)
        if constexpr (sizeof(V) == 64 && sizeof(lane<V>) == 4)
            return __builtin_ia32_rndscaleps_mask(x, mode, x, (unsigned short)-1, 4);
        if constexpr (sizeof(V) == 64 && sizeof(lane<V>) == 8)
            return __builtin_ia32_rndscalepd_mask(x, mode, x, (unsigned char)-1, 4);
#endif
#if defined(KW_GCC_AVX)
        if constexpr (sizeof(V) == 32 && sizeof(lane<V>) == 4) return __builtin_ia32_roundps256(x, mode);
        if constexpr (sizeof(V) == 32 && sizeof(lane<V>) == 8) return __builtin_ia32_roundpd256(x, mode);
#endif
#if defined(KW_GCC_SSE41)
        if constexpr (sizeof(V) == 16 && sizeof(lane<V>) == 4) return __builtin_ia32_roundps(x, mode);
        if constexpr (sizeof(V) == 16 && sizeof(lane<V>) == 8) return __builtin_ia32_roundpd(x, mode);
#endif
        constexpr lane<V> exact = sizeof(lane<V>) == 4 ? lane<V>(0x1p23) : lane<V>(0x1p52);
        V magnitude = abs(x);
        V shifted = magnitude + exact;
        // Keeps the compiler from cancelling the two additions.
        __asm__("" : "+m"(shifted));
        V nearest = copysign(shifted - exact, x);
        V one = same<V>(1), zero = same<V>(0);
        if constexpr (mode == downwards) nearest = nearest - select(nearest > x, one, zero);
        if constexpr (mode == upwards) nearest = nearest + select(nearest < x, one, zero);
        if constexpr (mode == to_zero) {
            V size = abs(nearest);
            nearest = size - select(size > magnitude, one, zero);
        }
        return select(magnitude < exact, copysign(nearest, x), x);
    }
}
template <class V> KW_INLINE V floor(V x) { return rounded<downwards>(x); }
template <class V> KW_INLINE V ceil(V x) { return rounded<upwards>(x); }
template <class V> KW_INLINE V trunc(V x) { return rounded<to_zero>(x); }
template <class V> KW_INLINE V round(V x) { return rounded<to_even>(x); }

template <class V> KW_INLINE V sqrt(V x) {
    if constexpr (sizeof(V) > register_bytes && lanes<V> > 2) {
        return join(detail::sqrt(lower(x)), detail::sqrt(upper(x)));
    } else {
#if defined(KW_GCC_AVX512)
        if constexpr (sizeof(V) == 64 && sizeof(lane<V>) == 4)
            return __builtin_ia32_sqrtps512_mask(x, x, (unsigned short)-1, 4);
        if constexpr (sizeof(V) == 64 && sizeof(lane<V>) == 8)
            return __builtin_ia32_sqrtpd512_mask(x, x, (unsigned char)-1, 4);
#endif
#if defined(KW_GCC_AVX)
        if constexpr (sizeof(V) == 32 && sizeof(lane<V>) == 4) return __builtin_ia32_sqrtps256(x);
        if constexpr (sizeof(V) == 32 && sizeof(lane<V>) == 8) return __builtin_ia32_sqrtpd256(x);
#endif
#if defined(__SSE2__) && !defined(__clang__)
        if constexpr (sizeof(V) == 16 && sizeof(lane<V>) == 4) return __builtin_ia32_sqrtps(x);
        if constexpr (sizeof(V) == 16 && sizeof(lane<V>) == 8) return __builtin_ia32_sqrtpd(x);
#endif
        KW_LANEWISE(x, __builtin_sqrt)
    }
}

// The nearest integer to |x| below 2**22 (float) or 2**51 (double).
template <class V> KW_INLINE V rounded_small(V x) { return (x + rounder<V>) - rounder<V>; }
// x * 2**n for integral n (as float lanes) with |n| below twice the exponent's bias.
template <class V> KW_INLINE V scaled(V x, V n) {
#if defined(KW_GCC_AVX512)
    if constexpr (sizeof(V) == 64 && sizeof(lane<V>) == 4)
        return __builtin_ia32_scalefps512_mask(x, n, x, (unsigned short)-1, 4);
    if constexpr (sizeof(V) == 64 && sizeof(lane<V>) == 8)
        return __builtin_ia32_scalefpd512_mask(x, n, x, (unsigned char)-1, 4);
#endif
    typedef integers<V> I;
    typedef lane<I> L;
    constexpr int mantissa = sizeof(L) == 4 ? 23 : 52;
    constexpr L bias = sizeof(L) == 4 ? 127 : 1023;
    // In two steps, so that neither factor leaves the range and a denormal result is rounded once.
    V half = rounded_small(n * lane<V>(0.5));
    I low = bitcast<I>(half + rounder<V>) - bitcast<I>(same<V>(rounder<V>));
    I high = bitcast<I>((n - half) + rounder<V>) - bitcast<I>(same<V>(rounder<V>));
    return x * bitcast<V>((low + bias) << L(mantissa)) * bitcast<V>((high + bias) << L(mantissa));
}

}  // namespace detail
}  // namespace kw
#endif
