// SPDX-License-Identifier: Apache-2.0
#include "lib/core_share.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "base/log.h"
#include "lib/launcher.h"
#include "lib/variables.h"

namespace rondo::lib {
namespace {

constexpr std::size_t word_bits = 64, most_words = base::most_processors / word_bits;
constexpr std::uint32_t most_ranks = 1 << 20;

void put_set(base::Writer& writer, const base::ProcessorSet& set) {
  std::vector<std::uint64_t> words(most_words);
  for (std::size_t i = 0; i < base::most_processors; ++i)
    if (set[i]) words[i / word_bits] |= std::uint64_t{1} << (i % word_bits);
  while (!words.empty() && words.back() == 0) words.pop_back();
  writer.put(static_cast<std::uint16_t>(words.size()));
  for (const std::uint64_t word : words) writer.put(word);
}

base::ProcessorSet get_set(base::Reader& reader) {
  base::ProcessorSet set;
  const std::size_t words = reader.get<std::uint16_t>();
  // Too many words: the reader fails, because no record has so many bytes.
  if (words > most_words) reader.get_bytes(reader.left() + 1);
  for (std::size_t i = 0; i < words && reader.ok(); ++i) {
    const auto word = reader.get<std::uint64_t>();
    for (std::size_t bit = 0; bit < word_bits; ++bit)
      if ((word >> bit & 1) != 0) set.set(i * word_bits + bit);
  }
  return set;
}

int get_count(base::Reader& reader) {
  return static_cast<int>(std::min(reader.get<std::uint32_t>(), most_ranks));
}

// The quotas of all control groups together; those of `processors` where a rank has none.
int limit_of(std::span<const CoreShare> shares, const base::ProcessorSet& processors) {
  const std::size_t all = std::max<std::size_t>(processors.count(), 1);
  std::size_t limit = 0;
  std::set<std::uint64_t> groups;
  for (const CoreShare& share : shares) {
    if (share.quota == 0) return static_cast<int>(all);
    if (groups.insert(share.quota_group).second) limit += static_cast<std::size_t>(share.quota);
  }
  return static_cast<int>(std::min(all, limit));
}

}  // namespace

CoreShare find_core_share(const Options& options) {
  CoreShare share;
  const base::UsableCores usable = base::find_usable_cores();
  share.mask = usable.mask;
  share.host = base::allowed_processors();
  if (usable.quota) {
    share.quota = usable.quota->rounded_up();
    share.quota_group = usable.quota->group;
  }
  share.ranks_on_host =
      options.ranks_on_host > 0 ? options.ranks_on_host : ranks_on_host_from_launcher();
  return share;
}

void put_core_share(base::Writer& writer, const CoreShare& share) {
  put_set(writer, share.mask);
  put_set(writer, share.host);
  writer.put(static_cast<std::uint32_t>(share.quota));
  writer.put(share.quota_group);
  writer.put(static_cast<std::uint32_t>(share.ranks_on_host));
}

CoreShare get_core_share(base::Reader& reader) {
  CoreShare share;
  share.mask = get_set(reader);
  share.host = get_set(reader);
  share.quota = get_count(reader);
  share.quota_group = reader.get<std::uint64_t>();
  share.ranks_on_host = get_count(reader);
  return share;
}

HostCores cores_of_host(std::span<const CoreShare> shares) {
  HostCores cores;
  base::ProcessorSet others;
  const int here = cores.ranks = static_cast<int>(shares.size());
  for (const CoreShare& share : shares) {
    cores.processors |= share.mask;
    others |= share.host;
    cores.ranks = std::max(cores.ranks, share.ranks_on_host);
  }
  cores.cores = limit_of(shares, cores.processors);
  // Ranks of other communicators may be bound to other cores than these.
  if (cores.ranks > here) cores.processors |= others;
  cores.crowded = here > cores.cores || cores.ranks > limit_of(shares, cores.processors);
  return cores;
}

void warn_about_quota(int ranks_on_host) {
  if (!base::log_enabled(base::LogLevel::warning) || is_not_first_here()) return;
  static std::once_flag looked;
  std::call_once(looked, [&] {
    const base::UsableCores usable = base::find_usable_cores();
    if (usable.quota_is_smaller() && usable.quota->processors < ranks_on_host)
      base::log_line(base::LogLevel::warning, base::describe_quota_risk(usable));
  });
}

}  // namespace rondo::lib
