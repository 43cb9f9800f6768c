// SPDX-License-Identifier: Apache-2.0
#include "bn/statistics/exchange.h"

#include <fmt/format.h>
#include <rondo/error.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "device/keep.h"

namespace rondo::statistics {

namespace {

constexpr std::size_t most_tag_name = 18;

}  // namespace

std::span<double> Exchange::section() {
  if (memory_.data() == nullptr)
    memory_ = communicator_->allocate((elements_ + (on_gpu() ? 1 : 0)) * sizeof(double), device_);
  return {static_cast<double*>(memory_.data()), elements_};
}

std::uintptr_t Exchange::address() {
  return reinterpret_cast<std::uintptr_t>(section().data()) + sizeof(double);
}

void Exchange::send(const Position& position, double count, std::uint64_t history) {
  const std::span<double> to = section();
  const auto agree = [&](std::size_t which, std::uint64_t number) {
    put_agreement(to.subspan(1 + which * agreement_elements).first<agreement_elements>(), number);
  };
  to[0] = count;
  agree(0, position.place());
  agree(1, position.layer->hash);
  agree(2, history);
  history_ = history;
  start(position, {});
}

void Exchange::send_on(const Position& position, void* stream) {
  OpOptions options;
  options.stream = stream;
  start(position, options);
}

void Exchange::start(const Position& position, OpOptions options) {
  position_ = position;
  const BatchNormOptions& layer = position.layer->options;
  // The end of a long name says more than its beginning: "encoder.layer3.5.bn2".
  std::string_view name = layer.name;
  const bool cut = name.size() > most_tag_name;
  if (cut) name.remove_prefix(name.size() - (most_tag_name - 2));
  char tag[32];
  const auto end = fmt::format_to_n(tag, sizeof tag, "{} {} {}{}",
                                    position.pass == Pass::forward ? "fwd" : "bwd", position.step,
                                    cut ? ".." : "", name);
  options.priority = Priority::urgent;
  options.deadline = layer.deadline;
  options.tag = {tag, std::min(end.size, sizeof tag)};
  const Buffer buffer{memory_.data(), elements_ + (on_gpu() ? 1 : 0), DType::f64, device_};
  work_ = communicator_->all_reduce(buffer, buffer, ReduceOp::sum, options);
}

template <class Wait>
void Exchange::finish(Wait wait) {
  try {
    wait();
  } catch (const Error& error) {
    const bool calls_differ = error.code() == Errc::mismatch && work_.error();
    if (!calls_differ) throw;
    throw Error(
        error.code(),
        fmt::format("batch norm: this rank is {}: {}; ranks are at different layers, or a layer "
                    "has different numbers of channels (it sends {} + 2 x channels elements) or is "
                    "on a GPU of some ranks only",
                    position_.text(*calls_), error.what(), head));
  }
}

void Exchange::wait() {
  finish([this] { work_.wait(); });
}

void Exchange::join(void* stream) {
  finish([&] { work_.join(stream); });
}

// All ranks see the same sums, so they come to the same conclusion here.
void Exchange::check() const {
  const Agreed agreed =
      agreed_in({static_cast<const double*>(memory_.data()), elements_}, communicator_->size());
  if (!agreed.all()) tell_apart(*communicator_, position_, agreed, history_, *calls_);
}

void Exchange::dissolve() noexcept {
  try {
    work_.wait();
  } catch (const Error&) {
    // The next operation of the communicator throws the failure.
  }
}

void Exchange::lose_memory() noexcept {
  device::keep_until_exit(std::make_unique<Memory>(std::move(memory_)));
}

}  // namespace rondo::statistics
