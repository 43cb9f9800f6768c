// SPDX-License-Identifier: Apache-2.0
//
// Names of files, and the text. tests/metrics runs ranks.
#include <unistd.h>

#include <string>

#include "base/process.h"
#include "catch.h"
#include "lib/metrics/path.h"
#include "lib/metrics/totals.h"
#include "rondo/error.h"

using namespace rondo;

namespace {

std::string refusal(const std::string& pattern) {
  try {
    return "no error: " + metrics::path_of(pattern, 3);
  } catch (const Error& error) {
    CHECK(error.code() == Errc::invalid_argument);
    return error.what();
  }
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

metrics::Sample sample_of(const char* tag, int rank = 0) {
  metrics::Sample sample{rank, {}, "tcp", {}, operation::TagCounts{}};
  char text[32] = {};
  std::string(tag).copy(text, 31);
  sample.tags->count(text, 0);
  return sample;
}

}  // namespace

TEST_CASE("metrics: a file for each rank") {
  const std::string process = std::to_string(::getpid());
  CHECK(metrics::path_of("/tmp/job.prom", 3) == "/tmp/job.3.prom");
  CHECK(metrics::path_of("/tmp/job", 3) == "/tmp/job.3");
  CHECK(metrics::path_of("job.prom", 3) == "job.3.prom");
  CHECK(metrics::path_of("/tmp/.job", 3) == "/tmp/.job.3");
  CHECK(metrics::path_of("/tmp/../tmp/job", 12) == "/tmp/../tmp/job.12");
  CHECK(metrics::path_of("/tmp/a%r-%%.prom", 3) == "/tmp/a3-%.prom");
  CHECK(metrics::path_of("/tmp/%p.prom", 3) == "/tmp/" + process + ".prom");
  CHECK(metrics::path_of("/tmp/%h.prom", 3) == "/tmp/" + base::host_name() + ".3.prom");
}

TEST_CASE("metrics: a path that cannot be names variable, value and remedy") {
  const std::string missing = refusal("/no/such/place/job.prom");
  CHECK(contains(missing, "RONDO_METRICS (Options::metrics) is '/no/such/place/job.prom': "));
  CHECK(contains(missing, "the folder /no/such/place cannot be used (No such file or directory)"));
  CHECK(contains(missing, "make it"));
  CHECK(contains(refusal("/tmp"), "it is a folder; add the name of a file"));
  CHECK(contains(refusal("/tmp/"), "it is a folder; add the name of a file"));
  CHECK(contains(refusal("/tmp/%x.prom"), "% must be followed by r (the rank)"));
  CHECK(contains(refusal("/tmp/job%"), "% must be followed by r (the rank)"));
}

TEST_CASE("metrics: labels of the run are those that are given, else the name of the file") {
  const auto labels = [](std::string_view pattern, const std::vector<std::string>& given = {}) {
    return metrics::labels_of(given, pattern, 0x12'3456'789a);
  };
  CHECK(labels("/tmp/train.prom") == "run=\"train\"");
  CHECK(labels("/tmp.prom/train-%r.prom") == "run=\"train\"");
  CHECK(labels("%h.night.1.5.%r.prom") == "run=\"night.1.5\"");
  CHECK(labels("/tmp/a%%b") == "run=\"a%b\"");
  // Names that two runs may share on a host.
  CHECK(labels("/tmp/train.%p.prom") == "run=\"train-3456789a\"");
  CHECK(labels("/tmp/%r.prom") == "run=\"3456789a\"");
  CHECK(labels("/tmp/%h_.prom") == "run=\"3456789a\"");
  CHECK(labels("/tmp/x.prom", {"team= v\"\\", "run=a\nb", " _B9 =ä="}) ==
        "_B9=\"ä=\",run=\"a b\",team=\" v\\\"\\\\\"");
  for (const auto& [given, why] :
       std::vector<std::pair<std::string, std::string>>{{"night", "give NAME=VALUE"},
                                                        {"9=a", "begins with neither a digit"},
                                                        {"__a=b", "nor __"},
                                                        {"=a", "a name has letters"},
                                                        {"a-b=c", "a name has letters"},
                                                        {"late_rank=1", "take another"},
                                                        {"run=1", "comes twice"}}) {
    INFO(given);
    CHECK_THROWS_WITH(
        labels("x", {"run=0", given}),
        Catch::Contains("RONDO_METRICS_LABELS (Options::metrics_labels) has '" + given + "': ") &&
            Catch::Contains(why));
  }
}

TEST_CASE("metrics: label values are escaped, and counters with the same labels are added up") {
  metrics::Totals totals;
  metrics::Totals::Labels labels;
  totals.add(sample_of("a\\\"\x01"
                       "b"),
             labels, true);
  totals.add(sample_of("a\\\"\x01"
                       "b"),
             labels, false);
  totals.add(sample_of("a", 1), labels, true);
  const std::string text = totals.text();
  INFO(text);
  CHECK(contains(text, "# HELP rondo_operations_total "));
  CHECK(contains(text, "# TYPE rondo_operations_total counter\n"));
  CHECK(contains(text,
                 "rondo_operations_total{rank=\"0\",operation=\"all_reduce\","
                 "tag=\"a\\\\\\\" b\"} 2\n"));
  CHECK(
      contains(text, "rondo_operations_total{rank=\"1\",operation=\"all_reduce\",tag=\"a\"} 1\n"));
  CHECK(contains(text, "rondo_communicators{rank=\"0\"} 1\n"));
  CHECK_FALSE(contains(text, "rondo_late_calls_total"));
  CHECK(contains(totals.text("run=\"x\""), "rondo_communicators{run=\"x\",rank=\"0\"} 1\n"));
}

TEST_CASE("metrics: tags and late ranks of all communicators are bounded") {
  metrics::Totals totals;
  metrics::Totals::Labels labels;
  for (int i = 0; i < 50; ++i) {
    metrics::Sample sample = sample_of(std::to_string(i).c_str());
    sample.statistics.late_ranks.resize(200);
    for (LateRank& late : sample.statistics.late_ranks) late = {1, std::chrono::milliseconds{1500}};
    totals.add(sample, labels, false);
  }
  const std::string text = totals.text();
  CHECK(contains(text, "tag=\"31\"} 1\n"));
  CHECK_FALSE(contains(text, "tag=\"32\"}"));
  CHECK(contains(text, "operation=\"all_reduce\",tag=\"other\"} 18\n"));
  CHECK(contains(text, "rondo_late_seconds_total{rank=\"0\",late_rank=\"63\"} 75.000000000\n"));
  CHECK_FALSE(contains(text, "late_rank=\"64\""));
  CHECK(contains(text, "rondo_late_calls_total{rank=\"0\",late_rank=\"other\"} 6800\n"));
}

TEST_CASE("metrics: late ranks of a split have their numbers outside it") {
  metrics::Totals totals;
  metrics::Totals::Labels labels;
  metrics::Sample sample{5, {5, 7}, "shm", {}, {}};
  sample.statistics.late_ranks = {{}, {2, std::chrono::nanoseconds{3}}};
  totals.add(sample, labels, true);
  CHECK(contains(totals.text(), "rondo_late_calls_total{rank=\"5\",late_rank=\"7\"} 2\n"));
}
