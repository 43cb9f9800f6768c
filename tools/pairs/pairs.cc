// SPDX-License-Identifier: Apache-2.0
//
// One run of `rondo bench pairs`: all ranks measure the pairs of a round at the same time, rank 0
// looks for outliers and chooses what is measured again, and all get its choice.
#include "tools/pairs/pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "tools/pairs/link.h"
#include "tools/pairs/report.h"
#include "tools/pairs/schedule.h"
#include "tools/pairs/survey.h"
#include "tools/records/result_file.h"
#include "tools/records/write.h"
#include "tools/shared/agree.h"
#include "tools/shared/exit_status.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

// A busy host can spoil any single measurement. So many must agree before a name is given: to a
// host, whose links speak for each other, and to a link alone.
constexpr std::size_t enough = 3, enough_alone = 6;
constexpr std::size_t most_misses_shown = 10;

Thresholds thresholds_of(const BenchOptions& bench, const PairsOptions& options) {
  Thresholds thresholds;
  thresholds.min_bandwidth = bench.min_bandwidth;
  if (bench.max_latency) thresholds.max_latency = *bench.max_latency * 1e6;
  thresholds.max_spread = options.max_spread;
  return thresholds;
}

// One rank of the run. The main thread calls run() once.
class Pairs {
 public:
  Pairs(Session& session, const PairsOptions& options)
      : session_(session),
        communicator_(session.communicator()),
        options_(options),
        ends_(ends_of(session.setting().hosts, options.ranks_too)),
        words_(session.setting().hosts, ends_, options.ranks_too),
        survey_(ends_, thresholds_of(session.options(), options)),
        limits_{session.setting().conditions.largest, session.setting().conditions.window,
                options.time} {}
  int run();

 private:
  void check() const;
  Json head() const;
  bool measure_all();
  bool measure(const std::vector<Round>& rounds, std::string_view what);
  std::vector<PairValues> measure(const Round& round);
  std::vector<Pair> agree(const std::vector<Pair>& of_first);
  void keep(const Round& round, std::span<const PairValues> values);
  void end(bool whole);
  int verdict() const;
  std::vector<std::string> misses() const;

  Session& session_;
  Communicator& communicator_;
  const PairsOptions& options_;
  const std::vector<End> ends_;
  const Words words_;
  Survey survey_;  // grows on rank 0 only
  const Link::Limits limits_;
  std::vector<std::string> lost_;  // of rank 0: links over which nothing came through
  std::size_t round_ = 0;
  std::size_t passes_ = 0;  // how often the pairs were measured that are still suspects
};

void Pairs::check() const {
  if (session_.setting().hosts.size() > 1 || (options_.ranks_too && ends_.size() > 1)) return;
  throw UsageError(
      options_.ranks_too
          ? "pairs: there is one rank, so there is no pair; start more ranks"
          : "pairs: all ranks are on one host, so there is no pair of hosts; start ranks on "
            "several hosts (docs/several-hosts.md), or give --ranks-too for pairs of ranks");
}

Json Pairs::head() const {
  Json head = head_of(session_.setting(), "pairs");
  head["pairs"] = {{"bytes", session_.setting().conditions.largest},
                   {"window", session_.setting().conditions.window},
                   {"time_ms", std::chrono::duration<double, std::milli>(options_.time).count()},
                   {"ranks_too", options_.ranks_too}};
  return head;
}

// The results of a rank with its partner.
struct Mine {
  double latency_us = 0, rate = 0, resent = std::numeric_limits<double>::quiet_NaN();
  char lost[232] = {};  // why there is no more, as text
};

// Sends, and returns in `resent` how many percent of the segments were sent again.
double send_counted(Communicator& two, Link& link, double& resent) {
  const Statistics before = two.statistics();
  const double rate = link.send_stream(1 - two.rank());
  const Statistics after = two.statistics();
  if (after.segments_sent > before.segments_sent)
    resent = 100 * static_cast<double>(after.segments_resent - before.segments_resent) /
             static_cast<double>(after.segments_sent - before.segments_sent);
  return rate;
}

// Measures the pairs of a round. Ranks without a pair wait in a collective until the others are
// done. All ranks get the values of all pairs. Each pair has a communicator of its own: a dead link
// ends that one alone, and the run goes on.
std::vector<PairValues> Pairs::measure(const Round& round) {
  const int rank = communicator_.rank();
  const auto own = std::ranges::find_if(round, [&](const Pair& pair) {
    return ends_[pair.first].rank == rank || ends_[pair.second].rank == rank;
  });
  const bool takes_part = own != round.end();
  const bool first = takes_part && ends_[own->first].rank == rank;
  Mine mine;
  std::optional<Communicator> two;
  std::optional<Link> link;
  const auto attempt = [&](const auto& step) {
    if (mine.lost[0] != 0) return;
    try {
      step();
    } catch (const Error& error) {
      if (!takes_part) throw;
      base::first_bytes(error.what(), sizeof mine.lost - 1).copy(mine.lost, sizeof mine.lost - 1);
    }
  };
  {
    // A run that takes too long to stop aborts the communicator that is in use.
    std::optional<Guarded> guarded;
    attempt([&] {
      two = communicator_.split(takes_part ? static_cast<int>(own - round.begin()) : -1, !first);
      if (!two) return;
      guarded.emplace(session_.early_end(), *two);
      link.emplace(*two, limits_);
      mine.latency_us = link->latency(1 - two->rank(), first);
    });
    // So no stream disturbs the short messages of another pair.
    communicator_.barrier().wait();
    attempt([&] {
      for (const bool sends : {first, !first})
        if (link && sends)
          mine.rate = send_counted(*two, *link, mine.resent);
        else if (link)
          link->receive_stream(1 - two->rank());
    });
  }
  const std::vector<Mine> all = gather_from_ranks(communicator_, mine);
  std::vector<PairValues> values;
  for (const Pair& pair : round) {
    const Mine& one = all[static_cast<std::size_t>(ends_[pair.first].rank)];
    const Mine& other = all[static_cast<std::size_t>(ends_[pair.second].rank)];
    const auto& why = (one.lost[0] != 0 ? one : other).lost;
    values.push_back({one.latency_us, one.rate, other.rate, one.resent, other.resent,
                      base::printable(std::string(why, ::strnlen(why, sizeof why)))});
  }
  return values;
}

void Pairs::keep(const Round& round, std::span<const PairValues> values) {
  for (std::size_t i = 0; i < round.size(); ++i) {
    const auto [first, second] = round[i];
    const auto& [latency, forward, back, forward_resent, back_resent, lost] = values[i];
    // A run that the user ends cuts pairs short.
    const bool is_lost = !lost.empty() && !session_.stop().asked();
    if (is_lost)
      lost_.push_back(fmt::format("link {}: nothing came through: {}",
                                  words_.link(Quantity::latency, first, second), lost));
    survey_.add(round[i], values[i]);
    for (const Measured& measured :
         {Measured{first, second, passes_, round_, forward, latency, forward_resent, is_lost},
          Measured{second, first, passes_, round_, back, latency, back_resent, is_lost}})
      session_.record().add(row_of(measured, survey_, words_));
  }
  if (passes_ > 0) survey_.count_again(round.size());
  session_.record().store();
}

bool Pairs::measure(const std::vector<Round>& rounds, std::string_view what) {
  std::size_t done = 0;
  for (const Round& round : rounds) {
    ++round_;
    ++done;
    if (session_.progress().active())
      session_.progress().show(fmt::format("{}: round {} of {}", what, done, rounds.size()));
    const std::vector<PairValues> values = measure(round);
    session_.deliver([&] { keep(round, values); });
    if (!session_.goes_on()) return false;
  }
  ++passes_;
  session_.progress().erase();
  return true;
}

// All ranks get the pairs that rank 0 has chosen. A rank of another build could choose others from
// the same values.
std::vector<Pair> Pairs::agree(const std::vector<Pair>& of_first) {
  const std::size_t count = ends_.size();
  std::vector<std::uint8_t> chosen(count * count, 0);
  if (session_.is_first())
    for (const auto& [first, second] : of_first) chosen[first * count + second] = 1;
  const Buffer buffer = buffer_of(std::span(chosen));
  communicator_.broadcast(buffer, buffer, 0).wait();
  std::vector<Pair> pairs;
  for (std::size_t first = 0; first < count; ++first)
    for (std::size_t second = first + 1; second < count; ++second)
      if (chosen[first * count + second] != 0) pairs.push_back({first, second});
  return pairs;
}

bool Pairs::measure_all() {
  const std::vector<Round> rounds = rounds_of(ends_);
  if (!session_.goes_on() || !measure(rounds, "pairs")) return false;
  survey_.fix_scales();
  // Where all values are doubtful, suspects cannot be told from the others.
  if (maximum_over_ranks(communicator_, session_.is_first() && survey_.unsteady() ? 1 : 0) > 0) {
    if (!measure(rounds, "pairs once more")) return false;
    survey_.fix_scales();
  }
  while (passes_ < enough_alone) {
    const std::vector<Pair> suspects =
        agree(passes_ < enough ? survey_.suspects() : survey_.single_suspects());
    if (suspects.empty()) break;
    if (!measure(rounds_of(ends_, suspects), "suspects once more")) return false;
  }
  return true;
}

void Pairs::end(bool whole) {
  session_.deliver([&] {
    if (!whole) survey_.fix_scales();
    survey_.update_medians();
    if (session_.shows_table()) print_survey(survey_, words_);
    session_.record().set_tail(tail_of(survey_, words_));
    if (!options_.svg.empty())
      write_report(
          "--svg", options_.svg,
          heat_maps_of(survey_, words_,
                       fmt::format("rondo bench pairs, {} over {}", session_.setting().time,
                                   session_.setting().transport)));
    if (whole) session_.record().finish();
  });
}

// A line for each link that misses a threshold.
std::vector<std::string> Pairs::misses() const {
  std::vector<std::string> lines;
  const BenchOptions& bench = session_.options();
  for (std::size_t from = 0; from < ends_.size(); ++from)
    for (std::size_t to = 0; to < ends_.size(); ++to) {
      const double rate = survey_.of(Quantity::bandwidth).at(from, to);
      if (bench.min_bandwidth && rate < *bench.min_bandwidth)
        lines.push_back(fmt::format("{}: {}, below --min-bandwidth {:.4g}",
                                    words_.link(Quantity::bandwidth, from, to),
                                    value_of(Quantity::bandwidth, rate), *bench.min_bandwidth));
      const double latency = survey_.of(Quantity::latency).at(from, to);
      if (from < to && bench.max_latency && latency > 1e6 * *bench.max_latency)
        lines.push_back(fmt::format(
            "{}: latency {}, above --max-latency {}", words_.link(Quantity::latency, from, to),
            value_of(Quantity::latency, latency), format_seconds(*bench.max_latency)));
    }
  return lines;
}

int Pairs::verdict() const {
  std::vector<std::string> lines = misses();
  lines.insert(lines.begin(), lost_.begin(), lost_.end());
  if (lines.size() > most_misses_shown) {
    const std::size_t more = lines.size() - most_misses_shown;
    lines.resize(most_misses_shown);
    lines.push_back(fmt::format("{} more such links; the record (--json) has all", more));
  }
  for (const Survey::Judgement& judgement : survey_.judgements())
    if (survey_.misses_spread(judgement))
      lines.push_back(fmt::format(
          "{} {}: the worst is {:.0f} % below the median {}, more than --max-spread {:.4g}: {}",
          name_of(judgement.quantity), name_of(judgement.where),
          judgement.scale.spread(judgement.quantity),
          value_of(judgement.quantity, judgement.scale.median), *options_.max_spread,
          worst_link(survey_, words_, judgement)));
  if (options_.fail_outliers)
    for (const Finding& finding : survey_.findings())
      lines.push_back(fmt::format("{} {} (--fail-outliers)", name_of(finding.quantity),
                                  words_.sentence(finding)));
  for (const std::string& line : lines) say("rondo bench: pairs: {}\n", line);
  return lines.empty() ? exit_fine : exit_missed;
}

int Pairs::run() {
  check();
  session_.describe(options_.ranks_too ? "pairs of ranks" : "pairs of hosts");
  session_.deliver([&] {
    if (session_.shows_table())
      print("# {} pairs in {} rounds; messages of {} for {} in each direction\n",
            ends_.size() * (ends_.size() - 1) / 2, rounds_of(ends_).size(),
            base::describe_bytes(session_.setting().conditions.largest),
            format_seconds(std::chrono::duration<double>(options_.time).count()));
    session_.record().begin(head(), columns_of_pairs());
  });
  bool whole = false;
  try {
    whole = measure_all();
  } catch (const std::exception&) {
    // A round can be longer than a user waits who ends the run.
    if (session_.stop().asked()) end(false);
    throw;
  }
  end(whole);
  if (!whole) return session_.end(exit_fine);
  // Every rank ends with the verdict of rank 0, which alone knows all values.
  const int status = session_.is_first() ? verdict() : exit_fine;
  return session_.end(static_cast<int>(maximum_over_ranks(communicator_, status)));
}

}  // namespace

int run_pairs(Session& session, const PairsOptions& options) {
  return Pairs(session, options).run();
}

}  // namespace rondo::tools
