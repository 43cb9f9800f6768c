// SPDX-License-Identifier: Apache-2.0
#include "lib/core_share.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/log.h"
#include "lib/settings/launcher.h"
#include "lib/settings/variables.h"

namespace rondo::lib {
namespace {

constexpr std::size_t word_bits = 64, most_words = base::most_processors / word_bits;
constexpr std::uint32_t most_share_ranks = 1 << 20, thousandths = 1000,
                        most_quota = thousandths * base::most_processors;

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

int get_count(base::Reader& reader, std::uint32_t most) {
  return static_cast<int>(std::min(reader.get<std::uint32_t>(), most));
}

struct Quota {
  std::size_t thousandths = 0;
  std::size_t ranks = 0;  // that share it
};

// By control group.
std::map<std::uint64_t, Quota> quotas_of(std::span<const CoreShare> shares) {
  std::map<std::uint64_t, Quota> quotas;
  for (const CoreShare& share : shares) {
    if (share.quota == 0) continue;
    Quota& quota = quotas[share.quota_group];
    quota.thousandths = static_cast<std::size_t>(share.quota);
    ++quota.ranks;
  }
  return quotas;
}

// The quotas of all control groups together, in whole cores, but no more than the processors; all
// of these if a rank has no quota.
int limit_of(std::span<const CoreShare> shares, const base::ProcessorSet& processors) {
  const std::size_t all = std::max<std::size_t>(processors.count(), 1);
  if (std::ranges::any_of(shares, [](const CoreShare& share) { return share.quota == 0; }))
    return static_cast<int>(all);
  std::size_t sum = 0;
  for (const auto& [group, quota] : quotas_of(shares)) sum += quota.thousandths;
  return static_cast<int>(std::min(all, (sum + thousandths - 1) / thousandths));
}

}  // namespace

CoreShare find_core_share(const Options& options) {
  CoreShare share;
  const base::UsableCores usable = base::find_usable_cores();
  share.mask = usable.mask;
  share.host = base::allowed_processors();
  if (usable.quota) {
    share.quota = static_cast<int>(
        std::clamp(usable.quota->processors * thousandths, 1.0, double{most_quota}));
    share.quota_group = usable.quota->group;
  }
  share.ranks_on_host =
      options.ranks_on_host > 0 ? options.ranks_on_host : settings::ranks_on_host_from_launcher();
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
  share.quota = get_count(reader, most_quota);
  share.quota_group = reader.get<std::uint64_t>();
  share.ranks_on_host = get_count(reader, most_share_ranks);
  return share;
}

int per_core(int ranks, int cores) noexcept {
  return (ranks + cores - 1) / cores;
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
  cores.ranks_per_core = std::max(per_core(here, cores.cores),
                                  per_core(cores.ranks, limit_of(shares, cores.processors)));
  const auto unknown = static_cast<std::size_t>(cores.ranks - here);
  for (const auto& [group, quota] : quotas_of(shares)) {
    const std::size_t spinning = std::min(cores.processors.count(), quota.ranks + unknown);
    if (quota.thousandths < spinning * thousandths) cores.short_of_quota = true;
  }
  return cores;
}

void warn_about_quota(const HostCores& cores) {
  if (!cores.short_of_quota || !base::log_enabled(base::LogLevel::warning) ||
      settings::is_not_first_here())
    return;
  static std::once_flag told;
  std::call_once(told, [&] {
    // A rank that is bound has fewer processors than the ranks of its host together.
    const std::string risk = base::describe_quota_risk({cores.processors, base::read_cpu_quota()});
    if (!risk.empty()) base::log_line(base::LogLevel::warning, risk);
  });
}

}  // namespace rondo::lib
