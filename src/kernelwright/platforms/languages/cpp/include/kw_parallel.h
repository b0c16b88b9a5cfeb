// Work shared among threads. Without OpenMP everything runs on the calling thread.
//
//     kw::parallel_for(threads, rows, [&](int64_t begin, int64_t end, int thread) { … });        // one range each
//     kw::parallel_blocks(threads, blocks, [&](int64_t block, int thread) { … });                // as threads get free
//
// Which thread does a block of `parallel_blocks` changes from call to call: keep results independent of it.
#ifndef KW_PARALLEL_H
#define KW_PARALLEL_H
#include <stdint.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

namespace kw {

// Start of part `index` when n items are cut into `parts` nearly equal runs whose borders are multiples of `grain`.
inline int64_t part_begin(int64_t n, int64_t parts, int64_t index, int64_t grain = 1) {
    int64_t grains = (n + grain - 1) / grain;
    int64_t begin = (grains / parts * index + (grains % parts < index ? grains % parts : index)) * grain;
    return begin < n ? begin : n;
}

// f(begin, end, thread) over a static partition of [0, n); empty ranges are not called. `grain`: borders are its multiples.
template <class F> inline void parallel_for(int threads, int64_t n, F f, int64_t grain = 1) {
    if (n <= 0) return;
    int64_t parts = (n + grain - 1) / grain;
    if (parts > threads) parts = threads;
#if defined(_OPENMP)
    if (parts > 1) {
#pragma omp parallel num_threads(int(parts))
        {
            // The runtime may grant fewer threads than asked for: partition by what it gave.
            int given = omp_get_num_threads(), thread = omp_get_thread_num();
            int64_t begin = part_begin(n, given, thread, grain), end = part_begin(n, given, thread + 1, grain);
            if (begin < end) f(begin, end, thread);
        }
        return;
    }
#endif
    f(int64_t(0), n, 0);
}

// f(block, thread) for each block of [0, blocks), in increasing order, handed out one by one.
template <class F> inline void parallel_blocks(int threads, int64_t blocks, F f) {
    if (blocks <= 0) return;
    int64_t parts = blocks < threads ? blocks : threads;
#if defined(_OPENMP)
    if (parts > 1) {
        int64_t next = 0;
#pragma omp parallel num_threads(int(parts))
        {
            int thread = omp_get_thread_num();
            for (;;) {
                int64_t block = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
                if (block >= blocks) break;
                f(block, thread);
            }
        }
        return;
    }
#endif
    for (int64_t block = 0; block < blocks; ++block) f(block, 0);
}

}  // namespace kw
#endif
