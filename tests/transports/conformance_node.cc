// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "base/bytes.h"
#include "catch.h"
#include "conformance.h"

namespace rondo::testing {

transports::HeaderBytes header_of(std::uint64_t number) {
  transports::HeaderBytes header;
  for (std::size_t i = 0; i < header.size(); ++i)
    header[i] = static_cast<std::byte>(number * 31 + i * 5 + 3);
  base::store_little(header.data(), number + 1);
  return header;
}

transports::Blob payload_of(std::uint64_t number, std::size_t bytes) {
  transports::Blob payload(bytes);
  std::uint64_t state = number * 0x9e3779b97f4a7c15u + 1;
  std::array<std::byte, 8> next;
  for (std::size_t at = 0; at < bytes; at += next.size()) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    base::store_little(next.data(), state);
    std::memcpy(payload.data() + at, next.data(), std::min(next.size(), bytes - at));
  }
  return payload;
}

void Node::send(int peer, transports::Lane lane, std::uint64_t number, std::size_t bytes) {
  Outgoing& frame = sides_[{peer, lane}].out.emplace_back();
  frame.number = number;
  frame.header = header_of(number);
  frame.own = payload_of(number, bytes);
  frame.payload = frame.own;
  if (payloads == Payloads::allocated) frame.allocation = transport_->allocate(bytes);
  if (frame.allocation) {
    frame.payload = frame.allocation->memory();
    std::ranges::copy(frame.own, frame.payload.begin());
    frame.own.clear();
  }
  ++sends_left_;
}

void Node::expect(int peer, transports::Lane lane, const Expected& frame) {
  sides_[{peer, lane}].in.push_back(frame);
  ++expected_left_;
}

bool Node::push(const Key& key, Side& side) {
  bool moved = false;
  auto next = std::ranges::find(side.out, false, &Outgoing::queued);
  while (!side.broken && next != side.out.end()) {
    Outgoing& frame = *next;
    const transports::Send result =
        transport_->link(key.first, key.second).send(frame.header, frame.payload);
    if (result == transports::Send::full) break;
    moved = true;
    // send() has copied the header, whatever it answered.
    frame.header.fill(std::byte{0xee});
    if (result != transports::Send::queued)
      std::fill(frame.payload.begin(), frame.payload.end(), std::byte{0xdd});
    if (result == transports::Send::queued && frame.payload.size() <= transports::eager_bytes)
      problems.push_back("a small payload borrowed");
    if (result != transports::Send::done) {
      frame.queued = true;
      ++next;
    } else {
      next = side.out.erase(next);
      --sends_left_;
    }
  }
  return moved;
}

bool Node::turn() {
  bool moved = false;
  for (auto& [key, side] : sides_)
    if (push(key, side)) moved = true;
  return transport_->progress() || moved;
}

Node::Side& Node::side(transports::Link& link, std::string_view call) {
  Side& side = sides_[{link.peer(), link.lane()}];
  if (side.broken) problems.push_back(std::string(call) + " after broken");
  return side;
}

std::optional<transports::Receive> Node::expected(transports::Link& link, std::size_t ahead) {
  Side& at = side(link, "expected");
  if (ahead > 0 || at.in.empty()) return std::nullopt;
  const Expected& next = at.in.front();
  if (next.placed && at.buffer.size() != next.bytes) at.buffer.assign(next.bytes, std::byte{0xaa});
  return transports::Receive{next.placed ? at.buffer.data() : nullptr, next.bytes};
}

transports::Header Node::arrived(transports::Link& link, const transports::HeaderBytes& header) {
  Side& at = side(link, "arrived");
  if (at.accepted) problems.push_back("a header within a frame");
  if (at.in.empty()) {
    ++(refuse_unexpected ? refused : held);
    return refuse_unexpected ? transports::Header::refuse : transports::Header::hold;
  }
  if (header != header_of(at.in.front().number)) {
    problems.push_back("wrong header");
    return transports::Header::refuse;
  }
  at.accepted = true;
  return transports::Header::accept;
}

std::size_t Node::data(transports::Link& link, std::span<const std::byte> view) {
  Side& at = side(link, "data");
  const Expected& next = at.in.front();
  if (on_data) on_data(view.size());
  if (!at.accepted) problems.push_back("data before its header");
  if (next.placed) problems.push_back("data of a placed frame");
  if (view.empty()) problems.push_back("an empty view");
  const std::size_t used = view.size() / next.element * next.element;
  at.buffer.resize(at.filled);
  at.buffer.insert(at.buffer.end(), view.begin(), view.begin() + static_cast<std::ptrdiff_t>(used));
  at.filled += used;
  return used;
}

void Node::received(transports::Link& link) {
  Side& at = side(link, "received");
  if (!at.accepted) problems.push_back("received before its header");
  const Expected next = at.in.front();
  at.in.pop_front();
  --expected_left_;
  if (at.buffer.size() != next.bytes && next.bytes != 0)
    problems.push_back("wrong number of bytes");
  if (next.bytes != 0 && at.buffer != payload_of(next.number, next.bytes))
    problems.push_back("wrong payload");
  at.buffer.clear();
  at.filled = 0;
  at.accepted = false;
  ++frames;
}

void Node::sent(transports::Link& link) {
  Side& at = side(link, "sent");
  if (at.out.empty() || !at.out.front().queued) {
    problems.push_back("sent something that was not queued");
    return;
  }
  std::ranges::fill(at.out.front().payload, std::byte{0xdd});
  at.out.pop_front();
  --sends_left_;
  ++sent_later;
}

void Node::broken(transports::Link& link, std::error_code code, std::string_view what, bool clean) {
  Side& at = side(link, "broken");
  at.broken = true;
  broken_links.push_back({link.peer(), link.lane(), code, std::string(what), clean});
}

Group::Group(const MakeTransports& make, int size) {
  auto transports = make.make(size);
  nodes_.reserve(transports.size());
  for (auto& transport : transports)
    nodes_.emplace_back(std::move(transport)).payloads = make.payloads;
}

bool Group::run_until(const std::function<bool()>& done, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    bool moved = false;
    for (Node& node : nodes_) moved = node.turn() || moved;
    if (moved) continue;
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

void Group::finish() {
  CHECK(run_until([&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [](const Node& n) { return n.idle(); });
  }));
  for (const Node& node : nodes_) {
    CHECK(node.idle());
    CHECK(node.problems == std::vector<std::string>{});
    for (const auto& one : node.broken_links) UNSCOPED_INFO(one.what);
    CHECK(node.broken_links.empty());
  }
}

}  // namespace rondo::testing
