// SPDX-License-Identifier: Apache-2.0
//
// When connect() failed on one rank, only that rank got a cause (a raw std::system_error). The
// others waited for their deadline.
#include <future>

#include "catch.h"
#include "lib/connect.h"
#include "lib/ranks.h"
#include "support/wrapped_transport.h"
#include "transports/mem/mem.h"

using namespace rondo;
using namespace rondo::tests;
using Catch::Contains;

namespace {

constexpr int size = 3;

// The mem transport with a start() that fails as if the system had refused a resource.
class Refused final : public testing::WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;
  void start(std::vector<transports::Blob>, std::uint64_t) override {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  }
};

struct End {
  std::string what = "connect() returned";
  Errc code{};
  double seconds = 0;
};

// Returns what connect() throws on each rank. The deadline is so long that no rank may wait for it.
std::vector<End> connect_all(const std::function<void(int, Options&)>& edit,
                             const std::function<std::unique_ptr<transports::Transport>(
                                 int, std::unique_ptr<transports::Transport>)>& wrap) {
  mem::MemFabric fabric(size);
  const std::string url = free_url();
  std::vector<std::future<End>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      Options options = with_deadline(milliseconds{120'000});
      options.rank = rank;
      options.size = size;
      options.rendezvous = url;
      edit(rank, options);
      End end;
      const base::TimePoint start = base::Clock::now();
      try {
        (void)lib::connect_with(options, [&](const rendezvous::Place&, const Options&) {
          lib::TransportList list;
          list.push_back(wrap(rank, fabric.endpoint(rank)));
          return list;
        });
      } catch (const Error& error) {
        end.what = error.what();
        end.code = static_cast<Errc>(error.code().value());
      } catch (const std::exception& error) {
        end.what = std::string("not an Error: ") + error.what();
      }
      end.seconds = std::chrono::duration<double>(base::Clock::now() - start).count();
      return end;
    }));
  std::vector<End> ends;
  for (auto& rank : ranks) ends.push_back(rank.get());
  return ends;
}

void check(const std::vector<End>& ends, Errc code, const std::string& cause) {
  for (const End& end : ends) {
    CHECK_THAT(end.what, Contains(cause));
    CHECK(end.what == ends.front().what);
    CHECK(end.code == code);
    CHECK(end.seconds < 60);
  }
}

std::unique_ptr<transports::Transport> unchanged(int,
                                                 std::unique_ptr<transports::Transport> transport) {
  return transport;
}

}  // namespace

TEST_CASE("what stops one rank before it joins ends all at once with its cause", "[connect]") {
  const int culprit = GENERATE(0, 1, 2);
  const std::string who = "rank " + std::to_string(culprit) + " cannot take part: ";
  const auto none = [](int, Options&) {};
  if (culprit == 0)  // the constants of rank 0 count
    check(
        connect_all([](int, Options& options) { options.constants = "/no/such/file"; }, unchanged),
        Errc::invalid_argument, who + "the constants");
  check(connect_all(
            [&](int rank, Options& options) {
              if (rank == culprit) options.depth = -1;
            },
            unchanged),
        Errc::invalid_argument, who + "depth is -1");
  check(
      connect_all(none,
                  [&](int rank, std::unique_ptr<transports::Transport> inner) {
                    if (rank == culprit)
                      throw std::system_error(std::make_error_code(std::errc::too_many_files_open));
                    return inner;
                  }),
      Errc::system, who + "Too many open files");
}

TEST_CASE("what stops one rank after it has joined ends all at once with its cause", "[connect]") {
  const int culprit = GENERATE(0, 1, 2);
  check(connect_all([](int, Options&) {},
                    [&](int rank, std::unique_ptr<transports::Transport> inner)
                        -> std::unique_ptr<transports::Transport> {
                      if (rank == culprit) return std::make_unique<Refused>(std::move(inner));
                      return inner;
                    }),
        Errc::system,
        "rank " + std::to_string(culprit) + " could not connect: Resource temporarily unavailable");
}
