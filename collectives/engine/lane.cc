// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/lane.h"

#include <algorithm>

namespace rondo::engine {

void Lane::prepare(transports::Lane lane, int size) {
  channels_.resize(static_cast<std::size_t>(size));
  senders_.reserve(channels_.size());
  for (int peer = 0; peer < size; ++peer) {
    channel(peer).peer = peer;
    channel(peer).lane = lane;
    channel(peer).queued.reserve(16);
  }
}

Operation* Lane::find(std::uint64_t number) const noexcept {
  Operation* operation = first_;
  while (operation != nullptr && operation->number != number) operation = operation->next;
  return operation;
}

void Lane::append(Operation& operation) {
  (last_ == nullptr ? first_ : last_->next) = &operation;
  last_ = &operation;
  if (operation.run.waits_for_staging()) ++staging_waiters_;
  for (const schedules::ProgramPeer& peer : operation.run.program().peers()) {
    Channel& c = channel(peer.rank);
    if (c.receiving == nullptr) {
      c.receiving = &operation;
      settle_receiving(c);
    }
    if (c.sending == nullptr) {
      c.sending = &operation;
      senders_.push_back(&c);
      settle_sending(c);
    }
  }
}

void Lane::remove(Operation& operation) noexcept {
  if (first_ == &operation) {
    first_ = operation.next;
    if (first_ == nullptr) last_ = nullptr;
  } else {
    Operation* before = first_;
    while (before->next != &operation) before = before->next;
    before->next = operation.next;
    if (last_ == &operation) last_ = before;
  }
  operation.next = nullptr;
  if (staging_owner_ == &operation) staging_owner_ = nullptr;
}

void Lane::clear() noexcept {
  first_ = last_ = staging_owner_ = nullptr;
  staging_waiters_ = 0;
  senders_.clear();
  for (Channel& c : channels_) {
    c.receiving = c.sending = nullptr;
    c.queued.clear();
    c.arriving.reset();
  }
}

void Lane::settle_receiving(Channel& c) noexcept {
  while (c.receiving != nullptr) {
    c.receiving_index = c.receiving->run.program().peer_index(c.peer);
    if (c.receiving_index >= 0 && !c.receiving->run.peer(c.receiving_index).receives.done()) return;
    c.receiving = c.receiving->next;
  }
}

void Lane::settle_sending(Channel& c) {
  while (c.sending != nullptr) {
    c.sending_index = c.sending->run.program().peer_index(c.peer);
    if (c.sending_index >= 0 && !c.sending->run.peer(c.sending_index).sends.done()) return;
    c.sending = c.sending->next;
  }
  senders_.erase(std::find(senders_.begin(), senders_.end(), &c));
}

void Lane::grant_staging() {
  if (staging_waiters_ == 0 || staging_owner_ != nullptr) return;
  for (Operation* operation = first_; operation != nullptr; operation = operation->next) {
    if (!operation->run.waits_for_staging()) continue;
    if (staging_.size() < operation->run.staging_bytes_needed())
      staging_.resize(operation->run.staging_bytes_needed());
    operation->run.give_staging(staging_.data());
    staging_owner_ = operation;
    --staging_waiters_;
    return;
  }
}

}  // namespace rondo::engine
