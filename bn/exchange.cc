// SPDX-License-Identifier: Apache-2.0
#include "bn/exchange.h"

#include <fmt/format.h>

#include <rondo/agreement.h>
#include <rondo/error.h>
#include <algorithm>
#include <string_view>
#include <utility>

#include "bn/layer.h"
#include "device/keep.h"

namespace rondo::bn {

namespace {

enum Agreement : std::size_t { of_place, of_layer, of_history };

std::span<double, agreement_elements> agreement(std::span<double> section, Agreement which) {
  return section.subspan(1 + which * agreement_elements).first<agreement_elements>();
}

std::size_t section_elements(const Layer& layer) {
  return Exchange::head + 2 * layer.channels();
}

// Most collectives of one pass. Each brings the point nearer by 50 binary digits, and two numbers
// of f64 are at most 2100 digits apart: see merge.h.
constexpr int most_rounds = 48;

constexpr std::size_t most_tag_name = 18;

}  // namespace

std::span<double> Exchange::payload() const noexcept {
  return {static_cast<double*>(memory_.data()), elements_};
}

GpuLayer* Exchange::gpu() const noexcept {
  return layers_.front()->gpu();
}

void Exchange::start(std::span<Layer* const> layers, Pass pass) {
  layers_.assign(layers.begin(), layers.end());
  pass_ = pass;
  reserve(layers.front()->communicator());
  for (Layer* layer : layers_) layer->enter(this);
  try {
    send(pass == Pass::forward ? Place::forward : Place::backward);
  } catch (...) {
    release();
    throw;
  }
}

void Exchange::reserve(Communicator& communicator) {
  const GpuLayer* const on = gpu();
  elements_ = 0;
  for (const Layer* layer : layers_)
    elements_ += section_elements(*layer) + (on != nullptr ? 1 : 0);
  if (memory_.bytes() < elements_ * sizeof(double)) {
    // Work of the pass before may still use the old memory.
    if (on != nullptr && !on->settle()) lose_memory();
    memory_ =
        communicator.allocate(elements_ * sizeof(double), on != nullptr ? on->gpu().ordinal() : -1);
  }
  sections_.clear();
  if (on == nullptr) return;
  auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  for (const Layer* layer : layers_) {
    sections_.push_back(address + sizeof(double));
    address += (1 + section_elements(*layer)) * sizeof(double);
  }
}

void Exchange::put(Place place) const {
  std::size_t at = 0;
  for (const Layer* layer : layers_) {
    const std::span<double> section = payload().subspan(at, section_elements(*layer));
    at += section.size();
    section[0] = layer->local_count();
    put_agreement(agreement(section, of_place),
                  4 * layer->step() + static_cast<std::uint64_t>(place));
    put_agreement(agreement(section, of_layer), layer->identity());
    put_agreement(agreement(section, of_history), layer->history());
    if (pass_ == Pass::forward)
      layer->put_forward(section.subspan(head));
    else
      layer->put_backward(section.subspan(head));
  }
}

void Exchange::put_on_gpu(Place place) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = *layers_[i];
    const SectionHead its_head{4 * layer.step() + static_cast<std::uint64_t>(place),
                               layer.identity()};
    if (pass_ == Pass::forward)
      layer.put_forward_on_gpu(sections_[i], its_head, place == Place::forward_again);
    else
      layer.put_backward_on_gpu(sections_[i], its_head);
  }
}

void Exchange::send(Place place) {
  place_ = place;
  GpuLayer* const on = gpu();
  if (on != nullptr)
    put_on_gpu(place);
  else
    put(place);
  const Layer& first = *layers_.front();
  // The end of a long name says more than its beginning: "encoder.layer3.5.bn2".
  std::string_view name = first.options().name;
  const bool cut = name.size() > most_tag_name;
  if (cut) name.remove_prefix(name.size() - (most_tag_name - 2));
  char tag[32];
  const auto end =
      fmt::format_to_n(tag, sizeof tag, "{} {} {}{}", pass_ == Pass::forward ? "fwd" : "bwd",
                       first.step(), cut ? ".." : "", name);
  OpOptions options;
  options.priority = Priority::urgent;
  options.deadline = first.options().deadline;
  options.tag = {tag, std::min(end.size, sizeof tag)};
  Buffer buffer{memory_.data(), elements_, DType::f64};
  if (on != nullptr) {
    options.stream = on->stream();
    buffer.device = on->gpu().ordinal();
  }
  work_ = first.communicator().all_reduce(buffer, buffer, ReduceOp::sum, options);
}

void Exchange::finish() {
  const Release release{*this};
  try {
    if (gpu() != nullptr)
      finish_on_gpu();
    else
      finish_on_host();
  } catch (const Error& error) {
    const bool calls_differ = error.code() == Errc::mismatch && work_.error();
    if (!calls_differ) throw;
    const std::string where = position(0).text();
    throw Error(
        error.code(),
        fmt::format("batch norm: this rank is {}: {}; ranks are at different layers, or a layer "
                    "has different numbers of channels (it sends {} + 2 x channels elements) or is "
                    "on a GPU of some ranks only",
                    where, error.what(), head));
  }
}

void Exchange::finish_on_host() {
  work_.wait();
  layers_.front()->shared().late_check().check(layers_.front()->communicator());
  check_agreement();
  for (int round = 1; !deliver() && round < most_rounds; ++round) {
    send(Place::forward_again);
    work_.wait();
    check_agreement();
  }
}

void Exchange::finish_on_gpu() {
  GpuLayer& on = *gpu();
  LateCheck& late = layers_.front()->shared().late_check();
  work_.join(on.stream());
  late.check(layers_.front()->communicator());
  GpuReport& report = late.report_of(on.kernels());
  const bool careful = pass_ == Pass::forward &&
                       std::any_of(layers_.begin(), layers_.end(),
                                   [](const Layer* layer) { return layer->doubts_point(); });
  if (careful) return finish_carefully_on_gpu(report);
  const device::Current current(on.gpu());
  if (pass_ == Pass::forward)
    for (std::size_t i = 0; i < layers_.size(); ++i) layers_[i]->merge_on_gpu(sections_[i], true);
  report.enqueue(sections_, on.stream());
  late.expect(report, positions(), layers_.front()->shared().local_calls());
}

// Waits for the sums, as on the processor, and repeats them about the mean that they gave.
void Exchange::finish_carefully_on_gpu(GpuReport& report) {
  GpuLayer& on = *gpu();
  for (int round = 1;; ++round) {
    {
      const device::Current current(on.gpu());
      for (std::size_t i = 0; i < layers_.size(); ++i)
        layers_[i]->merge_on_gpu(sections_[i], false);
      report.enqueue(sections_, on.stream());
    }
    report.wait(layers_.front()->wait_time());
    // Ranks that do not wait see a disagreement only in the next pass. So this one waits for it
    // too.
    if (!agreed_in_report(report)) {
      Shared& shared = layers_.front()->shared();
      shared.late_check().expect(report, positions(), shared.local_calls());
      return;
    }
    bool far = false;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      far |= report.far(i);
      if (round == 1) layers_[i]->know_sums(report.head(i)[0], report.far(i));
    }
    if (!far || round == most_rounds) return;
    send(Place::forward_again);
    work_.join(on.stream());
  }
}

// All ranks see the same sums. So they come to the same conclusion here, about the first layer that
// differs, whatever a rank did wrong.
void Exchange::check_agreement() const {
  Communicator& communicator = layers_.front()->communicator();
  std::size_t at = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::span<const double> section = payload().subspan(at, section_elements(*layers_[i]));
    at += section.size();
    const Agreed agreed = agreed_in(section, communicator.size());
    if (agreed.all()) continue;
    Position mine = position(i);
    if (agreed.place && agreed.layer) mine.history = layers_[i]->history();
    tell_apart(communicator, mine, agreed.layer);
  }
}

bool Exchange::agreed_in_report(const GpuReport& report) const {
  const int size = layers_.front()->communicator().size();
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (!agreed_in(report.head(i), size).all()) return false;
  return true;
}

Position Exchange::position(std::size_t index) const {
  Layer& layer = *layers_[index];
  Position position;
  position.layer = &layer;
  position.number = index + 1;
  position.layers = layers_.size();
  position.channels = layer.channels();
  position.pass = pass_;
  position.again = place_ == Place::forward_again;
  position.step = layer.step();
  position.local_calls = &layer.shared().local_calls();
  return position;
}

std::vector<Position> Exchange::positions() const {
  std::vector<Position> all = layers_.front()->shared().late_check().take_list();
  for (std::size_t i = 0; i < layers_.size(); ++i) all.push_back(position(i));
  return all;
}

bool Exchange::deliver() {
  bool enough = true;
  std::size_t at = 0;
  for (Layer* layer : layers_) {
    const std::span<const double> section = payload().subspan(at, section_elements(*layer));
    at += section.size();
    if (pass_ == Pass::backward)
      layer->take_backward(section.subspan(head));
    else
      enough &= layer->take_forward(section.subspan(head), section[0]);
  }
  return enough;
}

void Exchange::release() noexcept {
  for (Layer* layer : layers_) layer->enter(nullptr);
  layers_.clear();
}

void Exchange::lose_memory() noexcept {
  device::keep_until_exit(std::make_unique<Memory>(std::move(memory_)));
}

void Exchange::dissolve() noexcept {
  try {
    work_.wait();
  } catch (const Error&) {
    // The next operation of the communicator throws the failure.
  }
  release();
}

}  // namespace rondo::bn
