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

double* Exchange::memory() {
  if (memory_.data() == nullptr)
    memory_ = communicator_->allocate(memory_elements() * sizeof(double), device_);
  return static_cast<double*>(memory_.data());
}

void Exchange::send(const Position& position, void* stream) {
  position_ = position;
  if (!on_gpu()) history_ = history_in({section(), elements_});
  const BatchNormOptions& layer = position.layer->options;
  // The end of a long name says more than its beginning: "encoder.layer3.5.bn2".
  std::string_view name = layer.name;
  const bool cut = name.size() > most_tag_name;
  if (cut) name.remove_prefix(name.size() - (most_tag_name - 2));
  char tag[32];
  const auto end = fmt::format_to_n(tag, sizeof tag, "{} {} {}{}",
                                    position.pass == Pass::forward ? "fwd" : "bwd", position.step,
                                    cut ? ".." : "", name);
  OpOptions options;
  options.stream = stream;
  options.priority = Priority::urgent;
  options.deadline = layer.deadline;
  options.tag = {tag, std::min(end.size, sizeof tag)};
  const Buffer buffer{memory_.data(), memory_elements(), DType::f64, device_};
  work_ = communicator_->all_reduce(buffer, buffer, ReduceOp::sum, options);
}

void Exchange::join(void* stream) {
  try {
    if (on_gpu())
      work_.join(stream);
    else
      work_.wait();
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

// All ranks see the same sums, so they come to the same conclusion here.
void Exchange::check() {
  const Agreed agreed = agreed_in({section(), elements_}, communicator_->size());
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
