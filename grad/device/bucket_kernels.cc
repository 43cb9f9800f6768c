// SPDX-License-Identifier: Apache-2.0
#include "grad/device/bucket_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "device/phases.h"
#include "grad/device/image.h"
#include "grad/square_order.h"

namespace rondo::grad {

namespace {

struct KernelFacts {
  const char* name;
  std::uint64_t from, to;  // bytes of an element at these addresses; to 0: a sum
};
constexpr KernelFacts facts[] = {
    {"rondo_grad_move", 1, 1},         {"rondo_grad_to_bf16", 4, 2},
    {"rondo_grad_from_bf16", 2, 4},    {"rondo_grad_to_f16", 4, 2},
    {"rondo_grad_from_f16", 2, 4},     {"rondo_grad_squares_f64", 8, 0},
    {"rondo_grad_squares_f32", 4, 0},  {"rondo_grad_squares_f16", 2, 0},
    {"rondo_grad_squares_bf16", 2, 0}, {"rondo_grad_add_blocks", 8, 0},
    {"rondo_grad_clip_f64", 8, 8},     {"rondo_grad_clip_f32", 4, 4},
    {"rondo_grad_clip_f16", 2, 2},     {"rondo_grad_clip_bf16", 2, 2}};
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

// A block for each sum.
unsigned sums_of(BucketKernel kernel, const PieceArguments& arguments) noexcept {
  std::uint64_t sums = 0;
  for (std::uint32_t i = 0; i < arguments.count; ++i)
    sums += kernel == BucketKernel::add_blocks ? 1 : square_blocks(arguments.pieces[i].count);
  return static_cast<unsigned>(sums);
}

// Enough blocks to fill the largest GPUs, and no more than have 16 bytes for each thread.
unsigned blocks_for(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t most_blocks = 1024,
                          block_bytes = std::uint64_t{16} * device::block_threads;
  return static_cast<unsigned>(std::clamp<std::uint64_t>(
      bytes / block_bytes + (bytes % block_bytes != 0 ? 1 : 0), 1, most_blocks));
}

unsigned blocks_of(BucketKernel kernel, const PieceArguments& arguments) noexcept {
  if (facts_of(kernel).to == 0) return sums_of(kernel, arguments);
  std::uint64_t elements = 0;
  for (std::uint32_t i = 0; i < arguments.count; ++i) elements += arguments.pieces[i].count;
  return blocks_for(elements * std::max(facts_of(kernel).from, facts_of(kernel).to));
}

BucketKernel of_type(DType type, BucketKernel of_f64) noexcept {
  const int place = type == DType::f64 ? 0 : type == DType::f32 ? 1 : type == DType::f16 ? 2 : 3;
  return static_cast<BucketKernel>(static_cast<int>(of_f64) + place);
}

}  // namespace

BucketKernel squares_kernel(DType type) noexcept {
  return of_type(type, BucketKernel::squares_f64);
}
BucketKernel clip_kernel(DType type) noexcept {
  return of_type(type, BucketKernel::clip_f64);
}

BucketKernels::BucketKernels(int ordinal)
    : gpu_(gpus_.gpu(ordinal)), module_(gpu_, checked_image()) {
  for (std::size_t i = 0; i < functions_.size(); ++i)
    functions_[i] = module_.function(facts[i].name);
}

void BucketKernels::launch(BucketKernel kernel, const void* arguments, unsigned blocks,
                           device::StreamHandle stream) const {
  void* parameters[] = {const_cast<void*>(arguments)};
  const device::Status status =
      gpu_.driver().launch_kernel(functions_[static_cast<std::size_t>(kernel)], blocks, 1, 1,
                                  device::block_threads, 1, 1, 0, stream, parameters, nullptr);
  if (status != device::success)
    gpu_.check(status, fmt::format("cuLaunchKernel of {}", facts_of(kernel).name));
}

void BucketKernels::launch(BucketKernel kernel, const PieceArguments& arguments,
                           device::StreamHandle stream) const {
  launch(kernel, &arguments, blocks_of(kernel, arguments), stream);
}

void BucketKernels::launch_clip(DType type, const ClipArguments& arguments,
                                device::StreamHandle stream) const {
  launch(clip_kernel(type), &arguments, blocks_for(arguments.count * size_of(type)), stream);
}

std::optional<training::OwnProblem> problem_of_gpu(int ordinal) {
  try {
    const BucketKernels kernels(ordinal);
    return std::nullopt;
  } catch (const Error& error) {
    return training::OwnProblem{static_cast<Errc>(error.code().value()), error.what()};
  }
}

Launches::Launches(const BucketKernels& kernels, BucketKernel kernel, double factor,
                   device::StreamHandle stream, std::uint32_t* words) noexcept
    : kernels_(kernels), kernel_(kernel), stream_(stream) {
  arguments_.count = 0;
  arguments_.factor = factor;
  arguments_.words = words;
}

bool Launches::continues(const DevicePiece& piece) const noexcept {
  const KernelFacts& bytes = facts_of(kernel_);
  if (arguments_.count == 0 || bytes.to == 0) return false;
  const DevicePiece& last = arguments_.pieces[arguments_.count - 1];
  if (piece.number != last.number) return false;
  const auto follows = [&](const std::byte* next, const std::byte* before, std::uint64_t each) {
    return next == (before == nullptr ? nullptr : before + last.count * each);
  };
  return follows(piece.from, last.from, bytes.from) && follows(piece.to, last.to, bytes.to) &&
         follows(piece.saved, last.saved, 1);
}

void Launches::add(const DevicePiece& piece) {
  if (piece.count == 0) return;
  if (continues(piece)) {
    arguments_.pieces[arguments_.count - 1].count += piece.count;
    return;
  }
  if (arguments_.count == PieceArguments::most) finish();
  arguments_.pieces[arguments_.count++] = piece;
}

void Launches::finish() {
  if (arguments_.count != 0) kernels_.launch(kernel_, arguments_, stream_);
  arguments_.count = 0;
}

}  // namespace rondo::grad
