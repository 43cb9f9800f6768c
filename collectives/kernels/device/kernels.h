// SPDX-License-Identifier: Apache-2.0
//
// The list of kernels for GPUs. kernels.cu makes an entry point of each line, and the tests a
// function that runs on the processor.
#pragma once

#include <cstdint>

#include "collectives/kernels/device/reduce.h"

// KERNEL(name of the entry point, struct of the kernel)
#define RONDO_DEVICE_KERNELS(KERNEL)                      \
  KERNEL(rondo_reduce_f64, Reduce<Native<double>>)        \
  KERNEL(rondo_reduce_f32, Reduce<Native<float>>)         \
  KERNEL(rondo_reduce_f16, Reduce<ElementF16>)            \
  KERNEL(rondo_reduce_bf16, Reduce<ElementBF16>)          \
  KERNEL(rondo_reduce_f8e4m3, Reduce<ElementF8E4M3>)      \
  KERNEL(rondo_reduce_f8e5m2, Reduce<ElementF8E5M2>)      \
  KERNEL(rondo_reduce_i64, Reduce<Native<std::int64_t>>)  \
  KERNEL(rondo_reduce_u64, Reduce<Native<std::uint64_t>>) \
  KERNEL(rondo_reduce_i32, Reduce<Native<std::int32_t>>)  \
  KERNEL(rondo_reduce_u32, Reduce<Native<std::uint32_t>>) \
  KERNEL(rondo_reduce_i16, Reduce<Native<std::int16_t>>)  \
  KERNEL(rondo_reduce_u16, Reduce<Native<std::uint16_t>>) \
  KERNEL(rondo_reduce_i8, Reduce<Native<std::int8_t>>)    \
  KERNEL(rondo_reduce_u8, Reduce<Native<std::uint8_t>>)
