// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string.h>

#include <rondo/agreement.h>
#include <rondo/error.h>
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/text.h"

namespace rondo {

namespace {

constexpr std::size_t said_bytes = 240;
__extension__ typedef unsigned __int128 Wide;

constexpr std::size_t parts = agreement_elements / 2;
constexpr unsigned part_bits = 64 / parts;

// All summands are integers, and so small that f64 adds them without rounding. By the inequality of
// Cauchy and Schwarz the two sides are equal only if all summands are equal.
bool equal_summands(double part_sum, double square_sum, unsigned size) noexcept {
  if (!(part_sum >= 0 && part_sum < 0x1p53 && square_sum >= 0 && square_sum < 0x1p53)) return false;
  const Wide sum = static_cast<std::uint64_t>(part_sum),
             squares = static_cast<std::uint64_t>(square_sum);
  return sum * sum == squares * static_cast<Wide>(size);
}

std::string clause_of(const std::vector<int>& ranks, std::string_view said) {
  const bool are = ranks.size() > 1 && said.starts_with("is ");
  return fmt::format("{} {}{}", base::list_of_ranks(ranks), are ? "are" : "",
                     said.substr(are ? 2 : 0));
}

}  // namespace

void put_agreement(std::span<double, agreement_elements> out, std::uint64_t number) noexcept {
  for (std::size_t i = 0; i < parts; ++i) {
    const std::uint64_t part = number >> (i * part_bits) & ((std::uint64_t{1} << part_bits) - 1);
    out[2 * i] = static_cast<double>(part);
    out[2 * i + 1] = static_cast<double>(part * part);
  }
}

bool agreed(std::span<const double, agreement_elements> sums, int size) noexcept {
  for (std::size_t i = 0; i < parts; ++i)
    if (!equal_summands(sums[2 * i], sums[2 * i + 1], static_cast<unsigned>(size))) return false;
  return true;
}

void throw_disagreement(Communicator& communicator, std::string_view subject, std::string_view mine,
                        Priority priority) {
  const auto size = static_cast<std::size_t>(communicator.size());
  std::vector<std::uint8_t> own(said_bytes);
  mine.copy(reinterpret_cast<char*>(own.data()), own.size());
  std::vector<std::uint8_t> all(size * said_bytes);
  const OpOptions options{.priority = priority, .tag = "who differs"};
  communicator.all_gather(buffer_of(std::span(own)), buffer_of(std::span(all)), options).wait();
  std::map<std::string, std::vector<int>> said;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const char* text = reinterpret_cast<const char*>(all.data() + rank * said_bytes);
    said[std::string(text, ::strnlen(text, said_bytes))].push_back(static_cast<int>(rank));
  }
  std::vector<std::pair<std::string, std::vector<int>>> groups(said.begin(), said.end());
  // Small groups come first: they are most likely the ones that are wrong.
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::string message = fmt::format("{}: ranks differ", subject);
  for (std::size_t i = 0; i < groups.size(); ++i)
    fmt::format_to(std::back_inserter(message), "{}{}", i == 0 ? ": " : "; ",
                   clause_of(groups[i].second, groups[i].first));
  throw Error(Errc::mismatch, message);
}

}  // namespace rondo
