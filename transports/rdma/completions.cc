// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/completions.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include <rondo/error.h>

#include "base/text.h"

namespace rondo::rdma {

Completions::Completions(Device& device, std::size_t entries) : device_(device) {
  Verbs& verbs = device.verbs();
  const auto refuse = [&](const char* what) {
    const int error = errno;
    if (channel_ != nullptr) verbs.destroy_comp_channel(channel_);
    throw Error(Errc::system,
                fmt::format("{}: {}: {}", device.name(), what, base::describe_errno(error)));
  };
  channel_ = verbs.create_comp_channel(device.context());
  if (channel_ == nullptr) refuse("cannot make a completion channel");
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0)
    refuse("cannot set up a completion channel");
  const auto most = static_cast<std::size_t>(std::max(1, device.limits().max_cqe));
  entries_ = free_entries_ = std::min(entries, most);
  queue_ = verbs.create_cq(device.context(), static_cast<int>(free_entries_), channel_);
  if (queue_ == nullptr) refuse("cannot make a completion queue");
  base::add_own_descriptor(channel_->fd);
}

Completions::~Completions() {
  if (generation_ != base::process_generation()) return;
  base::remove_own_descriptor(channel_->fd);
  device_.verbs().destroy_cq(queue_);
  device_.verbs().destroy_comp_channel(channel_);
}

void Completions::reserve(std::size_t entries) {
  if (entries > free_entries_)
    throw Error(Errc::system,
                fmt::format("{}: its completion queue holds at most {} entries, too few for so "
                            "many peers: use tcp (RONDO_TRANSPORT)",
                            device_.name(), entries_));
  free_entries_ -= entries;
}

std::span<const ibv_wc> Completions::poll() {
  const int count = device_.verbs().poll_cq(queue_, static_cast<int>(batch_.size()), batch_.data());
  if (count < 0) failed_ = true;
  return std::span(batch_).first(static_cast<std::size_t>(std::max(count, 0)));
}

void Completions::take_event() noexcept {
  ibv_cq* queue = nullptr;
  if (device_.verbs().get_cq_event(channel_, &queue) != 0) return;
  device_.verbs().ack_cq_events(queue, 1);
  armed_ = false;
}

void Completions::arm() {
  if (armed_) return;
  device_.verbs().req_notify_cq(queue_);
  armed_ = true;
}

}  // namespace rondo::rdma
