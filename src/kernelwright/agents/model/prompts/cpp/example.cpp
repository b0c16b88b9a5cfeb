// rms_norm: y[r][c] = x[r][c] / sqrt(mean(x[r]^2) + 1e-6) * weight[c], float32, x is [rows, columns]
#include "kernelwright.h"
#include <cmath>

extern "C" int32_t kernelwright_run(const kw_tensor* inputs, int32_t input_count,
                                    kw_tensor* outputs, int32_t output_count,
                                    void* workspace, int32_t threads) {
    (void)workspace;
    if (input_count != 2 || output_count != 1) return KW_UNSUPPORTED;
    const float* x = static_cast<const float*>(inputs[0].data);
    const float* weight = static_cast<const float*>(inputs[1].data);
    float* y = static_cast<float*>(outputs[0].data);
    const int64_t rows = inputs[0].shape[0], columns = inputs[0].shape[1];

    // A row stays in the first-level cache between its two passes, so memory is read once and written once.
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = x + r * columns;
        float total = 0.0f;
        #pragma omp simd reduction(+ : total)
        for (int64_t c = 0; c < columns; ++c) total += row[c] * row[c];
        const float scale = 1.0f / std::sqrt(total / static_cast<float>(columns) + 1e-6f);
        #pragma omp simd
        for (int64_t c = 0; c < columns; ++c) y[r * columns + c] = row[c] * scale * weight[c];
    }
    return KW_OK;
}
