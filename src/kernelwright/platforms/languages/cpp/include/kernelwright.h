// The plain C interface between a host (the judge, an exported module) and a kernel. Version 1.
//
// A kernel is a shared object with
//
//     extern "C" int32_t kernelwright_run(const kw_tensor* inputs, int32_t input_count,
//                                         kw_tensor* outputs, int32_t output_count,
//                                         void* workspace, int32_t threads);
//
// Inputs come in the order of the task's tensor arguments, then its parameters and buffers; all are contiguous (C order).
// Outputs are allocated by the host, contiguous, uninitialised, 64-byte aligned, and overlap nothing.
// Return KW_OK, or KW_UNSUPPORTED for shapes the kernel was not written for (nothing needs to be written then).
//
// Optional: scratch memory, uninitialised, 64-byte aligned, private to the call:
//
//     extern "C" int64_t kernelwright_run_workspace_bytes(const kw_tensor* inputs, int32_t input_count,
//                                         const kw_tensor* outputs, int32_t output_count, int32_t threads);
//
// A plan with several kernel steps names its entries; each `ENTRY` may have its own `ENTRY_workspace_bytes`.
#ifndef KERNELWRIGHT_H
#define KERNELWRIGHT_H
#include <stdint.h>

#define KW_OK 0
#define KW_UNSUPPORTED 1

enum kw_dtype {
    KW_FLOAT64 = 0, KW_FLOAT32 = 1, KW_FLOAT16 = 2, KW_BFLOAT16 = 3,
    KW_INT64 = 4, KW_INT32 = 5, KW_INT16 = 6, KW_INT8 = 7, KW_UINT8 = 8, KW_BOOL = 9
};

typedef struct kw_tensor {
    void* data;
    const int64_t* shape;    // ndim sizes
    const int64_t* strides;  // ndim strides, in elements
    int32_t ndim;
    int32_t dtype;           // enum kw_dtype
} kw_tensor;

typedef struct kw_float16 { uint16_t bits; } kw_float16;
typedef struct kw_bfloat16 { uint16_t bits; } kw_bfloat16;

#endif
