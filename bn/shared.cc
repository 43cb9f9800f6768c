// SPDX-License-Identifier: Apache-2.0
#include "bn/shared.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/cores.h"
#include "bn/layer.h"

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

Shared::~Shared() {
  for (Layer* layer : layers_) layer->orphan();
}

std::shared_ptr<GpuKernels> Shared::kernels_on(int ordinal) {
  std::shared_ptr<GpuKernels>& kernels = gpus_[ordinal];
  if (kernels == nullptr) kernels = std::make_shared<GpuKernels>(ordinal);
  return kernels;
}

void LocalCalls::note(std::string_view layer) {
  if (count_ < most_named) layers_[count_] = layer;
  ++count_;
}

std::string LocalCalls::list() const {
  std::string text;
  for (std::size_t i = 0; i < std::min(count_, most_named); ++i) {
    if (i > 0) text += ", ";
    text += layers_[i];
  }
  if (count_ > most_named) text += fmt::format(" and {} more", count_ - most_named);
  return text;
}

void Shared::note_training() noexcept {
  evaluations_.clear();
  local_backwards_.clear();
}

std::string Shared::local_calls() const {
  std::string text;
  if (evaluations_.count() > 0) text += fmt::format("evaluated {}", evaluations_.list());
  if (local_backwards_.count() > 0)
    text += fmt::format("{}ran a local backward of {}", text.empty() ? "" : " and ",
                        local_backwards_.list());
  return text.empty() ? text : fmt::format("it {} since it last trained", text);
}

}  // namespace rondo::bn
