// SPDX-License-Identifier: Apache-2.0
#include "grad/device/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "device/phases.h"
#include "grad/device/image.h"
#include "grad/device/kernels.h"

namespace rondo::grad {

namespace {

struct KernelFacts {
  const char* name;
  std::uint64_t from, to;  // bytes of an element at these addresses; to 0: a sum
};
#define RONDO_FACTS(name, ...) KernelFacts{#name, __VA_ARGS__::from_bytes, __VA_ARGS__::to_bytes},
constexpr KernelFacts facts[] = {RONDO_GRAD_KERNELS(RONDO_FACTS)};
#undef RONDO_FACTS
static_assert(std::size(facts) == bucket_kernels);

const KernelFacts& facts_of(BucketKernel kernel) noexcept {
  return facts[static_cast<std::size_t>(kernel)];
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
unsigned blocks_of(BucketKernel kernel, const PieceArguments& arguments) noexcept {
  constexpr std::uint64_t most_blocks = 1024,
                          block_bytes = std::uint64_t{16} * device::block_threads;
  const KernelFacts& facts = facts_of(kernel);
  std::uint64_t sums = 0, elements = 0;
  for (std::uint32_t i = 0; i < arguments.count; ++i) {
    elements += arguments.pieces[i].count;
    sums += kernel == BucketKernel::add_blocks ? 1 : square_blocks(arguments.pieces[i].count);
  }
  if (facts.to == 0) return static_cast<unsigned>(sums);
  const std::uint64_t bytes = elements * std::max(facts.from, facts.to);
  return static_cast<unsigned>(std::clamp<std::uint64_t>(
      bytes / block_bytes + (bytes % block_bytes != 0 ? 1 : 0), 1, most_blocks));
}

// Whether a piece follows the last one of these, so that the two are one.
bool continues(BucketKernel kernel, const PieceArguments& arguments, const Piece& piece) noexcept {
  const KernelFacts& bytes = facts_of(kernel);
  if (arguments.count == 0 || bytes.to == 0) return false;
  const Piece& last = arguments.pieces[arguments.count - 1];
  if (piece.number != last.number) return false;
  const auto follows = [&](const std::byte* next, const std::byte* before, std::uint64_t each) {
    return next == (before == nullptr ? nullptr : before + last.count * each);
  };
  return follows(piece.from, last.from, bytes.from) && follows(piece.to, last.to, bytes.to) &&
         follows(piece.saved, last.saved, 1);
}

BucketKernel of_type(DType type, BucketKernel of_f64) noexcept {
  const int place = type == DType::f64 ? 0 : type == DType::f32 ? 1 : type == DType::f16 ? 2 : 3;
  return static_cast<BucketKernel>(static_cast<int>(of_f64) + place);
}

}  // namespace

BucketKernel squares_kernel(DType type) noexcept {
  return of_type(type, BucketKernel::squares_f64);
}
BucketKernel scale_kernel(DType type) noexcept {
  return of_type(type, BucketKernel::scale_f64);
}

BucketKernels::BucketKernels(int ordinal)
    : gpu_(gpus_.gpu(ordinal)), module_(gpu_, checked_image()) {
  for (std::size_t i = 0; i < functions_.size(); ++i)
    functions_[i] = module_.function(facts[i].name);
}

void BucketKernels::launch(BucketKernel kernel, PieceArguments& arguments,
                           device::StreamHandle stream) const {
  if (arguments.count == 0) return;
  void* parameters[] = {&arguments};
  const device::Status status = gpu_.driver().launch_kernel(
      functions_[static_cast<std::size_t>(kernel)], blocks_of(kernel, arguments), 1, 1,
      device::block_threads, 1, 1, 0, stream, parameters, nullptr);
  if (status != device::success)
    gpu_.check(status, fmt::format("cuLaunchKernel of {}", facts_of(kernel).name));
  arguments.count = 0;
}

void BucketKernels::run(const Pass& pass, std::span<const Piece> pieces,
                        device::StreamHandle stream) const {
  PieceArguments arguments;
  arguments.count = 0;
  arguments.factor = pass.factor;
  arguments.words = pass.words;
  arguments.squares = pass.squares;
  for (const Piece& piece : pieces) {
    if (piece.count == 0) continue;
    if (continues(pass.kernel, arguments, piece)) {
      arguments.pieces[arguments.count - 1].count += piece.count;
      continue;
    }
    if (arguments.count == PieceArguments::most) launch(pass.kernel, arguments, stream);
    arguments.pieces[arguments.count++] = piece;
  }
  launch(pass.kernel, arguments, stream);
}

}  // namespace rondo::grad
