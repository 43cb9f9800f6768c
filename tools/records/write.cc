// SPDX-License-Identifier: Apache-2.0
#include "tools/records/write.h"

#include <rondo/version.h>

#include <array>
#include <chrono>
#include <ctime>

#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

// Microseconds have three decimals, GB/s nine.
double us(double value) {
  return rounded(value, 1e3);
}
double gb_per_s(double value) {
  return rounded(value, 1e9);
}

void add_gpu(const Setting& setting, Json& json) {
  if (setting.gpu == nullptr) return;
  json["device"] = "cuda";
  json["device_name"] = setting.gpu->info.name;
  json["staging"] = gpu_staging(setting);
  json["copy_to_gpu"] = gb_per_s(setting.gpu->to_gpu);
  json["copy_to_host"] = gb_per_s(setting.gpu->to_host);
}

void add_times(const Times& times, const std::string& prefix, Json& json) {
  json[prefix + "mean_us"] = us(times.mean_us);
  json[prefix + "min_us"] = us(times.min_us);
  json[prefix + "p50_us"] = us(times.p50_us);
  json[prefix + "p90_us"] = us(times.p90_us);
  json[prefix + "p99_us"] = us(times.p99_us);
  json[prefix + "max_us"] = us(times.max_us);
}

void add_late(const Lateness& late, Json& json) {
  json["late_rank"] = late.rank;
  json["late_share"] = rounded(late.share, 1e4);
  json["late_us"] = us(late.late_us);
  json["transfer_us"] = us(late.transfer_us);
  json["clock_error_us"] = us(late.clock_error_us);
  Json shares = Json::array(), behind = Json::array();
  for (const double share : late.last_share) shares.push_back(rounded(share, 1e4));
  for (const double time : late.behind_us) behind.push_back(us(time));
  json["rank_last_share"] = std::move(shares);
  json["rank_behind_us"] = std::move(behind);
}

}  // namespace

std::string now_in_words() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {text.data(), length};
}

Json head_of(const Setting& setting, const std::string& kind) {
  Json operations = Json::array(), hosts = Json::array(), environment = Json::object();
  for (const Operation& operation : setting.operations) operations.push_back(name_of(operation));
  for (const HostRecord& host : setting.hosts) hosts.push_back(json_of(host));
  for (const VariableInfo& variable : setting.environment)
    environment[variable.name] = variable.value;
  Json head{{"version", record_version},
            {"kind", kind},
            {"rondo", version()},
            {"time", setting.time},
            {"command", setting.command},
            {"operations", std::move(operations)},
            {"transport", setting.transport},
            {"ranks", setting.ranks},
            {"binding", name_of(setting.bound)},
            {"processors", base::describe_processors(setting.processors)},
            {"checked", setting.conditions.check},
            {"fresh", setting.conditions.writes_anew()},
            {"allocated", setting.conditions.allocate}};
  add_gpu(setting, head);
  head["hosts"] = std::move(hosts);
  head["environment"] = std::move(environment);
  return head;
}

Json row_of(const Setting& setting, const Row& row) {
  Json json{{"operation", name_of(row.operation)},
            {"transport", setting.transport},
            {"ranks", setting.ranks},
            {"bytes", row.bytes},
            {"count", row.count},
            {"type", name_of(row.type)},
            {"op", op_name(row)},
            {"root", row.root},
            {"in_place", row.in_place},
            {"algorithm", row.algorithm},
            {row.operation.windowed() ? "window" : "agg_iters", row.calls},
            {"iterations", row.iterations}};
  add_times(row.time, "", json);
  json["algbw"] = gb_per_s(row.algbw);
  json["busbw"] = gb_per_s(row.busbw);
  if (row.rate > 0) json["messages_per_second"] = rounded(row.rate, 10);
  json["wrong"] = row.wrong;
  json["ceiling"] = gb_per_s(row.ceiling);
  json["ceiling_of"] = name_of(row.ceiling > 0 ? row.ceiling_of : CeilingOf::none);
  json["ceiling_percent"] = rounded(percent_of_ceiling(row), 1e3);
  if (row.latency) add_times(*row.latency, "latency_", json);
  Json ranks = Json::array();
  for (const double time : row.rank_p50_us) ranks.push_back(time > 0 ? Json(us(time)) : Json());
  json["rank_p50_us"] = std::move(ranks);
  if (row.late) add_late(*row.late, json);
  if (row.cut_short) json["cut_short"] = true;
  return json;
}

std::vector<std::string> columns_of(const Setting& setting) {
  const std::string of_gpu =
      setting.gpu == nullptr ? "" : "device,device_name,staging,copy_to_gpu,copy_to_host,";
  return split("operation,transport,ranks,binding,fresh," + of_gpu +
                   "bytes,count,type,op,root,in_place,algorithm,agg_iters,window,iterations,"
                   "mean_us,min_us,p50_us,p90_us,p99_us,max_us,algbw,busbw,messages_per_second,"
                   "wrong,ceiling,ceiling_of,ceiling_percent,latency_p50_us,latency_p99_us,"
                   "late_rank,late_share,late_us,transfer_us,clock_error_us",
               ',');
}

}  // namespace rondo::tools
