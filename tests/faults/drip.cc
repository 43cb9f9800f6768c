// SPDX-License-Identifier: Apache-2.0
//
// A rank that is a true member of the job, answers on the control plane, and then sends rank 0 one byte a second of a frame: all
// the bytes of a right magic, so that only time tells that something is wrong. Ends when its standard input does.
#include <poll.h>
#include <unistd.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdio>

#include "base/handshake.h"
#include "collectives/engine/frame.h"
#include "lib/record.h"
#include "lib/rendezvous/rendezvous.h"
#include "transports/tcp/address.h"
#include "transports/tcp/tcp.h"

namespace {

using namespace rondo;
using boost::asio::ip::tcp;

// Says that it is in the middle of its first operation.
class Busy final : public ControlClient {
 public:
  RankStatus status() override {
    RankStatus status;
    status.lanes[0].started = 1;
    status.lanes[0].current = "all_reduce #1 (1000 f32 sum)";
    return status;
  }
  void failed(const Failure&) override {}
  void peer_left(int, const std::uint64_t (&)[lane_count]) override {}
};

TcpAddress address_in(const Joined& joined, int rank) {
  const auto records = read_records(joined.records);
  return decode_tcp_address(records[static_cast<std::size_t>(rank)].addresses.at("tcp")).value();
}

void shake_hands(tcp::socket& socket, const Place& place, std::uint64_t job) {
  Claim claim;
  claim.purpose = Purpose::data;
  claim.rank = static_cast<std::uint32_t>(place.rank);
  claim.size = static_cast<std::uint32_t>(place.size);
  claim.job = job;
  Initiator initiator(claim, 0, place.secret);
  boost::asio::write(socket, boost::asio::buffer(initiator.hello()));
  ChallengeBytes challenge;
  boost::asio::read(socket, boost::asio::buffer(challenge));
  boost::asio::write(socket, boost::asio::buffer(initiator.answer(challenge)));
  VerdictBytes verdict;
  boost::asio::read(socket, boost::asio::buffer(verdict));
  if (Initiator::read_verdict(verdict) != Verdict::welcome) throw Error(Errc::rendezvous, "not welcome");
}

}  // namespace

int main() {
  const Options options = Options::from_environment();
  const Place place = resolve_place(options);
  TcpOptions tcp_options;
  tcp_options.rank = place.rank;
  tcp_options.size = place.size;
  tcp_options.secret = place.secret;
  tcp_options.host = host_identity();
  TransportList transports;
  transports.push_back(make_tcp(tcp_options));
  const Transport& transport = *transports.front();
  Joined joined = join(place, options, write_record(options, transports, CostSource::defaults, {}));
  Busy busy;
  joined.control->start(busy);
  if (const auto failure = joined.control->await_ready(place.deadline))
    throw Error(failure->code, failure->cause);
  boost::asio::io_context context;
  tcp::socket socket(context);
  boost::asio::connect(socket, address_in(joined, 0).endpoints);
  shake_hands(socket, place, joined.job);
  std::printf("ready %s\n", transport.describe().c_str());
  std::fflush(stdout);
  const HeaderBytes header = encode(Frame{});
  for (const std::byte& next : header) {
    boost::asio::write(socket, boost::asio::buffer(&next, 1));
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, 1000) > 0) break;
  }
}
