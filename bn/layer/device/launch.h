// SPDX-License-Identifier: Apache-2.0
//
// Names the kernels of a pass, and cuts activations into blocks. The cut depends on
// shape, type and alignment alone, so a run gives the same bits each time. Thread-safe; nothing
// here calls CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include <rondo/batch_norm.h>

#include "bn/layer/device/arguments.h"

namespace rondo::layer {

enum class DeviceKernel : std::uint8_t { moments, gradients, forward, backward, fold, channels };
inline constexpr std::size_t device_kernels = 6;
// "rondo_bn_moments_f32", "rondo_bn_fold" and so on; type: f64, f32, f16 or bf16.
std::string name_of(DeviceKernel kernel, DType type);

DeviceShape shape_of(const Activations& x, TensorLayout layout, std::size_t channels) noexcept;
// The widest access that all of these allow; null pointers do not count.
Access access_of(const DeviceShape& shape, DType type,
                 std::initializer_list<const void*> pointers) noexcept;

// Sets access, parts, bands and width. Requires samples; pointers and shape are set.
void cut(SumArguments& arguments, DType type) noexcept;
// f64 that the partial sums take.
std::size_t partial_elements(const SumArguments& arguments) noexcept;

// Blocks of device::block_threads threads.
unsigned blocks_of(const SumArguments& arguments) noexcept;
unsigned blocks_of(const MapArguments& arguments, DType type) noexcept;
unsigned blocks_of_fold(std::size_t channels) noexcept;
unsigned blocks_of_channels(std::size_t channels) noexcept;

}  // namespace rondo::layer
