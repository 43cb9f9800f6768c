// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/device/launch.h"

#include <fmt/format.h>
#include <rondo/agreement.h>
#include <algorithm>

namespace rondo::layer {

static_assert(SectionHead::agreement == agreement_elements);

namespace {

// Enough blocks to fill the largest GPUs.
constexpr std::uint64_t wanted_blocks = 1024;
// A block that loads less than this for each of its threads costs more than it saves.
constexpr std::uint64_t least_loads = 4;
constexpr std::uint64_t most_width = 32;

std::uint64_t over(std::uint64_t a, std::uint64_t b) noexcept {
  return (a + b - 1) / b;
}

std::uint64_t length_of(Access access, DType type) noexcept {
  return access == Access::packs ? pack_bytes / size_of(type) : 1;
}

unsigned limited(std::uint64_t blocks) noexcept {
  return static_cast<unsigned>(std::clamp<std::uint64_t>(blocks, 1, 2 * wanted_blocks));
}

}  // namespace

std::string name_of(DeviceKernel kernel, DType type) {
  static constexpr const char* kernels[] = {"moments",  "gradients", "forward",
                                            "backward", "fold",      "channels"};
  const char* const name = kernels[static_cast<std::size_t>(kernel)];
  if (kernel == DeviceKernel::fold || kernel == DeviceKernel::channels)
    return fmt::format("rondo_bn_{}", name);
  return fmt::format("rondo_bn_{}_{}", name, rondo::name_of(type));
}

DeviceShape shape_of(const Activations& x, TensorLayout layout, std::size_t channels) noexcept {
  return {x.samples, x.spatial, channels, layout == TensorLayout::nchw && x.spatial > 1};
}

Access access_of(const DeviceShape& shape, DType type,
                 std::initializer_list<const void*> pointers) noexcept {
  std::uintptr_t all = 0;
  for (const void* pointer : pointers) all |= reinterpret_cast<std::uintptr_t>(pointer);
  if (all % size_of(type) != 0) return Access::anywhere;
  const std::uint64_t together = shape.runs ? shape.spatial : shape.channels;
  const bool whole = together % (pack_bytes / size_of(type)) == 0;
  return whole && all % pack_bytes == 0 ? Access::packs : Access::elements;
}

void cut(SumArguments& arguments, DType type) noexcept {
  const DeviceShape& shape = arguments.shape;
  arguments.access = access_of(shape, type, {arguments.x, arguments.dy});
  const std::uint64_t length = length_of(arguments.access, type);
  std::uint64_t bands, most_parts;
  arguments.width = 1;
  if (shape.runs) {
    bands = shape.channels;
    most_parts =
        over(shape.samples * (shape.spatial / length), device::block_threads * least_loads);
  } else {
    const std::uint64_t columns = shape.channels / length;
    while (arguments.width < most_width && arguments.width < columns) arguments.width *= 2;
    bands = over(columns, arguments.width);
    most_parts =
        over(shape.samples * shape.spatial, device::block_threads / arguments.width * least_loads);
  }
  arguments.bands = static_cast<std::uint32_t>(bands);
  arguments.parts = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      over(wanted_blocks, bands), 1, std::max<std::uint64_t>(most_parts, 1)));
}

std::size_t partial_elements(const SumArguments& arguments) noexcept {
  return 2 * arguments.parts * arguments.shape.channels;
}

unsigned blocks_of(const SumArguments& arguments) noexcept {
  return arguments.parts * arguments.bands;
}

unsigned blocks_of(const MapArguments& arguments, DType type) noexcept {
  return limited(
      over(arguments.shape.elements() / length_of(arguments.access, type), device::block_threads));
}

unsigned blocks_of_fold(std::size_t channels) noexcept {
  return static_cast<unsigned>(over(channels, fold_channels));
}

unsigned blocks_of_channels(std::size_t channels) noexcept {
  return limited(over(channels, device::block_threads));
}

}  // namespace rondo::layer
