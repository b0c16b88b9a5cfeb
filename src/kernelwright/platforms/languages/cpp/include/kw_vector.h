// Vectors of lanes and the mathematics on them: everything that a pointwise or reducing kernel needs.
//
//     extern "C" int32_t kernelwright_run(const kw_tensor* in, int32_t, kw_tensor* out, int32_t, void*, int32_t threads) {
//         const float* x = (const float*)in[0].data;
//         float* y = (float*)out[0].data;
//         constexpr int W = kw::native_lanes<float>;
//         kw::parallel_for(threads, in[0].shape[0], [&](int64_t begin, int64_t end, int) {
//             int64_t i = begin;
//             for (; i + W <= end; i += W) kw::store(y + i, kw::tanh(kw::load<W>(x + i)));
//             if (i < end) kw::store_partial(y + i, kw::tanh(kw::load_partial<W>(x + i, end - i)), end - i);
//         }, W);
//         return KW_OK;
//     }
#ifndef KW_VECTOR_H
#define KW_VECTOR_H
#include "kw_lanes.h"
#include "kw_math.h"
#endif
