// SPDX-License-Identifier: Apache-2.0
//
// A rank that cannot reach another one, and what the others are told.

#include "catch.h"
#include "lib/connect.h"
#include "ranks.h"
#include "support/wrapped_transport.h"
#include "transports/mem/mem.h"

using namespace rondo;
using namespace rondo::tests;
using Catch::Contains;

namespace {

// mem that reaches no rank.
class Blind final : public testing::WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;
  transports::Reach reach(int, std::span<const std::byte>) const override {
    return {{}, "the cable is cut"};
  }
};

}  // namespace

TEST_CASE("a rank that cannot reach another one gives its reason to all", "[control]") {
  constexpr int size = 3;
  const int blind = GENERATE(0, 1);
  MapStore store;
  mem::MemFabric fabric(size);
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank]() -> std::string {
      Options options = with_deadline(milliseconds{20'000});
      options.rank = rank;
      options.size = size;
      options.store = &store;
      options.deadline = milliseconds{20'000};
      try {
        auto communicator =
            lib::connect_with(options, [&](const rendezvous::Place&, const Options&) {
              lib::TransportList list;
              list.push_back(fabric.endpoint(rank));
              if (rank == blind) list.back() = std::make_unique<Blind>(std::move(list.back()));
              return list;
            });
        communicator.barrier().wait();
      } catch (const Error& error) {
        return error.what();
      }
      return "nothing was thrown";
    }));
  for (auto& rank : ranks)
    CHECK_THAT(rank.get(), Contains("rank " + std::to_string(blind) + " cannot reach rank") &&
                               Contains("the cable is cut"));
}
