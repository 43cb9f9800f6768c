// SPDX-License-Identifier: Apache-2.0
#include "bn/statistics/position.h"

#include <fmt/format.h>
#include <rondo/agreement.h>

#include <algorithm>

namespace rondo::statistics {

void NotedLayers::note(std::string_view layer) {
  if (count_ < first_.size()) first_[count_] = layer;
  ++count_;
}

std::string NotedLayers::list() const {
  std::string text;
  for (std::size_t i = 0; i < std::min(count_, first_.size()); ++i) {
    if (i > 0) text += ", ";
    text += first_[i];
  }
  if (count_ > first_.size()) text += fmt::format(" and {} more", count_ - first_.size());
  return text;
}

void LocalCalls::clear() noexcept {
  evaluations.clear();
  local_backwards.clear();
}

std::string LocalCalls::text() const {
  std::string text;
  if (!evaluations.empty()) text += fmt::format("evaluated {}", evaluations.list());
  if (!local_backwards.empty())
    text += fmt::format("{}ran a local backward of {}", text.empty() ? "" : " and ",
                        local_backwards.list());
  return text.empty() ? text : fmt::format("it {} since it last trained", text);
}

std::string Position::text(const LocalCalls& calls, std::string_view more) const {
  const std::string alone = calls.text();
  return fmt::format(
      "at {} {} step {}{}{}{}", layer->title, pass == Pass::forward ? "forward" : "backward", step,
      again ? " (sums again)" : "", more, alone.empty() ? "" : fmt::format(" ({})", alone));
}

Agreed agreed_in(std::span<const double> section, int size) noexcept {
  const auto agree = [&](std::size_t which) {
    return agreed(section.subspan(1 + which * agreement_elements).first<agreement_elements>(),
                  size);
  };
  return {agree(0), agree(1), agree(2)};
}

std::uint64_t history_in(std::span<const double> section) noexcept {
  std::uint64_t history = 0;
  for (std::size_t i = 0; i < agreement_elements / 2; ++i)
    history |= static_cast<std::uint64_t>(section[1 + 2 * agreement_elements + 2 * i]) << (16 * i);
  return history;
}

void tell_apart(Communicator& communicator, const Position& mine, const Agreed& agreed,
                std::optional<std::uint64_t> history, const LocalCalls& calls) {
  std::string past;
  if (agreed.place && agreed.layer)
    past = history
               ? fmt::format(" with statistics {:08x} of the steps before", *history & 0xffffffffu)
               : " with other statistics of the steps before";
  std::string text = mine.text(calls, past);
  if (!agreed.layer) text += differing_options(communicator, *mine.layer);
  throw_disagreement(communicator, "batch norm", text);
}

}  // namespace rondo::statistics
