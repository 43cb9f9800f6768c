// SPDX-License-Identifier: Apache-2.0
//
// Each public function makes a list of pieces for one kernel and runs it, in host memory at once,
// on a GPU behind the streams that must come before. Most of the code is about that order.
#include "grad/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/copy.h"
#include "device/pointer.h"
#include "grad/device/arithmetic.h"
#include "grad/host_kernels.h"
#include "grad/setup.h"

namespace rondo::grad {

namespace {

device::StreamHandle handle_of(void* stream) noexcept {
  return static_cast<device::StreamHandle>(stream);
}

device::Address address_of(const void* data) noexcept {
  return reinterpret_cast<device::Address>(data);
}

// Takes off the first ranges, those of one arena.
std::span<const GradientRange> take_arena(std::span<const GradientRange>& ranges) noexcept {
  const auto end = std::find_if(ranges.begin(), ranges.end(), [&](const GradientRange& each) {
    return each.arena != ranges.front().arena;
  });
  const auto taken = ranges.first(static_cast<std::size_t>(end - ranges.begin()));
  ranges = ranges.subspan(taken.size());
  return taken;
}

// found: the sum of squares, then a word for each parameter.
bool overflowed(const std::byte* found, std::size_t parameter) noexcept {
  return reinterpret_cast<const std::uint32_t*>(found + sizeof(double))[parameter] != 0;
}

}  // namespace

Passes::Passes(const Setup& setup)
    : setup_(setup),
      f16_(setup.options.wire == DType::f16),
      found_bytes_(sizeof(double) + (f16_ ? setup.parameters.size() * sizeof(std::uint32_t) : 0)) {
  if (const int device = setup.device; device >= 0) {
    gpu_.emplace(device, setup.parameters.size());
    fetched_.emplace(gpu_->gpu(), found_bytes_);
    std::memset(fetched_->memory.data(), 0, found_bytes_);
  }
  found_ = allocate(found_bytes_);
  if (gpu_) device::set_to_zero(gpu_->gpu(), address_of(found_), found_bytes_);
  pieces_.reserve(std::max<std::size_t>(setup.parameters.size(), 1));
  if (setup.options.find_unused) make_room_to_save();
}

// Pages of the host that are never written cost nothing.
std::byte* Passes::allocate(std::size_t bytes) {
  if (gpu_) return gpu_->allocate(bytes);
  return static_cast<std::byte*>(host_memory_.emplace_back(bytes).data());
}

void Passes::check_stream(std::string_view call, void* stream) const {
  if (!gpu_) return;
  const std::string problem = device::problem_of_stream(gpu_->gpu(), handle_of(stream));
  if (!problem.empty())
    throw Error(Errc::unsupported, fmt::format("gradient buckets on rank {}: {}: {}",
                                               setup_.communicator.rank(), call, problem));
}

void Passes::check_gradient(std::size_t parameter, const void* gradient) const {
  const Buffer view = setup_.gradient(parameter);
  if (!gpu_ || gradient == nullptr || gradient == view.data || view.count == 0) return;
  const std::string problem = device::problem_of_memory(
      gpu_->gpu(), gradient, view.count * size_of(view.type), "buckets are");
  if (!problem.empty())
    setup_.refuse(fmt::format("ready(): the gradient of '{}' {}", setup_.parameters[parameter].name,
                              problem));
  if (address_of(gradient) % size_of(view.type) != 0)
    setup_.refuse(fmt::format("ready(): the gradient of '{}' lies at {}, which is no address of {}",
                              setup_.parameters[parameter].name, gradient, name_of(view.type)));
}

bool Passes::take(std::size_t parameter, const void* gradient, void* stream) {
  const Buffer view = setup_.gradient(parameter);
  const std::span<std::byte> bytes(static_cast<std::byte*>(view.data),
                                   view.count * size_of(view.type));
  const bool elsewhere = gradient != nullptr && gradient != view.data && view.count != 0;
  const auto* const from = static_cast<const std::byte*>(elsewhere ? gradient : nullptr);
  if (gpu_) return gpu_->take(parameter, from, bytes, handle_of(stream));
  if (elsewhere) base::copy_bytes(bytes.data(), from, bytes.size());
  return true;
}

void Passes::run(const Pass& pass, device::StreamHandle stream) {
  if (pieces_.empty()) return;
  if (gpu_)
    gpu_->run(pass, pieces_, stream);
  else
    run_on_host(pass, pieces_);
}

template <class Body>
void Passes::in_order(void* stream, const Body& body) {
  const device::StreamHandle handle = handle_of(stream);
  if (gpu_)
    gpu_->in_order(handle, [&] { body(handle); });
  else
    body(handle);
}

void Passes::zero(void* stream) {
  in_order(stream, [this](device::StreamHandle handle) {
    for (std::size_t arena = 0; arena < setup_.layout.arenas.size(); ++arena) {
      const std::size_t bytes = setup_.layout.arenas[arena].bytes;
      if (bytes == 0) continue;
      if (!gpu_)
        std::memset(setup_.view_at(arena, 0), 0, bytes);
      else
        gpu_->gpu().check(
            gpu_->gpu().driver().set_bytes(address_of(setup_.view_at(arena, 0)), 0, bytes, handle),
            "cuMemsetD8Async");
    }
  });
}

void Passes::begin_step(void* stream, bool gives) {
  if (!gpu_) return;
  check_overflow();
  gpu_->begin_step(gives);
  order_after(stream);
}

void Passes::order_after(void* stream) {
  if (gpu_) gpu_->come_after(handle_of(stream));
}

void Passes::make_room_to_save() {
  for (std::size_t arena = saved_.size(); arena < setup_.layout.arenas.size(); ++arena)
    saved_.push_back(setup_.has_wire(arena) ? nullptr
                                            : allocate(setup_.layout.arenas[arena].bytes));
}

// Null for zeros.
const std::byte* Passes::source_of(const Part& part, const std::byte* view) const noexcept {
  if (part.left_out) return nullptr;
  const std::byte* const source = gpu_ ? gpu_->source_of(part.parameter) : nullptr;
  if (source == nullptr) return view;
  return source + (part.piece.offset - setup_.layout.places[part.parameter].offset);
}

void Passes::load(std::size_t bucket, std::span<const Part> parts, double factor, bool save) {
  const std::size_t arena = setup_.layout.buckets[bucket].arena;
  const bool wire = setup_.has_wire(arena);
  std::optional<device::Current> current;  // once for all parts
  if (gpu_) current.emplace(gpu_->gpu());
  pieces_.clear();
  for (const Part& part : parts) {
    if (gpu_) gpu_->await_ready(part.parameter);
    const auto [offset, bytes] = part.piece;
    std::byte* const view = setup_.view_at(arena, offset);
    const std::byte* const from = source_of(part, view);
    if (wire)
      pieces_.push_back({from, setup_.travelling_at(arena, offset), nullptr, bytes / sizeof(float),
                         f16_ ? static_cast<std::uint32_t>(part.parameter) : 0});
    else if (from != view)
      pieces_.push_back(
          {from, view, part.left_out && save ? saved_[arena] + offset : nullptr, bytes});
  }
  if (!wire) return run({BucketKernel::move}, handle_of(this->stream()));
  run({f16_ ? BucketKernel::to_f16 : BucketKernel::to_bf16, factor, f16_ ? words() : nullptr},
      handle_of(this->stream()));
  if (gpu_ || !f16_) return;
  for (const Part& part : parts)  // all words would be a pass over them for each bucket
    if (overflowed(found_, part.parameter)) setup_.refuse_overflow(part.parameter);
}

// When the host has seen the end, the bucket stream need not wait.
void Passes::await(const Work& work, bool on_host) {
  if (!gpu_ || on_host)
    work.wait();
  else
    work.join(gpu_->get());
}

void Passes::store(std::size_t bucket, std::span<const Part> parts, double scale) {
  const std::size_t arena = setup_.layout.buckets[bucket].arena;
  const bool wire = setup_.has_wire(arena);
  pieces_.clear();
  for (const Part& part : parts) {
    const auto [offset, bytes] = part.piece;
    std::byte* const view = setup_.view_at(arena, offset);
    if (wire && !part.left_out)
      pieces_.push_back(
          {setup_.travelling_at(arena, offset), view, nullptr, bytes / sizeof(float)});
    else if (!wire && part.left_out)
      pieces_.push_back({saved_[arena] + offset, view, nullptr, bytes});
  }
  const BucketKernel widen = f16_ ? BucketKernel::from_f16 : BucketKernel::from_bf16;
  run({wire ? widen : BucketKernel::move, scale}, handle_of(this->stream()));
}

void Passes::wait_for(const device::Event& event) const {
  const bool own = setup_.options.deadline.count() > 0;
  const auto deadline = own ? setup_.options.deadline : setup_.communicator.deadline();
  const device::Current current(gpu_->gpu());
  const device::Status status = device::wait_for(event, deadline);
  if (status == device::not_ready)
    throw Error(
        Errc::deadline_exceeded,
        fmt::format("rank {}: {}: GPU {} has not done the gradients' kernels within the deadline "
                    "of {} ms: work that the program enqueued before keeps it busy, or hangs; find "
                    "that work, or set a longer {}",
                    setup_.communicator.rank(), setup_.title, setup_.device, deadline.count(),
                    own ? "GradientOptions::deadline" : "Options::deadline"));
  gpu_->gpu().check(status, "the gradients' kernels");
}

void Passes::fetch(device::StreamHandle stream) {
  const device::Gpu& gpu = gpu_->gpu();
  const device::Current current(gpu);
  gpu.check(
      gpu.driver().copy_to_host(fetched_->memory.data(), address_of(found_), found_bytes_, stream),
      "cuMemcpyDtoHAsync");
  gpu.check(fetched_->ended.record(stream), "cuEventRecord");
  fetched_->pending = true;
}

// The first word that becomes 1 ends all steps.
void Passes::check_overflow() {
  if (!f16_) return;
  const std::byte* found = found_;
  if (gpu_) {
    const device::Current current(gpu_->gpu());
    if (fetched_->pending) fetched_->pending = fetched_->ended.query() != device::success;
    if (fetched_->pending) return;
    found = fetched_->memory.data();
  }
  for (std::size_t i = 0; i < setup_.parameters.size(); ++i)
    if (overflowed(found, i)) setup_.refuse_overflow(i);
}

void Passes::complete(std::optional<void*> stream) {
  if (!gpu_) return;
  if (f16_) fetch(gpu_->get());
  gpu_->end_step();
  if (stream) return gpu_->make_wait(handle_of(*stream));
  wait_for(gpu_->last());
  check_overflow();
}

void Passes::measure(std::span<const GradientRange> ranges, void* stream) {
  if (block_sums_ == nullptr) {
    std::size_t blocks = 1;
    for (const Parameter& each : setup_.parameters) blocks += square_blocks(element_count(each));
    block_sums_ = allocate(blocks * sizeof(double));
  }
  in_order(stream, [&](device::StreamHandle handle) {
    std::uint64_t blocks = 0;
    while (!ranges.empty()) {
      const DType type = setup_.layout.arenas[ranges.front().arena].type;
      pieces_.clear();
      for (const auto& [arena, piece] : take_arena(ranges)) {
        const std::uint64_t count = piece.bytes / size_of(type);
        pieces_.push_back({setup_.view_at(arena, piece.offset),
                           block_sums_ + blocks * sizeof(double), nullptr, count});
        blocks += square_blocks(count);
      }
      run({squares_kernel(type)}, handle);
    }
    const std::byte* const sums = blocks == 0 ? nullptr : block_sums_;
    pieces_.assign({{sums, found_, nullptr, std::max<std::uint64_t>(blocks, 1)}});
    run({BucketKernel::add_blocks}, handle);
    if (gpu_) fetch(handle);
  });
}

double Passes::squares() {
  if (gpu_ && fetched_->pending) {
    wait_for(fetched_->ended);
    fetched_->pending = false;
  }
  return *reinterpret_cast<const double*>(gpu_ ? fetched_->memory.data() : found_);
}

void Passes::clip(double max_norm, std::span<const GradientRange> ranges, void* stream) {
  const auto* const squares = reinterpret_cast<const double*>(found_);
  in_order(stream, [&](device::StreamHandle handle) {
    while (!ranges.empty()) {
      const DType type = setup_.layout.arenas[ranges.front().arena].type;
      pieces_.clear();
      for (const auto& [arena, piece] : take_arena(ranges)) {
        std::byte* const view = setup_.view_at(arena, piece.offset);
        pieces_.push_back({view, view, nullptr, piece.bytes / size_of(type)});
      }
      run({.kernel = scale_kernel(type), .factor = max_norm, .squares = squares}, handle);
    }
  });
}

}  // namespace rondo::grad
