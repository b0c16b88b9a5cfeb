// Mathematics on lanes of float and double. Included through kw_vector.h.
//
// Every function takes a vector or a scalar of one type and returns the same type. Scalars run through the vector code, so
// that tails are as accurate as lanes. NaN, infinities, denormals and signed zeros come out as in IEEE 754 and the C library.
// Largest error in float: 3 ulp, but 4 for tan and erfc, 6 for gelu_erf; in double 4 (activations: 5). In the far negative
// tails of silu, gelu_erf and gelu_tanh, where a rounding of the argument alone is many ulp of the result, it grows. sigmoid,
// softplus and these three give zero below about 1e-36 (1e-305 in double), because arithmetic on denormal numbers is slow.
// Polynomials are our own near-minimax fits (Chebyshev interpolation in 60 digits) on the interval of the reduced argument.
#ifndef KW_MATH_H
#define KW_MATH_H
#include "kw_arithmetic.h"

namespace kw {

// Defines `name` for scalars and vectors by `detail::name`, which sees vectors only.
#define KW_UNARY(name)                                                             \
    template <class V> KW_INLINE V name(V x) {                                     \
        static_assert(is_float<lane<V>>, #name " takes float or double");          \
        if constexpr (lanes<V> == 1) return detail::name(detail::widened(x))[0];   \
        else return detail::name(x);                                               \
    }
#define KW_BINARY(name)                                                                                  \
    template <class V> KW_INLINE V name(V x, V y) {                                                      \
        static_assert(is_float<lane<V>>, #name " takes float or double");                                \
        if constexpr (lanes<V> == 1) return detail::name(detail::widened(x), detail::widened(y))[0];     \
        else return detail::name(x, y);                                                                  \
    }

namespace detail {

// (e**r - 1 - r) / r**2 for |r| <= log(2) / 2.
template <class V> KW_INLINE V exp_tail(V r) {
    if constexpr (sizeof(lane<V>) == 4)
        return poly(r, 5.000000000e-01f, 1.666666716e-01f, 4.166646302e-02f, 8.333310485e-03f, 1.393382088e-03f, 1.989118027e-04f);
    else
        return poly(r, 5.00000000000000000e-01, 1.66666666666666713e-01, 4.16666666666666713e-02, 8.33333333332602483e-03,
                    1.38888888888836701e-03, 1.98412698752050765e-04, 2.48015873258222830e-05, 2.75572549134867007e-06,
                    2.75572732955397243e-07, 2.51054191920163374e-08, 2.09148313513804104e-09);
}
// n = nearest integer to x / log(2), r = x - n log(2).
template <class V> KW_INLINE void split_by_log2(V x, V& n, V& r) {
    if constexpr (sizeof(lane<V>) == 4) {
        n = rounded_small(x * 1.44269504f);
        r = x - n * 0.693359375f;
        r = r - n * -2.12194440e-4f;
    } else {
        n = rounded_small(x * 1.4426950408889634);
        r = x - n * 0x1.62e42fefa2000p-1;
        r = r - n * 0x1.9ef35793c7673p-41;
    }
}
template <class V> KW_INLINE V clamped(V x, lane<V> low, lane<V> high) {
    return smaller(same<V>(high), larger(same<V>(low), x));
}

// e**(x - minus) * 2**extra, where |minus| is below 0.1.
template <class V> KW_INLINE V exp_split(V x, V minus, lane<V> extra) {
    V n, r;
    split_by_log2(x, n, r);
    r = r - minus;
    return scaled(r * r * exp_tail(r) + r + lane<V>(1), n + extra);
}
// p * 2**n, zero in the lanes of `vanishing`. Instructions that make denormal numbers, or zero out of them, take a hundred
// cycles on common chips: small results are formed 2**lift higher, so that only true denormals pay.
template <class V, class M> KW_INLINE V scaled_down(V p, V n, M vanishing) {
    constexpr lane<V> least = single<V> ? -125 : -1021, lift = single<V> ? 64 : 128;
    auto low = n < same<V>(least);
    V high = select(vanishing, V{}, scaled(p, select(low, V(n + lift), n)));
    return select(low, V(high * lane<V>(single<V> ? 0x1p-64 : 0x1p-128)), high);
}
template <class V> KW_INLINE V exp(V x) {
    V n, r;
    split_by_log2(single<V> ? clamped(x, -104, 89) : clamped(x, -746, 710), n, r);
    return scaled_down(V(r * r * exp_tail(r) + r + lane<V>(1)), n, x < same<V>(single<V> ? -103.98 : -745.2));
}
// e**x for x <= 0, and zero instead of a denormal number: for results in which such numbers do not matter, but would cost.
template <class V> KW_INLINE V exp_below_zero(V x) {
    const V least = same<V>(single<V> ? -87.3 : -708.3);
    V n, r;
    split_by_log2(larger(least, x), n, r);
    return select(x < least, V{}, scaled(V(r * r * exp_tail(r) + r + lane<V>(1)), n));
}
template <class V> KW_INLINE V exp2(V x) {
    V y = single<V> ? clamped(x, -151, 129) : clamped(x, -1076, 1025);
    V n = rounded_small(y);
    V r = (y - n) * lane<V>(0.693147180559945309);
    return scaled_down(V(r * r * exp_tail(r) + r + lane<V>(1)), n, x < same<V>(single<V> ? -150 : -1075));
}
template <class V> KW_INLINE V expm1(V x) {
    typedef lane<V> T;
    V n, r;
    split_by_log2(single<V> ? clamped(x, -18, 89) : clamped(x, -40, 710), n, r);
    V tail = r * r * exp_tail(r) + r;
    typedef integers<V> I;
    typedef lane<I> L;
    constexpr int mantissa = single<V> ? 23 : 52;
    // Half of 2**n stays finite for the largest n.
    I bits = bitcast<I>((n + T(single<V> ? 126 : 1022)) + rounder<V>) << L(mantissa);
    V half = bitcast<V>(bits);
    V result = ((half - T(0.5)) + half * tail) * T(2);
    return select(abs(x) < same<V>(single<V> ? 0x1p-25 : 0x1p-54), x, result);
}

// x = 2**e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); x positive and normal.
template <class V> KW_INLINE void split_exponent(V x, V& e, V& f) {
    typedef integers<V> I;
    typedef lane<I> L;
    constexpr int mantissa = single<V> ? 23 : 52;
    constexpr L root = single<V> ? L(0x3f3504f3) : L(0x3fe6a09e667f3bcc);
    I shifted = bitcast<I>(x) - root;
    e = bitcast<V>((shifted >> L(mantissa)) + bitcast<I>(same<V>(rounder<V>))) - rounder<V>;
    f = bitcast<V>((shifted & ((L(1) << mantissa) - 1)) + root) - lane<V>(1);
}
// log(1 + f) - f.
template <class V> KW_INLINE V log_tail(V f) {
    if constexpr (single<V>) {
        V p = poly(f, 3.333333135e-01f, -2.499999702e-01f, 2.000071555e-01f, -1.666780263e-01f, 1.424905807e-01f,
                   -1.242568716e-01f, 1.168541983e-01f, -1.147973388e-01f, 6.971611828e-02f);
        V square = f * f;
        return square * (f * p) - square * 0.5f;
    } else {
        V s = f / (f + 2.0), z = s * s, half = f * f * 0.5;
        V p = z * poly(z, 6.66666666666666630e-01, 4.00000000000008848e-01, 2.85714285707997839e-01, 2.22222223925810453e-01,
                       1.81817955475211374e-01, 1.53862447376216654e-01, 1.32686383692668247e-01, 1.30880348509275546e-01);
        return s * (half + p) - half;
    }
}
template <class V> KW_INLINE V log_special(V x, V result) {
    V infinity = same<V>(__builtin_inf()), zero = same<V>(0);
    result = select(x < infinity, result, x);
    result = select(x < zero, same<V>(__builtin_nan("")), result);
    return select(x == zero, -infinity, result);
}
// Splits any positive x, also a denormal one.
template <class V> KW_INLINE void split_positive(V x, V& e, V& f) {
    typedef lane<V> T;
    auto small = x < same<V>(single<V> ? 0x1p-126 : 0x1p-1022);
    constexpr T lift = single<V> ? T(0x1p23) : T(0x1p52);
    split_exponent(select(small, V(x * lift), x), e, f);
    e = e - select(small, same<V>(single<V> ? 23 : 52), same<V>(0));
}
template <class V> KW_INLINE V log_joined(V e, V f, V tail) {
    if constexpr (single<V>) return (e * -2.12194440e-4f + tail + f) + e * 0.693359375f;
    else return (e * 0x1.9ef35793c7673p-41 + tail + f) + e * 0x1.62e42fefa2000p-1;
}
template <class V> KW_INLINE V log(V x) {
    V e, f;
    split_positive(x, e, f);
    return log_special(x, log_joined(e, f, log_tail(f)));
}
template <class V> KW_INLINE V log2_plain(V x) {
    V e, f;
    split_positive(x, e, f);
    constexpr lane<V> c = lane<V>(1.44269504088896341);
    return log_tail(f) * c + (f * c + e);
}
template <class V> KW_INLINE V log2(V x) {
    if constexpr (single<V>) return log_special(x, log2_plain(x));
    else KW_LANEWISE(x, __builtin_log2)
}
template <class V> KW_INLINE V log10(V x) {
    if constexpr (single<V>) {
        V e, f;
        split_positive(x, e, f);
        constexpr float c = 0.4342944819f;
        return log_special(x, (log_tail(f) * c + e * 4.605038981e-6f + f * c) + e * 0.301025390625f);
    } else KW_LANEWISE(x, __builtin_log10)
}
template <class V> KW_INLINE V log1p(V x) {
    typedef lane<V> T;
    V u = x + T(1), e, f;
    split_exponent(u, e, f);
    // 1 + x is rounded; x 2**-e + (2**-e - 1) is not until the end. Where x is so large that 1 is lost, u's own split does.
    V down = scaled(same<V>(1), -e);
    f = select(x < same<V>(single<V> ? 0x1p26 : 0x1p55), V(x * down + (down - T(1))), f);
    V result = select(abs(x) < same<V>(single<V> ? 0x1p-25 : 0x1p-54), x, log_joined(e, f, log_tail(f)));
    result = select(x < same<V>(__builtin_inf()), result, x);
    result = select(x < same<V>(-1), same<V>(__builtin_nan("")), result);
    return select(x == same<V>(-1), same<V>(-__builtin_inf()), result);
}

// The quadrant and the remainder of x / (pi/2), |x| below 2**27, in double.
template <class D> KW_INLINE D reduced_angle(D x, integers<D>& quadrant) {
    D turns = x * 0x1.45f306dc9c883p-1 + rounder<D>;
    quadrant = bitcast<integers<D>>(turns);
    D n = turns - rounder<D>;
    return ((x - n * 0x1.921fb50000000p+0) - n * 0x1.110b460000000p-26) - n * 0x1.1a62633145c07p-54;
}
template <class V> KW_INLINE void sine_and_cosine(V x, V& sine, V& cosine, integers<V>& quadrant) {
    V r;
    if constexpr (sizeof(V) * 2 > register_bytes && lanes<V> > 2) {
        typedef vec<double, lanes<V> / 2> D;
        integers<D> low_quadrant, high_quadrant;
        D low = reduced_angle(cast<double>(lower(x)), low_quadrant), high = reduced_angle(cast<double>(upper(x)), high_quadrant);
        r = join(cast<float>(low), cast<float>(high));
        quadrant = join(cast<int32_t>(low_quadrant), cast<int32_t>(high_quadrant));
    } else {
        integers<vec<double, lanes<V>>> wide;
        r = cast<float>(reduced_angle(cast<double>(x), wide));
        quadrant = cast<int32_t>(wide);
    }
    V z = r * r;
    sine = r * z * poly(z, -1.666666716e-01f, 8.333331905e-03f, -1.984008413e-04f, 2.724962087e-06f) + r;
    sine = copysign(sine, r);
    cosine = z * z * poly(z, 4.166666791e-02f, -1.388888806e-03f, 2.480059811e-05f, -2.730070321e-07f) + (1.f - z * 0.5f);
}
template <class V> KW_INLINE bool has_large_angle(V x) { return any(abs(x) > same<V>(0x1p27)); }
template <class V> KW_INLINE V sine_from(V x, int32_t turn) {
    V s, c;
    integers<V> q;
    sine_and_cosine(x, s, c, q);
    q = q + turn;
    return bitcast<V>(bitcast<integers<V>>(select((q & 1) != 0, c, s)) ^ ((q & 2) << 30));
}
#define KW_LARGE_ANGLES(function)                                                     \
    template <class V> __attribute__((noinline)) V function##_large(V x, V small) {   \
        for (int i = 0; i < lanes<V>; ++i)                                            \
            if (!(x[i] >= -0x1p27 && x[i] <= 0x1p27)) {                               \
                if constexpr (single<V>) small[i] = __builtin_##function##f(x[i]);    \
                else small[i] = __builtin_##function(x[i]);                           \
            }                                                                         \
        return small;                                                                 \
    }
KW_LARGE_ANGLES(sin)
KW_LARGE_ANGLES(cos)
KW_LARGE_ANGLES(tan)
#undef KW_LARGE_ANGLES
template <class V> KW_INLINE V sin(V x) {
    if constexpr (single<V>) {
        V result = sine_from(x, 0);
        return __builtin_expect(has_large_angle(x), 0) ? sin_large(x, result) : result;
    } else KW_LANEWISE(x, __builtin_sin)
}
template <class V> KW_INLINE V cos(V x) {
    if constexpr (single<V>) {
        V result = sine_from(x, 1);
        return __builtin_expect(has_large_angle(x), 0) ? cos_large(x, result) : result;
    } else KW_LANEWISE(x, __builtin_cos)
}
template <class V> KW_INLINE V tan(V x) {
    if constexpr (single<V>) {
        V s, c;
        integers<V> q;
        sine_and_cosine(x, s, c, q);
        auto swap = (q & 1) != 0;
        V result = select(swap, -c, s) / select(swap, s, c);
        return __builtin_expect(has_large_angle(x), 0) ? tan_large(x, result) : result;
    } else KW_LANEWISE(x, __builtin_tan)
}

// atan of z in [0, 1].
template <class V> KW_INLINE V atan_small(V z) {
    V s = z * z;
    return z * s * poly(s, -3.333333433e-01f, 1.999994963e-01f, -1.428400427e-01f, 1.108826175e-01f, -8.931826800e-02f,
                        7.031914592e-02f, -4.896051437e-02f, 2.630500123e-02f, -9.144629352e-03f, 1.488691894e-03f) + z;
}
constexpr float half_pi = 1.57079637f, half_pi_low = -4.37113883e-8f;
template <class V> KW_INLINE V atan(V x) {
    if constexpr (single<V>) {
        V size = abs(x), one = same<V>(1);
        auto large = size > one;
        V angle = atan_small(select(large, one, size) / select(large, size, one));
        return copysign(select(large, V(half_pi - (angle - half_pi_low)), angle), x);
    } else KW_LANEWISE(x, __builtin_atan)
}
template <class V> KW_INLINE V atan2(V y, V x) {
    if constexpr (single<V>) {
        V ay = abs(y), ax = abs(x), zero = same<V>(0);
        auto steep = ay > ax;
        V low = select(steep, ax, ay), high = select(steep, ay, ax);
        V ratio = low / high;
        ratio = select(high == zero, zero, select(low == same<V>(__builtin_inf()), same<V>(1), ratio));
        V angle = atan_small(ratio);
        angle = select(steep, V(half_pi - (angle - half_pi_low)), angle);
        angle = select(bitcast<integers<V>>(x) < 0, V(2 * half_pi - (angle - 2 * half_pi_low)), angle);
        return select((x != x) | (y != y), V(x + y), copysign(angle, y));
    } else KW_LANEWISE_2(y, x, __builtin_atan2)
}
// asin of |x| where that is at most 1/2, else of sqrt((1 - |x|) / 2).
template <class V> KW_INLINE V asin_part(V x, integers<V>& large) {
    V size = abs(x);
    large = size > same<V>(0.5);
    V z = select(large, V((1.f - size) * 0.5f), V(size * size));
    V s = select(large, detail::sqrt(z), size);
    return s * z * poly(z, 1.666666567e-01f, 7.500094175e-02f, 4.459940270e-02f, 3.110066243e-02f, 1.714923792e-02f,
                        3.369084746e-02f) + s;
}
template <class V> KW_INLINE V asin(V x) {
    if constexpr (single<V>) {
        integers<V> large;
        V part = asin_part(x, large);
        return copysign(select(large, V(half_pi - (part * 2.f - half_pi_low)), part), x);
    } else KW_LANEWISE(x, __builtin_asin)
}
template <class V> KW_INLINE V acos(V x) {
    if constexpr (single<V>) {
        integers<V> large;
        V part = asin_part(x, large), twice = part * 2.f;
        V outer = select(x < same<V>(0), V(2 * half_pi - (twice - 2 * half_pi_low)), twice);
        return select(large, outer, V(half_pi - (copysign(part, x) - half_pi_low)));
    } else KW_LANEWISE(x, __builtin_acos)
}

// e**|x| / 2.
template <class V> KW_INLINE V half_exp(V x) {
    V n, r;
    split_by_log2(clamped(abs(x), 0, single<V> ? 90 : 711), n, r);
    return scaled(r * r * exp_tail(r) + r + lane<V>(1), n - lane<V>(1));
}
template <class V> KW_INLINE V sinh(V x) {
    if constexpr (single<V>) {
        V half = half_exp(x), z = x * x;
        V small = x * z * poly(z, 1.666666716e-01f, 8.333339356e-03f, 1.983810216e-04f, 2.806280236e-06f) + x;
        return select(abs(x) < same<V>(1), small, copysign(V(half - 0.25f / half), x));
    } else KW_LANEWISE(x, __builtin_sinh)
}
template <class V> KW_INLINE V cosh(V x) {
    V half = half_exp(x);
    return half + lane<V>(0.25) / half;
}
template <class V> KW_INLINE V tanh(V x) {
    V t = detail::expm1(V(abs(x) * lane<V>(-2)));
    return copysign(V(t / (t + lane<V>(2))), x);
}
template <class V> KW_INLINE V sigmoid(V x) {
    V e = exp_below_zero(V(-abs(x))), one = same<V>(1);
    return select(x < same<V>(0), e, one) / (e + one);
}

template <class V> KW_INLINE V erf(V x) {
    if constexpr (single<V>) {
        // 1 - erf = e**(-x q(x)) on [0, 4], beyond which erf rounds to 1.
        V size = clamped(abs(x), 0, 4);
        V q = poly(size, 1.128379226e+00f, 6.366195679e-01f, 1.027733609e-01f, -1.912138611e-02f, -2.581503941e-04f, 1.823030761e-03f,
                   -7.718797424e-04f, 1.880921773e-04f, -2.874358142e-05f, 2.558765118e-06f, -1.013977240e-07f);
        return copysign(detail::expm1(V(-size * q)), x);
    } else KW_LANEWISE(x, __builtin_erf)
}
// (z + 2) e**(z z) erfc(z) as a polynomial in t = (z - 2) / (z + 2), z in [0, 10.2].
template <class V> KW_INLINE V erfc_mantissa(V t) {
    return poly(t, 1.021582723e+00f, -6.871607304e-01f, 2.794717550e-01f, -3.644127026e-02f, -2.150562406e-02f, 6.472459529e-03f,
                3.061405616e-03f, -8.234001580e-04f, -5.879125674e-04f, 3.942530020e-05f, 6.415531243e-05f);
}
// The upper 12 bits of the mantissa: their square is exact.
template <class V> KW_INLINE V leading_bits(V x) { return bitcast<V>(bitcast<integers<V>>(x) & int32_t(0xfffff000)); }
template <class V> KW_INLINE V erfc(V x) {
    if constexpr (single<V>) {
        V size = abs(x), z = smaller(same<V>(10.2f), size), head = leading_bits(z);
        V decay = exp_split(V(-head * head), V((z - head) * (z + head)), 64.f);
        V upper_tail = decay * erfc_mantissa(V((z - 2.f) / (z + 2.f))) / (z + 2.f);
        upper_tail = select(size > same<V>(10.1f), V{}, upper_tail) * 0x1p-64f;
        return select(x < same<V>(0), V(2.f - upper_tail), upper_tail);
    } else KW_LANEWISE(x, __builtin_erfc)
}
// x Phi(x) with Phi(-|x|) = erfc(|x| / sqrt(2)) / 2, so that the tail keeps its digits.
template <class V> KW_INLINE V gelu_erf(V x) {
    if constexpr (single<V>) {
        V size = abs(x), a = smaller(same<V>(13.1f), size), head = leading_bits(a);
        V inverse = 1.f / (a * 0.707106781f + 2.f);
        V decay = exp_split(V(head * head * -0.5f), V((a - head) * (a + head) * 0.5f), 64.f);
        V tail = decay * (erfc_mantissa(V(1.f - 4.f * inverse)) * (inverse * 0.5f));
        // Further out the result is 0 or x up to denormal numbers, which are slow.
        tail = select(size > same<V>(13.1f), V{}, tail);
        V missing = smaller(same<V>(13.1f), x) * tail * 0x1p-64f;
        return select(bitcast<integers<V>>(x) < 0, missing, V(x - missing));
    } else {
        return x * 0.5 * detail::erfc(V(x * -0.70710678118654752));
    }
}
// x / (1 + e**(-2u)) = x (1 + tanh u) / 2, without the cancellation for negative u.
template <class V> KW_INLINE V gelu_tanh(V x) {
    typedef lane<V> T;
    V u = x * (x * x * T(0.044715 * 0.79788456080286536) + T(0.79788456080286536));
    return x * detail::sigmoid(V(u * T(2)));
}
template <class V> KW_INLINE V silu(V x) {
    V e = exp_below_zero(V(-abs(x))), one = same<V>(1);
    return x * (select(x < same<V>(0), e, one) / (e + one));
}

// float: in double, where the product y log2(x) keeps enough digits.
template <class D> KW_INLINE D power_magnitude(D x, D y) {
    D zero = same<D>(0), infinity = same<D>(__builtin_inf());
    D exponent = log2_plain(x);
    exponent = select(x == zero, -infinity, select(x < infinity, exponent, x));
    return detail::exp2(D(y * exponent));
}
template <class V> KW_INLINE V pow(V x, V y) {
    if constexpr (single<V>) {
        V size = abs(x), result, one = same<V>(1), zero = same<V>(0);
        if constexpr (sizeof(V) * 2 > register_bytes && lanes<V> > 2)
            result = join(cast<float>(power_magnitude(cast<double>(lower(size)), cast<double>(lower(y)))),
                          cast<float>(power_magnitude(cast<double>(upper(size)), cast<double>(upper(y)))));
        else
            result = cast<float>(power_magnitude(cast<double>(size), cast<double>(y)));
        auto whole = detail::trunc(y) == y;
        auto within = abs(y) < same<V>(0x1p24);
        auto odd = whole & within & ((cast<int32_t>(select(within, y, zero)) & 1) != 0);
        auto negative = bitcast<integers<V>>(x) < 0;
        result = select(size == one, one, result);
        result = select(odd & negative, -result, result);
        result = select((x < zero) & ~whole & (size < same<V>(__builtin_inf())), same<V>(__builtin_nan("")), result);
        result = select((x != x) | (y != y), V(x + y), result);
        return select((y == zero) | (x == one), one, result);
    } else KW_LANEWISE_2(x, y, __builtin_pow)
}
template <class V> KW_INLINE V fmod(V x, V y) KW_LANEWISE_2(x, y, __builtin_fmod)

}  // namespace detail

KW_UNARY(floor)
KW_UNARY(ceil)
KW_UNARY(trunc)
KW_UNARY(round)  // halves to even
KW_UNARY(sqrt)
KW_UNARY(exp)
KW_UNARY(exp_below_zero)  // for x <= 0, as in a softmax: zero instead of denormal numbers
KW_UNARY(exp2)
KW_UNARY(expm1)
KW_UNARY(log)
KW_UNARY(log2)
KW_UNARY(log10)
KW_UNARY(log1p)
KW_UNARY(sin)
KW_UNARY(cos)
KW_UNARY(tan)
KW_UNARY(atan)
KW_UNARY(asin)
KW_UNARY(acos)
KW_UNARY(sinh)
KW_UNARY(cosh)
KW_UNARY(tanh)
KW_UNARY(erf)
KW_UNARY(erfc)
KW_UNARY(sigmoid)
KW_UNARY(silu)
KW_UNARY(gelu_erf)
KW_UNARY(gelu_tanh)
KW_BINARY(atan2)
KW_BINARY(pow)

template <class V> KW_INLINE V rsqrt(V x) { return lane<V>(1) / kw::sqrt(x); }
template <class V> KW_INLINE V reciprocal(V x) { return lane<V>(1) / x; }

// Sign of the dividend, as C and torch.fmod; integers as well.
template <class V> KW_INLINE V fmod(V x, V y) {
    if constexpr (!is_float<lane<V>>) return x % y;
    else if constexpr (lanes<V> == 1) return detail::fmod(detail::widened(x), detail::widened(y))[0];
    else return detail::fmod(x, y);
}
// Sign of the divisor, as Python's % and torch.remainder; integers as well.
template <class V> KW_INLINE V remainder(V x, V y) {
    V r = fmod(x, y), zero = same<V>(0);
    return select((r != zero) & ((r < zero) != (y < zero)), V(r + y), r);
}
// log(1 + e**(beta x)) / beta, and x itself where beta x exceeds the threshold, as torch's.
template <class V> KW_INLINE V softplus(V x, lane<V> beta = 1, lane<V> threshold = 20) {
    V u = x * beta, zero = same<V>(0);
    V smooth = (select(u > zero, u, zero) + kw::log1p(kw::exp_below_zero(V(-abs(u))))) / beta;
    return select((u > same<V>(threshold)) | (u != u), x, smooth);
}

#undef KW_UNARY
#undef KW_BINARY
#undef KW_LANEWISE
#undef KW_LANEWISE_2

}  // namespace kw
#endif
