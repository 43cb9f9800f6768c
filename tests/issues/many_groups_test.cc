// SPDX-License-Identifier: Apache-2.0
//
// A communicator of 8 ranks of one host took 35 descriptors on rank 0 and three threads, so a
// process that is rank 0 of 30 groups reached the usual limit of 1,024 open files. Over tcp the
// limit was raised for the last group alone. When all groups then opened their links, none was
// left.
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <string>
#include <vector>

#include <rondo/communicator.h>

#include "catch.h"
#include "faults/processes.h"
#include "forked_ranks.h"
#include "lib/needs.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

constexpr int members = 8, dead_member = 7;

// TSan makes everything slow.
constexpr int group_count = under_tsan ? 8 : 64, tcp_group_count = under_tsan ? 8 : 24;

std::vector<Communicator> connect_groups(int rank, const std::string& folder, int count,
                                         const std::vector<std::string>& transports = {}) {
  std::vector<Communicator> groups;
  for (int group = 0; group < count; ++group) {
    Options options = meeting_at(folder + "/group-" + std::to_string(group), rank, members);
    options.transports = transports;
    options.interfaces = {"lo"};
    options.connect_deadline = std::chrono::seconds{120};
    options.deadline = std::chrono::seconds{120};
    groups.push_back(Communicator::connect(options));
  }
  return groups;
}

// Sums something else in each group, in all of them at once.
bool sum_in_all(std::vector<Communicator>& groups, int rank) {
  const std::size_t count = 1000;
  std::vector<std::vector<float>> in(groups.size()), out(groups.size());
  std::vector<Work> works;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    in[i].assign(count, static_cast<float>(rank) + static_cast<float>(i));
    out[i].resize(count);
    works.push_back(groups[i].all_reduce(buffer_of(std::span(in[i])), buffer_of(std::span(out[i])),
                                         ReduceOp::sum));
  }
  bool right = true;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    works[i].wait();
    const float sum = members * (members - 1) / 2 + members * static_cast<float>(i);
    right = right && out[i].front() == sum && out[i].back() == sum;
  }
  return right;
}

bool names_the_victim(Communicator& group) {
  try {
    group.barrier().wait();
  } catch (const Error& error) {
    if (error.code() == Errc::peer_lost &&
        std::string(error.what()).find("rank 7") != std::string::npos)
      return true;
    std::fprintf(stderr, "%s\n", error.what());
  }
  return false;
}

// In a process that may have 1,024 files open.
bool work_in_groups(int rank, const std::string& folder) {
  const rlimit usual{1024, 1024};
  if (::setrlimit(RLIMIT_NOFILE, &usual) != 0) return false;
  const std::size_t before = lib::open_descriptors();
  std::vector<Communicator> groups = connect_groups(rank, folder, group_count);
  if (!sum_in_all(groups, rank)) return false;
  const std::size_t each = (lib::open_descriptors() - before) / groups.size();
  if (each > 15) {
    std::fprintf(stderr, "rank %d has %zu descriptors for each group\n", rank, each);
    return false;
  }
  for (Communicator& group : groups) group.barrier().wait();
  if (rank == dead_member) ::raise(SIGKILL);
  bool named = true;
  for (Communicator& group : groups) named = names_the_victim(group) && named;
  return named;
}

// The soft limit is small. The groups open their links when all of them are there.
bool work_over_tcp(int rank, const std::string& folder) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  limit.rlim_cur = lib::open_descriptors() + 50;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  std::vector<Communicator> groups = connect_groups(rank, folder, tcp_group_count, {"tcp"});
  const bool right = sum_in_all(groups, rank);
  for (Communicator& group : groups) group.barrier().wait();
  return right;
}

}  // namespace

TEST_CASE("the limit of open files is raised for the links that earlier groups have yet to open",
          "[fork]") {
  const ScratchDirectory folder;
  const auto statuses =
      run_forked(members, [&](int rank) { return work_over_tcp(rank, folder.path()); });
  CHECK(statuses == std::vector<int>(members, 0));
}

TEST_CASE("64 groups of 8 ranks work at once within 1024 descriptors and each names a dead rank",
          "[fork]") {
  const ScratchDirectory folder;
  const auto statuses =
      run_forked(members, [&](int rank) { return work_in_groups(rank, folder.path()); });
  std::vector<int> wanted(members, 0);
  wanted[dead_member] = 128 + SIGKILL;
  CHECK(statuses == wanted);
}

// One that fails must not disturb the others, although they join the same processes.
TEST_CASE("a group that is aborted leaves the other groups of its ranks alone", "[fork]") {
  const ScratchDirectory folder;
  const auto statuses = run_forked(3, [&](int rank) {
    Communicator one = Communicator::connect(meeting_at(folder.path() + "/one", rank, 3));
    Communicator other = Communicator::connect(meeting_at(folder.path() + "/other", rank, 3));
    if (rank == 1) one.abort(make_error_code(Errc::aborted), "only this group");
    try {
      one.barrier().wait();
      return false;
    } catch (const Error& error) {
      if (error.code() != Errc::aborted) return false;
    }
    std::vector<float> in(5000, 1.0f), out(5000);
    for (int i = 0; i < 20; ++i)
      other.all_reduce(buffer_of(std::span(in)), buffer_of(std::span(out)), ReduceOp::sum).wait();
    return out.front() == 3.0f;
  });
  CHECK(statuses == std::vector<int>{0, 0, 0});
}

}  // namespace rondo::testing
