// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "grad/gpu.h"
#include "support/draw.h"

namespace rondo::testing {

// A few steps of gradient buckets on a GPU, which a seed draws: sizes, wire types, views or copies,
// two streams, unused parameters, zeroing. All sums are exact. It waits for nothing without end.
class GradientTrial {
 public:
  // Collective.
  GradientTrial(Communicator& c, OnGpu& on, std::uint64_t seed)
      : c_(c), on_(on), seed_(seed), draw_(seed, 1), a_(on.gpu()), b_(on.gpu()), event_(on.gpu()) {
    count_ = draw_.one_of<std::size_t>({10, 3001, 60'000});
    copies_ = draw_(2) == 0;
    on_stream_ = draw_(2) == 0;
    steps_ = 1 + draw_(3);
    const std::size_t parameters = 1 + draw_(4);
    for (std::size_t i = 0; i < parameters; ++i) {
      pinned_.push_back(std::make_unique<PinnedBytes>(on, bytes()));
      sources_.push_back(std::make_unique<device::DeviceMemory>(on.gpu(), bytes()));
    }
    sums_.resize(parameters);
    buckets_.emplace(c, parameters_of(std::vector<Tensor>(parameters, {count_}), on.gpu().ordinal()),
                     options());
  }

  // Throws Error; then the step has failed on all ranks.
  void run() {
    for (std::uint64_t step = 0; step < steps_; ++step) {
      try {
        run_step(step);
      } catch (const Error& error) {
        buckets_->abandon_step(error.what());
        c_.abort(error.code(), error.what());
        throw;
      }
    }
  }

  // Whether all gradients are what the ranks' gradients give.
  bool right() {
    std::vector<float> values(count_);
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      on_.copier.read(std::as_writable_bytes(std::span(values)), address_of(buckets_->gradient(i)));
      if (!std::ranges::all_of(values, [&](float v) { return v == sums_[i]; })) return false;
    }
    return true;
  }

 private:
  std::size_t bytes() const noexcept { return count_ * sizeof(float); }

  GradientOptions options() {
    GradientOptions options;
    options.averaging = Averaging::sum;
    options.first_bucket_bytes = options.bucket_bytes = draw_.one_of({4096, 100'000});
    if (draw_(2) == 0) options.wire = draw_.one_of({DType::bf16, DType::f16});
    options.norms = norms_ = draw_(2) == 0;
    options.error_feedback = options.wire && draw_(2) == 0;
    options.find_unused = draw_(3) == 0;
    find_unused_ = options.find_unused;
    return options;
  }

  bool is_unused(std::uint64_t step, int rank, std::size_t parameter) const {
    return mixed(seed_ * 100 + step, static_cast<std::uint64_t>(rank), parameter) % 3 == 0;
  }
  static float value(std::uint64_t step, int rank) {
    return static_cast<float>((1 + rank) * (1 + static_cast<int>(step % 2)));
  }
  bool zeroes(std::uint64_t step) const { return mixed(seed_, step) % 3 == 0; }

  void expect_step(std::uint64_t step) {
    squares_ = 0;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      if (zeroes(step)) sums_[i] = 0;
      float sum = 0;
      for (int rank = 0; rank < c_.size(); ++rank)
        if (!is_unused(step, rank, i)) sum += value(step, rank);
      if (sum != 0) sums_[i] = sum;
      squares_ += static_cast<double>(sum) * static_cast<double>(sum) * static_cast<double>(count_);
    }
  }

  void run_step(std::uint64_t step) {
    using std::chrono_literals::operator""s;
    std::vector<std::size_t> unused;
    for (std::size_t i = 0; i < sums_.size(); ++i)
      if (is_unused(step, c_.rank(), i)) unused.push_back(i);
    if (zeroes(step)) buckets_->zero_on(a_.get());
    StepOptions options{.stream = a_.get()};
    if (!find_unused_) options.unused = unused;
    buckets_->begin_step(options);
    record(a_);
    make_wait(b_);
    for (std::size_t i = sums_.size(); i-- > 0;)
      if (!is_unused(step, c_.rank(), i)) give(i, value(step, c_.rank()));
    if (on_stream_)
      buckets_->finish_on(a_.get());
    else
      buckets_->finish();
    for (const device::Stream* stream : {&a_, &b_}) {
      record(*stream);
      const device::Current current(on_.gpu());
      on_.gpu().check(device::wait_for(event_, 2s), "a stream of the test");
    }
    expect_step(step);
    if (norms_) expect_norm();
  }

  // All squares are whole numbers, which f64 adds exactly. With finish_on() the host waits here.
  void expect_norm() { expect(buckets_->norm() == std::sqrt(squares_), "a norm is wrong"); }

  void give(std::size_t parameter, float gradient) {
    const device::Stream& stream = parameter % 2 == 0 ? a_ : b_;
    const device::Address to =
        copies_ ? sources_[parameter]->address() : address_of(buckets_->gradient(parameter));
    std::fill_n(reinterpret_cast<float*>(pinned_[parameter]->data()), count_, gradient);
    pinned_[parameter]->to_gpu(to, bytes(), stream);
    if (copies_)
      buckets_->ready_on(parameter, stream.get(), reinterpret_cast<const void*>(to));
    else
      buckets_->ready_on(parameter, stream.get());
  }

  void record(const device::Stream& stream) {
    const device::Current current(on_.gpu());
    on_.gpu().check(event_.record(stream.get()), "record");
  }
  void make_wait(device::Stream& stream) {
    const device::Current current(on_.gpu());
    on_.gpu().check(stream.wait(event_), "wait");
  }

  Communicator& c_;
  OnGpu& on_;
  const std::uint64_t seed_;
  Draw draw_;
  device::Stream a_, b_;
  device::Event event_;
  std::size_t count_ = 0;
  bool copies_ = false, on_stream_ = false, find_unused_ = false, norms_ = false;
  std::uint64_t steps_ = 0;
  std::vector<float> sums_;  // by parameter: what its elements are
  double squares_ = 0;       // of what some rank has given in this step
  std::vector<std::unique_ptr<PinnedBytes>> pinned_;
  std::vector<std::unique_ptr<device::DeviceMemory>> sources_;
  std::optional<GradientBuckets> buckets_;
};

}  // namespace rondo::testing
