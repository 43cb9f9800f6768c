// SPDX-License-Identifier: Apache-2.0
//
// Two endpoints of mem driven by one thread, and a sink that notes what comes.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "catch.h"
#include "transports/mem/mem.h"

namespace rondo::mem_testing {

inline std::byte content(std::size_t frame, std::size_t position) {
  return static_cast<std::byte>(frame * 31 + position * 7 + 1);
}

inline transports::Blob payload_of(std::size_t frame, std::size_t bytes) {
  transports::Blob payload(bytes);
  for (std::size_t i = 0; i < bytes; ++i) payload[i] = content(frame, i);
  return payload;
}

inline transports::HeaderBytes header_of(std::size_t frame) {
  transports::HeaderBytes header;
  for (std::size_t i = 0; i < header.size(); ++i) header[i] = content(frame + 1000, i);
  return header;
}

// Takes frames of the given sizes from one peer, in elements of `element` bytes when borrowed, and
// notes what happens.
class NotingSink final : public transports::Sink {
 public:
  std::deque<std::size_t> to_come;  // payload bytes of the frames expected
  bool placed = false;
  std::size_t element = 1;
  int holds = 0;  // how often a header is put on hold
  bool refuse = false;
  std::vector<transports::Blob> frames;  // as they came
  std::vector<transports::HeaderBytes> headers;
  std::vector<std::size_t> views;
  int arrivals = 0, breaks = 0;
  std::size_t sent_later = 0;
  bool clean = false;
  std::string what;
  std::error_code code;

  std::optional<transports::Receive> expected(transports::Link&, std::size_t ahead) override {
    if (ahead > 0 || to_come.empty()) return std::nullopt;
    filling_.resize(to_come.front());
    return transports::Receive{placed ? filling_.data() : nullptr, to_come.front()};
  }
  transports::Header arrived(transports::Link&, const transports::HeaderBytes& header) override {
    ++arrivals;
    if (refuse) return transports::Header::refuse;
    if (to_come.empty() || holds-- > 0) return transports::Header::hold;
    headers.push_back(header);
    used_ = 0;
    return transports::Header::accept;
  }
  std::size_t data(transports::Link&, std::span<const std::byte> view) override {
    views.push_back(view.size());
    const std::size_t use = view.size() - view.size() % element;
    if (used_ + use > filling_.size()) throw std::logic_error("more data than the frame has");
    std::memcpy(filling_.data() + used_, view.data(), use);
    used_ += use;
    return use;
  }
  void received(transports::Link&) override {
    frames.push_back(filling_);
    to_come.pop_front();
  }
  void sent(transports::Link&) override { ++sent_later; }
  void broken(transports::Link&, std::error_code why, std::string_view text,
              bool in_order) override {
    ++breaks;
    code = why;
    what = text;
    clean = in_order;
  }

 private:
  transports::Blob filling_;
  std::size_t used_ = 0;
};

// Rank 0 sends to rank 1.
struct Pair {
  explicit Pair(const mem::MemFaults& faults = {}, std::uint64_t seed = 1)
      : fabric(2, faults, seed) {
    for (int rank = 0; rank < 2; ++rank) ends[rank] = fabric.endpoint(rank);
    for (auto& end : ends) end->start({ends[0]->address(), ends[1]->address()}, 1);
    ends[0]->open({&sender, &sender, &sender});
    ends[1]->open({&sink, &sink, &sink});
  }
  transports::Link& out() { return ends[0]->link(1, transports::Lane::bulk); }
  // Sends frames of these sizes, and lets both ends work until nothing happens any more.
  void run(const std::vector<std::size_t>& sizes) {
    sink.to_come.insert(sink.to_come.end(), sizes.begin(), sizes.end());
    for (const std::size_t bytes : sizes) payloads.push_back(payload_of(payloads.size(), bytes));
    settle();
  }
  void settle() {
    for (int idle = 0; idle < 200; ++idle) {
      while (next < payloads.size()) {
        const transports::Send answer = out().send(header_of(next), payloads[next]);
        answers.push_back(answer);
        if (answer == transports::Send::full) break;
        ++next;
      }
      if (ends[0]->progress() || ends[1]->progress()) idle = 0;
    }
  }
  void check_frames(std::size_t count) const {
    REQUIRE(sink.frames.size() == count);
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(sink.headers[i] == header_of(i));
      CHECK(sink.frames[i] == payloads[i]);
    }
  }
  long asked(transports::Send answer) const {
    return std::count(answers.begin(), answers.end(), answer);
  }

  mem::MemFabric fabric;
  NotingSink sender, sink;
  std::unique_ptr<transports::Transport> ends[2];
  std::deque<transports::Blob> payloads;
  std::vector<transports::Send> answers;
  std::size_t next = 0;
};

inline const std::vector<std::size_t> mixed = {0, 8, 16, 1000, 0, 0, 4096, 24, 65536, 8};

}  // namespace rondo::mem_testing
