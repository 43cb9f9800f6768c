// SPDX-License-Identifier: Apache-2.0
//
// Marks for code that both the processor and a GPU can run. Only nvcc needs them.
#pragma once

// RONDO_HD, before a function: it can run on both.
// RONDO_ROLLED, before a loop: nvcc leaves it a loop. Unrolled, the kernels for GPUs are three
// times as large and take twice as long to compile.
#ifdef __CUDACC__
#define RONDO_HD __host__ __device__
#define RONDO_ROLLED _Pragma("unroll 1")
#else
#define RONDO_HD
#define RONDO_ROLLED
#endif
