// Measures what this machine can reach with all its cores. Prints one line per figure: name, unit, samples.
//
//     measure THREADS RING_BYTES PIECE_BYTES CACHE_BYTES SECONDS_PER_FIGURE
//
// Copies and reads walk through a ring of RING_BYTES, PIECE_BYTES at a time, as timed kernels do with their rotating
// inputs; the destination is one warm piece, as an allocator that keeps its memory gives it. Bytes are counted as asked
// for (read plus written), not as the memory bus sees them: an ordinary store also reads the line it is about to
// overwrite, a streaming store does not, so both are measured and the better one is the ceiling.
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__AVX512F__)
#define LANE_BYTES 64
#elif defined(__AVX__)
#define LANE_BYTES 32
#else
#define LANE_BYTES 16
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef uint64_t words __attribute__((vector_size(LANE_BYTES)));
static const int minimum_samples = 5;
static const int maximum_samples = 300;
static int threads;
static double seconds_per_figure;

static double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void* fresh(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "cannot map %zu bytes\n", bytes);
        exit(1);
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    words* lanes = (words*)memory;
    const int64_t count = bytes / LANE_BYTES;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; ++i) lanes[i] = words{} + uint64_t(i);
    return memory;
}

// Calls `work` until the time for one figure is up, at least `minimum_samples` times; `amount` per call over seconds.
template <class Work>
static void figure(const char* name, const char* unit, double amount, Work work) {
    for (int warm = 0; warm < 2; ++warm) work(warm);
    printf("%s %s", name, unit);
    const double start = now();
    for (int sample = 0; sample < maximum_samples; ++sample) {
        const double begin = now();
        work(sample);
        const double elapsed = now() - begin;
        printf(" %.6g", amount > 0 ? amount / elapsed : elapsed * 1e6);
        if (sample + 1 >= minimum_samples && now() - start > seconds_per_figure) break;
    }
    printf("\n");
    fflush(stdout);
}

static void copy_plain(words* __restrict to, const words* __restrict from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

static void copy_streaming(words* __restrict to, const words* __restrict from, int64_t count) {
#if defined(__AVX512F__)
    for (int64_t i = 0; i < count; ++i) _mm512_stream_si512((__m512i*)(to + i), (__m512i)from[i]);
    _mm_sfence();
#elif defined(__AVX__)
    for (int64_t i = 0; i < count; ++i) _mm256_stream_si256((__m256i*)(to + i), (__m256i)from[i]);
    _mm_sfence();
#elif defined(__x86_64__)
    for (int64_t i = 0; i < count; ++i) _mm_stream_si128((__m128i*)(to + i), (__m128i)from[i]);
    _mm_sfence();
#else
    copy_plain(to, from, count);
#endif
}

static volatile uint64_t sink;

static void read_all(const words* from, int64_t count) {
    words a{}, b{}, c{}, d{};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        a ^= from[i];
        b ^= from[i + 1];
        c ^= from[i + 2];
        d ^= from[i + 3];
    }
    a ^= b ^ c ^ d;
    sink = a[0];
}

template <class Part>
static void in_parts(int64_t count, Part part) {
#pragma omp parallel num_threads(threads)
    {
        const int64_t share = (count + threads - 1) / threads;
        const int64_t begin = share * omp_get_thread_num();
        const int64_t end = begin + share < count ? begin + share : count;
        if (begin < end) part(begin, end - begin);
    }
}

// Independent multiply-add chains: enough of them to cover latency times issue width on current cores.
template <class T>
static double chains(int64_t rounds) {
    typedef T lanes __attribute__((vector_size(LANE_BYTES)));
    const int width = 12;
    lanes sum[width];
    lanes factor = lanes{} + T(0.999999), addend = lanes{} + T(1e-6);
    for (int k = 0; k < width; ++k) sum[k] = lanes{} + T(k);
    for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
        for (int k = 0; k < width; ++k) sum[k] = sum[k] * factor + addend;
    }
    T total = 0;
    for (int k = 0; k < width; ++k) total += sum[k][0];
    return double(total);
}

template <class T>
static void fma_peak(const char* name) {
    const int64_t rounds = 400000;
    const double operations = 2.0 * 12 * (LANE_BYTES / sizeof(T)) * double(rounds) * threads;
    figure(name, "gflops", operations / 1e9, [&](int) {
#pragma omp parallel num_threads(threads)
        sink = uint64_t(chains<T>(rounds));
    });
}

#if defined(__AVX512BF16__)
static float bfloat16_chains(int64_t rounds) {
    const int width = 12;
    __m512 sum[width];
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f)), b = a;
    for (int k = 0; k < width; ++k) sum[k] = _mm512_set1_ps(float(k));
    for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
        for (int k = 0; k < width; ++k) sum[k] = _mm512_dpbf16_ps(sum[k], a, b);
    }
    float total = 0;
    for (int k = 0; k < width; ++k) total += _mm512_reduce_add_ps(sum[k]);
    return total;
}
#endif

#if defined(__AVX512FP16__)
static float float16_chains(int64_t rounds) {
    const int width = 12;
    __m512h sum[width];
    const __m512h a = _mm512_set1_ph(_Float16(0.5f)), b = a;
    for (int k = 0; k < width; ++k) sum[k] = _mm512_set1_ph(_Float16(float(k)));
    for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
        for (int k = 0; k < width; ++k) sum[k] = _mm512_fmadd_ph(sum[k], a, b);
    }
    __m512h total = sum[0];
    for (int k = 1; k < width; ++k) total = _mm512_add_ph(total, sum[k]);
    return float(_mm512_reduce_add_ph(total));
}
#endif

#if defined(__AMX_BF16__)
// Linux hands the tile registers out on request only (arch_prctl ARCH_REQ_XCOMP_PERM, feature XTILEDATA).
static bool tiles_granted() { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

static void tile_products(int64_t rounds) {
    alignas(64) uint8_t shape[64] = {1};
    alignas(64) static uint16_t zeros[16 * 32];
    for (int tile = 0; tile < 8; ++tile) {
        shape[16 + 2 * tile] = 64;  // bytes of a row
        shape[48 + tile] = 16;      // rows
    }
    // The intrinsic tells the compiler that it reads eight bytes; it reads all sixty-four.
    asm volatile("" : : "r"(shape) : "memory");
    _tile_loadconfig(shape);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, zeros, 64);
    _tile_loadd(5, zeros, 64);
    _tile_loadd(6, zeros, 64);
    _tile_loadd(7, zeros, 64);
    for (int64_t r = 0; r < rounds; ++r) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
}
#endif

int main(int argc, char** argv) {
    if (argc != 6) return 2;
    threads = atoi(argv[1]);
    const int64_t ring_bytes = atoll(argv[2]), piece_bytes = atoll(argv[3]), cache_bytes = atoll(argv[4]);
    seconds_per_figure = atof(argv[5]);
    omp_set_dynamic(0);

    figure("call", "us", 0, [&](int) {
#pragma omp parallel num_threads(threads)
        sink = 1;
    });

    const words* ring = (const words*)fresh(ring_bytes);
    words* target = (words*)fresh(piece_bytes);
    const int64_t piece = piece_bytes / LANE_BYTES;
    const int64_t pieces = ring_bytes / piece_bytes;
    const double copied = 2e-9 * double(piece_bytes);
    figure("copy_plain", "gbytes", copied, [&](int step) {
        in_parts(piece, [&](int64_t at, int64_t n) { copy_plain(target + at, ring + (step % pieces) * piece + at, n); });
    });
    figure("copy_streaming", "gbytes", copied, [&](int step) {
        in_parts(piece, [&](int64_t at, int64_t n) { copy_streaming(target + at, ring + (step % pieces) * piece + at, n); });
    });
    figure("read", "gbytes", 1e-9 * double(piece_bytes), [&](int step) {
        in_parts(piece, [&](int64_t at, int64_t n) { read_all(ring + (step % pieces) * piece + at, n); });
    });

    // Each thread copies inside its own second-level cache, many times within one parallel region.
    const int64_t own = cache_bytes / LANE_BYTES / 2;
    const int repeats = 200;
    figure("cache_copy", "gbytes", 2e-9 * double(own * LANE_BYTES) * repeats * threads, [&](int) {
#pragma omp parallel num_threads(threads)
        {
            const int64_t share = pieces * piece / threads;
            words* from = (words*)ring + share * omp_get_thread_num();
            words* to = target + piece / threads * omp_get_thread_num();
            for (int r = 0; r < repeats; ++r) {
                copy_plain(to, from, own);
                asm volatile("" ::: "memory");
            }
        }
    });

    fma_peak<float>("fma_float32");
    fma_peak<double>("fma_float64");
#if defined(__AVX512BF16__)
    const int64_t rounds = 400000;
    figure("fma_bfloat16", "gflops", 2e-9 * 12 * 32 * double(rounds) * threads, [&](int) {
#pragma omp parallel num_threads(threads)
        sink = uint64_t(bfloat16_chains(rounds));
    });
#endif
#if defined(__AVX512FP16__)
    const int64_t half_rounds = 400000;
    figure("fma_float16", "gflops", 2e-9 * 12 * 32 * double(half_rounds) * threads, [&](int) {
#pragma omp parallel num_threads(threads)
        sink = uint64_t(float16_chains(half_rounds));
    });
#endif
#if defined(__AMX_BF16__)
    const int64_t products = 100000;
    if (tiles_granted()) {
        figure("tile_bfloat16", "gflops", 2e-9 * 4 * 16 * 16 * 32 * double(products) * threads, [&](int) {
#pragma omp parallel num_threads(threads)
            tile_products(products);
        });
    }
#endif
    return 0;
}
