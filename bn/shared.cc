// SPDX-License-Identifier: Apache-2.0
#include "bn/shared.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/cores.h"

namespace rondo::bn {

namespace {

// A rank that is bound to some cores uses them alone; ranks that are not bound share the host's
// cores.
int share_of_cores(int ranks) noexcept {
  const int usable = base::usable_cores();
  const int online = std::max(usable, static_cast<int>(std::thread::hardware_concurrency()));
  return std::max(1, std::min(usable, online / ranks));
}

}  // namespace

Shared& Shared::of(Communicator& communicator) {
  static constexpr char key = 0;
  Attachment* kept = communicator.attachment(&key);
  if (kept == nullptr) kept = &communicator.attach(&key, std::make_unique<Shared>(communicator));
  return static_cast<Shared&>(*kept);
}

LayerNames::Use::Use(LayerNames& names, std::string_view name) : names_(&names) {
  std::pair<std::string, std::size_t> key{name, 0};
  auto& used = names.used_;
  for (auto at = used.lower_bound(key); at != used.end() && *at == key; ++at) ++key.second;
  used_ = used.insert(std::move(key)).first;
}

Shared::Shared(const Communicator& communicator)
    : threads_(share_of_cores(static_cast<int>(communicator.local_ranks().size()))) {}

void Shared::note_evaluation(std::string_view layer) {
  if (evaluations_ < most_named) evaluated_[evaluations_] = layer;
  ++evaluations_;
}

std::string Shared::evaluations() const {
  if (evaluations_ == 0) return {};
  std::string text = fmt::format("it evaluated {}", evaluated_[0]);
  for (std::size_t i = 1; i < std::min(evaluations_, most_named); ++i) {
    text += ", ";
    text += evaluated_[i];
  }
  if (evaluations_ > most_named) text += fmt::format(" and {} more", evaluations_ - most_named);
  return text + " since it last trained";
}

}  // namespace rondo::bn
