// SPDX-License-Identifier: Apache-2.0
//
// Lists what every transport must do, as checks that run with a factory of connected transports:
//   for (const auto& check : conformance()) DYNAMIC_SECTION(check.name) { check.run(factory); }
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transports/transport.h"

namespace rondo::testing {

// The memory that a rank sends from: memory of the program, or from Transport::allocate().
enum class Payloads { ordinary, allocated };

// Makes `size` transports, one for each rank, started with one another's addresses.
struct MakeTransports {
  template <class Make>
  MakeTransports(Make function, Payloads of_sends = Payloads::ordinary)
      : make(std::move(function)), payloads(of_sends) {}
  std::function<std::vector<std::unique_ptr<transports::Transport>>(int size)> make;
  Payloads payloads;
};

struct Check {
  std::string name;
  std::function<void(const MakeTransports&)> run;
};
const std::vector<Check>& conformance();

// The bytes of frame `number`; sender and receiver make them independently.
transports::HeaderBytes header_of(std::uint64_t number);
transports::Blob payload_of(std::uint64_t number, std::size_t bytes);

// One frame that a receiver expects.
struct Expected {
  std::uint64_t number = 0;
  std::size_t bytes = 0;
  bool placed = true;
  std::size_t element = 1;  // the sink uses bytes of a borrowed frame in multiples of this
};

// One rank: a transport, the frames that it shall send and expects on each link, and what happened.
class Node final : public transports::Sink {
 public:
  explicit Node(std::unique_ptr<transports::Transport> transport)
      : transport_(std::move(transport)) {
    transport_->open({this, this, this});
  }

  void send(int peer, transports::Lane lane, std::uint64_t number, std::size_t bytes);
  // The payload of the last frame that has not been sent.
  std::span<std::byte> unsent(int peer, transports::Lane lane) {
    return sides_[{peer, lane}].out.back().payload;
  }
  void expect(int peer, transports::Lane lane, const Expected& frame);
  // One round: sends what finds room, then progress. Returns whether anything moved.
  bool turn();
  transports::Transport& transport() { return *transport_; }
  // Where the next expected frame from this peer lands.
  transports::Blob& buffer(int peer, transports::Lane lane) { return sides_[{peer, lane}].buffer; }
  void destroy() { transport_.reset(); }
  bool idle() const { return sends_left_ == 0 && expected_left_ == 0; }

  struct Broken {
    int peer = 0;
    transports::Lane lane = transports::Lane::bulk;
    std::error_code code;
    std::string what;
    bool clean = false;
  };
  std::vector<Broken> broken_links;
  std::vector<std::string> problems;  // what the transport did and must not do
  int held = 0, refused = 0, frames = 0, sent_later = 0;
  bool refuse_unexpected = false;            // refuses frames that it would otherwise hold
  Payloads payloads = Payloads::ordinary;    // of send()
  std::function<void(std::size_t)> on_data;  // is called for each view of a borrowed frame

 private:
  struct Outgoing {
    std::uint64_t number = 0;
    transports::HeaderBytes header{};
    transports::Blob own;
    std::unique_ptr<transports::Allocation> allocation;
    std::span<std::byte> payload;  // in one of them
    bool queued = false;
  };
  struct Side {
    std::deque<Outgoing> out;
    std::deque<Expected> in;
    transports::Blob buffer;
    std::size_t filled = 0;
    bool accepted = false, broken = false;
  };
  using Key = std::pair<int, transports::Lane>;

  std::optional<transports::Receive> expected(transports::Link& link, std::size_t ahead) override;
  transports::Header arrived(transports::Link& link,
                             const transports::HeaderBytes& header) override;
  std::size_t data(transports::Link& link, std::span<const std::byte> view) override;
  void received(transports::Link& link) override;
  void sent(transports::Link& link) override;
  void broken(transports::Link& link, std::error_code code, std::string_view what,
              bool clean) override;
  Side& side(transports::Link& link, std::string_view call);
  bool push(const Key& key, Side& side);

  std::unique_ptr<transports::Transport> transport_;
  std::map<Key, Side> sides_;
  std::size_t sends_left_ = 0, expected_left_ = 0;
};

// All ranks. The calling thread drives them in turn.
class Group {
 public:
  Group(const MakeTransports& make, int size);
  Node& operator[](int rank) { return nodes_.at(static_cast<std::size_t>(rank)); }
  // False when the deadline passed first.
  bool run_until(const std::function<bool()>& done,
                 std::chrono::milliseconds limit = std::chrono::seconds(30));
  // Runs until everything is sent and received, and checks that nothing else happened.
  void finish();

 private:
  std::vector<Node> nodes_;
};

}  // namespace rondo::testing
