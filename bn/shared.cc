// SPDX-License-Identifier: Apache-2.0
#include "bn/shared.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

namespace rondo::bn {

namespace {

int ranks_on_this_host(const Communicator& communicator) {
  int ranks = 1;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == communicator.rank()) continue;
    const std::string how = communicator.describe_peer(peer);
    if (!how.starts_with("tcp") || how.find("(lo)") != std::string::npos) ++ranks;
  }
  return ranks;
}

}  // namespace

// Layers are given a communicator and nothing else, so this is the one place that knows which of
// them belong together. It owns nothing.
std::shared_ptr<Shared> Shared::of(Communicator& communicator) {
  static std::mutex mutex;
  static std::map<const Communicator*, std::weak_ptr<Shared>> known;
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Shared>& entry = known[&communicator];
  std::shared_ptr<Shared> shared = entry.lock();
  if (!shared) entry = shared = std::make_shared<Shared>(communicator);
  return shared;
}

LayerNames::Use::Use(LayerNames& names, std::string_view name) : names_(&names) {
  std::pair<std::string, std::size_t> key{name, 0};
  auto& used = names.used_;
  for (auto at = used.lower_bound(key); at != used.end() && *at == key; ++at) ++key.second;
  used_ = used.insert(std::move(key)).first;
}

Shared::Shared(const Communicator& communicator)
    : threads_(std::max(1, static_cast<int>(std::thread::hardware_concurrency()) /
                               ranks_on_this_host(communicator))) {}

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
