// SPDX-License-Identifier: Apache-2.0
//
// The bare stream of devices, which `rondo bench` compares with.
#include "transports/stream.h"

#include <rondo/error.h>

#include <thread>

#include "catch.h"
#include "rdma_helpers.h"

namespace rondo::testing {
namespace {

using Catch::Matchers::Contains;
using transports::Blob;
using transports::Stream;

base::TimePoint in(std::chrono::milliseconds time) {
  return base::after(base::Clock::now(), time);
}

// The streams of the hosts of a fabric, in a ring.
struct Ring {
  explicit Ring(int size, int devices = 1, const EditRdma& edit = {}, FakeFaults faults = {})
      : fabric(roce_hosts(size, devices), faults, 1) {
    for (int rank = 0; rank < size; ++rank) {
      rdma::Options options;
      options.rank = rank;
      options.size = size;
      if (edit) edit(options);
      streams.push_back(rdma::make_stream(options, rdma::Shared(options, fabric.verbs(rank))));
    }
    std::vector<Stream::Setup> setups;
    for (std::size_t i = 0; i < streams.size(); ++i)
      setups.push_back(
          streams[i]->prepare(streams[left_of(i)]->address(), streams[right_of(i)]->address()));
    for (std::size_t i = 0; i < streams.size(); ++i)
      streams[i]->connect(setups[left_of(i)].for_right, setups[right_of(i)].for_left);
  }
  std::size_t left_of(std::size_t rank) const {
    return (rank + streams.size() - 1) % streams.size();
  }
  std::size_t right_of(std::size_t rank) const { return (rank + 1) % streams.size(); }

  FakeFabric fabric;
  std::vector<std::unique_ptr<Stream>> streams;
};

// The error of a write of rank 0; "" when there is none.
std::string failure_of_write(Ring& ring, Errc code, std::chrono::milliseconds patience) {
  try {
    ring.streams[0]->write(1'000'000, in(patience));
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the bare stream of devices brings all bytes of each rank to its right neighbour") {
  const int size = GENERATE(2, 3);
  const int devices = GENERATE(1, 2);
  const unsigned connections = GENERATE(1u, 2u);
  Ring ring(size, devices, [&](rdma::Options& options) { options.connections = connections; },
            {.delay = 3, .late_completions = 3});
  constexpr std::uint64_t bytes = 20'000'017;
  for (int round = 1; round <= 2; ++round) {
    std::vector<std::thread> ranks;
    for (const auto& stream : ring.streams)
      ranks.emplace_back([&] { stream->write(bytes, in(std::chrono::seconds(60))); });
    for (std::thread& rank : ranks) rank.join();
    for (int rank = 0; rank < size; ++rank)
      CHECK(ring.fabric.counts(rank).bytes[IBV_WR_RDMA_WRITE] ==
            static_cast<std::uint64_t>(round) * bytes);
  }
  CHECK(ring.fabric.counts().queue_pairs == 2 * size * devices * static_cast<int>(connections));
}

TEST_CASE("the bare stream of devices goes over as few queue pairs as either end wants") {
  Ring ring(2, 1, [](rdma::Options& options) { options.connections = options.rank == 0 ? 3 : 1; });
  for (const auto& stream : ring.streams) stream->write(1'000'000, in(std::chrono::seconds(10)));
  CHECK(ring.fabric.counts().bytes[IBV_WR_RDMA_WRITE] == 2'000'000);
}

TEST_CASE("the bare stream of devices says what failed") {
  Ring ring(2);
  ring.fabric.cut(1);
  CHECK_THAT(failure_of_write(ring, Errc::peer_lost, std::chrono::seconds(10)),
             Contains("mlx5_0:1 GID"));
}

TEST_CASE("the bare stream of devices has a deadline") {
  Ring ring(2);
  ring.fabric.hold(0, 1);
  CHECK_THAT(failure_of_write(ring, Errc::deadline_exceeded, std::chrono::milliseconds(50)),
             Contains("did not complete the writes"));
}

TEST_CASE("the bare stream of devices trusts no neighbour") {
  FakeFabric fabric(roce_hosts(1, 1));
  const rdma::Options options;
  const auto stream = rdma::make_stream(options, rdma::Shared(options, fabric.verbs(0)));
  const Blob own = stream->address(), bad(7, std::byte{9});
  CHECK_THROWS_AS(stream->prepare(own, bad), Error);
  CHECK_THROWS_AS(stream->prepare(bad, own), Error);
  Blob longer = own;
  longer.push_back(std::byte{0});
  CHECK_THROWS_AS(stream->prepare(own, longer), Error);
  const Stream::Setup mine = stream->prepare(own, own);
  CHECK_THROWS_AS(stream->connect(bad, mine.for_left), Error);
  CHECK_THROWS_AS(stream->connect({}, mine.for_left), Error);
  CHECK_THROWS_AS(stream->connect(mine.for_right, bad), Error);
  Blob ready = mine.for_left;
  ready[4] = std::byte{2};  // the notice after the magic number
  CHECK_THROWS_AS(stream->connect(mine.for_right, ready), Error);
}

TEST_CASE("the bare stream of devices uses all queue pairs at once") {
  const std::size_t device = GENERATE(0u, 1u);
  Ring ring(2, 2);
  ring.fabric.cut(0, device);
  // So little that it would fit into the queue of one.
  CHECK_THAT(failure_of_write(ring, Errc::peer_lost, std::chrono::seconds(10)),
             Contains("mlx5_" + std::to_string(device) + ":1 GID"));
}

TEST_CASE("the bare stream of devices says why there is none") {
  FakeFabric fabric({FakeHost{}});
  const rdma::Options options;
  CHECK_THROWS_WITH(rdma::make_stream(options, rdma::Shared(options, fabric.verbs(0))),
                    "this machine has no RDMA device");
}

}  // namespace rondo::testing
