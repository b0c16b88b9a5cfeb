// A kernel written by hand for examples/tanh_residual.py. Judge it with
//
//     kernelwright evaluate examples/hand_written/tanh_residual.cpp --task examples/tanh_residual.py
//
// Inputs arrive in the order of the task's arguments: x[B, C], y[B, C], gain[C]; the one output is [B, C].
#include "kernelwright.h"
#include "kw_parallel.h"
#include "kw_vector.h"

extern "C" int32_t kernelwright_run(const kw_tensor* inputs, int32_t input_count,
                                    kw_tensor* outputs, int32_t output_count,
                                    void* workspace, int32_t threads) {
    if (input_count != 3 || output_count != 1 || inputs[0].dtype != KW_FLOAT32) return KW_UNSUPPORTED;
    const float* x = (const float*)inputs[0].data;
    const float* y = (const float*)inputs[1].data;
    const float* gain = (const float*)inputs[2].data;
    float* out = (float*)outputs[0].data;
    const int64_t rows = inputs[0].shape[0], columns = inputs[0].shape[1];
    constexpr int W = kw::native_lanes<float>;

    kw::parallel_for(threads, rows, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
            const int64_t at = row * columns;
            int64_t i = 0;
            for (; i + W <= columns; i += W) {
                auto gated = kw::tanh(kw::load<W>(y + at + i) * kw::load<W>(gain + i));
                kw::store(out + at + i, kw::load<W>(x + at + i) + gated);
            }
            for (; i < columns; ++i) out[at + i] = x[at + i] + kw::tanh(y[at + i] * gain[i]);
        }
    });
    return KW_OK;
}
