// The same kernel with a mistake that random inputs near zero would not show: tanh(t) is replaced by its first two terms.
//
//     kernelwright evaluate examples/hand_written/wrong_tanh_residual.cpp --task examples/tanh_residual.py
//
// The verdict is `incorrect`, and says on which inputs.
#include "kernelwright.h"

extern "C" int32_t kernelwright_run(const kw_tensor* inputs, int32_t input_count,
                                    kw_tensor* outputs, int32_t output_count,
                                    void* workspace, int32_t threads) {
    const float* x = (const float*)inputs[0].data;
    const float* y = (const float*)inputs[1].data;
    const float* gain = (const float*)inputs[2].data;
    float* out = (float*)outputs[0].data;
    const int64_t rows = inputs[0].shape[0], columns = inputs[0].shape[1];
#pragma omp parallel for num_threads(threads)
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < columns; ++i) {
            const float t = y[row * columns + i] * gain[i];
            out[row * columns + i] = x[row * columns + i] + t - t * t * t / 3.0f;
        }
    }
    return KW_OK;
}
