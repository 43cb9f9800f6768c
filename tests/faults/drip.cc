// SPDX-License-Identifier: Apache-2.0
//
// A rank that joins the job and answers on the control plane. Then it sends rank 0 the header of a
// frame, one byte a second. Every byte is right, so only the time shows that something is wrong. It
// ends when its standard input does.
#include <poll.h>
#include <unistd.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdio>

#include "base/handshake.h"
#include "base/process.h"
#include "collectives/operation/frame.h"
#include "lib/record.h"
#include "lib/rendezvous/rendezvous.h"
#include "transports/connect/address.h"
#include "transports/tcp/tcp.h"

namespace {

using namespace rondo;

// Reports that this rank is in the middle of its first operation.
class Busy final : public control::ControlClient {
 public:
  operation::RankStatus status() override {
    operation::RankStatus status;
    status.lanes[0].started = 1;
    status.lanes[0].current = "all_reduce #1 (1000 f32 sum)";
    return status;
  }
  void failed(const operation::Failure&, const control::Heard&) override {}
  void peer_left(int, const std::uint64_t (&)[lane_count]) override {}
};

connect::Address address_in(const rendezvous::Joined& joined, int rank) {
  const auto records = lib::read_records(joined.records);
  return connect::decode_address(records[static_cast<std::size_t>(rank)].addresses.at("tcp"))
      .value();
}

void shake_hands(boost::asio::ip::tcp::socket& socket, const rendezvous::Place& place,
                 std::uint64_t job) {
  base::Claim claim;
  claim.purpose = base::Purpose::data;
  claim.rank = static_cast<std::uint32_t>(place.rank);
  claim.size = static_cast<std::uint32_t>(place.size);
  claim.job = job;
  base::Initiator initiator(claim, 0, place.secret);
  boost::asio::write(socket, boost::asio::buffer(initiator.hello()));
  base::ChallengeBytes challenge;
  boost::asio::read(socket, boost::asio::buffer(challenge));
  boost::asio::write(socket, boost::asio::buffer(initiator.answer(challenge)));
  base::VerdictBytes verdict;
  boost::asio::read(socket, boost::asio::buffer(verdict));
  if (base::Initiator::read_verdict(verdict) != base::Verdict::welcome)
    throw Error(Errc::rendezvous, "not welcome");
}

}  // namespace

int main() {
  const Options options = Options::from_environment();
  const rendezvous::Place place = rendezvous::resolve_place(options);
  tcp::Options tcp_options;
  tcp_options.rank = place.rank;
  tcp_options.size = place.size;
  tcp_options.secret = place.secret;
  tcp_options.host = base::host_identity();
  lib::TransportList transports;
  transports.push_back(tcp::make_tcp(tcp_options));
  const transports::Transport& transport = *transports.front();
  rendezvous::Joined joined = rendezvous::join(
      place, options, lib::write_record(options, {}, transports, lib::CostSource::defaults, {}));
  Busy busy;
  joined.control->start(busy);
  if (const auto failure = joined.control->await_ready(place.deadline))
    throw Error(failure->code, failure->cause);
  boost::asio::io_context context;
  boost::asio::ip::tcp::socket socket(context);
  boost::asio::connect(socket, address_in(joined, 0).endpoints);
  shake_hands(socket, place, joined.job);
  std::printf("ready %s\n", transport.identity().text.c_str());
  std::fflush(stdout);
  const transports::HeaderBytes header = operation::encode(operation::Frame{});
  for (const std::byte& next : header) {
    boost::asio::write(socket, boost::asio::buffer(&next, 1));
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, 1000) > 0) break;
  }
}
