// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/device/launch.h"

#include <algorithm>

#include "collectives/kernels/pair.h"

namespace rondo::kernels {

const char* reduce_kernel(DType type) noexcept {
  switch (type) {
    case DType::f64:
      return "rondo_reduce_f64";
    case DType::f32:
      return "rondo_reduce_f32";
    case DType::f16:
      return "rondo_reduce_f16";
    case DType::bf16:
      return "rondo_reduce_bf16";
    case DType::f8e4m3:
      return "rondo_reduce_f8e4m3";
    case DType::f8e5m2:
      return "rondo_reduce_f8e5m2";
    case DType::i64:
      return "rondo_reduce_i64";
    case DType::u64:
      return "rondo_reduce_u64";
    case DType::i32:
      return "rondo_reduce_i32";
    case DType::u32:
      return "rondo_reduce_u32";
    case DType::i8:
      return "rondo_reduce_i8";
    case DType::u8:
      return "rondo_reduce_u8";
    case DType::i16:
      return "rondo_reduce_i16";
    case DType::u16:
      return "rondo_reduce_u16";
  }
  return nullptr;
}

ReduceArguments reduce_arguments(const DeviceReduction& reduction,
                                 std::span<const std::byte* const> in,
                                 std::span<const double> input_scales,
                                 std::span<std::byte* const> out, std::uint64_t count) noexcept {
  ReduceArguments arguments{};
  std::copy(in.begin(), in.end(), arguments.in);
  std::copy(out.begin(), out.end(), arguments.out);
  arguments.count = count;
  arguments.sources = static_cast<std::uint32_t>(in.size());
  arguments.outputs = static_cast<std::uint32_t>(out.size());
  arguments.op = reduction.op;
  arguments.finish = Finish{
      reduction.scale, reduction.op == ReduceOp::mean ? static_cast<double>(reduction.ranks) : 1.0};
  double load = 1;
  // Sums of two inputs are rounded once either way.
  if (reduction.in_steps && in.size() > 2 && !is_integer(reduction.type) &&
      size_of(reduction.type) <= 2) {
    const PairReduction pair(reduction.type, reduction.op, reduction.scale, reduction.ranks);
    arguments.in_steps = true;
    arguments.finish = pair.finish_of_sums();
    load = pair.input_factor();
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    arguments.factors[i] = input_scales.empty() ? load : load * input_scales[i];
    arguments.scaled |= arguments.factors[i] != 1;
  }
  return arguments;
}

ReduceArguments copy_arguments(const std::byte* in, std::span<std::byte* const> out,
                               std::uint64_t bytes) noexcept {
  return reduce_arguments({DType::u8, ReduceOp::sum}, std::span(&in, 1), {}, out, bytes);
}

DeviceGrid grid_of(std::uint64_t bytes, unsigned most_blocks) noexcept {
  constexpr std::uint64_t block_bytes = std::uint64_t{16} * device::block_threads;
  const std::uint64_t wanted = (bytes + block_bytes - 1) / block_bytes;
  const std::uint64_t most = std::max(most_blocks, 1u);
  return {static_cast<unsigned>(std::clamp<std::uint64_t>(wanted, 1, most)), device::block_threads};
}

}  // namespace rondo::kernels
