// SPDX-License-Identifier: Apache-2.0
//
// rondo bench pairs: who is paired with whom, and which host or link is named.
#include <array>
#include <cmath>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "support/ranks.h"
#include "tools/pairs/link.h"
#include "tools/pairs/report.h"
#include "tools/pairs/survey.h"
#include "tools/plots/heat_map.h"

using namespace rondo::tools;
using rondo::Communicator;
using rondo::testing::run_communicators;
using rondo::testing::Setup;

namespace {

// Hosts a, b, c, ... with so many ranks each.
std::vector<HostRecord> hosts_of(std::size_t hosts, int each = 1) {
  std::vector<HostRecord> all(hosts);
  int rank = 0;
  for (std::size_t host = 0; host < hosts; ++host) {
    all[host].name = std::string(1, static_cast<char>('a' + host));
    for (int i = 0; i < each; ++i) all[host].ranks.push_back(rank++);
  }
  return all;
}

// A network in which all links are alike until a test changes one.
class Network {
 public:
  explicit Network(std::size_t hosts, int each = 1)
      : hosts_(hosts_of(hosts, each)),
        every_rank_(each > 1),
        ends_(ends_of(hosts_, every_rank_)),
        bandwidth_(ends_.size()),
        latency_(ends_.size()) {
    for (std::size_t from = 0; from < ends_.size(); ++from)
      for (std::size_t to = 0; to < ends_.size(); ++to) {
        if (from == to) continue;
        const bool within = ends_[from].host == ends_[to].host;
        bandwidth_.at(from, to) = within ? 10 : 1;
        latency_.at(from, to) = within ? 5 : 100;
      }
  }
  Network& slow(std::size_t from, std::size_t to, double rate) {
    bandwidth_.at(from, to) = rate;
    return *this;
  }
  // Counts all ends of a host, to (and from) the other hosts.
  Network& slow_host(std::size_t host, double rate, bool sends = true, bool receives = true) {
    for (std::size_t from = 0; from < ends_.size(); ++from)
      for (std::size_t to = 0; to < ends_.size(); ++to) {
        if (ends_[from].host == ends_[to].host) continue;
        if ((sends && ends_[from].host == host) || (receives && ends_[to].host == host))
          bandwidth_.at(from, to) = rate;
      }
    return *this;
  }
  Network& far(std::size_t one, std::size_t other, double us) {
    latency_.at(one, other) = latency_.at(other, one) = us;
    return *this;
  }
  Network& far_host(std::size_t host, double us) {
    for (std::size_t other = 0; other < ends_.size(); ++other)
      if (ends_[other].host != host)
        for (std::size_t end = 0; end < ends_.size(); ++end)
          if (ends_[end].host == host) far(end, other, us);
    return *this;
  }
  Matrix& bandwidth() { return bandwidth_; }

  std::vector<std::string> findings() const {
    const Words words(hosts_, ends_, every_rank_);
    std::vector<std::string> all;
    for (const Where where : {Where::between, Where::within})
      for (const Quantity quantity : {Quantity::bandwidth, Quantity::latency}) {
        const Matrix& values = quantity == Quantity::bandwidth ? bandwidth_ : latency_;
        const Scale scale = scale_of(quantity, values, ends_, where);
        for (const Finding& finding : find_outliers(quantity, values, scale, ends_, where))
          all.push_back(words.sentence(finding));
      }
    return all;
  }

 private:
  std::vector<HostRecord> hosts_;
  bool every_rank_;
  std::vector<End> ends_;
  Matrix bandwidth_, latency_;
};

using Sentences = std::vector<std::string>;

void check_rounds(const std::vector<End>& ends, const std::vector<Round>& rounds) {
  std::set<std::pair<std::size_t, std::size_t>> met;
  for (const Round& round : rounds) {
    CHECK(!round.empty());
    std::set<std::size_t> busy;
    for (const Pair& pair : round) {
      CHECK(pair.first < pair.second);
      REQUIRE(pair.second < ends.size());
      CHECK(met.emplace(pair.first, pair.second).second);
      CHECK(busy.insert(ends[pair.first].host).second);
      if (ends[pair.first].host != ends[pair.second].host)
        CHECK(busy.insert(ends[pair.second].host).second);
    }
  }
  CHECK(met.size() == ends.size() * (ends.size() - 1) / 2);
}

// A survey of all pairs, each measured once. values_of: what a pair has.
template <class Function>
Survey survey_of(std::span<const End> ends, const Thresholds& thresholds, Function values_of) {
  Survey survey(ends, thresholds);
  for (const Round& round : rounds_of(ends))
    for (const Pair& pair : round) survey.add(pair, values_of(pair));
  survey.fix_scales();
  return survey;
}

Sentences sentences_of(const Survey& survey, std::span<const HostRecord> hosts) {
  Sentences all;
  for (const Finding& finding : survey.findings())
    all.push_back(Words(hosts, survey.ends(), false).sentence(finding));
  return all;
}

}  // namespace

TEST_CASE("every pair of hosts meets once, each host at most once in a round") {
  for (std::size_t hosts = 2; hosts <= 17; ++hosts) {
    INFO(hosts);
    const auto records = hosts_of(hosts);
    const std::vector<End> ends = ends_of(records, false);
    CHECK(ends.size() == hosts);
    const std::vector<Round> rounds = rounds_of(ends);
    CHECK(rounds.size() == hosts - 1 + hosts % 2);
    check_rounds(ends, rounds);
  }
}

TEST_CASE("every pair of ranks meets once, each host at most once in a round") {
  for (std::size_t hosts = 1; hosts <= 5; ++hosts)
    for (int each = 1; each <= 4; ++each) {
      INFO(hosts << " hosts of " << each);
      auto records = hosts_of(hosts, each);
      const std::vector<End> ends = ends_of(records, true);
      CHECK(ends.size() == hosts * static_cast<std::size_t>(each));
      const auto ranks = static_cast<std::size_t>(each);
      const std::vector<Round> rounds = rounds_of(ends);
      const std::size_t between = hosts > 1 ? hosts - 1 + hosts % 2 : 0;
      CHECK(rounds.size() == between * ranks * ranks + ranks * (ranks - 1) / 2);
      check_rounds(ends, rounds);
    }
  auto uneven = hosts_of(3, 2);
  uneven[1].ranks = {2};
  uneven[2].ranks = {3, 4, 5, 6};
  const std::vector<End> ends = ends_of(uneven, true);
  CHECK(ends.size() == 7);
  check_rounds(ends, rounds_of(ends));
}

TEST_CASE("suspects are measured in rounds, too") {
  const auto records = hosts_of(6);
  const std::vector<End> ends = ends_of(records, false);
  const std::vector<Pair> pairs{{0, 1}, {2, 3}, {0, 2}, {4, 5}, {1, 3}};
  const std::vector<Round> rounds = rounds_of(ends, pairs);
  REQUIRE(rounds.size() == 2);
  CHECK(rounds[0] == Round{{0, 1}, {2, 3}, {4, 5}});
  CHECK(rounds[1] == Round{{0, 2}, {1, 3}});
  CHECK(rounds_of(ends, std::vector<Pair>{}).empty());
}

TEST_CASE("nothing is named where all links are alike, or nearly so") {
  for (std::size_t hosts = 2; hosts <= 9; ++hosts) CHECK(Network(hosts).findings().empty());
  CHECK(Network(3, 3).findings().empty());
  // Just within the floors: 15 percent of bandwidth; 20 percent of latency.
  CHECK(Network(6).slow(0, 1, 0.86).far(2, 3, 119).findings().empty());
  CHECK(Network(6).slow(0, 1, 0.84).findings().size() == 1);
  CHECK(Network(6).far(2, 3, 121).findings().size() == 1);
}

TEST_CASE("a wide spread of all links names none of them") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> part(0.75, 1);
  for (int run = 0; run < 100; ++run) {
    Network network(8);
    for (std::size_t from = 0; from < 8; ++from)
      for (std::size_t to = 0; to < 8; ++to)
        if (from != to) network.slow(from, to, part(random));
    CHECK(network.findings().empty());
    network.slow(3, 4, 0.2);
    CHECK(network.findings().size() == 1);
  }
}

TEST_CASE("a slow host is named, and none of its partners") {
  for (std::size_t hosts = 3; hosts <= 9; ++hosts) {
    INFO(hosts);
    CHECK(Network(hosts).slow_host(2, 0.19).findings() ==
          Sentences{"host c (rank 2): 0.19 GB/s to and from every other host, others 1 GB/s"});
    CHECK(Network(hosts).slow_host(1, 0.19, true, false).findings() ==
          Sentences{"host b (rank 1): 0.19 GB/s to every other host, others 1 GB/s"});
    CHECK(Network(hosts).slow_host(0, 0.001, false, true).findings() ==
          Sentences{"host a (rank 0): 0.001 GB/s from every other host, others 1 GB/s"});
    CHECK(Network(hosts).far_host(2, 2100).findings() ==
          Sentences{"host c (rank 2): 2.1 ms to every other host, others 100 us"});
  }
}

TEST_CASE("a slow link is named with its direction") {
  for (std::size_t hosts = 3; hosts <= 9; ++hosts) {
    INFO(hosts);
    CHECK(Network(hosts).slow(1, 2, 0.02).findings() ==
          Sentences{"link b (rank 1) -> c (rank 2): 0.02 GB/s, back 1 GB/s, others 1 GB/s"});
    CHECK(Network(hosts).slow(2, 1, 0.02).slow(1, 2, 0.03).findings() ==
          Sentences{"link b (rank 1) -> c (rank 2): 0.03 GB/s, back 0.02 GB/s, others 1 GB/s"});
    CHECK(Network(hosts).far(0, 1, 900).findings() ==
          Sentences{"link a (rank 0) - b (rank 1): 900 us, others 100 us"});
  }
}

TEST_CASE("several hosts and links are named apart") {
  CHECK(Network(8)
            .slow_host(2, 0.2)
            .slow_host(6, 0.5, true, false)
            .slow(1, 4, 0.02)
            .far_host(5, 2100)
            .findings() ==
        Sentences{"host c (rank 2): 0.2 GB/s to and from every other host, others 1 GB/s",
                  "host g (rank 6): 0.5 GB/s to every other host, others 1 GB/s",
                  "link b (rank 1) -> e (rank 4): 0.02 GB/s, back 1 GB/s, others 1 GB/s",
                  "host f (rank 5): 2.1 ms to every other host, others 100 us"});
  // Most of its links are out, one is not.
  CHECK(Network(6).slow_host(3, 0.3, true, false).slow(3, 5, 1).findings() ==
        Sentences{"host d (rank 3): 0.3 GB/s to 4 of 5 other hosts, others 1 GB/s"});
}

TEST_CASE("one link alone says nothing of a host") {
  // As when a run ended early.
  Network network(4);
  for (const std::size_t other : {0, 1, 2})
    network.slow(3, other, std::nan("")).slow(other, 3, std::nan(""));
  network.slow(3, 0, 0.1);
  CHECK(network.findings() == Sentences{"link d (rank 3) -> a (rank 0): 0.1 GB/s, others 1 GB/s"});
}

TEST_CASE("two hosts have nothing to be compared with") {
  CHECK(Network(2).slow(0, 1, 0.001).far(0, 1, 5000).findings().empty());
}

TEST_CASE("links between hosts and within hosts are judged apart") {
  CHECK(Network(3, 2).slow_host(1, 0.1).findings() ==
        Sentences{"host b (ranks 2 to 3): 0.1 GB/s to and from every rank of other hosts, others 1 "
                  "GB/s"});
  // Rank 4 is one of two on host c.
  Network one_rank(3, 2);
  for (const std::size_t other : {0, 1, 2, 3}) one_rank.slow(4, other, 0.1);
  CHECK(one_rank.findings() ==
        Sentences{"rank 4 (host c): 0.1 GB/s to every rank of other hosts, others 1 GB/s"});
  CHECK(Network(2, 3).slow(3, 4, 2).findings() ==
        Sentences{"link rank 3 (host b) -> rank 4 (host b): 2 GB/s, back 10 GB/s, others 10 GB/s"});
}

TEST_CASE("a good measurement clears a suspect") {
  const auto records = hosts_of(4);
  const std::vector<End> ends = ends_of(records, false);
  Survey survey = survey_of(ends, {}, [](const Pair& pair) {
    return PairValues{pair == Pair{0, 2} ? 110.0 : 100.0, 1, pair == Pair{1, 3} ? 0.1 : 1};
  });
  survey.add({0, 2}, {900, 0.1, 0.1});  // the better values stay
  survey.fix_scales();
  CHECK(survey.suspects() == std::vector<Pair>{{1, 3}});
  CHECK(survey.single_suspects() == std::vector<Pair>{{1, 3}});
  CHECK(survey.is_out(Quantity::bandwidth, 3, 1));
  CHECK(!survey.is_out(Quantity::bandwidth, 1, 3));
  survey.add({1, 3}, {100, 0.1, 0.2});
  CHECK(survey.suspects().size() == 1);
  // A value that is no measurement clears nothing.
  survey.add({1, 3}, {0, 0, std::nan("")});
  CHECK(survey.findings().size() == 1);
  CHECK(survey.of(Quantity::latency).at(1, 3) == 100);
  CHECK(survey.of(Quantity::bandwidth).at(1, 3) == 1);
  CHECK(survey.scale(Quantity::latency, Where::between).worst == 110);
  survey.add({0, 2}, {50, 1, 1});
  survey.update_medians();
  CHECK(survey.scale(Quantity::latency, Where::between).worst == 100);
  survey.add({1, 3}, {100, 0.1, 0.97});
  CHECK(survey.suspects().empty());
  CHECK(survey.findings().empty());
}

TEST_CASE("a link that loses more segments than the others is named, in its direction") {
  const auto records = hosts_of(4);
  const std::vector<End> ends = ends_of(records, false);
  const auto findings = [&](double others, double lossy) {
    Survey survey = survey_of(ends, {}, [&](const Pair& pair) {
      return PairValues{100, 1, 1, pair == Pair{1, 2} ? lossy : others, others};
    });
    survey.add({1, 2}, {100, 1, 1, 99, 99});  // the better measurement counts
    survey.add({1, 2}, {100, 1, 1, std::nan(""), std::nan("")});
    survey.fix_scales();
    CHECK(survey.judgements().size() == 3);
    return sentences_of(survey, records);
  };
  CHECK(findings(0, 1.56) == Sentences{"link b (rank 1) -> c (rank 2): 1.6 % of segments, back 0 "
                                       "% of segments, others 0 % of segments"});
  CHECK(findings(0, 0.29).empty());
  CHECK(findings(0.5, 1.4).empty());  // links that are full lose some
  CHECK(findings(0.5, 1.6).size() == 1);
}

TEST_CASE("what a slow host loses of a link is no finding of its own") {
  const auto records = hosts_of(4);
  const std::vector<End> ends = ends_of(records, false);
  const auto findings = [&](double rate) {
    const auto values_of = [&](const Pair& pair) {
      const double own = pair.first == 2 || pair.second == 2 ? rate : 1;
      return PairValues{100, own, own, pair == Pair{1, 2} ? 4.0 : 0, 0};
    };
    return sentences_of(survey_of(ends, {}, values_of), records);
  };
  CHECK(findings(0.2) ==
        Sentences{"host c (rank 2): 0.2 GB/s to and from every other host, others 1 GB/s"});
  CHECK(findings(1).size() == 1);
}

TEST_CASE("links that differ much are unsteady") {
  const auto records = hosts_of(6);
  const std::vector<End> ends = ends_of(records, false);
  const auto unsteady = [&](double least, std::size_t slow_host) {
    std::size_t number = 0;
    const auto values_of = [&](const Pair& pair) {
      const bool slow = pair.first == slow_host || pair.second == slow_host;
      const double rate = slow ? 0.2 : number++ % 2 == 0 ? least : 1;
      return PairValues{100, rate, rate};
    };
    return survey_of(ends, {}, values_of).unsteady();
  };
  CHECK(!unsteady(1, 9));
  CHECK(!unsteady(1, 3));
  CHECK(!unsteady(0.92, 3));
  CHECK(unsteady(0.6, 3));
}

TEST_CASE("what misses a threshold is measured again, too") {
  const auto records = hosts_of(4);
  const std::vector<End> ends = ends_of(records, false);
  const auto suspects = [&](const Thresholds& thresholds) {
    const auto values_of = [](const Pair& pair) {
      return PairValues{pair == Pair{0, 1} ? 110.0 : 100.0, pair == Pair{2, 3} ? 0.9 : 1.0, 1};
    };
    return survey_of(ends, thresholds, values_of).suspects();
  };
  CHECK(suspects({}).empty());
  CHECK(suspects({0.95, {}, {}}) == std::vector<Pair>{{2, 3}});
  CHECK(suspects({{}, 105, {}}) == std::vector<Pair>{{0, 1}});
  CHECK(suspects({{}, {}, 5}) == std::vector<Pair>{{2, 3}});
  CHECK(suspects({{}, {}, 11}).empty());
}

TEST_CASE("a heat map escapes its text and frames outliers") {
  HeatMap map{"<Bandwidth & more>",        "GB/s", {"a\"b", "c\x01\xff"}, {std::nan(""), 1, 2, 3},
              {false, true, false, false}, true};
  const std::string svg = draw_heat_maps("1 < 2", std::array{map}).svg;
  CHECK(svg.find("1 &lt; 2") != std::string::npos);
  CHECK(svg.find("&lt;Bandwidth &amp; more&gt;") != std::string::npos);
  CHECK(svg.find("a&quot;b to c  : 1 GB/s") != std::string::npos);
  CHECK(svg.find('\x01') == std::string::npos);
  const auto count = [&](const std::string& word) {
    std::size_t found = 0;
    for (std::size_t at = svg.find(word); at != std::string::npos; at = svg.find(word, at + 1))
      ++found;
    return found;
  };
  CHECK(count("class=\"inner\"") == 1);
  CHECK(count("<title>") == 3);  // of a place on the diagonal that has no value there is none
  // The least and the largest value have the ends of the colour scale.
  CHECK(count("#440154") >= 1);
  CHECK(count("#fde725") >= 1);
  const HeatMap alike{"Bandwidth", "GB/s", {"a", "b"}, {1, 0.99, 1, 0.98}, {}, true};
  CHECK(draw_heat_maps("alike", std::array{alike}).svg.find("fill=\"#440154\"><title>") ==
        std::string::npos);
  CHECK(draw_heat_maps("none", {}).svg.find("</svg>") != std::string::npos);
}

TEST_CASE("a heat map of latencies is bright where they are short") {
  const HeatMap map{"Latency", "us", {"a", "b"}, {1, 1000, 1000, 30}, {}, false};
  const std::string svg = draw_heat_maps("latency", std::array{map}).svg;
  CHECK(svg.find("fill=\"#fde725\"><title>a to a: 1 us") != std::string::npos);
  CHECK(svg.find("fill=\"#440154\"><title>a to b: 1000 us") != std::string::npos);
  CHECK(svg.find("(logarithmic)") != std::string::npos);
}

TEST_CASE("both directions of a link are measured, whatever the window") {
  for (const std::size_t window : {1, 2, 7})
    for (const std::size_t bytes : {1, 100'000}) {
      Setup setup;
      setup.size = 3;
      std::array<std::array<double, 3>, 3> got{};
      run_communicators(setup, "pairs", [&](Communicator& communicator, int rank) {
        if (rank == 1) return;
        Link link(communicator, {bytes, window, std::chrono::milliseconds(2)});
        const int peer = 2 - rank;
        auto& own = got[static_cast<std::size_t>(rank)];
        own[0] = link.latency(peer, rank == 0);
        for (const bool sends : {rank == 0, rank != 0})
          if (sends)
            own[1] = link.send_stream(peer);
          else
            link.receive_stream(peer);
      });
      CHECK(got[0][0] > 0);
      CHECK(got[2][0] == 0);
      CHECK(got[0][1] > 0);
      CHECK(got[2][1] > 0);
    }
}
