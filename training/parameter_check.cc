// SPDX-License-Identifier: Apache-2.0
//
// Ranks compare their models. One all_reduce of 24 bytes tells them whether the models differ. If
// they do, every rank gets each list that some ranks have, at most most_lists, and all find the
// same differences. So the traffic grows with the lists that differ, but not with list times ranks.
#include "training/parameter_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/error.h>

#include "base/mix.h"
#include "base/text.h"
#include "training/parameter_list.h"

namespace rondo::training {

namespace {

using Bytes = std::vector<std::byte>;

// Lists that ranks compare, one broadcast each. Where names contain the rank, all lists differ.
constexpr std::size_t most_lists = 16;

// Ranks that have the same bytes.
struct Group {
  std::uint64_t hash, bytes;
  std::vector<int> ranks;
};

constexpr OpOptions of_check{.tag = "check_parameters"};

std::uint64_t hash_of(const Bytes& bytes) {
  return base::hash_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// equal: all hashes are equal, because the smallest is also the largest. fine: no rank has a
// problem.
struct Verdict {
  bool equal, fine;
};
Verdict compare(Communicator& communicator, const Bytes& list, bool fine) {
  const std::uint64_t hash = hash_of(list);
  std::array<std::uint64_t, 3> words{hash, ~hash, fine ? 1u : 0u};
  const Buffer buffer{words.data(), words.size(), DType::u64};
  communicator.all_reduce(buffer, buffer, ReduceOp::min, of_check).wait();
  return {words[0] == ~words[1], words[2] != 0};
}

// Collective. The groups are in the order of their lowest ranks.
std::vector<Group> groups_of(Communicator& communicator, const Bytes& own) {
  std::array<std::uint64_t, 2> mine{hash_of(own), own.size()};
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(communicator.size()));
  communicator
      .all_gather({mine.data(), mine.size(), DType::u64}, buffer_of(std::span(all)), of_check)
      .wait();
  std::vector<Group> groups;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> known;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    const std::uint64_t* const theirs = &all[2 * static_cast<std::size_t>(rank)];
    const auto [place, is_new] = known.try_emplace({theirs[0], theirs[1]}, groups.size());
    if (is_new) groups.push_back({theirs[0], theirs[1], {}});
    groups[place->second].ranks.push_back(rank);
  }
  return groups;
}

// Collective. Returns the bytes of these ranks.
Bytes bytes_of(Communicator& communicator, const Group& group, const Bytes& own) {
  const int root = group.ranks.front();
  if (group.bytes > most_list_bytes)
    throw Error(Errc::corrupt,
                fmt::format("rank {} announced a list of parameters of {} bytes; {} is the most",
                            root, group.bytes, most_list_bytes));
  Bytes bytes(static_cast<std::size_t>(group.bytes));
  if (root == communicator.rank()) bytes = own;
  const Buffer buffer{bytes.data(), bytes.size(), DType::u8};
  communicator.broadcast(buffer, buffer, root, of_check).wait();
  return bytes;
}

std::vector<Parameter> list_of(Communicator& communicator, const Group& group, const Bytes& own) {
  auto list = decode_list(bytes_of(communicator, group, own));
  if (!list)
    throw Error(Errc::corrupt, fmt::format("rank {} sent a list of parameters that cannot be read",
                                           group.ranks.front()));
  return std::move(*list);
}

// Throws the problem of the lowest rank that has one, and names all ranks with that problem. A
// problem travels as a byte for its code and its text; nothing is none.
[[noreturn]] void throw_problem(Communicator& communicator, const std::optional<Error>& own) {
  Bytes mine;
  if (own) {
    const auto text = std::as_bytes(std::span(std::string_view(own->what())));
    mine.push_back(static_cast<std::byte>(own->code().value()));
    mine.insert(mine.end(), text.begin(), text.end());
  }
  const std::vector<Group> groups = groups_of(communicator, mine);
  const auto first = std::ranges::find_if(groups, [](const Group& each) { return each.bytes > 0; });
  if (first == groups.end())
    throw Error(Errc::corrupt,
                "some rank found a problem with its parameters, but no rank sent the problem");
  const Bytes problem = bytes_of(communicator, *first, mine);
  const auto code = static_cast<Errc>(problem[0]);
  const std::string_view text(reinterpret_cast<const char*>(problem.data()) + 1,
                              problem.size() - 1);
  throw Error(code == Errc::invalid_argument || code == Errc::unsupported ? code : Errc::mismatch,
              fmt::format("on {}: {}", base::list_of_ranks(first->ranks), text));
}

// Throws Error(mismatch) with the first parameter at which a list differs from the one that most
// ranks have; of equally many, that of the lowest rank.
[[noreturn]] void throw_difference(Communicator& communicator, const Bytes& own) {
  std::vector<Group> groups = groups_of(communicator, own);
  std::ranges::stable_sort(groups, std::ranges::greater(),
                           [](const Group& each) { return each.ranks.size(); });
  const std::size_t left_out = groups.size() - std::min(groups.size(), most_lists);
  groups.resize(groups.size() - left_out);
  const std::vector<Parameter> theirs = list_of(communicator, groups.front(), own);
  std::map<Difference, std::vector<int>> differences;  // the first of them has the lowest index
  for (const Group& group : std::span(groups).subspan(1)) {
    auto& ranks = differences[first_difference(theirs, list_of(communicator, group, own))];
    ranks.insert(ranks.end(), group.ranks.begin(), group.ranks.end());
  }
  differences.erase(Difference{});                 // lists that differ in their hashes alone
  std::vector<int> others = groups.front().ranks;  // have at the first difference what most have
  std::string message;
  for (const auto& [difference, ranks] : differences)
    if (difference.index != differences.begin()->first.index)
      others.insert(others.end(), ranks.begin(), ranks.end());
  for (const auto& [difference, ranks] : differences)
    if (difference.index == differences.begin()->first.index)
      message += (message.empty() ? "" : "; ") + describe(difference, ranks, others, theirs);
  if (left_out != 0 && !message.empty()) message += fmt::format("; {} more lists differ", left_out);
  throw Error(Errc::mismatch, message.empty()
                                  ? "models differ between ranks, but no rank sent the difference"
                                  : message);
}

}  // namespace

void check_list(std::span<const Parameter> parameters) {
  const auto refuse = [](const std::string& what) { throw Error(Errc::invalid_argument, what); };
  std::set<std::string_view> names;
  std::size_t bytes = 0;
  for (const Parameter& each : parameters) {
    bytes += 16 + each.name.size() + 8 * each.shape.size();
    if (!names.insert(each.name).second)
      refuse(fmt::format("two parameters have the name '{}'; names must be unique", each.name));
    if (!is_valid(each.type))
      refuse(fmt::format("parameter '{}' has the type {}, which does not exist", each.name,
                         static_cast<int>(each.type)));
    (void)element_count(each);
  }
  if (bytes > most_list_bytes)
    refuse(fmt::format("names and shapes of the parameters take {} bytes; {} is the most", bytes,
                       most_list_bytes));
}

void check_lists(Communicator& communicator, std::span<const Parameter> parameters,
                 const std::function<void()>& check) {
  std::optional<Error> problem;
  try {
    check();
  } catch (const Error& error) {
    problem = error;
  }
  const Bytes list = problem ? Bytes() : encode_list(parameters);
  const Verdict verdict = compare(communicator, list, !problem);
  if (!verdict.fine) throw_problem(communicator, problem);
  if (!verdict.equal) throw_difference(communicator, list);
}

}  // namespace rondo::training
