// SPDX-License-Identifier: Apache-2.0
//
// Checks what an engine keeps of operations, and what a snapshot says of those under way.
#include "collectives/operation/recorder.h"

#include <rondo/work.h>

#include <memory>
#include <string>
#include <vector>

#include "catch.h"
#include "cluster.h"

using namespace rondo;
using operation::Record;
using operation::RecordState;
using schedules::Algorithm;

namespace {

constexpr std::size_t recorded_count = 1000;

struct RecordedBuffers {
  std::vector<float> in = std::vector<float>(recorded_count, 1),
                     out = std::vector<float>(recorded_count, -1);
};

Work call_on(Cluster& cluster, int rank, RecordedBuffers& buffers) {
  schedules::Call call =
      make_call(Collective::all_reduce, Algorithm::ring, buffers.in, buffers.out, recorded_count);
  call.tag = "step \"1\"";
  return Work(cluster[rank].start(call));
}

Work start_message(Cluster& cluster, int rank, bool sending, int peer, RecordedBuffers& buffers) {
  const point::PointTransfer transfer{
      sending,    peer,           {7, 0},
      DType::f32, recorded_count, reinterpret_cast<std::byte*>(buffers.in.data())};
  point::PointCall call;
  call.transfers = {&transfer, 1};
  call.shape = {sending ? Collective::send : Collective::receive,
                false,
                peer,
                7,
                1,
                recorded_count * sizeof(float)};
  call.time_limit = std::chrono::seconds{20};
  return Work(cluster[rank].start(call));
}

}  // namespace

TEST_CASE("recorder: the newest operations are kept, the newest first") {
  RecordedBuffers a, b;
  Cluster cluster(2);
  for (std::size_t i = 0; i < Cluster::recorded + 3; ++i) {
    Work mine = call_on(cluster, 0, a), theirs = call_on(cluster, 1, b);
    mine.wait();
    theirs.wait();
  }
  const engine::Snapshot seen = cluster[0].snapshot();
  CHECK_FALSE(seen.failure);
  REQUIRE(seen.records.size() == Cluster::recorded);
  std::uint64_t number = Cluster::recorded + 3;
  for (const Record& record : seen.records) {
    CHECK(record.number == number--);
    CHECK(record.state == RecordState::done);
    CHECK(record.signature.operation == Collective::all_reduce);
    CHECK(record.signature.count == recorded_count);
    CHECK(record.bytes == recorded_count * sizeof(float));
    CHECK(record.lane == transports::Lane::bulk);
    CHECK(std::string(record.tag) == "step \"1\"");
    CHECK(record.times.sent <= record.times.arrived);
    CHECK(record.times.arrived <= record.ended);
  }
}

TEST_CASE("recorder: a call that waits for a rank, and one that waits for its memory") {
  RecordedBuffers a, b;
  Cluster cluster(3);
  Work first = call_on(cluster, 0, a), second = call_on(cluster, 0, a);
  Work other = call_on(cluster, 1, b);
  const engine::Snapshot seen = cluster[0].snapshot();
  REQUIRE(seen.records.size() == 2);
  CHECK(seen.records[0].number == 2);
  CHECK(seen.records[0].state == RecordState::memory);
  CHECK(seen.records[1].state == RecordState::ranks);
  CHECK(seen.status.lanes[0].started == 2);
  // Rank 2, the left neighbour in the ring, has not called.
  bool found = false;
  for (const operation::PeerView& peer : seen.peers)
    if (peer.rank == 2 && !peer.expected.empty()) {
      found = true;
      CHECK(peer.expected == "#1 segment 0 frame 0");
      CHECK(peer.seen.empty());
      CHECK(peer.bytes == 0);
    }
  CHECK(found);
}

TEST_CASE("recorder: messages have their peer and tag") {
  RecordedBuffers a, b;
  Cluster cluster(2);
  Work receive = start_message(cluster, 1, false, 0, b);
  const Record waiting = cluster[1].snapshot().records.at(0);
  CHECK(waiting.state == RecordState::ranks);
  CHECK(waiting.signature.operation == Collective::receive);
  CHECK(static_cast<int>(waiting.signature.root) == 0);
  CHECK(waiting.signature.plan == 7);
  Work send = start_message(cluster, 0, true, 1, a);
  receive.wait();
  send.wait();
  const Record sent = cluster[0].snapshot().records.at(0);
  CHECK(sent.state == RecordState::done);
  CHECK(sent.signature.operation == Collective::send);
  CHECK(static_cast<int>(sent.signature.root) == 1);
  CHECK(sent.bytes == recorded_count * sizeof(float));
  CHECK(sent.lane == transports::Lane::messages);
}

TEST_CASE(
    "recorder: a failure is seen once, before operations end, and its note is in each error") {
  RecordedBuffers a, b, c;
  Cluster cluster(2);
  Work first = call_on(cluster, 0, a), second = call_on(cluster, 0, b);
  cluster[0].fail({Errc::aborted, "the cause"});
  cluster[0].fail({Errc::aborted, "another"});
  Work late = call_on(cluster, 0, c);
  for (Work* const work : {&first, &second, &late})
    CHECK_THROWS_WITH(work->wait(), Catch::Contains("the cause (noted 1)"));
  REQUIRE(cluster.failures(0).size() == 1);
  const engine::Snapshot& seen = cluster.failures(0).front();
  CHECK(seen.failure->cause == "the cause");
  CHECK(seen.failed <= seen.now);
  REQUIRE(seen.records.size() == 2);
  CHECK(seen.records[1].state == RecordState::ranks);
  REQUIRE(seen.peers.size() == 1);
  CHECK(seen.peers[0].expected == "#1 segment 0 frame 0");
  const engine::Snapshot after = cluster[0].snapshot();
  CHECK(after.records.at(0).state == RecordState::failed);
  CHECK(after.status.lanes[0].started == 3);
  CHECK(after.status.lanes[0].finished == 0);
}
