// SPDX-License-Identifier: Apache-2.0
//
// A call is checked, planned and handed to the engine. A call that repeats skips the first two
// (known_calls.h).
#include "lib/calls.h"

#include <algorithm>

#include "base/mix.h"
#include "collectives/kernels/integer_mean.h"

namespace rondo::lib {

namespace {

std::uint64_t hash_of(std::span<const std::size_t> counts) noexcept {
  std::uint64_t hash = counts.size();
  for (const std::size_t count : counts) hash = base::mix_hash(hash, count);
  return hash;
}

// Returns how many elements the segments cut.
std::size_t largest_block(const Arguments& a, std::size_t count) noexcept {
  if (schedules::has_counts(a.operation))
    return *std::max_element(a.counts.begin(), a.counts.end());
  return schedules::cut_elements(a.operation, count, static_cast<std::size_t>(a.size));
}

// value_bytes: of an element, as it travels. most_bytes: of the segments in flight together, if at
// least one element of each block fits.
void cut_into_segments(schedules::Call& call, const Arguments& a, const plan::Plan& plan,
                       std::size_t value_bytes, std::size_t most_bytes) noexcept {
  const schedules::Signature& s = call.signature;
  const std::size_t blocks = a.traits().blocks ? static_cast<std::size_t>(a.size) : 1;
  call.segment_elements =
      std::max<std::size_t>(1, std::min(plan.segment_bytes, most_bytes) / blocks / value_bytes);
  const std::uint64_t most_depth_here = most_bytes / (call.segment_elements * blocks * value_bytes);
  // A depth above the number of segments would only make the order of frames longer to compute.
  const std::uint64_t segments = largest_block(a, s.count) / call.segment_elements + 1;
  call.depth = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(static_cast<std::uint64_t>(std::max(1, plan.depth)), 1,
                                std::max<std::uint64_t>(1, std::min(segments, most_depth_here))));
}

}  // namespace

// Hashes all counts and everything that shapes frames but is not an argument: ranks that differ in
// these must notice.
std::uint64_t CollectiveCalls::plan_hash(const schedules::Call& call,
                                         std::uint64_t counts) const noexcept {
  const bool inside = call.signature.on_device && plans_.inside_on_gpus();
  const std::uint64_t settings = static_cast<std::uint64_t>(call.depth) |
                                 static_cast<std::uint64_t>(starting_.options.checksum) << 32 |
                                 static_cast<std::uint64_t>(starting_.options.reproducible) << 33 |
                                 static_cast<std::uint64_t>(inside) << 34;
  return base::mix_hash(base::mix_hash(counts, call.segment_elements), settings);
}

Work CollectiveCalls::start(const Arguments& a) {
  schedules::Call call = find(a);
  if (a.options->priority == Priority::bulk) order_.check(starting_.place.rank, a.operation);
  call.tag = a.options->tag;
  call.unattended = a.options->unattended;
  if (call.signature.on_device && call.in_bytes + call.out_bytes != 0) return start_on_gpu(a, call);
  return Work(starting_.engine.start(call));
}

// Checks and plans calls that are new.
schedules::Call CollectiveCalls::find(const Arguments& a) {
  const auto lane = static_cast<std::size_t>(a.options->priority);
  if (lane < known_.size())
    if (const schedules::Call* const known = known_[lane].find(a)) return *known;
  check_arguments(a);
  if (a.device() >= 0) starting_.gpus.check_buffers(a);
  const schedules::Call call = make(a);
  known_[lane].keep(a, call);
  return call;
}

schedules::Call CollectiveCalls::make(const Arguments& a) {
  // The buffer that gives the call its count: the larger one if each rank has a count of its own,
  // else the smaller one.
  const base::Traits& traits = a.traits();
  const bool reads = a.reads_in(), writes = a.writes_out(), has_counts = traits.has_counts();
  const bool shape_of_out = !reads || (has_counts ? traits.gathers() : traits.scatters());
  const Buffer& shape = shape_of_out ? a.out : a.in;
  const bool staged = a.device() >= 0;
  // Elements of a mean of integers travel in more bytes, and lie in staging memory.
  const kernels::IntegerMean* const mean =
      traits.reduces ? kernels::find_integer_mean(shape.type, a.op) : nullptr;
  const plan::Plan chosen =
      mean != nullptr ? plans_.choose(a.operation, shape.count * mean->parts, DType::i64, staged)
                      : plans_.choose(a.operation, shape.count, shape.type, staged);
  const std::uint64_t counts = has_counts ? hash_of(a.counts) : 1;
  schedules::Call call;
  call.signature = {
      a.operation,
      shape.type,
      a.op,
      chosen.algorithm,
      static_cast<std::uint32_t>(has_counts ? counts : static_cast<std::uint64_t>(a.root)),
      shape.count,
      a.options->scale.value_or(1.0),
      0,
      staged};
  call.input_scale = a.options->input_scale.value_or(1.0);
  call.in = static_cast<const std::byte*>(reads ? a.in.data : a.out.data);
  call.out = static_cast<std::byte*>(a.out.data);
  call.in_bytes = reads ? a.in.count * size_of(a.in.type) : 0;
  call.out_bytes = writes ? a.out.count * size_of(a.out.type) : 0;
  call.counts = a.counts;
  call.priority = a.options->priority;
  if (chosen.algorithm == schedules::Algorithm::direct)
    call.segment_elements = staged ? starting_.gpu_needs.chunk_bytes : 1;  // for plan_hash()
  else
    cut_into_segments(call, a, chosen, mean != nullptr ? mean->bytes() : size_of(shape.type),
                      staged            ? starting_.gpu_needs.bytes
                      : mean != nullptr ? starting_.options.staging_bytes / lane_count
                                        : SIZE_MAX);
  call.time_limit = starting_.time_limit(*a.options);
  call.signature.plan = plan_hash(call, counts);
  return call;
}

operation::DeviceInside CollectiveCalls::movers_inside(int device, const schedules::Call& call) {
  if (!plans_.inside_on_gpus() || !starting_.gpus.has_windows()) return {};
  const lanes::StagesInside stages = starting_.engine.stages_inside(call.signature);
  const auto mover = [&](direct::DirectUse use) {
    return &starting_.gpus.mover(device, call.priority, starting_.gpu_needs, use);
  };
  return {stages.sums ? mover(direct::DirectUse::sums) : nullptr,
          stages.copies ? mover(direct::DirectUse::copies) : nullptr};
}

// Programs let the GPU's streams wait for the result, so nobody drives soon.
Work CollectiveCalls::start_on_gpu(const Arguments& a, const schedules::Call& call) {
  const auto stream = static_cast<device::StreamHandle>(a.options->stream);
  schedules::Call unattended = call;
  unattended.unattended = true;
  return name_call({a.traits().name, a.rank, a.size}, [&] {
    operation::DeviceMemory* memory = nullptr;
    if (call.signature.algorithm == schedules::Algorithm::direct)
      memory = &starting_.gpus.mover(a.device(), call.priority, starting_.gpu_needs);
    else
      memory = &starting_.gpus.staging(a.device(), call.priority, starting_.gpu_needs);
    const operation::DeviceCall device{*memory, stream, movers_inside(a.device(), call)};
    device::refuse_capture(starting_.gpus.gpus()->gpu(a.device()), stream, "OpOptions::stream");
    return Work(starting_.engine.start(unattended, &device));
  });
}

}  // namespace rondo::lib
