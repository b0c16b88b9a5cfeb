// Lanes: short vectors of one element type, with memory access, selection and reductions. Included through kw_vector.h.
//
// `vec<T, W>` holds W lanes of T (W a power of two); `vec<T, 1>` is T itself, so one text serves whole vectors (W lanes)
// and tails (one lane). Arithmetic, comparison and logical operators are the language's own. A comparison gives a mask: a
// vector of signed integers, 0 or -1, as wide as the compared lanes; a bool for one lane. Combine masks with `&&`, `||`, `!`.
// 16-bit floats are storage only: loading one gives float, storing rounds to nearest even.
//
//     kw::vec<float, 16> v = kw::load<16>(p);                       // any alignment
//     v = kw::select(v > 0.f, v, v * 0.01f);
//     kw::store(q, v);
//     float tail = kw::reduce_sum(kw::load_partial<16>(p, 5, 0.f));  // reads five elements
#ifndef KW_LANES_H
#define KW_LANES_H
#include <stddef.h>

#include "kernelwright.h"

#define KW_INLINE inline __attribute__((always_inline))

// Vectors never cross an object file's border, so the calling convention for wide ones does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

#if defined(__AVX512F__) && !defined(__clang__)
#define KW_GCC_AVX512 1
#endif
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(__clang__)
#define KW_GCC_AVX512_NARROW 1
#endif
#if defined(__AVX__) && !defined(__clang__)
#define KW_GCC_AVX 1
#endif
#if defined(__SSE4_1__) && !defined(__clang__)
#define KW_GCC_SSE41 1
#endif

namespace kw {

// Bytes of one hardware register, and the lanes of T that fill it.
#if defined(__AVX512F__)
constexpr int register_bytes = 64;
constexpr int register_count = 32;
#elif defined(__AVX__)
constexpr int register_bytes = 32;
constexpr int register_count = 16;
#elif defined(__aarch64__)
constexpr int register_bytes = 16;
constexpr int register_count = 32;
#else
constexpr int register_bytes = 16;
constexpr int register_count = 16;
#endif
template <class T> constexpr int native_lanes = register_bytes / int(sizeof(T));

template <class T, int W> struct vec_of { typedef T type __attribute__((vector_size(sizeof(T) * W))); };
template <class T> struct vec_of<T, 1> { typedef T type; };
template <class T, int W> using vec = typename vec_of<T, W>::type;

template <class T, class U> constexpr bool same_type = false;
template <class T> constexpr bool same_type<T, T> = true;

template <class T> struct plain { typedef T type; };
template <class T> struct plain<T&> { typedef T type; };
template <class T> struct plain<const T> { typedef T type; };
template <class T> struct plain<const T&> { typedef T type; };

template <class V> constexpr bool is_scalar = __is_enum(V) || __is_class(V);
template <> constexpr bool is_scalar<bool> = true;
template <> constexpr bool is_scalar<char> = true;
template <> constexpr bool is_scalar<int8_t> = true;
template <> constexpr bool is_scalar<uint8_t> = true;
template <> constexpr bool is_scalar<int16_t> = true;
template <> constexpr bool is_scalar<uint16_t> = true;
template <> constexpr bool is_scalar<int32_t> = true;
template <> constexpr bool is_scalar<uint32_t> = true;
template <> constexpr bool is_scalar<long> = true;
template <> constexpr bool is_scalar<unsigned long> = true;
template <> constexpr bool is_scalar<long long> = true;
template <> constexpr bool is_scalar<unsigned long long> = true;
template <> constexpr bool is_scalar<float> = true;
template <> constexpr bool is_scalar<double> = true;

template <class V, bool scalar = is_scalar<V>> struct lane_of { typedef V type; };
template <class V> struct lane_of<V, false> { typedef typename plain<decltype(V()[0])>::type type; };
template <class V> using lane = typename lane_of<V>::type;
template <class V> constexpr int lanes = int(sizeof(V) / sizeof(lane<V>));

template <int bytes> struct integer_of;
template <> struct integer_of<1> { typedef int8_t type; };
template <> struct integer_of<2> { typedef int16_t type; };
template <> struct integer_of<4> { typedef int32_t type; };
template <> struct integer_of<8> { typedef int64_t type; };
// The vector (or scalar) of signed integers with the lanes of V.
template <class V> using integers = vec<typename integer_of<sizeof(lane<V>)>::type, lanes<V>>;

template <class T> struct wider_of { typedef T type; };
template <> struct wider_of<int8_t> { typedef int16_t type; };
template <> struct wider_of<uint8_t> { typedef uint16_t type; };
template <> struct wider_of<int16_t> { typedef int32_t type; };
template <> struct wider_of<uint16_t> { typedef uint32_t type; };

template <class T> constexpr bool is_float = same_type<T, float> || same_type<T, double>;

// What arithmetic on stored elements of type T is done in.
template <class T> struct compute_of { typedef T type; };
template <> struct compute_of<kw_bfloat16> { typedef float type; };
template <> struct compute_of<kw_float16> { typedef float type; };
template <> struct compute_of<bool> { typedef uint8_t type; };
template <class T> using compute = typename compute_of<T>::type;

template <int... I> struct indices {};
#if defined(__clang__)
template <class T, T... I> struct index_pack { typedef indices<I...> type; };
template <int N> using index_range = typename __make_integer_seq<index_pack, int, N>::type;
#else
template <int N> struct index_range_of { typedef indices<__integer_pack(N)...> type; };
template <int N> using index_range = typename index_range_of<N>::type;
#endif

template <class To, class From> KW_INLINE To bitcast(From from) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    if constexpr (is_scalar<To> || is_scalar<From>) {
        To to;
        __builtin_memcpy(&to, &from, sizeof(To));
        return to;
    } else {
        return (To)from;
    }
}

template <class T, int W, class X> KW_INLINE vec<T, W> splat(X x) {
    if constexpr (W == 1) return T(x);
    else return T(x) - vec<T, W>{};  // x - 0 is x for every x, -0 and NaN included, so this is one broadcast
}
// All lanes of V equal to x.
template <class V, class X> KW_INLINE V same(X x) { return splat<lane<V>, lanes<V>>(x); }

template <class T, int W, int... I> KW_INLINE vec<T, W> iota_of(T start, indices<I...>) {
    return vec<T, W>{T(I)...} + start;
}
// start, start + 1, …
template <class T, int W, class X> KW_INLINE vec<T, W> iota(X start) {
    if constexpr (W == 1) return T(start);
    else return iota_of<T, W>(T(start), index_range<W>());
}

template <class V, int offset, int... I> KW_INLINE auto part_of(V v, indices<I...>) {
    return __builtin_shufflevector(v, v, (I + offset)...);
}
// Lower and upper half of the lanes.
template <class V> KW_INLINE auto lower(V v) {
    if constexpr (lanes<V> == 2) return lane<V>(v[0]);
    else return part_of<V, 0>(v, index_range<lanes<V> / 2>());
}
template <class V> KW_INLINE auto upper(V v) {
    if constexpr (lanes<V> == 2) return lane<V>(v[1]);
    else return part_of<V, lanes<V> / 2>(v, index_range<lanes<V> / 2>());
}
template <class H, int... I> KW_INLINE auto join_of(H low, H high, indices<I...>) {
    return __builtin_shufflevector(low, high, I...);
}
template <class H> KW_INLINE vec<lane<H>, lanes<H> * 2> join(H low, H high) {
    if constexpr (lanes<H> == 1) return vec<H, 2>{low, high};
    else return join_of(low, high, index_range<lanes<H> * 2>());
}

template <class T> using twice_as_wide = typename wider_of<T>::type;

// Converts each lane to U: floats truncate towards zero, integers wrap.
template <class U, class V> KW_INLINE vec<U, lanes<V>> cast(V v) {
    if constexpr (same_type<U, lane<V>>) return v;
    else if constexpr (lanes<V> == 1) return U(v);
    // GCC widens integers well only by one step.
    else if constexpr (!is_float<lane<V>> && sizeof(U) > 2 * sizeof(lane<V>))
        return cast<U>(cast<twice_as_wide<lane<V>>>(v));
    else if constexpr (lanes<V> > 2 && (sizeof(V) > register_bytes || sizeof(U) * lanes<V> > register_bytes))
        return join(cast<U>(lower(v)), cast<U>(upper(v)));
    else return __builtin_convertvector(v, vec<U, lanes<V>>);
}

// mask ? a : b for each lane; the mask may come from lanes of another width, or be a vector of uint8 (a tensor of bool).
template <class M, class V> KW_INLINE V select(M mask, V a, V b) {
    if constexpr (lanes<V> == 1) return mask ? a : b;
    else if constexpr (same_type<M, integers<V>>) return mask ? a : b;
    else return cast<lane<integers<V>>>(mask) ? a : b;
}
template <class M> KW_INLINE bool any(M mask) {
    if constexpr (lanes<M> == 1) return mask;
    else if constexpr (sizeof(M) > 8) return any(lower(mask) | upper(mask));
    else return bitcast<typename integer_of<sizeof(M)>::type>(mask) != 0;
}
template <class M> KW_INLINE bool all(M mask) {
    if constexpr (lanes<M> == 1) return mask;
    else return !any(mask == 0);
}
// A mask as the bytes of a tensor of bool: 0 or 1.
template <class M> KW_INLINE vec<uint8_t, lanes<M>> to_bool(M mask) {
    if constexpr (lanes<M> == 1) return uint8_t(mask != 0);
    else return cast<uint8_t>(mask != 0) & uint8_t(1);
}

// 16-bit floats, by integer arithmetic where the instruction set has no conversion.
template <int W> KW_INLINE vec<float, W> from_bfloat16(vec<uint16_t, W> bits) {
    return bitcast<vec<float, W>>(cast<uint32_t>(bits) << 16);
}
template <int W> KW_INLINE vec<uint16_t, W> to_bfloat16(vec<float, W> v) {
    typedef vec<uint32_t, W> U;
    U bits = bitcast<U>(v);
    U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return cast<uint16_t>(select(v != v, (bits >> 16) | 0x40u, rounded));
}
template <int W> KW_INLINE vec<float, W> from_float16(vec<uint16_t, W> bits) {
#if defined(KW_GCC_AVX512)
    if constexpr (W == 16)
        return __builtin_ia32_vcvtph2ps512_mask((vec<short, 16>)bits, vec<float, 16>{}, (unsigned short)-1, 4);
#endif
#if defined(__F16C__) && !defined(__clang__)
    if constexpr (W == 8) return __builtin_ia32_vcvtph2ps256((vec<short, 8>)bits);
#endif
    typedef vec<uint32_t, W> U;
    U wide = cast<uint32_t>(bits);
    U sign = (wide & 0x8000u) << 16;
    U magnitude = (wide & 0x7fffu) << 13;
    // 2**112 moves the exponent's bias from 15 to 127, and makes denormals normal; infinity and NaN keep all exponent bits.
    vec<float, W> scaled = bitcast<vec<float, W>>(magnitude) * 0x1p112f;
    U special = magnitude | 0x7f800000u;
    return bitcast<vec<float, W>>(select(magnitude >= 0x0f800000u, special, bitcast<U>(scaled)) | sign);
}
template <int W> KW_INLINE vec<uint16_t, W> to_float16(vec<float, W> v) {
#if defined(KW_GCC_AVX512)
    if constexpr (W == 16)
        return (vec<uint16_t, 16>)__builtin_ia32_vcvtps2ph512_mask(v, 0, vec<short, 16>{}, (unsigned short)-1);
#endif
#if defined(__F16C__) && !defined(__clang__)
    if constexpr (W == 8) return (vec<uint16_t, 8>)__builtin_ia32_vcvtps2ph256(v, 0);
#endif
    typedef vec<uint32_t, W> U;
    U bits = bitcast<U>(v);
    U sign = (bits >> 16) & 0x8000u;
    U magnitude = bits & 0x7fffffffu;
    U normal = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
    // Below 2**-14: adding 0.5 leaves the denormal's bits, rounded to nearest even, at the low end of the mantissa.
    U small = bitcast<U>(bitcast<vec<float, W>>(magnitude) + 0.5f) - 0x3f000000u;
    U half = select(magnitude < 0x38800000u, small, normal);
    half = select(magnitude >= 0x477ff000u, same<U>(0x7c00u), half);
    half = select(magnitude > 0x7f800000u, same<U>(0x7e00u), half);
    return cast<uint16_t>(half | sign);
}

template <class T, int W> KW_INLINE vec<T, W> load_raw(const T* p) {
    if constexpr (W == 1) return *p;
    else {
        typedef T unaligned __attribute__((vector_size(sizeof(T) * W), aligned(alignof(T)), may_alias));
        return *(const unaligned*)p;
    }
}
template <class T, int W> KW_INLINE void store_raw(T* p, vec<T, W> v) {
    if constexpr (W == 1) *p = v;
    else {
        typedef T unaligned __attribute__((vector_size(sizeof(T) * W), aligned(alignof(T)), may_alias));
        *(unaligned*)p = v;
    }
}

template <class T, int W> KW_INLINE vec<T, W> load_raw_partial(const T* p, int64_t n, T fill) {
    typedef vec<T, W> V [[maybe_unused]];
#if defined(KW_GCC_AVX512)
    if constexpr (sizeof(V) == 64 && sizeof(T) == 4) {
        vec<float, 16> other = bitcast<vec<float, 16>>(same<V>(fill));
        return bitcast<V>((vec<float, 16>)__builtin_ia32_loadups512_mask((const float*)p, other, (unsigned short)((1u << n) - 1)));
    }
    if constexpr (sizeof(V) == 64 && sizeof(T) == 8) {
        vec<double, 8> other = bitcast<vec<double, 8>>(same<V>(fill));
        return bitcast<V>((vec<double, 8>)__builtin_ia32_loadupd512_mask((const double*)p, other, (unsigned char)((1u << n) - 1)));
    }
#endif
#if defined(KW_GCC_AVX512_NARROW)
    if constexpr (sizeof(V) == 32 && sizeof(T) == 4) {
        vec<float, 8> other = bitcast<vec<float, 8>>(same<V>(fill));
        return bitcast<V>((vec<float, 8>)__builtin_ia32_loadups256_mask((const float*)p, other, (unsigned char)((1u << n) - 1)));
    }
    if constexpr (sizeof(V) == 32 && sizeof(T) == 2) {
        vec<short, 16> other = bitcast<vec<short, 16>>(same<V>(fill));
        return bitcast<V>((vec<short, 16>)__builtin_ia32_loaddquhi256_mask((const short*)p, other, (unsigned short)((1u << n) - 1)));
    }
#endif
    T lanes_of[W];
    for (int i = 0; i < W; ++i) lanes_of[i] = fill;
    __builtin_memcpy(lanes_of, p, size_t(n) * sizeof(T));
    return load_raw<T, W>(lanes_of);
}
template <class T, int W> KW_INLINE void store_raw_partial(T* p, vec<T, W> v, int64_t n) {
    typedef vec<T, W> V [[maybe_unused]];
#if defined(KW_GCC_AVX512)
    if constexpr (sizeof(V) == 64 && sizeof(T) == 4) {
        __builtin_ia32_storeups512_mask((float*)p, bitcast<vec<float, 16>>(v), (unsigned short)((1u << n) - 1));
        return;
    }
    if constexpr (sizeof(V) == 64 && sizeof(T) == 8) {
        __builtin_ia32_storeupd512_mask((double*)p, bitcast<vec<double, 8>>(v), (unsigned char)((1u << n) - 1));
        return;
    }
#endif
#if defined(KW_GCC_AVX512_NARROW)
    if constexpr (sizeof(V) == 32 && sizeof(T) == 4) {
        __builtin_ia32_storeups256_mask((float*)p, bitcast<vec<float, 8>>(v), (unsigned char)((1u << n) - 1));
        return;
    }
    if constexpr (sizeof(V) == 32 && sizeof(T) == 2) {
        __builtin_ia32_storedquhi256_mask((short*)p, bitcast<vec<short, 16>>(v), (unsigned short)((1u << n) - 1));
        return;
    }
#endif
    if constexpr (W == 1) {
        if (n > 0) *p = v;
    } else {
        T lanes_of[W];
        store_raw<T, W>(lanes_of, v);
        __builtin_memcpy(p, lanes_of, size_t(n) * sizeof(T));
    }
}

// W elements from p, at any alignment.
template <int W, class T> KW_INLINE vec<compute<T>, W> load(const T* p) {
    if constexpr (same_type<T, kw_bfloat16>) return from_bfloat16<W>(load_raw<uint16_t, W>((const uint16_t*)p));
    else if constexpr (same_type<T, kw_float16>) return from_float16<W>(load_raw<uint16_t, W>((const uint16_t*)p));
    else return load_raw<compute<T>, W>((const compute<T>*)p);
}
// The first n (0 to W) elements from p; the other lanes hold `fill`. Reads no further.
template <int W, class T> KW_INLINE vec<compute<T>, W> load_partial(const T* p, int64_t n, compute<T> fill = compute<T>(0)) {
    if constexpr (sizeof(T) == 2 && same_type<compute<T>, float>) {
        vec<uint16_t, W> bits = load_raw_partial<uint16_t, W>((const uint16_t*)p, n, 0);
        vec<float, W> v;
        if constexpr (same_type<T, kw_bfloat16>) v = from_bfloat16<W>(bits);
        else v = from_float16<W>(bits);
        return select(iota<int32_t, W>(0) < splat<int32_t, W>(n), v, splat<float, W>(fill));
    } else {
        return load_raw_partial<compute<T>, W>((const compute<T>*)p, n, fill);
    }
}
template <class T, class V> KW_INLINE auto to_stored(V v) {
    constexpr int W = lanes<V>;
    if constexpr (same_type<T, kw_bfloat16>) return to_bfloat16<W>(cast<float>(v));
    else if constexpr (same_type<T, kw_float16>) return to_float16<W>(cast<float>(v));
    else if constexpr (same_type<T, bool>) return to_bool(v);
    else return cast<T>(v);
}
// Converts the lanes to T and writes them at p, at any alignment.
template <class T, class V> KW_INLINE void store(T* p, V v) {
    auto stored = to_stored<T>(v);
    typedef lane<decltype(stored)> S;
    store_raw<S, lanes<V>>((S*)p, stored);
}
// Writes the first n (0 to W) lanes and nothing else.
template <class T, class V> KW_INLINE void store_partial(T* p, V v, int64_t n) {
    auto stored = to_stored<T>(v);
    typedef lane<decltype(stored)> S;
    store_raw_partial<S, lanes<V>>((S*)p, stored, n);
}
// Like `store`, past the caches: p must be aligned to the stored vector's size. Call `stream_fence` once after the last one,
// in the thread that stored.
template <class T, class V> KW_INLINE void store_stream(T* p, V v) {
    auto stored = to_stored<T>(v);
    typedef decltype(stored) S;
#if defined(KW_GCC_AVX512)
    if constexpr (sizeof(S) == 64) return __builtin_ia32_movntps512((float*)p, bitcast<vec<float, 16>>(stored));
#endif
#if defined(KW_GCC_AVX)
    if constexpr (sizeof(S) == 32) return __builtin_ia32_movntps256((float*)p, bitcast<vec<float, 8>>(stored));
#endif
#if defined(__SSE2__) && !defined(__clang__)
    if constexpr (sizeof(S) == 16) return __builtin_ia32_movntps((float*)p, bitcast<vec<float, 4>>(stored));
#endif
#if defined(__clang__)
    if constexpr (sizeof(S) >= 16) return __builtin_nontemporal_store(stored, (S*)p);
#endif
    if constexpr (sizeof(S) > register_bytes && lanes<V> > 2) {
        store_stream(p, lower(v));
        store_stream(p + lanes<V> / 2, upper(v));
    } else {
        store(p, v);
    }
}
KW_INLINE void stream_fence() {
#if defined(__SSE2__) && !defined(__clang__)
    __builtin_ia32_sfence();
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
// Asks for the cache line at p; `level` 3 keeps it in all caches, 0 in none after use. Never faults.
template <int level = 3> KW_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, level); }

template <int W, class T, class V> KW_INLINE void store(T* p, V v) {
    static_assert(W == lanes<V>, "store<W> needs a vector of W lanes");
    store(p, v);
}
template <int W, class T, class V> KW_INLINE void store_partial(T* p, V v, int64_t n) {
    static_assert(W == lanes<V>, "store_partial<W> needs a vector of W lanes");
    store_partial(p, v, n);
}
template <int W, class T, class V> KW_INLINE void store_stream(T* p, V v) {
    static_assert(W == lanes<V>, "store_stream<W> needs a vector of W lanes");
    store_stream(p, v);
}

// base[index] for each lane.
template <int W, class T, class I> KW_INLINE vec<compute<T>, W> gather(const T* base, I index) {
    if constexpr (W == 1) return load<1>(base + index);
    else if constexpr (sizeof(T) == 2 && same_type<compute<T>, float>) {
        vec<uint16_t, W> bits{};
        for (int i = 0; i < W; ++i) bits[i] = base[index[i]].bits;
        if constexpr (same_type<T, kw_bfloat16>) return from_bfloat16<W>(bits);
        else return from_float16<W>(bits);
    } else {
        vec<compute<T>, W> v{};
        for (int i = 0; i < W; ++i) v[i] = base[index[i]];
        return v;
    }
}

// Reductions over the lanes, in a fixed tree order.
template <class V, class F> KW_INLINE lane<V> reduce(V v, F combine) {
    if constexpr (lanes<V> == 1) return v;
    else return reduce(combine(lower(v), upper(v)), combine);
}

}  // namespace kw
#endif
