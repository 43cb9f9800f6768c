// SPDX-License-Identifier: Apache-2.0
//
// RONDO_HD marks a function that both the processor and a GPU can run. Only nvcc needs the mark.
#pragma once

#ifdef __CUDACC__
#define RONDO_HD __host__ __device__
#define RONDO_ROLLED _Pragma("unroll 1")
#else
#define RONDO_HD
#define RONDO_ROLLED
#endif
