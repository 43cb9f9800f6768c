// SPDX-License-Identifier: Apache-2.0
#include "grad/device/gpu_passes.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/pointer.h"
#include "grad/norms.h"

namespace rondo::grad {

namespace {

device::StreamHandle handle_of(void* stream) noexcept {
  return static_cast<device::StreamHandle>(stream);
}

device::Address address_of(const void* data) noexcept {
  return reinterpret_cast<device::Address>(data);
}

}  // namespace

GpuPasses::GpuPasses(const Setup& setup, int ordinal)
    : setup_(setup),
      kernels_(ordinal),
      stream_(gpu()),
      mark_(gpu()),
      last_(gpu()),
      given_(setup.parameters.size()) {
  if (setup.options.norms)
    block_sums_.emplace(gpu(), sizeof(double) * std::max<std::size_t>(all_square_blocks(setup), 1));
  if (setup.options.norms || setup.options.wire == DType::f16) results_.emplace(setup, gpu());
  readies_.reserve(given_.size());
  for (std::size_t i = 0; i < given_.size(); ++i) readies_.emplace_back(gpu());
}

std::string GpuPasses::who(std::string_view call) const {
  return fmt::format("gradient buckets on rank {}: {}", setup_.communicator.rank(), call);
}

void GpuPasses::check_stream(std::string_view call, void* stream) const {
  const std::string problem = device::problem_of_stream(gpu(), handle_of(stream));
  if (!problem.empty()) throw Error(Errc::unsupported, fmt::format("{}: {}", who(call), problem));
}

void GpuPasses::check_gradient(std::size_t parameter, const void* gradient) const {
  const Buffer view = setup_.gradient(parameter);
  if (gradient == nullptr || gradient == view.data || view.count == 0) return;
  const std::string problem =
      device::problem_of_memory(gpu(), gradient, view.count * size_of(view.type), "buckets are");
  if (!problem.empty())
    setup_.refuse(fmt::format("ready(): the gradient of '{}' {}", setup_.parameters[parameter].name,
                              problem));
  if (address_of(gradient) % size_of(view.type) != 0)
    setup_.refuse(fmt::format("ready(): the gradient of '{}' lies at {}, which is no address of {}",
                              setup_.parameters[parameter].name, gradient, name_of(view.type)));
}

void GpuPasses::make_wait(device::StreamHandle stream, const device::Event& event) {
  gpu().check(gpu().driver().stream_wait_event(stream, event.get(), 0), "cuStreamWaitEvent");
}

void GpuPasses::record(device::Event& event, device::StreamHandle stream) {
  gpu().check(event.record(stream), "cuEventRecord");
}

// In a step that gives nothing (a local one, or one of weight 0) no load will copy the gradient.
bool GpuPasses::take(std::size_t parameter, const void* gradient, void* stream) {
  const device::StreamHandle handle = handle_of(stream);
  const Buffer view = setup_.gradient(parameter);
  const bool elsewhere = gradient != nullptr && gradient != view.data && view.count != 0;
  const device::Current current(gpu());
  const std::lock_guard lock(mutex_);
  Given& given = given_[parameter];
  if (given.step == step_) return false;
  if (!gives_ && elsewhere) {
    make_wait(handle, last_);
    gpu().check(gpu().driver().copy_on_device(address_of(view.data), address_of(gradient),
                                              view.count * size_of(view.type), handle),
                "cuMemcpyDtoDAsync");
  }
  record(readies_[parameter], handle);
  given = {step_, elsewhere && gives_ ? static_cast<const std::byte*>(gradient) : nullptr, true};
  return true;
}

// What the stream does with gradients comes after what Rondo has enqueued for them so far, and what
// has become ready in this step.
void GpuPasses::come_after_all(device::StreamHandle stream) {
  for (std::size_t i = 0; i < given_.size(); ++i)
    if (given_[i].pending) make_wait(stream, readies_[i]);
  make_wait(stream, last_);
}

// What the stream does with gradients comes before what Rondo will enqueue.
void GpuPasses::come_before_all(device::StreamHandle stream) {
  record(last_, stream);
  make_wait(stream_.get(), last_);
}

// Lets the body enqueue work on the stream, behind what Rondo has enqueued for gradients so far and
// before what it will enqueue. That also holds for what a body has enqueued that fails half way:
// settle() waits for it.
template <class Body>
void GpuPasses::in_order(void* stream, const Body& body) {
  const device::StreamHandle handle = handle_of(stream);
  const device::Current current(gpu());
  const std::lock_guard lock(mutex_);
  come_after_all(handle);
  try {
    body(handle);
  } catch (...) {
    try {
      come_before_all(handle);
    } catch (const Error&) {  // the body's own error says why
    }
    throw;
  }
  come_before_all(handle);
}

void GpuPasses::zero(void* stream) {
  in_order(stream, [&](device::StreamHandle handle) {
    for (std::size_t arena = 0; arena < setup_.layout.arenas.size(); ++arena)
      if (const std::size_t bytes = setup_.layout.arenas[arena].bytes; bytes != 0)
        gpu().check(
            gpu().driver().set_bytes(address_of(setup_.storage.gradients(arena)), 0, bytes, handle),
            "cuMemsetD8Async");
  });
}

void GpuPasses::begin_step(void* stream, bool gives) {
  check_overflow();
  {
    const std::lock_guard lock(mutex_);
    ++step_;
    gives_ = gives;
  }
  order_after(stream);
}

void GpuPasses::order_after(void* stream) {
  const device::Current current(gpu());
  record(mark_, handle_of(stream));
  make_wait(stream_.get(), mark_);
}

void GpuPasses::make_room_to_save() {
  for (std::size_t arena = saved_.size(); arena < setup_.layout.arenas.size(); ++arena) {
    saved_.emplace_back();
    const std::size_t bytes = setup_.layout.arenas[arena].bytes;
    if (bytes != 0 && !setup_.storage.has_wire(arena)) saved_.back().emplace(gpu(), bytes);
  }
}

std::byte* GpuPasses::saved_at(std::size_t arena, std::size_t offset) const noexcept {
  return reinterpret_cast<std::byte*>(saved_[arena]->address() + offset);
}

// The marks of a complete bucket do not change any more, so this takes no lock.
void GpuPasses::await_ready(std::size_t parameter) {
  Given& given = given_[parameter];
  if (!given.pending) return;
  make_wait(stream_.get(), readies_[parameter]);
  given.pending = false;
}

void GpuPasses::await_all_ready() {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < given_.size(); ++i) await_ready(i);
}

const std::byte* GpuPasses::source_of(std::size_t arena, const LoadedPart& part) const noexcept {
  const Given& given = given_[part.parameter];
  if (part.zero) return nullptr;
  if (given.step != step_ || given.source == nullptr)
    return setup_.storage.gradients(arena) + part.piece.offset;
  return given.source + (part.piece.offset - setup_.layout.places[part.parameter].offset);
}

void GpuPasses::load(std::size_t bucket, std::span<const LoadedPart> parts, double factor,
                     bool save) {
  const device::Current current(gpu());
  for (const LoadedPart& part : parts) await_ready(part.parameter);
  const std::size_t arena = setup_.layout.buckets[bucket].arena;
  if (setup_.storage.has_wire(arena))
    load_wire(bucket, parts, factor);
  else
    load_plain(arena, parts, save);
}

void GpuPasses::load_plain(std::size_t arena, std::span<const LoadedPart> parts, bool save) {
  Launches launches(kernels_, BucketKernel::move, 1, stream_.get());
  for (const LoadedPart& part : parts) {
    std::byte* const view = setup_.storage.gradients(arena) + part.piece.offset;
    const std::byte* const source = source_of(arena, part);
    if (source == view) continue;
    std::byte* const saved = part.zero && save ? saved_at(arena, part.piece.offset) : nullptr;
    launches.add({source, view, saved, part.piece.bytes});
  }
  launches.finish();
}

void GpuPasses::load_wire(std::size_t bucket, std::span<const LoadedPart> parts, double factor) {
  const Storage& storage = setup_.storage;
  const std::size_t arena = setup_.layout.buckets[bucket].arena;
  const bool f16 = setup_.options.wire == DType::f16;
  Launches launches(kernels_, f16 ? BucketKernel::to_f16 : BucketKernel::to_bf16, factor,
                    stream_.get(), f16 ? results_->overflows_at() : nullptr);
  for (const LoadedPart& part : parts)
    launches.add({source_of(arena, part),
                  storage.travelling_at(setup_.layout, bucket, part.piece.offset), nullptr,
                  part.piece.bytes / sizeof(float),
                  f16 ? static_cast<std::uint32_t>(part.parameter) : 0});
  launches.finish();
}

// When the host has seen the end, the bucket stream need not wait.
void GpuPasses::await(const Work& work, bool on_host) {
  if (on_host)
    work.wait();
  else
    work.join(stream_.get());
}

void GpuPasses::store(std::size_t bucket, std::span<const StoredPart> parts, double scale) {
  const device::Current current(gpu());
  const std::size_t arena = setup_.layout.buckets[bucket].arena;
  if (setup_.storage.has_wire(arena))
    store_wire(bucket, parts, scale);
  else
    store_plain(arena, parts);
}

void GpuPasses::store_plain(std::size_t arena, std::span<const StoredPart> parts) {
  Launches launches(kernels_, BucketKernel::move, 1, stream_.get());
  for (const StoredPart& part : parts)
    if (const auto [offset, bytes] = part.piece; part.untouched)
      launches.add(
          {saved_at(arena, offset), setup_.storage.gradients(arena) + offset, nullptr, bytes});
  launches.finish();
}

void GpuPasses::store_wire(std::size_t bucket, std::span<const StoredPart> parts, double scale) {
  const Storage& storage = setup_.storage;
  const std::size_t arena = setup_.layout.buckets[bucket].arena;
  const bool f16 = setup_.options.wire == DType::f16;
  Launches launches(kernels_, f16 ? BucketKernel::from_f16 : BucketKernel::from_bf16, scale,
                    stream_.get());
  for (const StoredPart& part : parts)
    if (const auto [offset, bytes] = part.piece; !part.untouched)
      launches.add({storage.travelling_at(setup_.layout, bucket, offset),
                    storage.gradients(arena) + offset, nullptr, bytes / sizeof(float)});
  launches.finish();
}

// Words only rise, and the first one that does ends all steps.
void GpuPasses::check_overflow() {
  if (!results_) return;
  const device::Current current(gpu());
  if (!results_->arrived()) return;
  const std::span<const std::uint32_t> overflows = results_->overflows();
  const auto found = std::find_if(overflows.begin(), overflows.end(),
                                  [](std::uint32_t word) { return word != 0; });
  if (found != overflows.end())
    setup_.refuse_overflow(static_cast<std::size_t>(found - overflows.begin()));
}

training::GpuWait GpuPasses::wait() const noexcept {
  return training::gpu_wait(setup_.communicator, setup_.title, setup_.options.deadline);
}

std::byte* GpuPasses::block_sum_at(std::size_t block) const noexcept {
  return reinterpret_cast<std::byte*>(block_sums_->address() + block * sizeof(double));
}

void GpuPasses::add_squares(std::span<const SquareRange> ranges) {
  if (ranges.empty()) return;
  const std::size_t arena = ranges.front().arena;
  const DType type = setup_.layout.arenas[arena].type;
  const device::Current current(gpu());
  Launches launches(kernels_, squares_kernel(type), 1, stream_.get());
  for (const SquareRange& range : ranges)
    launches.add({setup_.storage.gradients(arena) + range.piece.offset, block_sum_at(range.block),
                  nullptr, range.piece.bytes / size_of(type)});
  launches.finish();
}

void GpuPasses::add_up_squares(std::span<const BlockSums> gradients) {
  const device::Current current(gpu());
  Launches launches(kernels_, BucketKernel::add_blocks, 1, stream_.get());
  std::size_t parameter = 0;
  for (const auto& [first, count] : gradients)
    launches.add({count == 0 ? nullptr : block_sum_at(first), results_->square_at(parameter++),
                  nullptr, count == 0 ? 1 : count});
  launches.finish();
  launches.add({results_->square_at(0), results_->square_at(parameter), nullptr, parameter});
  launches.finish();
}

std::span<const double> GpuPasses::squares() {
  const device::Current current(gpu());
  results_->await(wait());
  return results_->squares();
}

void GpuPasses::clip(double max_norm, std::span<const ClipRange> ranges, void* stream) {
  in_order(stream, [&](device::StreamHandle handle) {
    const auto* const squares =
        reinterpret_cast<const double*>(results_->square_at(setup_.parameters.size()));
    for (const auto& [arena, piece] : ranges)
      kernels_.launch_clip(
          setup_.layout.arenas[arena].type,
          {setup_.storage.gradients(arena) + piece.offset,
           piece.bytes / size_of(setup_.layout.arenas[arena].type), squares, max_norm},
          handle);
  });
}

void GpuPasses::complete(std::optional<void*> stream) {
  const device::Current current(gpu());
  await_all_ready();
  if (results_) results_->fetch(stream_.get());
  record(last_, stream_.get());
  if (stream) return make_wait(handle_of(*stream), last_);
  training::await_gpu(gpu(), last_, wait(), "the gradients' kernels");
  check_overflow();
}

bool GpuPasses::settle(std::chrono::milliseconds time) noexcept {
  if (!gpu().here()) return true;
  try {
    const device::Current current(gpu());
    await_all_ready();
    record(last_, stream_.get());
    return device::wait_for(last_, time) != device::not_ready;
  } catch (const std::exception&) {
    return true;  // the GPU has failed, and runs nothing any more
  }
}

}  // namespace rondo::grad
