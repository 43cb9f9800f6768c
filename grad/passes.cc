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

constexpr Pass moving;

// Moves count elements of u16, of which gradients of any type consist.
std::uint64_t in_moves(std::size_t bytes) noexcept {
  return bytes / sizeof(std::uint16_t);
}

device::Address address_of(const void* data) noexcept {
  return reinterpret_cast<device::Address>(data);
}

}  // namespace

Passes::Passes(const Setup& setup) : setup_(setup), f16_(setup.options.wire == DType::f16) {
  if (const int device = setup.device; device >= 0) {
    gpu_.emplace(device, setup.parameters.size());
    fetched_.emplace(gpu_->gpu());
    std::memset(fetched_->memory.data(), 0, sizeof(Found));
  }
  found_ = allocate(sizeof(Found));
  if (gpu_) device::set_to_zero(gpu_->gpu(), address_of(found_), sizeof(Found));
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
  const device::Current current(gpu_->gpu());
  const std::string problem = device::problem_of_memory(
      gpu_->gpu(), gradient, view.count * size_of(view.type), "buckets are");
  if (!problem.empty())
    setup_.refuse(fmt::format("ready(): the gradient of '{}' {}", setup_.parameters[parameter].name,
                              problem));
  if (address_of(gradient) % size_of(view.type) != 0)
    setup_.refuse(fmt::format("ready(): the gradient of '{}' lies at {}, which is no address of {}",
                              setup_.parameters[parameter].name, gradient, name_of(view.type)));
}

void Passes::take(std::size_t parameter, const void* gradient, void* stream) {
  const Buffer view = setup_.gradient(parameter);
  const bool elsewhere = gradient != nullptr && gradient != view.data && view.count != 0;
  const std::span<std::byte> to(static_cast<std::byte*>(view.data),
                                elsewhere ? view.count * size_of(view.type) : 0);
  const auto* const from = static_cast<const std::byte*>(gradient);
  if (gpu_)
    gpu_->take(parameter, from, to, handle_of(stream));
  else if (elsewhere)
    base::copy_bytes(to.data(), from, to.size());
}

void Passes::run(const Pass& pass, void* stream) {
  if (pieces_.empty()) return;
  if (gpu_)
    gpu_->run(pass, pieces_, handle_of(stream));
  else
    run_on_host(pass, pieces_);
}

template <class Body>
void Passes::in_order(void* stream, const Body& body) {
  if (gpu_)
    gpu_->in_order(handle_of(stream), body);
  else
    body();
}

void Passes::zero(void* stream) {
  in_order(stream, [this, stream] {
    for (std::size_t arena = 0; arena < setup_.layout.arenas.size(); ++arena) {
      const std::size_t bytes = setup_.layout.arenas[arena].bytes;
      pieces_.assign({{nullptr, setup_.view_at(arena, 0), nullptr, in_moves(bytes)}});
      if (bytes != 0) run(moving, stream);
    }
  });
}

// Does not wait for the GPU: an overflow that the host does not know of yet is found later.
void Passes::begin_step(void* stream) {
  if (!gpu_) return;
  if (f16_) {
    const device::Current current(gpu_->gpu());
    if (fetched_->pending) fetched_->pending = fetched_->ended.query() != device::success;
    if (!fetched_->pending) check_overflow();
  }
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

void Passes::load(std::size_t bucket, const LeftOut& left_out, double factor, bool save) {
  const BucketRange& range = setup_.layout.buckets[bucket];
  const bool wire = setup_.has_wire(range.arena);
  std::optional<device::Current> current;  // once for all gradients
  if (gpu_) current.emplace(gpu_->gpu());
  pieces_.clear();
  for (const std::size_t parameter : range.parameters) {
    const auto [offset, bytes] = setup_.layout.piece(bucket, parameter);
    if (bytes == 0) continue;
    if (gpu_) gpu_->await_ready(parameter);
    std::byte* const view = setup_.view_at(range.arena, offset);
    const bool zero = left_out(parameter);
    if (zero && save && !wire) make_room_to_save();
    if (wire)
      pieces_.push_back({zero ? nullptr : view, setup_.travelling_at(range.arena, offset), nullptr,
                         bytes / sizeof(float), f16_ ? static_cast<std::uint32_t>(parameter) : 0});
    else if (zero)
      pieces_.push_back(
          {nullptr, view, save ? saved_[range.arena] + offset : nullptr, in_moves(bytes)});
  }
  if (!wire) return run(moving, stream());
  auto& overflow = reinterpret_cast<Found*>(found_)->overflow;
  run({Operation::multiply, DType::f32, *setup_.options.wire, factor, f16_ ? &overflow : nullptr},
      stream());
  if (!gpu_) check_overflow();
}

// When the host has seen the end, the bucket stream need not wait.
void Passes::await(const Work& work, bool on_host) {
  if (!gpu_ || on_host)
    work.wait();
  else
    work.join(gpu_->get());
}

void Passes::store(std::size_t bucket, const LeftOut& left_out, double scale) {
  const BucketRange& range = setup_.layout.buckets[bucket];
  const bool wire = setup_.has_wire(range.arena);
  pieces_.clear();
  for (const std::size_t parameter : range.parameters) {
    const auto [offset, bytes] = setup_.layout.piece(bucket, parameter);
    std::byte* const view = setup_.view_at(range.arena, offset);
    const bool untouched = left_out(parameter);
    if (wire && !untouched)
      pieces_.push_back(
          {setup_.travelling_at(range.arena, offset), view, nullptr, bytes / sizeof(float)});
    else if (!wire && untouched)
      pieces_.push_back({saved_[range.arena] + offset, view, nullptr, in_moves(bytes)});
  }
  if (!wire) return run(moving, stream());
  run({Operation::multiply, *setup_.options.wire, DType::f32, scale}, stream());
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
      gpu.driver().copy_to_host(fetched_->memory.data(), address_of(found_), sizeof(Found), stream),
      "cuMemcpyDtoHAsync");
  gpu.check(fetched_->ended.record(stream), "cuEventRecord");
  fetched_->pending = true;
}

void Passes::check_overflow() const {
  const std::uint32_t found = this->found().overflow;
  if (found == 0) return;
  setup_.refuse(fmt::format(
      "the gradient of '{}' has a finite element above 65504, which f16 cannot hold: let gradients "
      "travel as bf16 (GradientOptions::wire), or make the loss smaller by a scale",
      setup_.parameters[found - 1].name));
}

void Passes::complete(std::optional<void*> stream) {
  if (!gpu_) return;
  if (f16_) fetch(gpu_->get());
  gpu_->end_step();
  if (stream) return gpu_->make_wait(handle_of(*stream));
  wait_for(gpu_->last());
  check_overflow();
}

// Gradients of an arena lie in the reverse of their registration.
void Passes::collect(std::size_t arena, const LeftOut& left_out) {
  const std::size_t each = size_of(setup_.layout.arenas[arena].type);
  pieces_.clear();
  for (std::size_t parameter = setup_.parameters.size(); parameter-- > 0;) {
    const GradientPlace& place = setup_.layout.places[parameter];
    if (place.arena != arena || place.bytes == 0 || left_out(parameter)) continue;
    std::byte* const view = setup_.view_at(arena, place.offset);
    if (!pieces_.empty() && pieces_.back().to + pieces_.back().count * each == view)
      pieces_.back().count += place.bytes / each;
    else
      pieces_.push_back({view, view, nullptr, place.bytes / each});
  }
}

void Passes::measure(const LeftOut& left_out, void* stream) {
  if (block_sums_ == nullptr) {
    std::size_t blocks = 1;
    for (const Parameter& each : setup_.parameters) blocks += square_blocks(element_count(each));
    block_sums_ = allocate(blocks * sizeof(double));
  }
  in_order(stream, [&] {
    std::uint64_t blocks = 0;
    for (std::size_t arena = 0; arena < setup_.layout.arenas.size(); ++arena) {
      collect(arena, left_out);
      for (Piece& piece : pieces_) {
        piece.to = block_sums_ + blocks * sizeof(double);
        blocks += square_blocks(piece.count);
      }
      run({Operation::sum_squares, setup_.layout.arenas[arena].type, DType::f64}, stream);
    }
    const std::byte* const sums = blocks == 0 ? nullptr : block_sums_;
    pieces_.assign({{sums, found_, nullptr, std::max<std::uint64_t>(blocks, 1)}});
    run({Operation::sum_blocks, DType::f64, DType::f64}, stream);
    if (gpu_) fetch(handle_of(stream));
  });
}

double Passes::squares() {
  if (gpu_ && fetched_->pending) {
    wait_for(fetched_->ended);
    fetched_->pending = false;
  }
  return found().squares;
}

void Passes::clip(double max_norm, const LeftOut& left_out, void* stream) {
  const double* const squares = &reinterpret_cast<const Found*>(found_)->squares;
  in_order(stream, [&] {
    for (std::size_t arena = 0; arena < setup_.layout.arenas.size(); ++arena) {
      const DType type = setup_.layout.arenas[arena].type;
      collect(arena, left_out);
      run({Operation::multiply, type, type, max_norm, nullptr, squares}, stream);
    }
  });
}

}  // namespace rondo::grad
