// SPDX-License-Identifier: Apache-2.0
#include "bn/exchange.h"

#include <fmt/format.h>

#include <rondo/agreement.h>
#include <rondo/error.h>
#include <algorithm>
#include <string_view>

#include "bn/layer.h"
#include "bn/settings.h"

namespace rondo::bn {

namespace {

enum Agreement : std::size_t { of_place, of_layer, of_history };

std::span<double, agreement_elements> agreement(std::span<double> section, Agreement which) {
  return section.subspan(1 + which * agreement_elements).first<agreement_elements>();
}
bool agree(std::span<const double> section, Agreement which, int size) {
  return agreed(section.subspan(1 + which * agreement_elements).first<agreement_elements>(), size);
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

void Exchange::start(std::span<Layer* const> layers, Pass pass) {
  std::size_t elements = 0;
  for (const Layer* layer : layers) elements += section_elements(*layer);
  Communicator& communicator = layers.front()->communicator();
  if (memory_.bytes() < elements * sizeof(double))
    memory_ = communicator.allocate(elements * sizeof(double));
  elements_ = elements;
  layers_.assign(layers.begin(), layers.end());
  pass_ = pass;
  for (Layer* layer : layers_) layer->enter(this);
  try {
    send(pass == Pass::forward ? Place::forward : Place::backward);
  } catch (...) {
    release();
    throw;
  }
}

void Exchange::send(Place place) {
  place_ = place;
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
  const Buffer buffer{memory_.data(), elements_, DType::f64};
  work_ = first.communicator().all_reduce(buffer, buffer, ReduceOp::sum, options);
}

void Exchange::finish() {
  try {
    work_.wait();
    check_agreement();
    for (int round = 1; !deliver() && round < most_rounds; ++round) {
      send(Place::forward_again);
      work_.wait();
      check_agreement();
    }
  } catch (const Error& error) {
    const bool calls_differ = error.code() == Errc::mismatch && work_.error();
    const std::string where = position(0, false);
    release();
    if (!calls_differ) throw;
    throw Error(
        error.code(),
        fmt::format("batch norm: this rank is {}: {}; ranks are at different layers, or a layer "
                    "has different numbers of channels (it sends {} + 2 x channels elements)",
                    where, error.what(), head));
  }
  release();
}

// All ranks see the same sums. So they come to the same conclusion here, about the first layer that
// differs, whatever a rank did wrong.
void Exchange::check_agreement() const {
  Communicator& communicator = layers_.front()->communicator();
  std::size_t at = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::span<const double> section = payload().subspan(at, section_elements(*layers_[i]));
    at += section.size();
    const bool place = agree(section, of_place, communicator.size());
    const bool layer = agree(section, of_layer, communicator.size());
    if (!place || !layer || !agree(section, of_history, communicator.size()))
      tell_apart(i, place, layer);
  }
}

void Exchange::tell_apart(std::size_t index, bool same_place, bool same_layer) const {
  const Layer& layer = *layers_[index];
  std::string mine = position(index, same_place && same_layer);
  if (!same_layer)
    mine += differing_settings(layer.communicator(), layer.name_hash(), layer.options());
  throw_disagreement(layer.communicator(), "batch norm", mine);
}

std::string Exchange::position(std::size_t index, bool history) const {
  const Layer& layer = *layers_[index];
  std::string text = fmt::format("at {}", layer.title());
  if (layers_.size() > 1)
    text += fmt::format(" ({} of {} in one call, {} channels)", index + 1, layers_.size(),
                        layer.channels());
  text += pass_ == Pass::forward ? " forward" : " backward";
  text += fmt::format(" step {}", layer.step());
  if (place_ == Place::forward_again) text += " (sums again)";
  if (history)
    text +=
        fmt::format(" with statistics {:08x} of the steps before", layer.history() & 0xffffffffu);
  const std::string local_calls = layer.shared().local_calls();
  return local_calls.empty() ? text : text + " (" + local_calls + ")";
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

void Exchange::dissolve() noexcept {
  try {
    work_.wait();
  } catch (const Error&) {
    // The next operation of the communicator throws the failure.
  }
  release();
}

}  // namespace rondo::bn
