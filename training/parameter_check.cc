// SPDX-License-Identifier: Apache-2.0
//
// Ranks compare their models. One all_reduce of 24 bytes tells them whether the models differ. If
// they do, all ranks get the list that most ranks have, each compares it with its own, and all
// learn what each has found. So the traffic grows with the list, but not with list times ranks.
#include "training/parameter_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/mix.h"
#include "training/parameter_list.h"

namespace rondo::training {

namespace {

using Bytes = std::vector<std::uint8_t>;

OpOptions options_of_check() {
  OpOptions options;
  options.tag = "check_parameters";
  return options;
}

// equal: all hashes are equal, because the smallest is also the largest. fine: no rank has a
// problem.
struct Verdict {
  bool equal, fine;
};
Verdict compare(Communicator& communicator, std::uint64_t hash, bool fine) {
  std::array<std::uint64_t, 3> words{hash, ~hash, fine ? 1u : 0u};
  const Buffer buffer{words.data(), words.size(), DType::u64};
  communicator.all_reduce(buffer, buffer, ReduceOp::min, options_of_check()).wait();
  return {words[0] == ~words[1], words[2] != 0};
}

// The list that most ranks have; of equally many, that of the lowest rank.
std::vector<ListedParameter> most_common(Communicator& communicator, std::uint64_t hash,
                                         const Bytes& list) {
  std::array<std::uint64_t, 2> own{hash, list.size()};
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(communicator.size()));
  communicator
      .all_gather({own.data(), own.size(), DType::u64}, buffer_of(std::span(all)),
                  options_of_check())
      .wait();
  std::map<std::uint64_t, std::size_t> ranks_with;
  for (std::size_t i = 0; i < all.size(); i += 2) ++ranks_with[all[i]];
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < all.size(); i += 2)
    if (ranks_with[all[i]] > ranks_with[all[chosen]]) chosen = i;
  if (all[chosen + 1] > most_list_bytes)
    throw Error(Errc::corrupt,
                fmt::format("rank {} announced a list of parameters of {} bytes; {} is the most",
                            chosen / 2, all[chosen + 1], most_list_bytes));
  const int root = static_cast<int>(chosen / 2);
  Bytes bytes(static_cast<std::size_t>(all[chosen + 1]));
  if (root == communicator.rank()) bytes = list;
  communicator
      .broadcast(buffer_of(std::span(bytes)), buffer_of(std::span(bytes)), root, options_of_check())
      .wait();
  auto theirs = decode_list(bytes);
  if (!theirs)
    throw Error(Errc::corrupt,
                fmt::format("rank {} sent a list of parameters that cannot be read", root));
  return std::move(*theirs);
}

std::vector<Report> exchange(Communicator& communicator, const Report& mine) {
  ReportBytes own = encode(mine);
  Bytes all(own.size() * static_cast<std::size_t>(communicator.size()));
  communicator
      .all_gather({own.data(), own.size(), DType::u8}, buffer_of(std::span(all)),
                  options_of_check())
      .wait();
  std::vector<Report> reports;
  for (std::size_t at = 0; at < all.size(); at += own.size()) {
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(at), own.size(), own.begin());
    reports.push_back(decode(own));
  }
  return reports;
}

}  // namespace

std::optional<OwnProblem> problem_of(std::span<const Parameter> parameters) {
  std::set<std::string_view> names;
  std::size_t bytes = 0;
  for (const Parameter& each : parameters) {
    bytes += 16 + each.name.size() + 8 * each.shape.size();
    if (!names.insert(each.name).second)
      return OwnProblem{
          Errc::invalid_argument,
          fmt::format("two parameters have the name '{}'; names must be unique", each.name)};
    if (!is_valid(each.type))
      return OwnProblem{Errc::invalid_argument,
                        fmt::format("parameter '{}' has the type {}, which does not exist",
                                    each.name, static_cast<int>(each.type))};
    try {
      (void)element_count(each);
    } catch (const Error& error) {
      return OwnProblem{Errc::invalid_argument, error.what()};
    }
  }
  if (bytes > most_list_bytes)
    return OwnProblem{
        Errc::invalid_argument,
        fmt::format("names and shapes of the parameters take {} bytes; {} is the most", bytes,
                    most_list_bytes)};
  return std::nullopt;
}

void check_lists(Communicator& communicator, std::span<const Parameter> parameters,
                 const std::optional<OwnProblem>& problem) {
  const std::vector<ListedParameter> mine =
      problem ? std::vector<ListedParameter>() : list_of(parameters);
  const Bytes bytes = encode_list(mine);
  const std::uint64_t hash = base::hash_bytes(bytes);
  const Verdict verdict = compare(communicator, hash, !problem);
  if (verdict.equal && verdict.fine) return;
  if (!verdict.fine) {
    const Report own =
        problem ? Report{Report::Kind::problem, 0, problem->code, problem->text, {}} : Report{};
    throw_problem(exchange(communicator, own));
  }
  const std::vector<ListedParameter> theirs = most_common(communicator, hash, bytes);
  throw_difference(exchange(communicator, first_difference(theirs, mine)), theirs);
}

}  // namespace rondo::training
