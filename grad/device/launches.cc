// SPDX-License-Identifier: Apache-2.0
#include "grad/device/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "device/phases.h"
#include "grad/device/kernels.h"

namespace rondo::grad {

namespace {

struct Kernel {
  const char* name;
  Operation operation;
  DType from, to;
};
#define RONDO_FACTS(name, ...) \
  Kernel{#name, __VA_ARGS__::operation, __VA_ARGS__::from_type, __VA_ARGS__::to_type},
constexpr Kernel kernels[] = {RONDO_GRAD_KERNELS(RONDO_FACTS)};
#undef RONDO_FACTS

std::size_t place_of(const Pass& pass) noexcept {
  const auto found = std::ranges::find_if(kernels, [&](const Kernel& each) {
    return each.operation == pass.operation && each.from == pass.from && each.to == pass.to;
  });
  return static_cast<std::size_t>(found - std::begin(kernels));
}

bool adds_up(const Pass& pass) noexcept {
  return pass.operation == Operation::sum_squares || pass.operation == Operation::sum_blocks;
}

const void* checked_image() {
  const void* const image = device_image();
  if (image == nullptr)
    throw Error(Errc::unsupported,
                "this build of Rondo has no kernels for GPUs; build it with nvcc (-Dcuda)");
  return image;
}

// A block of threads for each sum. Otherwise enough blocks to fill the largest GPUs, and no more
// than have 16 bytes for each thread.
unsigned blocks_of(const PieceArguments& arguments) noexcept {
  constexpr std::uint64_t most_blocks = 1024,
                          block_bytes = std::uint64_t{16} * device::block_threads;
  const Pass& pass = arguments.pass;
  std::uint64_t sums = 0, elements = 0;
  for (std::uint32_t i = 0; i < arguments.count; ++i) {
    elements += arguments.pieces[i].count;
    sums += pass.operation == Operation::sum_blocks ? 1 : square_blocks(arguments.pieces[i].count);
  }
  if (adds_up(pass)) return static_cast<unsigned>(sums);
  const std::uint64_t bytes = elements * std::max(size_of(pass.from), size_of(pass.to));
  return static_cast<unsigned>(std::clamp<std::uint64_t>(
      bytes / block_bytes + (bytes % block_bytes != 0 ? 1 : 0), 1, most_blocks));
}

// Whether a piece follows the last one of these, so that the two are one.
bool continues(const PieceArguments& arguments, const Piece& piece) noexcept {
  const Pass& pass = arguments.pass;
  if (arguments.count == 0 || adds_up(pass)) return false;
  const Piece& last = arguments.pieces[arguments.count - 1];
  if (piece.number != last.number) return false;
  const auto follows = [&](const std::byte* next, const std::byte* before, std::uint64_t each) {
    return next == (before == nullptr ? nullptr : before + last.count * each);
  };
  return follows(piece.from, last.from, size_of(pass.from)) &&
         follows(piece.to, last.to, size_of(pass.to)) &&
         follows(piece.saved, last.saved, size_of(pass.to));
}

}  // namespace

BucketKernels::BucketKernels(int ordinal)
    : gpu_(gpus_.gpu(ordinal)), module_(gpu_, checked_image()) {
  for (const Kernel& each : kernels) functions_.push_back(module_.function(each.name));
}

void BucketKernels::launch(PieceArguments& arguments, device::StreamHandle stream) const {
  if (arguments.count == 0) return;
  const std::size_t kernel = place_of(arguments.pass);
  void* parameters[] = {&arguments};
  const device::Status status =
      gpu_.driver().launch_kernel(functions_[kernel], blocks_of(arguments), 1, 1,
                                  device::block_threads, 1, 1, 0, stream, parameters, nullptr);
  if (status != device::success)
    gpu_.check(status, fmt::format("cuLaunchKernel of {}", kernels[kernel].name));
  arguments.count = 0;
}

void BucketKernels::run(const Pass& pass, std::span<const Piece> pieces,
                        device::StreamHandle stream) const {
  PieceArguments arguments;
  arguments.count = 0;
  arguments.pass = pass;
  for (const Piece& piece : pieces) {
    if (piece.count == 0) continue;
    if (continues(arguments, piece)) {
      arguments.pieces[arguments.count - 1].count += piece.count;
      continue;
    }
    if (arguments.count == PieceArguments::most) launch(arguments, stream);
    arguments.pieces[arguments.count++] = piece;
  }
  launch(arguments, stream);
}

}  // namespace rondo::grad
